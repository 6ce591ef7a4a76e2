//! Products of matrices, stacks of them, and sums of products along named axes.

use meshwork_layout::ops::Orientation;
use ndarray::{Array2, ArrayD, ArrayViewD, Axis, Ix2};

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

/// The product of two matrices where they lie; none of stacks.
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
        let product: Array2<T> = match (
            left.into_dimensionality::<Ix2>(),
            right.into_dimensionality::<Ix2>(),
        ) {
            (Ok(left), Ok(right)) => T::product(left, right),
            _ => Array2::default((0, 0)),
        };
        product.as_standard_layout().into_owned().into_iter()
    });
    super::filled(&sizes, products)
}

/// An operand of an einsum with a letter for each axis, none of them twice.
struct Named<T> {
    labels: Vec<char>,
    block: ArrayD<T>,
}

/// Sums of products along the axes that the result has not.
pub(in crate::ops) fn einsum<T: Number>(
    operands: &[(&[char], ArrayViewD<'_, T>)],
    result: &[char],
) -> ArrayD<T> {
    let mut named = operands
        .iter()
        .map(|(labels, block)| Named::of(labels, block));
    let mut product = named.next().unwrap_or_else(|| Named {
        labels: Vec::new(),
        block: ArrayD::from_elem([].as_slice(), T::from_index(1)),
    });
    for (number, other) in named.enumerate() {
        let later = &operands[number + 2..];
        let is_kept = |label: char| {
            result.contains(&label) || later.iter().any(|(labels, _)| labels.contains(&label))
        };
        product = product.times(other, is_kept);
    }
    product
        .summed(|label| result.contains(&label))
        .ordered(result)
}

impl<T: Number> Named<T> {
    /// Along a letter that occurs twice, the diagonal.
    fn of(labels: &[char], block: &ArrayViewD<'_, T>) -> Self {
        let mut once = labels.to_vec();
        let mut seen = Vec::new();
        once.retain(|label| {
            let is_new = !seen.contains(label);
            seen.push(*label);
            is_new
        });
        let axis_of = |label: char| labels.iter().position(|other| *other == label).unwrap_or(0);
        let sizes: Vec<usize> = once
            .iter()
            .map(|label| block.shape()[axis_of(*label)])
            .collect();
        let block = ArrayD::from_shape_fn(sizes, |index| {
            let place = |label: &char| {
                let place = once.iter().position(|other| other == label);
                place.map_or(0, |place| index[place])
            };
            block[labels.iter().map(place).collect::<Vec<_>>().as_slice()]
        });
        Self {
            labels: once,
            block,
        }
    }

    /// Without the axes that nobody needs.
    fn summed(self, is_needed: impl Fn(char) -> bool) -> Self {
        let Self {
            mut labels,
            mut block,
        } = self;
        for axis in (0..labels.len()).rev().collect::<Vec<_>>() {
            if !is_needed(labels[axis]) {
                block = block.fold_axis(Axis(axis), T::default(), |sum, x| sum.plus(*x));
                labels.remove(axis);
            }
        }
        Self { labels, block }
    }

    /// The axes in this order, of which there are as many.
    fn ordered(self, labels: &[char]) -> ArrayD<T> {
        let place = |label| {
            self.labels
                .iter()
                .position(|other| other == label)
                .unwrap_or(0)
        };
        let order: Vec<usize> = labels.iter().map(place).collect();
        self.block.permuted_axes(order.as_slice())
    }

    fn size(&self, label: char) -> usize {
        let place = self.labels.iter().position(|other| *other == label);
        place.map_or(1, |place| self.block.shape()[place])
    }

    /// A stack of products of matrices: the stack is along what both have and is kept, the sums are
    /// along what both have and is not.
    fn times(self, other: Self, is_kept: impl Fn(char) -> bool) -> Self {
        let theirs = other.labels.clone();
        let left = self.summed(|label| is_kept(label) || theirs.contains(&label));
        let ours = left.labels.clone();
        let right = other.summed(|label| is_kept(label) || ours.contains(&label));
        let shared = |label: &&char| right.labels.contains(label);
        let both: Vec<char> = left.labels.iter().filter(shared).copied().collect();
        let (stack, gone): (Vec<char>, Vec<char>) = both.iter().partition(|label| is_kept(**label));
        let only = |labels: &[char]| -> Vec<char> {
            labels
                .iter()
                .filter(|label| !both.contains(label))
                .copied()
                .collect()
        };
        let (rows, columns) = (only(&left.labels), only(&right.labels));
        let labels = [stack.as_slice(), &rows, &columns].concat();
        let sizes = |labels: &[char], of: &Self| -> Vec<usize> {
            labels.iter().map(|label| of.size(*label)).collect()
        };
        let result = [
            sizes(&stack, &left),
            sizes(&rows, &left),
            sizes(&columns, &right),
        ]
        .concat();
        let product = |sizes: Vec<usize>| sizes.iter().product::<usize>();
        let (depth, inner) = (product(sizes(&stack, &left)), product(sizes(&gone, &left)));
        let (height, width) = (
            product(sizes(&rows, &left)),
            product(sizes(&columns, &right)),
        );
        let left = left.ordered(&[stack.as_slice(), &rows, &gone].concat());
        let right = right.ordered(&[stack.as_slice(), &gone, &columns].concat());
        let left = reshaped(&left.view(), &[depth, height, inner]);
        let right = reshaped(&right.view(), &[depth, inner, width]);
        let block = reshaped(&products(&left, &right).view(), &result);
        Self { labels, block }
    }
}
