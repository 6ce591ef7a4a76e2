//! Products of matrices, and of stacks of them.

use meshwork_layout::ops::Orientation;
use ndarray::{Array2, ArrayD, ArrayViewD, Ix2};

use super::{reshaped, spread};
use crate::Number;

/// Stacks of matrices multiplied; `sizes` are those of the product.
pub(in crate::ops) fn matmul<T: Number>(
    [left, right]: [ArrayViewD<'_, T>; 2],
    stored: [Orientation; 2],
    sizes: &[usize],
) -> ArrayD<T> {
    let matrices = [turned(left, stored[0]), turned(right, stored[1])];
    if let Some(product) = product(&matrices) {
        return product;
    }
    let (stack, _) = sizes.split_at(sizes.len() - 2);
    let [left, right] = matrices.each_ref().map(|matrix| stacked(matrix, stack));
    reshaped(&products(&left, &right).view(), sizes)
}

/// The product of two matrices on their device; `None` for batches.
fn product<T: Number>([left, right]: &[ArrayViewD<'_, T>; 2]) -> Option<ArrayD<T>> {
    let left = left.view().into_dimensionality::<Ix2>().ok()?;
    let right = right.view().into_dimensionality::<Ix2>().ok()?;
    Some(T::product(left, right).into_dyn())
}

/// The matrices as they are meant.
fn turned<T>(mut block: ArrayViewD<'_, T>, stored: Orientation) -> ArrayViewD<'_, T> {
    let rank = block.ndim();
    if stored == Orientation::Transposed {
        block.swap_axes(rank - 2, rank - 1);
    }
    block
}

/// One matrix for each place of the stack.
fn stacked<T: Number>(block: &ArrayViewD<'_, T>, stack: &[usize]) -> ArrayD<T> {
    let matrix = &block.shape()[block.ndim() - 2..];
    let wide = spread(block, &[stack, matrix].concat());
    reshaped(&wide, &[stack.iter().product(), matrix[0], matrix[1]])
}

/// The products of as many matrices.
fn products<T: Number>(left: &ArrayD<T>, right: &ArrayD<T>) -> ArrayD<T> {
    let sizes = [left.shape()[0], left.shape()[1], right.shape()[2]];
    let matrices = left.outer_iter().zip(right.outer_iter());
    let products = matrices.flat_map(|(left, right)| {
        let left = left.into_dimensionality::<Ix2>();
        let right = right.into_dimensionality::<Ix2>();
        let product: Array2<T> = T::product(
            left.expect("a part of an array with three axes"),
            right.expect("a part of an array with three axes"),
        );
        product.as_standard_layout().into_owned().into_iter()
    });
    super::filled(&sizes, products)
}
