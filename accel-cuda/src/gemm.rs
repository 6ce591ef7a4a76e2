//! Products of matrices as BLAS has them: pure.

use meshwork_accel::ProductShape;

/// A stack of products `c = a b` of column-major matrices, as BLAS takes them.
///
/// Ours are row-major. Read as column-major, such a matrix is its transpose, and `(x y)ᵀ = yᵀ xᵀ`:
/// so the right matrix goes first, rows and columns of the product change places, and nothing is
/// transposed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Gemm {
    /// Rows of `a` and `c`.
    pub(crate) m: i32,
    /// Columns of `b` and `c`.
    pub(crate) n: i32,
    /// Columns of `a` and rows of `b`.
    pub(crate) k: i32,
    /// How many elements after one matrix the next one begins, of `a`, `b` and `c`. A column ends
    /// where the next begins, so that a matrix has as many elements from column to column as it has
    /// rows.
    pub(crate) strides: [i64; 3],
    /// How many products.
    pub(crate) batch: i32,
}

impl Gemm {
    /// `None` for sizes that BLAS cannot count, and where a sum has no terms.
    pub(crate) fn of(shape: ProductShape) -> Option<Self> {
        let number = |size: usize| i32::try_from(size).ok().filter(|size| *size > 0);
        let stride = |rows: usize, columns: usize| i64::try_from(rows * columns).ok();
        let (rows, inner, columns) = (shape.rows(), shape.inner(), shape.columns());
        Some(Self {
            m: number(columns)?,
            n: number(rows)?,
            k: number(inner)?,
            strides: [
                stride(inner, columns)?,
                stride(rows, inner)?,
                stride(rows, columns)?,
            ],
            batch: number(shape.depth())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The element of a matrix that lies column after column.
    fn at(matrices: &[i64], stride: i64, rows: i32, [place, row, column]: [i32; 3]) -> i64 {
        let at = i64::from(place) * stride + i64::from(column) * i64::from(rows) + i64::from(row);
        matrices[usize::try_from(at).unwrap()]
    }

    #[test]
    fn the_product_by_columns_is_the_product_by_rows() {
        for (depth, [rows, inner, columns]) in [
            (1, [2, 3, 4]),
            (3, [4, 2, 3]),
            (2, [1, 5, 2]),
            (1, [5, 1, 1]),
        ] {
            let shape = ProductShape::stacked(depth, [rows, inner, columns]).unwrap();
            let (left, right): (Vec<i64>, Vec<i64>) = (
                (1..).take(shape.left()).collect(),
                (7..).take(shape.right()).collect(),
            );
            let gemm = Gemm::of(shape).unwrap();
            let [a, b, c] = gemm.strides;
            for (found, index) in (0..shape.product()).map(|at| (at, at / columns)) {
                let (row, column) = (index % rows, found % columns);
                let expected: i64 = (0..inner)
                    .map(|k| {
                        left[index * inner + k]
                            * right[(index / rows * inner + k) * columns + column]
                    })
                    .sum();
                let number = |index: usize| i32::try_from(index).unwrap();
                // Where our element lies, BLAS has the one of the other row and column.
                let (place, i, j) = (number(index / rows), number(column), number(row));
                let by_columns: i64 = (0..gemm.k)
                    .map(|k| {
                        at(&right, a, gemm.m, [place, i, k]) * at(&left, b, gemm.k, [place, k, j])
                    })
                    .sum();
                assert_eq!(by_columns, expected, "{shape:?}");
                let lies = i64::from(place) * c + i64::from(j) * i64::from(gemm.m) + i64::from(i);
                assert_eq!(lies, found as i64, "{shape:?}");
            }
        }
    }

    #[test]
    fn what_blas_cannot_count_is_left_to_others() {
        let of = |depth, sizes| Gemm::of(ProductShape::stacked(depth, sizes).unwrap());
        assert!(of(1, [1, 1, 1]).is_some());
        assert_eq!(of(1, [1, 0, 1]), None);
        assert_eq!(of(1 << 31, [1, 1, 1]), None);
        for sizes in [[1 << 31, 1, 1], [1, 1 << 31, 1], [1, 1, 1 << 31]] {
            assert_eq!(of(1, sizes), None);
        }
    }
}
