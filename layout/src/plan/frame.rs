//! The atoms of a mesh: the parts of its dimensions that collectives are planned over.

use meshwork_core::{DimName, Mesh};
use smallvec::SmallVec;

use super::digits::{Digit, dim_digits, joint_digits};
use super::evenness::splits_alike;
use super::state::{AtomId, AtomSet, Cuts, State, bit};
use crate::Layout;

/// One layout to plan from or to, with the digit of each mesh dimension as the frame's ranks see it.
#[derive(Debug)]
pub(super) struct Endpoint<'a> {
    pub(super) layout: &'a Layout,
    pub(super) digits: Vec<SmallVec<[Digit; 1]>>,
}

/// The atoms of a mesh, major to minor.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) mesh: Mesh,
    pub(super) atoms: Vec<Atom>,
}

/// A digit of rank numbers that lies within one mesh dimension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Atom {
    pub(super) digit: Digit,
    /// The mesh dimension.
    pub(super) dim: usize,
}

impl Frame {
    /// Frames in which both layouts can be written, for the planner to take the best plan of: they
    /// differ in the order of the prime factors of a mesh dimension. None, if no frame has both.
    pub(super) fn joint(ends: &[Endpoint<'_>; 2], shape: &[usize]) -> Option<Vec<Self>> {
        let mesh = ends[0].layout.mesh();
        let digits = joint_digits(ends.iter().flat_map(|end| end.digits.iter().flatten()))?;
        let coarse = Self::of_digits(mesh, digits);
        let written = ends.iter().all(|end| coarse.writes(end, shape));
        written.then(|| coarse.refined(ends, shape))
    }

    /// The same for one layout; there always is such a frame.
    pub(super) fn single(layout: &Layout, shape: &[usize]) -> Vec<Self> {
        let end = Endpoint::own(layout);
        let digits = end.digits.iter().flatten().copied().collect();
        Self::of_digits(layout.mesh(), digits).refined(&[end], shape)
    }

    fn of_digits(mesh: &Mesh, digits: Vec<Digit>) -> Self {
        let within = |digit: &Digit| {
            let strides = mesh.strides().iter().zip(mesh.shape());
            let mut holds = strides.map(|(&stride, size)| Digit { stride, size }.contains(*digit));
            holds.position(|holds| holds)
        };
        let atoms = digits
            .into_iter()
            .filter_map(|digit| within(&digit).map(|dim| Atom { digit, dim }));
        Self {
            mesh: mesh.clone(),
            atoms: atoms.collect(),
        }
    }

    /// Whether an endpoint cuts the tensor into the same blocks when its mesh dimensions are cut into
    /// this frame's atoms.
    fn writes(&self, end: &Endpoint<'_>, shape: &[usize]) -> bool {
        end.cuts(shape).all(|(digits, lengths)| {
            let sizes = |digits: &[Digit]| -> SmallVec<[usize; 4]> {
                let atoms = digits.iter().flat_map(|&digit| self.within(digit));
                atoms.map(|atom| self.size(atom)).collect()
            };
            lengths
                .iter()
                .all(|&length| splits_alike(length, &sizes(digits)))
        })
    }

    /// The atoms that make up a digit, major to minor.
    fn within(&self, digit: Digit) -> impl Iterator<Item = AtomId> {
        let inside = move |(_, atom): &(AtomId, &Atom)| digit.contains(atom.digit);
        (0..)
            .zip(&self.atoms)
            .filter(inside)
            .map(|(number, _)| number)
    }

    /// How many ranks there are along an atom.
    pub(super) fn size(&self, atom: AtomId) -> usize {
        self.atoms[usize::from(atom)].digit.size
    }

    /// How many ranks there are along several atoms.
    pub(super) fn count(&self, atoms: impl IntoIterator<Item = AtomId>) -> usize {
        // A factor of the mesh's size, which fits.
        atoms.into_iter().map(|atom| self.size(atom)).product()
    }

    /// All atoms.
    pub(super) fn all(&self) -> AtomSet {
        (0..)
            .zip(&self.atoms)
            .fold(0, |set, (atom, _)| set | bit(atom))
    }

    /// A layout in terms of this frame.
    pub(super) fn state(&self, end: &Endpoint<'_>) -> State {
        let atoms = |dim: usize| end.digits[dim].iter().flat_map(|&digit| self.within(digit));
        let cuts = end
            .dims()
            .map(|dims| dims.iter().flat_map(|&dim| atoms(dim)).collect());
        let cuts: SmallVec<[Cuts; 4]> = cuts.collect();
        let partial = end.partial().flat_map(atoms);
        let partial = partial.fold(0, |set, atom| set | bit(atom));
        State::new(cuts.iter().map(|list| list.as_slice()), partial)
    }

    /// This frame with atoms cut into primes where no endpoint's blocks change by it, as long as that
    /// does not give more than [`MOST_PRIMES`]: one frame for each order of the prime factors, the
    /// first [`MOST_ORDERS`].
    fn refined(self, ends: &[Endpoint<'_>], shape: &[usize]) -> Vec<Self> {
        let orders: Vec<_> = self
            .atoms
            .iter()
            .map(|atom| orders(atom.digit.size))
            .collect();
        if orders.iter().map(|orders| orders[0].len()).sum::<usize>() > MOST_PRIMES {
            return vec![self];
        }
        let mut frames = vec![Vec::new()];
        for (atom, orders) in self.atoms.iter().zip(&orders) {
            let extended = frames.iter().flat_map(|atoms: &Vec<Atom>| {
                orders
                    .iter()
                    .map(|sizes| [atoms.as_slice(), &atom.split(sizes)].concat())
            });
            frames = extended.take(MOST_ORDERS).collect();
        }
        let refined = frames
            .into_iter()
            .map(|atoms| self.unless_changed(atoms, ends, shape));
        refined.collect()
    }

    /// This frame with these atoms, but whole wherever an endpoint's blocks would change.
    fn unless_changed(&self, atoms: Vec<Atom>, ends: &[Endpoint<'_>], shape: &[usize]) -> Self {
        let mut refined = Self {
            mesh: self.mesh.clone(),
            atoms,
        };
        for atom in &self.atoms {
            let whole = |digits: &[Digit]| digits.iter().any(|digit| digit.contains(atom.digit));
            let alike = |length: usize| {
                let parts = refined.within(atom.digit).map(|part| refined.size(part));
                splits_alike(length, &parts.collect::<SmallVec<[usize; 4]>>())
            };
            let changed = ends.iter().any(|end| {
                end.cuts(shape).any(|(digits, lengths)| {
                    whole(digits) && !lengths.iter().all(|&length| alike(length))
                })
            });
            if changed {
                refined
                    .atoms
                    .retain(|part| !atom.digit.contains(part.digit));
                refined.atoms.push(*atom);
            }
        }
        refined
            .atoms
            .sort_unstable_by_key(|atom| std::cmp::Reverse(atom.digit.stride));
        refined
    }
}

impl Atom {
    /// The atom in parts of these sizes, major to minor.
    fn split(self, sizes: &[usize]) -> Vec<Self> {
        let mut stride = self.digit.stride * self.digit.size;
        let part = |&size: &usize| {
            stride /= size;
            Self {
                digit: Digit { stride, size },
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
    fn cuts(&self, shape: &[usize]) -> impl Iterator<Item = (&[Digit], Vec<usize>)> {
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

/// The orders of the prime factors of a size, ascending and descending; one where they are equal.
fn orders(size: usize) -> SmallVec<[SmallVec<[usize; 4]>; 2]> {
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

/// Above this many atoms the search takes mesh dimensions as they are.
const MOST_PRIMES: usize = 6;
const MOST_ORDERS: usize = 6;
