//! Products of matrices, with the widest instructions that the processor has.
#![expect(
    unsafe_code,
    reason = "the library that multiplies takes matrices by address"
)]

use gemm::Parallelism;
use meshwork_accel::{Element, Error};
use ndarray::{ArrayView2, ArrayViewMut2};

mod sealed {
    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait Sealed: 'static {
        const ZERO: Self;
        const ONE: Self;
    }
}

/// The element types that [`product`] multiplies: `f32` and `f64`.
pub trait Factor: Element + sealed::Sealed {}

macro_rules! factor {
    ($($number:ty),+) => {$(
        impl sealed::Sealed for $number {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
        }

        impl Factor for $number {}
    )+};
}

factor!(f32, f64);

/// Replaces `into` by the product of two matrices, by one thread. Sums may be rounded in another
/// order than that of the columns, the same one each time on one machine.
///
/// ```
/// use ndarray::{Array2, array};
///
/// let (left, right) = (array![[1.0_f32, 2.0]], array![[3.0], [4.0]]);
/// let mut product = Array2::zeros((1, 1));
/// meshwork_accel_cpu::product(left.view(), right.view(), product.view_mut())?;
/// assert_eq!(product, array![[11.0]]);
/// # Ok::<(), meshwork_accel::Error>(())
/// ```
///
/// # Shapes
/// `[m, k]` and `[k, n]` give `[m, n]`, each in any order in memory.
///
/// # Errors
/// [`Error::LengthMismatch`] for sizes that do not fit.
pub fn product<T: Factor>(
    left: ArrayView2<'_, T>,
    right: ArrayView2<'_, T>,
    mut into: ArrayViewMut2<'_, T>,
) -> Result<(), Error> {
    let ((rows, inner), columns) = (left.dim(), right.ncols());
    let (given, wanted) = (
        [right.nrows(), into.nrows(), into.ncols()],
        [inner, rows, columns],
    );
    for (left, right) in given.into_iter().zip(wanted) {
        if left != right {
            return Err(Error::LengthMismatch { left, right });
        }
    }
    if inner == 0 {
        into.fill(T::ZERO);
    }
    if rows == 0 || inner == 0 || columns == 0 {
        return Ok(());
    }
    let [left_strides, right_strides] = [left.strides(), right.strides()];
    let (address, strides) = (into.as_mut_ptr(), [into.strides()[0], into.strides()[1]]);
    // SAFETY: each address is that of a view's first element, with its sizes, which were compared,
    // and its strides; nobody else sees `into`, which is as wide as it says, and `T` is one of the
    // library's types.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            address,
            strides[1],
            strides[0],
            false,
            left.as_ptr(),
            left_strides[1],
            left_strides[0],
            right.as_ptr(),
            right_strides[1],
            right_strides[0],
            T::ZERO,
            T::ONE,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ArrayView2, s};

    use super::*;

    /// Whole numbers, whose sums are exact in any order.
    fn matrix<T: Factor + From<i8>>(rows: usize, columns: usize, seed: usize) -> Array2<T> {
        Array2::from_shape_fn((rows, columns), |(row, column)| {
            let at = row * 31 + column * 7 + seed;
            T::from(i8::try_from(at * at % 17).unwrap() - 8)
        })
    }

    fn naive<T>(left: ArrayView2<'_, T>, right: ArrayView2<'_, T>) -> Array2<T>
    where
        T: Factor + std::ops::Add<Output = T> + std::ops::Mul<Output = T>,
    {
        Array2::from_shape_fn((left.nrows(), right.ncols()), |(row, column)| {
            let terms = left.row(row).into_iter().zip(right.column(column));
            terms.fold(T::ZERO, |sum, (a, b)| sum + *a * *b)
        })
    }

    fn is_right<T>(
        left: ArrayView2<'_, T>,
        right: ArrayView2<'_, T>,
        mut into: ArrayViewMut2<'_, T>,
    ) where
        T: Factor + std::ops::Add<Output = T> + std::ops::Mul<Output = T>,
    {
        product(left, right, into.view_mut()).unwrap();
        assert_eq!(into, naive(left, right));
    }

    #[test]
    fn every_small_product_is_that_of_the_plain_loops() {
        for rows in [0, 1, 2, 3, 5, 8, 16, 17, 33] {
            for inner in [0, 1, 2, 7, 16, 31] {
                for columns in [0, 1, 2, 3, 8, 15, 16, 17, 48] {
                    let (left, right) = (matrix(rows, inner, 1), matrix(inner, columns, 2));
                    let mut into = Array2::<f32>::from_elem((rows, columns), f32::NAN);
                    is_right(left.view(), right.view(), into.view_mut());
                    let (left, right) = (matrix(rows, inner, 3), matrix(inner, columns, 4));
                    let mut into = Array2::<f64>::from_elem((rows, columns), f64::NAN);
                    is_right(left.view(), right.view(), into.view_mut());
                }
            }
        }
    }

    #[test]
    fn matrices_may_lie_in_memory_in_any_way() {
        let (wide, tall) = (matrix::<f32>(20, 34, 5), matrix::<f32>(34, 20, 6));
        let mut room = Array2::<f32>::zeros((44, 44));
        let turned = (tall.t(), wide.t());
        let stepped = (wide.slice(s![..;2, ..;-2]), tall.slice(s![..;-2, 1..;3]));
        let repeated = wide.row(3).insert_axis(ndarray::Axis(0));
        let repeated = repeated.broadcast((9, 34)).unwrap();
        is_right(turned.0, turned.1, room.slice_mut(s![..20, ..20]));
        let (rows, columns) = (stepped.0.nrows(), stepped.1.ncols());
        let into = room.slice_mut(s![..rows, ..columns]);
        is_right(stepped.0, stepped.1, into.reversed_axes().reversed_axes());
        let mut into = room.slice_mut(s![..18;2, ..40;2]);
        is_right(repeated, tall.view(), into.view_mut());
        into.invert_axis(ndarray::Axis(0));
        is_right(repeated, tall.view(), into);
        let nothing = wide.row(0).insert_axis(ndarray::Axis(1));
        let nothing = nothing.broadcast((34, 5)).unwrap();
        is_right(wide.view(), nothing, room.slice_mut(s![20..40, 3..8]));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let (left, right) = (matrix::<f32>(2, 3, 1), matrix::<f32>(4, 2, 1));
        let mut into = Array2::zeros((2, 2));
        let refused = product(left.view(), right.view(), into.view_mut());
        let (found, wanted) = (4, 3);
        assert_eq!(
            refused,
            Err(Error::LengthMismatch {
                left: found,
                right: wanted
            })
        );
        let refused = product(left.view(), right.slice(s![..3, ..1]), into.view_mut());
        assert!(matches!(
            refused,
            Err(Error::LengthMismatch { left: 2, right: 1 })
        ));
    }
}
