//! Ops carried out on tensors in memory, as plainly as can be: once on whole tensors, and once on
//! the shards of all ranks as [`Inferred`] says. Tests hold the one against the other.
//!
//! Every element is a number of 64 bits, every index is visited, and nothing is fast.
//!
//! ```
//! use meshwork_core::Mesh;
//! use meshwork_layout::ops::naive::{Tensor, shards, whole};
//! use meshwork_layout::ops::{Op, TensorLayout, ReducedAxes, Reducer, infer};
//! use meshwork_layout::Layout;
//!
//! let mesh = Mesh::new([("x", 2)])?;
//! let (reducer, axes, reduced) = (Reducer::Sum, vec![0], ReducedAxes::Removed);
//! let sum = Op::Reduce { reducer, axes, reduced };
//! let placement = TensorLayout::new([5], Layout::batch_sharded(&mesh, "x", 1)?)?;
//! let inferred = infer(&sum, &[placement])?;
//! let numbers = [Tensor::new([5], [1.0, 2.0, 3.0, 4.0, 5.0])];
//! assert_eq!(whole(&sum, |_| 0.0, &numbers, &inferred)[0].values(), [15.0]);
//! assert!(shards(&sum, |_| 0.0, &numbers, &inferred)[0].iter().all(|sum| sum.values() == [15.0]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;

use meshwork_core::MeshRank;

use super::{Inferred, Op};
use crate::{Layout, Shape};

mod joint;
mod network;
mod ranks;
mod single;
mod windows;

/// A tensor in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Shape,
    values: Vec<f64>,
}

impl Tensor {
    /// A tensor of these elements, row-major; if they are too few, 0 takes their place, and if they
    /// are too many, the rest is left.
    #[must_use]
    pub fn new(
        shape: impl IntoIterator<Item = usize>,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        let shape: Shape = shape.into_iter().collect();
        let endless = values.into_iter().chain(std::iter::repeat(0.0));
        let values = endless.take(shape.iter().product()).collect();
        Self { shape, values }
    }

    /// The sizes of the axes.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements, row-major.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The shard of a rank by a layout; if that is partial, everything.
    ///
    /// # Panics
    /// If the layout is for tensors of another rank, or has no such rank.
    #[must_use]
    pub fn shard(&self, layout: &Layout, rank: MeshRank) -> Self {
        let held = layout.shard(rank, &self.shape);
        self.part(&held.expect("the layout fits the tensor"))
    }

    /// The elements in these ranges.
    fn part(&self, ranges: &[Range<usize>]) -> Self {
        let shape: Shape = ranges.iter().map(Range::len).collect();
        Self::from_fn(&shape, |index| {
            let place = index.iter().zip(ranges);
            self.at(&place.map(|(i, range)| range.start + i).collect::<Vec<_>>())
        })
    }

    /// The elements that a function gives for their indices.
    fn from_fn(shape: &[usize], element: impl Fn(&[usize]) -> f64) -> Self {
        let count: usize = shape.iter().product();
        let values = (0..count).map(|number| element(&index_of(number, shape)));
        Self {
            shape: Shape::from(shape),
            values: values.collect(),
        }
    }

    fn at(&self, index: &[usize]) -> f64 {
        let place = self.shape.iter().zip(index);
        self.values[place.fold(0, |place, (size, i)| place * size + i)]
    }

    fn map(&self, function: impl Fn(f64) -> f64) -> Self {
        Self {
            shape: self.shape.clone(),
            values: self.values.iter().map(|&value| function(value)).collect(),
        }
    }

    /// The elements of both at the same place, by a function.
    fn zip(&self, other: &Self, function: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        Self {
            shape: self.shape.clone(),
            values: pairs.map(|(&a, &b)| function(a, b)).collect(),
        }
    }
}

/// The results of an op on whole tensors. `function` is what an element-wise op does.
///
/// # Panics
/// If the operands have not the shapes for which `inferred` was made.
pub fn whole(
    op: &Op,
    function: impl Fn(&[f64]) -> f64,
    operands: &[Tensor],
    inferred: &Inferred,
) -> Vec<Tensor> {
    let results = inferred.results().iter();
    let shapes: Vec<&[usize]> = results.map(|result| result.placement().shape()).collect();
    single::apply(op, &function, operands, &shapes)
}

/// For each result of an op what each rank holds of it in the end, if all do what `inferred` says.
/// `function` is what an element-wise op does.
///
/// # Panics
/// If the operands have not the shapes for which `inferred` was made.
pub fn shards(
    op: &Op,
    function: impl Fn(&[f64]) -> f64,
    operands: &[Tensor],
    inferred: &Inferred,
) -> Vec<Vec<Tensor>> {
    ranks::apply(op, &function, operands, inferred)
}

/// The index of the element with this number, row-major.
fn index_of(mut number: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (axis, size) in shape.iter().enumerate().rev() {
        index[axis] = number % size;
        number /= size;
    }
    index
}

/// The place of an axis that may be counted from the end.
fn place(axis: isize, rank: usize) -> usize {
    if axis < 0 {
        rank - axis.unsigned_abs()
    } else {
        axis.unsigned_abs()
    }
}
