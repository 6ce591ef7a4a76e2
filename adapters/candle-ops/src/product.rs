//! Products of matrices, with the widest instructions that the processor has.
#![expect(
    unsafe_code,
    reason = "the library that multiplies takes matrices by address"
)]

use gemm::Parallelism;

/// A matrix in contiguous memory.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    /// As many as rows times columns.
    values: &'a [f32],
    rows: usize,
    columns: usize,
    order: Order,
}

/// Which index of a matrix moves fastest through memory.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Order {
    Columns,
    Rows,
}

impl<'a> Matrix<'a> {
    /// `values` row by row.
    ///
    /// # Panics
    /// If there are not `rows * columns`.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        let order = Order::Columns;
        assert_eq!(Some(values.len()), rows.checked_mul(columns));
        Self {
            values,
            rows,
            columns,
            order,
        }
    }

    /// The same numbers with rows as columns.
    pub(crate) fn transposed(self) -> Self {
        let order = match self.order {
            Order::Columns => Order::Rows,
            Order::Rows => Order::Columns,
        };
        Self {
            values: self.values,
            rows: self.columns,
            columns: self.rows,
            order,
        }
    }

    /// From one column to the next, and from one row to the next.
    fn strides(self) -> (isize, isize) {
        // A slice of `f32` has at most `isize::MAX` bytes, so its sizes fit.
        match self.order {
            Order::Columns => (1, self.columns.cast_signed()),
            Order::Rows => (self.rows.cast_signed(), 1),
        }
    }
}

/// How many threads a product takes.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// The calling one.
    One,
    /// Those of rayon's current pool.
    Pool,
}

/// Adds the product of two matrices to `into`, row by row.
///
/// # Panics
/// If the sizes do not fit.
pub(crate) fn add_product(into: &mut [f32], left: Matrix<'_>, right: Matrix<'_>, threads: Threads) {
    let (rows, inner, columns) = (left.rows, left.columns, right.columns);
    assert_eq!(inner, right.rows);
    assert_eq!(Some(into.len()), rows.checked_mul(columns));
    if into.is_empty() || inner == 0 {
        return;
    }
    let (left_column, left_row) = left.strides();
    let (right_column, right_row) = right.strides();
    let parallelism = match (threads, rayon::current_num_threads()) {
        (Threads::One, _) | (Threads::Pool, 1) => Parallelism::None,
        (Threads::Pool, threads) => Parallelism::Rayon(threads),
    };
    // SAFETY: the slices have as many elements as their matrices, which was checked here and by
    // `Matrix::new`; strides lead to each of them and no further; nobody else sees `into`.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            into.as_mut_ptr(),
            1,
            columns.cast_signed(),
            true,
            left.values.as_ptr(),
            left_column,
            left_row,
            right.values.as_ptr(),
            right_column,
            right_row,
            1.0_f32,
            1.0_f32,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// Adds each column's sum to `sums`.
///
/// # Panics
/// If `values` are not whole rows.
pub(crate) fn add_column_sums(sums: &mut [f32], values: &[f32]) {
    assert!(values.len().is_multiple_of(sums.len().max(1)));
    for row in values.chunks_exact(sums.len().max(1)) {
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
    }
}

/// The sum of all values, sixteen at a time.
pub(crate) fn sum(values: &[f32]) -> f32 {
    let (wide, rest) = values.as_chunks::<16>();
    let mut lanes = [0.0; 16];
    add_column_sums(&mut lanes, wide.as_flattened());
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole numbers, whose sums are exact in any order.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        let number = |at: usize| ((at * at + seed) * 7 % 17) as f32 - 8.0;
        (0..count).map(number).collect()
    }

    fn at(matrix: Matrix<'_>, row: usize, column: usize) -> f32 {
        let (by_column, by_row) = matrix.strides();
        matrix.values[row * by_row.unsigned_abs() + column * by_column.unsigned_abs()]
    }

    #[test]
    fn every_small_product_is_that_of_the_plain_loops() {
        let sizes = [0, 1, 2, 3, 8, 17, 33];
        for (rows, inner, columns) in sizes
            .iter()
            .flat_map(|&rows| sizes.iter().map(move |&inner| (rows, inner)))
            .flat_map(|(rows, inner)| sizes.iter().map(move |&columns| (rows, inner, columns)))
        {
            let (a, b) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
            for (left, right) in [
                (
                    Matrix::new(&a, rows, inner),
                    Matrix::new(&b, inner, columns),
                ),
                (
                    Matrix::new(&a, inner, rows).transposed(),
                    Matrix::new(&b, columns, inner).transposed(),
                ),
            ] {
                let mut into = numbers(rows * columns, 3);
                let mut expected = into.clone();
                for row in 0..rows {
                    for column in 0..columns {
                        let terms = (0..inner).map(|k| at(left, row, k) * at(right, k, column));
                        expected[row * columns + column] += terms.sum::<f32>();
                    }
                }
                add_product(&mut into, left, right, Threads::Pool);
                assert_eq!(into, expected, "{rows}x{inner}x{columns}");
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_plain_loops() {
        for count in [0, 1, 15, 16, 17, 100] {
            let values = numbers(count, 4);
            assert_eq!(sum(&values), values.iter().sum::<f32>());
            let mut sums = [1.0];
            add_column_sums(&mut sums, &values);
            assert_eq!(sums, [1.0 + values.iter().sum::<f32>()]);
        }
        let mut sums = [0.0, 1.0];
        add_column_sums(&mut sums, &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(sums, [4.0, 7.0]);
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn sizes_that_do_not_fit_are_refused() {
        let values = [0.0; 6];
        let (left, right) = (Matrix::new(&values, 2, 3), Matrix::new(&values, 2, 3));
        add_product(&mut [0.0; 6], left, right, Threads::One);
    }
}
