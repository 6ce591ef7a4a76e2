//! Plans as one client carries them out: each step as one exchange of blocks, or two.
//!
//! A reduction is an exchange in which every rank gets the terms of its share and reduces them in the
//! order of the ranks, and then, if all ranks need all of it, one in which they get each other's
//! shares. So the bits do not depend on which client has which ranks.

use std::collections::BTreeMap;
use std::ops::Range;

use meshwork_core::Rank;
use meshwork_layout::{Collective, DimPart, Placement, Plan, Ranges, Reduction, Shape, Step};

use crate::Error;
use crate::context::Homes;

mod exchange;
pub(crate) mod region;
mod runs;

pub(crate) use exchange::{Exchange, Make, Parcel, Source, Taken, Target};
use exchange::{Key, Made, Move, Wish};
pub(crate) use runs::Runs;

/// A plan, as one client carries it out.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) exchanges: Vec<Exchange>,
    /// The all-reduces that some exchanges are, by the first of them.
    pub(crate) together: BTreeMap<usize, Together>,
    /// Whether any client sends anything to another.
    pub(crate) crosses: bool,
    /// For each rank of the target that is here, the place of its block after the last exchange.
    pub(crate) places: Vec<usize>,
    /// What it is, for a client that does something else at the same time.
    pub(crate) title: String,
}

/// A reduction of blocks that are all here, as devices with links of their own do it.
#[derive(Debug)]
pub(crate) struct Together {
    /// The places of each group, in the order of its ranks.
    pub(crate) groups: Vec<Vec<usize>>,
    pub(crate) reduction: Reduction,
    /// How many exchanges it takes the place of.
    pub(crate) exchanges: usize,
}

impl Route {
    /// What client `own` of `clients` does for a plan; `homes` are those of the source's mesh and of
    /// the target's.
    pub(crate) fn of(
        plan: &Plan,
        homes: [&Homes; 2],
        clients: (usize, usize),
    ) -> Result<Self, Error> {
        let (mut exchanges, mut together) = (Vec::new(), BTreeMap::new());
        for step in plan.steps() {
            let builder = Builder {
                plan,
                step,
                homes: homes[0],
                clients,
            };
            let first = exchanges.len();
            builder.build(&mut exchanges)?;
            if let Some(reduction) = builder.together(exchanges.len() - first)? {
                together.insert(first, reduction);
            }
        }
        let place = |rank: &Rank| Ok(homes[0].of_rank(plan.source_rank(*rank)?).place);
        let places = homes[1].local().iter().map(place);
        let crosses = |exchange: &Exchange| exchange.traffic.crosses;
        Ok(Self {
            crosses: exchanges.iter().any(crosses),
            exchanges,
            together,
            places: places.collect::<Result<_, Error>>()?,
            title: format!(
                "a relayout of {:?} from {} to {}",
                plan.shape(),
                named(plan.from()),
                named(plan.to())
            ),
        })
    }
}

/// The layout without its mesh, of which clients see different parts.
fn named(layout: &meshwork_layout::Layout) -> String {
    let specs: Vec<String> = layout.specs().map(ToString::to_string).collect();
    let partial: Vec<&str> = layout.partial().map(|dim| dim.as_str()).collect();
    match partial.is_empty() {
        true => format!("[{}]", specs.join(", ")),
        false => format!("[{}] partial {}", specs.join(", "), partial.join(" ")),
    }
}

struct Builder<'a> {
    plan: &'a Plan,
    step: &'a Step,
    homes: &'a Homes,
    clients: (usize, usize),
}

impl Builder<'_> {
    fn build(&self, exchanges: &mut Vec<Exchange>) -> Result<(), Error> {
        let exchange = |wishes: &[Wish]| Exchange::of(wishes, self.homes, self.clients);
        match self.step.collective() {
            Collective::AllReduce => {
                exchanges.push(exchange(&self.shares()?));
                exchanges.push(exchange(&self.joined_shares()?));
            }
            Collective::ReduceScatter => exchanges.push(exchange(&self.reduced()?)),
            Collective::MakePartial => exchanges.push(exchange(&self.terms()?)),
            Collective::Permute => exchanges.push(exchange(&self.permuted()?)),
            Collective::Slice | Collective::AllGather | Collective::AllToAll => {
                exchanges.push(exchange(&self.gathered()?));
            }
            collective => return Err(Error::UnknownStep { collective }),
        }
        Ok(())
    }

    /// The step as an all-reduce of whole blocks, if it is one and all of them are here.
    fn together(&self, exchanges: usize) -> Result<Option<Together>, Error> {
        let (before, after) = (self.step.before(), self.step.after());
        let is_all_reduce = self.step.collective() == Collective::AllReduce;
        let reduction = before.reduction().filter(|_| is_all_reduce);
        let Some(reduction) = reduction.filter(|_| after.reduction().is_none()) else {
            return Ok(None);
        };
        let ranks = before.mesh().ranks();
        if self.homes.local().len() != ranks.len() {
            return Ok(None);
        }
        let mut groups = Vec::new();
        for rank in ranks {
            let group: Vec<Rank> = self.step.group_of(rank)?.collect();
            if group.first() == Some(&rank) {
                let place = |rank: &Rank| Ok(self.homes.of_rank(self.device(before, *rank)?).place);
                groups.push(group.iter().map(place).collect::<Result<_, Error>>()?);
            }
        }
        Ok(Some(Together {
            groups,
            reduction,
            exchanges,
        }))
    }

    /// Each block from what the rank has and what others of its group have.
    fn gathered(&self) -> Result<Vec<Wish>, Error> {
        self.wishes(|rank, block| {
            let own = [rank].into_iter();
            let others: Vec<Rank> = match self.step.collective().communicates() {
                true => self
                    .step
                    .group_of(rank)?
                    .filter(|other| *other != rank)
                    .collect(),
                false => Vec::new(),
            };
            let mut missing = vec![block.clone()];
            let mut moves = Vec::new();
            for from in own.chain(others) {
                self.take(from, block, &mut missing, &mut moves)?;
            }
            Ok(Made::Joined(moves, None))
        })
    }

    /// Whole blocks of other ranks.
    fn permuted(&self) -> Result<Vec<Wish>, Error> {
        let mut donors = self.donors()?;
        self.wishes(|rank, block| {
            let key = key(self.step.after(), rank, block);
            // A block of that kind for each rank that is to have one, or the plan is none.
            let donor = donors.get_mut(&key).and_then(Vec::pop).unwrap_or(rank);
            let mut moves = Vec::new();
            self.take(donor, block, &mut vec![block.clone()], &mut moves)?;
            Ok(Made::Joined(moves, None))
        })
    }

    /// The ranks that have each block and term before the step.
    fn donors(&self) -> Result<BTreeMap<Key, Vec<Rank>>, Error> {
        let mut donors: BTreeMap<_, Vec<Rank>> = BTreeMap::new();
        let before = self.step.before();
        for rank in before.mesh().ranks() {
            let block = before.shard(rank, self.plan.shape())?;
            donors
                .entry(key(before, rank, &block))
                .or_default()
                .push(rank);
        }
        Ok(donors)
    }

    /// The part that each rank keeps of what its group has, a term from each.
    fn reduced(&self) -> Result<Vec<Wish>, Error> {
        self.wishes(|rank, block| {
            let mut terms = Vec::new();
            for from in self.step.group_of(rank)? {
                self.take(from, block, &mut vec![block.clone()], &mut terms)?;
            }
            Ok(self.reduction_of(terms))
        })
    }

    /// Each rank's own block as a term, or one that changes nothing.
    fn terms(&self) -> Result<Vec<Wish>, Error> {
        let cuts = |placement: &Placement| -> usize {
            placement.axes().flatten().map(DimPart::size).product()
        };
        // All ranks of a group had the same, so one of them has to speak for all.
        let had_copies = cuts(self.step.before()) == cuts(self.step.after());
        self.wishes(|rank, block| {
            let is_first = self.step.over().iter().all(|part| part.coord(rank) == 0);
            let mut moves = Vec::new();
            if is_first || !had_copies {
                self.take(rank, block, &mut vec![block.clone()], &mut moves)?;
            }
            Ok(Made::Joined(moves, self.step.after().reduction()))
        })
    }

    /// For each rank its share of the elements that its group holds, a term from each.
    fn shares(&self) -> Result<Vec<Wish>, Error> {
        self.flat_wishes(|rank, len| {
            let group: Vec<Rank> = self.step.group_of(rank)?.collect();
            let share = share(len, group.len(), place_in(&group, rank));
            let terms = group
                .iter()
                .map(|&from| self.span((from, len), share.clone(), 0..share.len()));
            let terms = terms.collect::<Result<_, Error>>()?;
            let shape = [share.len()].into_iter().collect();
            Ok((shape, None, self.reduction_of(terms)))
        })
    }

    /// All shares of a rank's group.
    fn joined_shares(&self) -> Result<Vec<Wish>, Error> {
        self.flat_wishes(|rank, len| {
            let group: Vec<Rank> = self.step.group_of(rank)?.collect();
            let shares = group.iter().enumerate().map(|(place, &from)| {
                let share = share(len, group.len(), place);
                self.span((from, share.len()), 0..share.len(), share)
            });
            let shares = shares.collect::<Result<_, Error>>()?;
            let after = self.step.after();
            let is = key(after, rank, &after.shard(rank, self.plan.shape())?);
            Ok((self.sizes(rank)?, Some(is), Made::Joined(shares, None)))
        })
    }

    /// Terms of what is partial before the step; if it is not, there is one.
    fn reduction_of(&self, terms: Vec<Move>) -> Made {
        match self.step.before().reduction() {
            Some(reduction) => Made::Reduced(terms, reduction),
            None => Made::Joined(terms, None),
        }
    }

    /// A part of the `held` elements of a rank, by their numbers.
    fn span(
        &self,
        (from, held): (Rank, usize),
        source: Range<usize>,
        target: Range<usize>,
    ) -> Result<Move, Error> {
        Ok(Move {
            from: self.device(self.step.before(), from)?,
            held,
            source: Runs::span(source),
            target: Runs::span(target),
        })
    }

    fn flat_wishes(
        &self,
        wish: impl Fn(Rank, usize) -> Result<(Shape, Option<Key>, Made), Error>,
    ) -> Result<Vec<Wish>, Error> {
        let after = self.step.after();
        let wish = |rank: Rank| {
            let (shape, is, made) = wish(rank, self.sizes(rank)?.iter().product())?;
            let rank = self.device(after, rank)?;
            Ok(Wish {
                rank,
                shape,
                is,
                made,
            })
        };
        after.mesh().ranks().map(wish).collect()
    }

    fn sizes(&self, rank: Rank) -> Result<Shape, Error> {
        let block = self.step.after().shard(rank, self.plan.shape())?;
        Ok(region::sizes(&block))
    }

    /// What each rank's new block is made of, by the rank and the block.
    fn wishes(
        &self,
        mut made: impl FnMut(Rank, &Ranges) -> Result<Made, Error>,
    ) -> Result<Vec<Wish>, Error> {
        let after = self.step.after();
        let wish = |rank: Rank| {
            let block = after.shard(rank, self.plan.shape())?;
            Ok(Wish {
                rank: self.device(after, rank)?,
                shape: region::sizes(&block),
                is: Some(key(after, rank, &block)),
                made: made(rank, &block)?,
            })
        };
        after.mesh().ranks().map(wish).collect()
    }

    /// Takes what a rank has of the boxes that are missing.
    fn take(
        &self,
        from: Rank,
        block: &Ranges,
        missing: &mut Vec<Ranges>,
        moves: &mut Vec<Move>,
    ) -> Result<(), Error> {
        let held = self.step.before().shard(from, self.plan.shape())?;
        let sizes = region::sizes(&held);
        let device = self.device(self.step.before(), from)?;
        let mut left = Vec::new();
        for wanted in missing.drain(..) {
            let Some(common) = region::intersection(&wanted, &held) else {
                left.push(wanted);
                continue;
            };
            left.extend(region::difference(&wanted, &common));
            moves.push(Move {
                from: device,
                held: sizes.iter().product(),
                source: Runs::of(&sizes, &region::within(&common, &held)),
                target: Runs::of(&region::sizes(block), &region::within(&common, block)),
            });
        }
        *missing = left;
        Ok(())
    }

    fn device(&self, placement: &Placement, rank: Rank) -> Result<Rank, Error> {
        Ok(self.plan.device_rank(placement, rank)?)
    }
}

fn key(placement: &Placement, rank: Rank, block: &Ranges) -> Key {
    let bounds = block.iter().flat_map(|range| [range.start, range.end]);
    (bounds.collect(), placement.term(rank))
}

fn place_in(group: &[Rank], rank: Rank) -> usize {
    group
        .iter()
        .position(|other| *other == rank)
        .expect("the group of a rank has the rank")
}

/// The elements of which a rank at a place of its group makes the sum, where all have `len`.
fn share(len: usize, ranks: usize, place: usize) -> Range<usize> {
    let chunk = len.div_ceil(ranks);
    let start = place.saturating_mul(chunk).min(len);
    start..start.saturating_add(chunk).min(len)
}
