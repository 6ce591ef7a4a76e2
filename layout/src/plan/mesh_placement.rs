//! The placement of a tensor between two steps of a plan, when parts of mesh dimensions may shard
//! it, which a `Layout` cannot express. `DimPart` names such a part, such as `x:(2)4`.

use std::fmt::{self, Display};

use meshwork_core::{DimName, Mesh, MeshRank};
use smallvec::SmallVec;

use super::frame::Frame;
use super::rank_digits::RankDigit;
use super::state::{State, SubAxisId, members};
use crate::{Error, PartialReduction, Ranges, geometry};

/// A mesh dimension, or a part of one.
///
/// A mesh dimension of 8 may be seen as 2×4: the part of 2 is the more major. Shows as `x`, and for
/// a part as `x:(2)4`, which is the part of 4 below more major ones of 2 together.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct DimPart {
    dim: DimName,
    dim_size: usize,
    /// Of rank numbers.
    digit: RankDigit,
    /// The stride of the whole dimension.
    dim_stride: usize,
}

impl DimPart {
    /// The mesh dimension.
    #[must_use]
    pub fn dim(&self) -> &DimName {
        &self.dim
    }

    /// How many ranks there are along it.
    #[must_use]
    pub fn size(&self) -> usize {
        self.digit.size
    }

    /// The product of the parts of the same mesh dimension that are more major; 1 for the first.
    #[must_use]
    pub fn major(&self) -> usize {
        // Both products are the mesh dimension's size, less what is more minor.
        self.dim_size * self.dim_stride / (self.digit.size * self.digit.stride)
    }

    /// Whether this is the whole mesh dimension.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.digit.size == self.dim_size
    }

    /// The coordinate of a rank along it.
    #[must_use]
    pub fn coord(&self, rank: MeshRank) -> usize {
        rank.index() / self.digit.stride % self.digit.size
    }

    /// How far apart, in ranks, neighbours along it are.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.digit.stride
    }

    fn of(frame: &Frame, sub_axis: SubAxisId) -> Self {
        let sub_axis = frame.sub_axes[usize::from(sub_axis)];
        let dim = &frame.mesh.dims()[sub_axis.dim];
        Self {
            dim: dim.name().clone(),
            dim_size: dim.size(),
            digit: sub_axis.digit,
            dim_stride: frame.mesh.strides()[sub_axis.dim],
        }
    }

    /// These parts, in which those that follow each other within one mesh dimension are joined.
    pub(super) fn joined(
        frame: &Frame,
        sub_axes: impl IntoIterator<Item = SubAxisId>,
    ) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        for part in sub_axes
            .into_iter()
            .map(|sub_axis| Self::of(frame, sub_axis))
        {
            match parts.last_mut() {
                Some(last) if last.dim == part.dim && part.precedes(last) => {
                    last.digit.size *= part.digit.size;
                    last.digit.stride = part.digit.stride;
                }
                _ => parts.push(part),
            }
        }
        parts
    }

    fn precedes(&self, major: &Self) -> bool {
        self.digit.stride * self.digit.size == major.digit.stride
    }
}

impl Display for DimPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_whole() {
            return f.pad(self.dim.as_str());
        }
        write!(f, "{}:({}){}", self.dim, self.major(), self.size())
    }
}

/// The placement of a tensor between two steps: a [`Layout`](crate::Layout) that may shard by parts
/// of mesh dimensions. Mesh dimensions of size 1 are left out.
///
/// Shows as `[x|y:(1)2, -]`, with `, partial z` where elements are still to be reduced.
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias = "Placement")]
pub struct MeshPlacement {
    mesh: Mesh,
    axes: SmallVec<[Axis; 4]>,
    partial: Vec<DimPart>,
    reduction: Option<PartialReduction>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Axis {
    parts: Vec<DimPart>,
    /// The same, not joined: by these the dimension is cut, one after the other.
    cuts: SmallVec<[RankDigit; 4]>,
}

impl MeshPlacement {
    /// The state, whose partial sub-axes await this reduction.
    pub(super) fn of(frame: &Frame, state: &State, reduction: Option<PartialReduction>) -> Self {
        let digit = |&sub_axis: &SubAxisId| frame.sub_axes[usize::from(sub_axis)].digit;
        let axis = |cuts: &[SubAxisId]| Axis {
            parts: DimPart::joined(frame, cuts.iter().copied()),
            cuts: cuts.iter().map(digit).collect(),
        };
        Self {
            mesh: frame.mesh.clone(),
            axes: state.dims().map(axis).collect(),
            partial: DimPart::joined(frame, members(state.partial())),
            reduction: reduction.filter(|_| state.partial() != 0),
        }
    }

    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The mesh dimensions, or parts of them, that cut each tensor dimension, major to minor.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = &[DimPart]> {
        self.axes.iter().map(|axis| axis.parts.as_slice())
    }

    /// The mesh dimensions, or parts of them, along which elements are still to be reduced, major
    /// to minor.
    #[must_use]
    pub fn partial(&self) -> &[DimPart] {
        &self.partial
    }

    /// The reduction along [`partial`](Self::partial), if anything is partial.
    #[must_use]
    pub fn reduction(&self) -> Option<PartialReduction> {
        self.reduction
    }

    /// The number of a rank among those that hold the terms of its elements: its coordinates along
    /// [`partial`](Self::partial), row-major; 0 where nothing is partial.
    #[must_use]
    pub fn term(&self, rank: MeshRank) -> usize {
        let digit = |term: usize, part: &DimPart| term * part.size() + part.coord(rank);
        self.partial.iter().fold(0, digit)
    }

    /// The indices that a rank holds of a tensor of this shape.
    ///
    /// # Errors
    /// Those of [`Layout::shard`](crate::Layout::shard).
    pub fn shard(&self, rank: MeshRank, global_shape: &[usize]) -> Result<Ranges, Error> {
        if global_shape.len() != self.axes.len() {
            return Err(Error::RankMismatch {
                found: global_shape.to_vec(),
                expected: self.axes.len(),
            });
        }
        self.mesh.coords(rank)?;
        let held = |(axis, &size): (&Axis, &usize)| {
            axis.cuts.iter().fold(0..size, |piece, cut| {
                geometry::part(&piece, cut.size, rank.index() / cut.stride % cut.size)
            })
        };
        Ok(self.axes.iter().zip(global_shape).map(held).collect())
    }
}

impl Display for MeshPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, parts) in self.axes().enumerate() {
            f.write_str(if number == 0 { "[" } else { ", " })?;
            match parts.split_first() {
                None => f.write_str("-")?,
                Some((first, rest)) => {
                    write!(f, "{first}")?;
                    rest.iter().try_for_each(|part| write!(f, "|{part}"))?;
                }
            }
        }
        f.write_str(if self.axes.is_empty() { "[]" } else { "]" })?;
        for (number, part) in self.partial.iter().enumerate() {
            write!(f, "{}{part}", if number == 0 { ", partial " } else { "|" })?;
        }
        Ok(())
    }
}
