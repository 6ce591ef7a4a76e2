//! The result of layout inference for an op: layouts that operands must have, all-reduces during
//! the op, and layouts of results before and after the last reduction.

use meshwork_core::DimName;

use super::TensorLayout;
use crate::{Layout, PartialReduction};

/// The execution of an op by ranks that each work on their shards.
///
/// First each operand is brought into the layout that [`operands`](Self::operands) states; then
/// every rank applies the op to its shards, during which [`within`](Self::within) may be needed;
/// and then each result goes from the layout in which it was produced to its final one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inferred {
    pub(super) operands: Vec<Layout>,
    pub(super) within: Vec<PartialAllReduce>,
    pub(super) results: Vec<Outcome>,
}

/// One result of an op.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    pub(super) produced: Layout,
    pub(super) placement: TensorLayout,
}

/// An all-reduce among the ranks that differ only along some mesh dimensions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartialAllReduce {
    pub(super) dims: Vec<DimName>,
    pub(super) reduction: PartialReduction,
}

impl Inferred {
    /// The layout that each operand must have; nothing in it is partial.
    #[must_use]
    pub fn operands(&self) -> &[Layout] {
        &self.operands
    }

    /// The all-reduces that ranks need while they compute, in order. A softmax along a cut axis
    /// needs the largest element, then the sum of the exponentials.
    #[must_use]
    pub fn within(&self) -> &[PartialAllReduce] {
        &self.within
    }

    /// The results, in order.
    #[must_use]
    pub fn results(&self) -> &[Outcome] {
        &self.results
    }

    /// Every all-reduce, in order: those [`within`](Self::within), then those that finish results.
    /// Relayouts of operands are not among them, nor of results that only have to be cut.
    pub fn collectives(&self) -> impl Iterator<Item = PartialAllReduce> {
        let finishing = self.results.iter().filter_map(Outcome::finish);
        self.within.iter().cloned().chain(finishing)
    }
}

impl Outcome {
    /// The layout in which ranks produce the result. It is partial after a reduction along cut
    /// axes, and whole where the final layout is cut if every rank has to work on all of an axis.
    #[must_use]
    pub fn produced(&self) -> &Layout {
        &self.produced
    }

    /// The shape of the result and its final layout, the one TensorFlow infers.
    #[must_use]
    pub fn placement(&self) -> &TensorLayout {
        &self.placement
    }

    /// The final layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        self.placement.layout()
    }

    /// The all-reduce that finishes the result, if it is produced in terms.
    #[must_use]
    pub fn finish(&self) -> Option<PartialAllReduce> {
        Some(PartialAllReduce {
            dims: self.produced.partial().cloned().collect(),
            reduction: self.produced.reduction()?,
        })
    }
}

impl PartialAllReduce {
    /// The mesh dimensions along which ranks take part, major to minor.
    #[must_use]
    pub fn dims(&self) -> &[DimName] {
        &self.dims
    }

    /// The reduction.
    #[must_use]
    pub fn reduction(&self) -> PartialReduction {
        self.reduction
    }
}
