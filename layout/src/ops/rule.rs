//! What an op does to axes, said once for all layouts.
//!
//! A rule names *factors*: sizes that axes of operands and results share, like the letters of an
//! einsum. For `bij,jk->bik` there are four: b, i and k are worked on part by part, and j is summed
//! away. An axis without a factor is needed whole and comes out whole.
//!
//! ```text
//!                   operand 0     operand 1     result
//!   matmul          i  j          j  k          i  k        j: reduced by a sum
//!   softmax         i  j                        i  j        j: ranks talk meanwhile
//!   4×8 → 4×2×4     i  j                        i  j  ·     j: of 8 indices, and of 2 that are
//!                                                              4 elements each
//! ```

use super::OpError;
use crate::{PartialReduction, Shape};

/// The rule of one op for operands of certain shapes.
pub(super) struct Rule {
    pub(super) op: &'static str,
    pub(super) factors: Vec<Factor>,
    pub(super) operands: Vec<Vec<Axis>>,
    pub(super) results: Vec<ResultRule>,
    /// Sizes of what a cut must not divide, such as groups of channels, as if they were axes.
    pub(super) units: Vec<(usize, Place)>,
    /// Which axes of the first operand ask for cuts of which factors, if not each for its own.
    pub(super) claims: Option<Vec<(usize, usize)>>,
    pub(super) clashes: Clashes,
    /// The all-reduces among ranks that share a factor of [`Kind::Joint`] during the op, in this
    /// order.
    pub(super) within: &'static [PartialReduction],
}

/// The factor that an axis has, if any.
pub(super) type Axis = Option<Place>;

/// A factor as one axis has it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Its number in [`Rule::factors`].
    pub(super) factor: usize,
    /// For how many indices of the factor one index of this axis stands: more than 1 where the axis
    /// leads others that it is flattened with, or takes steps.
    pub(super) grain: usize,
}

pub(super) struct ResultRule {
    pub(super) shape: Shape,
    pub(super) axes: Vec<Axis>,
}

pub(super) struct Factor {
    pub(super) kind: Kind,
    pub(super) disagreement: Disagreement,
    /// Where two factors claim a mesh dimension, the one of the lower number loses, and of equal
    /// ones both.
    pub(super) precedence: usize,
}

/// The role of a factor in the op.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Each part of it by itself.
    Apart,
    /// Reduces it away.
    Reduced(PartialReduction),
    /// Works on parts of it whose holders talk meanwhile.
    Joint,
    /// Needs all of it, although its cuts compete with others.
    Whole,
    /// Needs all of it, and the result is cut again as the operand was.
    Recut,
    /// Cannot be done while it is cut.
    Uncut,
    /// Takes indices of it in steps, which must be the same ones of every shard.
    Stepped,
}

/// The treatment of a factor that operands cut by different mesh dimensions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Disagreement {
    /// The first operand to cut it has its way.
    First,
    /// None has, and it is whole.
    Neither,
    /// The op is refused.
    Refused,
}

/// When two factors are taken to claim the same mesh dimension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Clashes {
    /// As soon as two operands use it for them, even one that is overruled by another operand.
    Claimed,
    /// Only if it would cut both in the end.
    Won,
}

impl Rule {
    pub(super) fn new(op: &'static str) -> Self {
        Self {
            op,
            factors: Vec::new(),
            operands: Vec::new(),
            results: Vec::new(),
            units: Vec::new(),
            claims: None,
            clashes: Clashes::Claimed,
            within: &[],
        }
    }

    /// A factor that takes part as those of element-wise ops do, but for its kind.
    pub(super) fn factor(&mut self, kind: Kind) -> usize {
        self.ranked_factor(kind, Disagreement::First, 0)
    }

    pub(super) fn ranked_factor(
        &mut self,
        kind: Kind,
        disagreement: Disagreement,
        precedence: usize,
    ) -> usize {
        self.factors.push(Factor {
            kind,
            disagreement,
            precedence,
        });
        self.factors.len() - 1
    }

    /// As many factors as `count` that are worked on part by part, numbered in order.
    pub(super) fn apart(&mut self, count: usize) -> Vec<usize> {
        (0..count).map(|_| self.factor(Kind::Apart)).collect()
    }

    /// As many axes as `count` with a factor each, those at `special` of this kind and the others
    /// worked on part by part.
    pub(super) fn axes(&mut self, count: usize, special: &[usize], kind: Kind) -> Vec<Axis> {
        let kind = |axis| {
            if special.contains(&axis) {
                kind
            } else {
                Kind::Apart
            }
        };
        (0..count)
            .map(|axis| along(self.factor(kind(axis))))
            .collect()
    }

    /// No result has more elements than memory has places for, of 8 bytes each. Sizes beside one of
    /// 0 count as well: what makes a block multiplies them.
    pub(super) fn check_counts(&self) -> Result<(), OpError> {
        let most = isize::MAX.unsigned_abs() / 8;
        let fits = |result: &ResultRule| {
            let mut sizes = result.shape.iter().filter(|size| **size != 0);
            let count = sizes.try_fold(1_usize, |count, size| count.checked_mul(*size));
            count.is_some_and(|count| count <= most)
        };
        if self.results.iter().all(fits) {
            return Ok(());
        }
        Err(OpError::TooLarge { op: self.op })
    }

    pub(super) fn operand(&mut self, axes: impl IntoIterator<Item = Axis>) {
        self.operands.push(axes.into_iter().collect());
    }

    pub(super) fn result(
        &mut self,
        shape: impl IntoIterator<Item = usize>,
        axes: impl IntoIterator<Item = Axis>,
    ) {
        self.results.push(ResultRule {
            shape: shape.into_iter().collect(),
            axes: axes.into_iter().collect(),
        });
    }
}

/// An axis along a factor, index by index.
#[expect(
    clippy::unnecessary_wraps,
    reason = "axes without a factor are written beside it"
)]
pub(super) fn along(factor: usize) -> Axis {
    Some(Place { factor, grain: 1 })
}

/// An axis along a factor of which each index stands for `grain` ones.
#[expect(
    clippy::unnecessary_wraps,
    reason = "axes without a factor are written beside it"
)]
pub(super) fn coarsely(factor: usize, grain: usize) -> Axis {
    Some(Place { factor, grain })
}
