//! Parameters of ops: orientation of matrices, reducers, kinds of labels, splits, and indices of a
//! strided slice.

use std::num::NonZeroIsize;

use crate::PartialReduction;

/// How a matrix is stored, by [`Op::MatMul`](super::Op::MatMul).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Orientation {
    /// Rows, then columns.
    #[default]
    Plain,
    /// Columns, then rows.
    #[doc(alias = "adjoint")]
    Transposed,
}

/// How [`Op::Reduce`](super::Op::Reduce) makes one element of several.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reducer {
    /// Addition.
    Sum,
    /// Addition, divided by how many there are.
    Mean,
    /// Multiplication.
    Product,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Whether one holds.
    Any,
    /// Whether each holds.
    All,
}

impl Reducer {
    /// The reduction over ranks, after each has reduced its own shard.
    ///
    /// For a [`Mean`](Self::Mean) each divides its sum by the count of elements on all ranks.
    /// [`Any`](Self::Any) is the largest and [`All`](Self::All) the smallest, where holding is 1.
    #[must_use]
    pub fn reduction(self) -> PartialReduction {
        match self {
            Self::Sum | Self::Mean => PartialReduction::Sum,
            Self::Product => PartialReduction::Product,
            Self::Min | Self::All => PartialReduction::Min,
            Self::Max | Self::Any => PartialReduction::Max,
        }
    }
}

/// Whether [`Op::Reduce`](super::Op::Reduce) removes the axes that it reduces.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[doc(alias = "keepdims")]
pub enum ReducedAxes {
    /// It goes away.
    #[default]
    Removed,
    /// It stays with size 1.
    Kept,
}

/// How [`Op::CrossEntropy`](super::Op::CrossEntropy) gets the right class.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Labels {
    /// A probability for each class: labels have the shape of the logits.
    Dense,
    /// The number of the class: labels have the shape of the logits without the last axis.
    Sparse,
}

/// How [`Op::Split`](super::Op::Split) parts an axis.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Parts {
    /// This many of equal size; of a tensor without elements, 65,536 at most.
    Equal(usize),
    /// Parts of these sizes, which add up to that of the axis.
    Sizes(Vec<usize>),
}

/// One index expression between the brackets of an [`Op::StridedSlice`](super::Op::StridedSlice).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Index {
    /// One index of an axis, which goes away; negative ones count from the end.
    At(isize),
    /// Indices from `begin` up to `end`, which is left out, in steps: `begin:end:step`. Bounds past
    /// the end of the axis are clamped to it.
    Range {
        /// The first index; [`None`] is the end of the axis at which the steps start.
        begin: Option<isize>,
        /// Where to stop; [`None`] is past the end of the axis at which the steps arrive.
        end: Option<isize>,
        /// How far apart the indices are; negative steps go backwards.
        step: NonZeroIsize,
    },
    /// A new axis of size 1.
    NewAxis,
    /// As many whole axes as the other places leave; at most once.
    Ellipsis,
}

impl Index {
    /// A whole axis.
    pub const FULL: Self = Self::Range {
        begin: None,
        end: None,
        step: NonZeroIsize::new(1).expect("1 is not 0"),
    };
}
