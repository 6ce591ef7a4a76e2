//! Digits of rank numbers, and what two meshes of the same devices have in common.

use std::iter::successors;

use meshwork_core::{Mesh, MeshRank};
use smallvec::SmallVec;

/// The digit ⌊rank / stride⌋ mod size of rank numbers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct RankDigit {
    pub(super) stride: usize,
    pub(super) size: usize,
}

impl RankDigit {
    /// Whether the other digit is this one or part of it.
    pub(super) fn contains(self, part: Self) -> bool {
        self.stride <= part.stride && part.stride * part.size <= self.stride * self.size
    }
}

/// The digit of each dimension of a mesh; none for a dimension of size 1.
pub(super) fn dim_digits(mesh: &Mesh) -> Vec<SmallVec<[RankDigit; 1]>> {
    let dims = mesh.strides().iter().zip(mesh.shape());
    let digit = |(&stride, size)| (size > 1).then_some(RankDigit { stride, size });
    dims.map(|dim| digit(dim).into_iter().collect()).collect()
}

/// The coarsest digits of which all of these are made up, major to minor, if there are such.
pub(super) fn joint_digits<'a>(
    digits: impl Iterator<Item = &'a RankDigit>,
) -> Option<Vec<RankDigit>> {
    let mut ends: Vec<usize> = digits
        .flat_map(|digit| [digit.stride, digit.stride * digit.size])
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let between = |pair: &[usize]| {
        let (stride, end) = (pair[0], pair[1]);
        end.is_multiple_of(stride).then(|| RankDigit {
            stride,
            size: end / stride,
        })
    };
    ends.windows(2).rev().map(between).collect()
}

/// How the ranks of a mesh are numbered in another with the same devices.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Numbering {
    /// Each dimension of the mesh is these digits of the other's rank numbers, major to minor.
    Digits(Vec<SmallVec<[RankDigit; 1]>>),
    /// The other's rank for each rank, in no such order.
    Table(Vec<MeshRank>),
}

impl Numbering {
    /// Ranks are numbered as they are in the mesh itself.
    pub(super) fn same(mesh: &Mesh) -> Self {
        Self::Digits(dim_digits(mesh))
    }

    /// The ranks of a mesh have these numbers.
    pub(super) fn of_table(mesh: &Mesh, table: Vec<usize>) -> Self {
        match digits(mesh, &table) {
            Some(digits) => Self::Digits(digits),
            None => Self::Table(table.into_iter().map(MeshRank::new).collect()),
        }
    }

    /// The number of a rank of this mesh.
    pub(super) fn of(&self, mesh: &Mesh, rank: MeshRank) -> MeshRank {
        match self {
            Self::Table(table) => table[rank.index()],
            Self::Digits(dims) => {
                let mut number = 0;
                for (digits, &stride) in dims.iter().zip(mesh.strides()) {
                    let mut below = digits.iter().map(|digit| digit.size).product::<usize>();
                    for digit in digits {
                        below /= digit.size;
                        number += rank.index() / (stride * below) % digit.size * digit.stride;
                    }
                }
                MeshRank::new(number)
            }
        }
    }
}

/// Each dimension of a mesh as digits of the numbers that a table gives its ranks, if that is all
/// the table does.
fn digits(mesh: &Mesh, table: &[usize]) -> Option<Vec<SmallVec<[RankDigit; 1]>>> {
    let primes = dim_digits(mesh)
        .into_iter()
        .map(|digits| digits.into_iter().flat_map(primes));
    let primes: Vec<Vec<RankDigit>> = primes.map(Iterator::collect).collect();
    let moved = |digit: &RankDigit| RankDigit {
        stride: table[digit.stride],
        ..*digit
    };
    let agrees = |(rank, &number): (usize, &usize)| {
        let sum = primes
            .iter()
            .flatten()
            .map(|digit| rank / digit.stride % digit.size * moved(digit).stride);
        sum.sum::<usize>() == number
    };
    table.iter().enumerate().all(agrees).then(|| {
        primes
            .iter()
            .map(|digits| digits.iter().map(moved).collect())
            .collect()
    })
}

/// A digit in parts of prime size, major to minor.
fn primes(digit: RankDigit) -> Vec<RankDigit> {
    let smallest = |size: usize| {
        (2..)
            .take_while(|p| p * p <= size)
            .find(|&p| size.is_multiple_of(p))
            .unwrap_or(size)
    };
    let first = |rest: RankDigit| {
        (rest.size > 1).then(|| {
            let size = smallest(rest.size);
            (
                RankDigit {
                    stride: rest.stride * (rest.size / size),
                    size,
                },
                RankDigit {
                    stride: rest.stride,
                    size: rest.size / size,
                },
            )
        })
    };
    successors(first(digit), |(_, rest)| first(*rest))
        .map(|(prime, _)| prime)
        .collect()
}
