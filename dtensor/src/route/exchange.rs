//! Who gives which part of its block to whom, in one go, as one client sees it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use meshwork_core::Rank;
use meshwork_layout::{Ranges, Reduction, Shape};

use super::region;
use crate::context::Homes;

/// A part of the block of one rank, and where it lies in the new block of another.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// The rank of the source's mesh that has it.
    pub(super) from: Rank,
    /// Its indices in the block that it is taken from.
    pub(super) source: Ranges,
    /// Its indices in the new block.
    pub(super) target: Ranges,
}

/// What the new block of a rank is made of.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The sizes of the block.
    pub(crate) shape: Shape,
    /// What is to be done to the terms; also what stands where none of them says anything.
    pub(crate) reduction: Option<Reduction>,
    pub(crate) terms: Vec<Vec<Part>>,
}

/// A part of a new block.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) source: Source,
    /// Its indices in the new block.
    pub(crate) target: Ranges,
}

/// Where a part comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The block at this place of this client, and the indices in it.
    Here(usize, Ranges),
    /// The parcel of this number from this client.
    There(usize, usize),
}

/// What a rank's new block is to be made of, by the ranks that have it.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(super) rank: Rank,
    pub(super) shape: Shape,
    pub(super) reduction: Option<Reduction>,
    pub(super) terms: Vec<Vec<Move>>,
}

/// One go.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// For each place of this client its new block.
    pub(crate) targets: Vec<Target>,
    /// For each client what it gets from here: places and indices, in order.
    pub(crate) sent: Vec<Vec<(usize, Ranges)>>,
    /// For each client the sizes of what comes from there, in order.
    pub(crate) received: Vec<Vec<Shape>>,
    /// Whether any client sends anything to another.
    pub(crate) crosses: bool,
    pub(crate) form: Form,
}

/// What indices of blocks are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// One range for each axis.
    Boxes,
    /// One range of the elements, row-major.
    Elements,
}

impl Exchange {
    /// What client `own` of `clients` does so that all wishes come true. Every client has to be told
    /// the same wishes, in the same order.
    pub(super) fn of(wishes: &[Wish], homes: &Homes, (own, clients): (usize, usize)) -> Self {
        let mut exchange = Self {
            targets: Vec::new(),
            sent: vec![Vec::new(); clients],
            received: vec![Vec::new(); clients],
            crosses: false,
            form: Form::Boxes,
        };
        let mut targets: Vec<Option<Target>> = vec![None; homes.local().len()];
        let mut known = Known::default();
        for wish in wishes {
            let home = homes.of_rank(wish.rank);
            let terms = wish.terms.iter();
            let terms = terms.map(|term| {
                let parts = term
                    .iter()
                    .map(|part| exchange.add((home.client, own), part, homes, &mut known));
                parts.collect()
            });
            let terms = terms.collect();
            if let (true, Some(target)) = (home.client == own, targets.get_mut(home.place)) {
                *target = Some(Target {
                    shape: wish.shape.clone(),
                    reduction: wish.reduction,
                    terms,
                });
            }
        }
        exchange.targets = targets.into_iter().flatten().collect();
        exchange
    }

    /// The same, on vectors of elements.
    pub(super) fn flat(self) -> Self {
        Self {
            form: Form::Elements,
            ..self
        }
    }

    /// One part that client `to` needs. What it needs several times is sent once.
    fn add<'a>(
        &mut self,
        (to, own): (usize, usize),
        part: &'a Move,
        homes: &Homes,
        known: &mut Known<'a>,
    ) -> Part {
        let home = homes.of_rank(part.from);
        let target = part.target.clone();
        if home.client == to {
            let source = Source::Here(home.place, part.source.clone());
            return Part { source, target };
        }
        self.crosses = true;
        let number = match known.parcels.entry((to, part.from, &part.source)) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let count = known.counts.entry((home.client, to)).or_default();
                let number = *entry.insert(*count);
                *count += 1;
                if home.client == own {
                    self.sent[to].push((home.place, part.source.clone()));
                }
                if to == own {
                    self.received[home.client].push(region::sizes(&part.source));
                }
                number
            }
        };
        let source = Source::There(home.client, number);
        Part { source, target }
    }
}

/// The parcels so far.
#[derive(Default)]
struct Known<'a> {
    /// The number of each, by the client that gets it, the rank it is from and its indices there.
    parcels: HashMap<(usize, Rank, &'a Ranges), usize>,
    /// How many there are from one client to another.
    counts: HashMap<(usize, usize), usize>,
}
