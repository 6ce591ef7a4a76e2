//! The sub-axes of a mesh: the parts of its dimensions that collectives are planned over.

use meshwork_core::{DimName, Mesh};
use smallvec::SmallVec;

use super::evenness::splits_alike;
use super::rank_digits::{RankDigit, dim_digits, joint_digits};
use super::state::{Cuts, State, SubAxisId, SubAxisSet, bit};
use crate::Layout;

/// One layout to plan from or to, with the digit of each mesh dimension as the frame's ranks see
/// it.
#[derive(Debug)]
pub(super) struct Endpoint<'a> {
    pub(super) layout: &'a Layout,
    pub(super) digits: Vec<SmallVec<[RankDigit; 1]>>,
}

/// The sub-axes of a mesh, major to minor.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) mesh: Mesh,
    pub(super) sub_axes: Vec<SubAxis>,
}

/// Frames for the planner to take the best plan of: they differ in the order of the prime factors
/// of a mesh dimension.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) frames: Vec<Frame>,
    /// Whether no frame is left out, in which a plan might be cheaper.
    pub(super) are_all: bool,
}

/// A digit of rank numbers that is within one mesh dimension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct SubAxis {
    pub(super) digit: RankDigit,
    /// The mesh dimension.
    pub(super) dim: usize,
}

impl Frame {
    /// Frames in which both layouts can be written. None, if no frame has both.
    pub(super) fn joint(ends: &[Endpoint<'_>; 2], shape: &[usize]) -> Option<Frames> {
        let mesh = ends[0].layout.mesh();
        let digits = joint_digits(ends.iter().flat_map(|end| end.digits.iter().flatten()))?;
        let coarse = Self::of_digits(mesh, digits);
        let written = ends.iter().all(|end| coarse.writes(end, shape));
        written.then(|| coarse.refined(ends, shape))
    }

    /// The same for one layout; there always is such a frame.
    pub(super) fn single(layout: &Layout, shape: &[usize]) -> Frames {
        let end = Endpoint::own(layout);
        let digits = end.digits.iter().flatten().copied().collect();
        Self::of_digits(layout.mesh(), digits).refined(&[end], shape)
    }

    fn of_digits(mesh: &Mesh, digits: Vec<RankDigit>) -> Self {
        let within = |digit: &RankDigit| {
            let strides = mesh.strides().iter().zip(mesh.shape());
            let mut holds =
                strides.map(|(&stride, size)| RankDigit { stride, size }.contains(*digit));
            holds.position(|holds| holds)
        };
        let sub_axes = digits
            .into_iter()
            .filter_map(|digit| within(&digit).map(|dim| SubAxis { digit, dim }));
        Self {
            mesh: mesh.clone(),
            sub_axes: sub_axes.collect(),
        }
    }

    /// Whether an endpoint cuts the tensor into the same blocks when its mesh dimensions are cut
    /// into this frame's sub-axes.
    fn writes(&self, end: &Endpoint<'_>, shape: &[usize]) -> bool {
        end.cuts(shape).all(|(digits, lengths)| {
            let sizes = |digits: &[RankDigit]| -> SmallVec<[usize; 4]> {
                let sub_axes = digits.iter().flat_map(|&digit| self.within(digit));
                sub_axes.map(|sub_axis| self.size(sub_axis)).collect()
            };
            lengths
                .iter()
                .all(|&length| splits_alike(length, &sizes(digits)))
        })
    }

    /// The sub-axes that make up a digit, major to minor.
    fn within(&self, digit: RankDigit) -> impl Iterator<Item = SubAxisId> {
        let inside = move |(_, sub_axis): &(SubAxisId, &SubAxis)| digit.contains(sub_axis.digit);
        (0..)
            .zip(&self.sub_axes)
            .filter(inside)
            .map(|(number, _)| number)
    }

    /// How many ranks there are along a sub-axis.
    pub(super) fn size(&self, sub_axis: SubAxisId) -> usize {
        self.sub_axes[usize::from(sub_axis)].digit.size
    }

    /// How many ranks there are along several sub-axes.
    pub(super) fn count(&self, sub_axes: impl IntoIterator<Item = SubAxisId>) -> usize {
        // A factor of the mesh's size, which fits.
        sub_axes
            .into_iter()
            .map(|sub_axis| self.size(sub_axis))
            .product()
    }

    /// All sub-axes.
    pub(super) fn all(&self) -> SubAxisSet {
        (0..)
            .zip(&self.sub_axes)
            .fold(0, |set, (sub_axis, _)| set | bit(sub_axis))
    }

    /// A layout in terms of this frame.
    pub(super) fn state(&self, end: &Endpoint<'_>) -> State {
        let sub_axes = |dim: usize| end.digits[dim].iter().flat_map(|&digit| self.within(digit));
        let cuts = end
            .dims()
            .map(|dims| dims.iter().flat_map(|&dim| sub_axes(dim)).collect());
        let cuts: SmallVec<[Cuts; 4]> = cuts.collect();
        let partial = end.partial().flat_map(sub_axes);
        let partial = partial.fold(0, |set, sub_axis| set | bit(sub_axis));
        State::new(cuts.iter().map(|list| list.as_slice()), partial)
    }

    /// This frame with sub-axes cut into primes where no endpoint's blocks change by it, as long as
    /// that does not give more than [`MOST_PRIMES`]: one frame for each of the [`orders`] of the
    /// prime factors, the first [`MOST_ORDERS`].
    fn refined(self, ends: &[Endpoint<'_>], shape: &[usize]) -> Frames {
        let orders: Vec<_> = self
            .sub_axes
            .iter()
            .map(|sub_axis| orders(sub_axis.digit.size))
            .collect();
        if orders.iter().map(|orders| orders[0].len()).sum::<usize>() > MOST_PRIMES {
            return Frames {
                frames: vec![self],
                are_all: orders.iter().all(|orders| orders[0].len() < 2),
            };
        }
        let mut are_all = orders.iter().all(has_all);
        let mut frames = vec![Vec::new()];
        for (sub_axis, orders) in self.sub_axes.iter().zip(&orders) {
            are_all &= frames.len() * orders.len() <= MOST_ORDERS;
            let extended = frames.iter().flat_map(|sub_axes: &Vec<SubAxis>| {
                orders
                    .iter()
                    .map(|sizes| [sub_axes.as_slice(), &sub_axis.split(sizes)].concat())
            });
            frames = extended.take(MOST_ORDERS).collect();
        }
        let refined = frames
            .into_iter()
            .map(|sub_axes| self.unless_changed(sub_axes, ends, shape));
        Frames {
            frames: refined.collect(),
            are_all,
        }
    }

    /// This frame with these sub-axes, but whole wherever an endpoint's blocks would change.
    fn unless_changed(
        &self,
        sub_axes: Vec<SubAxis>,
        ends: &[Endpoint<'_>],
        shape: &[usize],
    ) -> Self {
        let mut refined = Self {
            mesh: self.mesh.clone(),
            sub_axes,
        };
        for sub_axis in &self.sub_axes {
            let whole =
                |digits: &[RankDigit]| digits.iter().any(|digit| digit.contains(sub_axis.digit));
            let alike = |length: usize| {
                let parts = refined
                    .within(sub_axis.digit)
                    .map(|part| refined.size(part));
                splits_alike(length, &parts.collect::<SmallVec<[usize; 4]>>())
            };
            let changed = ends.iter().any(|end| {
                end.cuts(shape).any(|(digits, lengths)| {
                    whole(digits) && !lengths.iter().all(|&length| alike(length))
                })
            });
            if changed {
                refined
                    .sub_axes
                    .retain(|part| !sub_axis.digit.contains(part.digit));
                refined.sub_axes.push(*sub_axis);
            }
        }
        refined
            .sub_axes
            .sort_unstable_by_key(|sub_axis| std::cmp::Reverse(sub_axis.digit.stride));
        refined
    }
}

impl SubAxis {
    /// The sub-axis in parts of these sizes, major to minor.
    fn split(self, sizes: &[usize]) -> Vec<Self> {
        let mut stride = self.digit.stride * self.digit.size;
        let part = |&size: &usize| {
            stride /= size;
            Self {
                digit: RankDigit { stride, size },
                dim: self.dim,
            }
        };
        sizes.iter().map(part).collect()
    }
}

impl<'a> Endpoint<'a> {
    /// A layout as its own mesh sees it.
    pub(super) fn own(layout: &'a Layout) -> Self {
        Self {
            layout,
            digits: dim_digits(layout.mesh()),
        }
    }

    /// The mesh dimensions that cut each tensor dimension, major to minor.
    fn dims(&self) -> impl Iterator<Item = SmallVec<[usize; 4]>> {
        let mesh = self.layout.mesh();
        let place = |name: &DimName| mesh.dim_index(name.as_str()).ok();
        self.layout
            .specs()
            .map(move |spec| spec.dims().iter().filter_map(place).collect())
    }

    fn partial(&self) -> impl Iterator<Item = usize> {
        let mesh = self.layout.mesh();
        self.layout
            .partial()
            .filter_map(|name| mesh.dim_index(name.as_str()).ok())
    }

    /// For each mesh dimension that cuts a tensor dimension, its digits, and the lengths of what it
    /// cuts.
    fn cuts(&self, shape: &[usize]) -> impl Iterator<Item = (&[RankDigit], Vec<usize>)> {
        self.dims().zip(shape).flat_map(|(dims, &size)| {
            let mut lengths = vec![size];
            let cut = |dim: usize| {
                let digits = self.digits[dim].as_slice();
                let parts = digits.iter().map(|digit| digit.size).product();
                let next = lengths
                    .iter()
                    .flat_map(|&length| super::evenness::part_lengths(length, parts));
                let mut next: Vec<usize> = next.collect();
                next.sort_unstable();
                next.dedup();
                (digits, std::mem::replace(&mut lengths, next))
            };
            dims.into_iter().map(cut).collect::<Vec<_>>()
        })
    }
}

/// Orders of the prime factors of a size.
type Orders = SmallVec<[SmallVec<[usize; 4]>; 2]>;

/// The orders of the prime factors of a size, ascending and descending; one where they are equal.
fn orders(size: usize) -> Orders {
    let mut primes: SmallVec<[usize; 4]> = SmallVec::new();
    let mut rest = size;
    let mut prime = 2;
    while prime * prime <= rest {
        while rest.is_multiple_of(prime) {
            primes.push(prime);
            rest /= prime;
        }
        prime += 1;
    }
    if rest > 1 {
        primes.push(rest);
    }
    let descending = primes.iter().rev().copied().collect();
    let mut orders = SmallVec::from_iter([primes, descending]);
    orders.dedup();
    orders
}

/// Whether there are no orders but these: factors that differ have others, such as 2·3·2, from the
/// third on.
fn has_all(orders: &Orders) -> bool {
    orders.len() == 1 || orders[0].len() < 3
}

/// Above this many sub-axes the search takes mesh dimensions as they are.
const MOST_PRIMES: usize = 6;
const MOST_ORDERS: usize = 6;
