//! What one device does with its blocks.

use std::ops::Range;

use ndarray::{ArrayD, ArrayView2, ArrayViewD, Axis, Slice, Zip};

use crate::Scalar;

mod attention;
mod convolution;
mod moments;
mod pool;
mod product;
mod reduction;
mod windows;

pub(super) use attention::AttentionBlocks;
pub(super) use convolution::{ConvolutionShapes, Convolver, flat};
pub(super) use moments::Spans;
pub(super) use pool::Pooler;
pub(super) use product::matmul;
pub(super) use reduction::{Monoid, arg, fold, fold_wider, wider};

/// A number that is none: in no order with itself.
pub(super) fn is_nan<T: PartialOrd>(number: T) -> bool {
    number.partial_cmp(&number).is_none()
}

/// An array of these sizes and elements, row-major, of which there are as many.
pub(crate) fn filled<T: Copy>(sizes: &[usize], elements: impl IntoIterator<Item = T>) -> ArrayD<T> {
    let elements: Vec<T> = elements.into_iter().collect();
    ArrayD::from_shape_vec(sizes, elements).expect("as many elements as the sizes say")
}

/// The elements in another shape, row-major, of which there are as many.
pub(super) fn reshaped<T: Copy>(block: &ArrayViewD<'_, T>, sizes: &[usize]) -> ArrayD<T> {
    filled(sizes, block.iter().copied())
}

/// The block repeated along axes of size 1 and new leading ones, to sizes that fit.
pub(super) fn spread<'a, T>(block: &'a ArrayViewD<'_, T>, sizes: &[usize]) -> ArrayViewD<'a, T> {
    block
        .broadcast(sizes)
        .expect("the op's rule has checked the shapes")
}

/// The elements of two blocks by a function, after repetition to these sizes.
pub(super) fn zip<T: Scalar, U: Scalar, R: Copy>(
    left: ArrayViewD<'_, T>,
    right: ArrayViewD<'_, U>,
    sizes: &[usize],
    function: &impl Fn(T, U) -> R,
) -> ArrayD<R> {
    let (left, right) = (spread(&left, sizes), spread(&right, sizes));
    Zip::from(&left)
        .and(&right)
        .map_collect(|left, right| function(*left, *right))
}

/// Some rows of a matrix, or along axis 1 some columns.
fn part<'a, T>(
    mut matrix: ArrayView2<'a, T>,
    axis: usize,
    range: Range<usize>,
) -> ArrayView2<'a, T> {
    matrix.slice_axis_inplace(Axis(axis), range.into());
    matrix
}

/// A box of a block, and a step along each axis.
pub(super) fn cut<'a, T>(
    block: &'a ArrayViewD<'_, T>,
    mut along: impl FnMut(usize) -> Slice,
) -> ArrayViewD<'a, T> {
    block.slice_each_axis(|axis| along(axis.axis.index()))
}

/// A block of these sizes of zeros, with another in it from these indices on.
pub(super) fn padded<T: Scalar>(
    block: &ArrayViewD<'_, T>,
    before: impl Fn(usize) -> usize,
    sizes: &[usize],
) -> ArrayD<T> {
    let mut wide = ArrayD::from_elem(sizes, T::default());
    let inner = |axis: usize| -> Range<usize> {
        let start = before(axis);
        start..start + block.shape()[axis]
    };
    wide.slice_each_axis_mut(|axis| Slice::from(inner(axis.axis.index())))
        .assign(block);
    wide
}

/// Blocks concatenated along an axis.
pub(super) fn concatenated<T: Scalar>(axis: usize, blocks: &[ArrayViewD<'_, T>]) -> ArrayD<T> {
    ndarray::concatenate(Axis(axis), blocks).expect("the op's rule has checked the shapes")
}

/// A block repeated along each axis as a whole.
pub(super) fn tiled<T: Scalar>(block: &ArrayViewD<'_, T>, multiples: &[usize]) -> ArrayD<T> {
    let sizes: Vec<usize> = block
        .shape()
        .iter()
        .zip(multiples)
        .map(|(size, times)| size * times)
        .collect();
    ArrayD::from_shape_fn(sizes, |index| {
        let place = |axis: usize| index[axis] % block.shape()[axis];
        block[(0..block.ndim()).map(place).collect::<Vec<_>>().as_slice()]
    })
}
