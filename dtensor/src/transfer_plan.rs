//! Plans as one client carries them out: each step as one exchange of blocks, or two.
//!
//! A reduction is an exchange in which every rank gets the terms of its share and reduces them in
//! the order of the ranks, and then, if all ranks need all of it, one in which they get each
//! other's shares. So the bits do not depend on which client has which ranks.

use std::collections::BTreeMap;
use std::ops::Range;

use meshwork_core::MeshRank;
use meshwork_layout::{MeshPlacement, PartialReduction, Plan, PlanStep, Ranges, Shape, StepKind};

use crate::Error;
use crate::device_placement::DevicePlacement;

mod exchange;
pub(crate) mod region;
mod runs;

use exchange::{BlockParts, BlockSpec, Key, Move};
pub(crate) use exchange::{BlockSource, Exchange, LocalPart, Message, Target, TermSource};
pub(crate) use runs::Runs;

/// A plan, as one client carries it out.
#[derive(Debug)]
pub(crate) struct TransferPlan {
    pub(crate) exchanges: Vec<Exchange>,
    /// The all-reduces that some exchanges are, by the first of them.
    pub(crate) local_all_reduce: BTreeMap<usize, LocalAllReduce>,
    /// Whether any client sends anything to another.
    pub(crate) crosses: bool,
    /// For each rank of the target that is here, the place of its block after the last exchange.
    pub(crate) places: Vec<usize>,
    /// A description, for a client that calls another operation at the same time.
    pub(crate) title: String,
}

/// A reduction of blocks that are all here, as devices with links of their own do it.
#[derive(Debug)]
pub(crate) struct LocalAllReduce {
    /// The places of each group, in the order of its ranks.
    pub(crate) groups: Vec<Vec<usize>>,
    pub(crate) reduction: PartialReduction,
    /// How many exchanges it takes the place of.
    pub(crate) exchanges: usize,
}

impl TransferPlan {
    /// The part of client `own` of `clients` in a plan; `device_placement` are those of the
    /// source's mesh and of the target's.
    pub(crate) fn of(
        plan: &Plan,
        device_placement: [&DevicePlacement; 2],
        own: usize,
        clients: usize,
    ) -> Result<Self, Error> {
        let (mut exchanges, mut local_all_reduce) = (Vec::new(), BTreeMap::new());
        for step in plan.steps() {
            let builder = Builder {
                plan,
                step,
                device_placement: device_placement[0],
                own,
                clients,
            };
            let first = exchanges.len();
            builder.build(&mut exchanges)?;
            if let Some(reduction) = builder.local_all_reduce(exchanges.len() - first)? {
                local_all_reduce.insert(first, reduction);
            }
        }
        let place =
            |rank: &MeshRank| Ok(device_placement[0].of_rank(plan.source_rank(*rank)?).place);
        let places = device_placement[1].local().iter().map(place);
        let crosses = |exchange: &Exchange| exchange.traffic.crosses;
        Ok(Self {
            crosses: exchanges.iter().any(crosses),
            exchanges,
            local_all_reduce,
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
    step: &'a PlanStep,
    device_placement: &'a DevicePlacement,
    own: usize,
    clients: usize,
}

impl Builder<'_> {
    fn build(&self, exchanges: &mut Vec<Exchange>) -> Result<(), Error> {
        let exchange = |block_specs: &[BlockSpec]| {
            Exchange::of(block_specs, self.device_placement, self.own, self.clients)
        };
        match self.step.kind() {
            StepKind::AllReduce => {
                exchanges.push(exchange(&self.shares()?));
                exchanges.push(exchange(&self.joined_shares()?));
            }
            StepKind::ReduceScatter => exchanges.push(exchange(&self.reduced()?)),
            StepKind::MakePartial => exchanges.push(exchange(&self.terms()?)),
            StepKind::Permute => exchanges.push(exchange(&self.permuted()?)),
            StepKind::Slice | StepKind::AllGather | StepKind::AllToAll => {
                exchanges.push(exchange(&self.gathered()?));
            }
            kind => return Err(Error::UnknownStep { kind }),
        }
        Ok(())
    }

    /// The step as an all-reduce of whole blocks, if it is one and all of them are here.
    fn local_all_reduce(&self, exchanges: usize) -> Result<Option<LocalAllReduce>, Error> {
        let (before, after) = (self.step.before(), self.step.after());
        let is_all_reduce = self.step.kind() == StepKind::AllReduce;
        let reduction = before.reduction().filter(|_| is_all_reduce);
        let Some(reduction) = reduction.filter(|_| after.reduction().is_none()) else {
            return Ok(None);
        };
        let ranks = before.mesh().ranks();
        if self.device_placement.local().len() != ranks.len() {
            return Ok(None);
        }
        let mut groups = Vec::new();
        for rank in ranks {
            let group: Vec<MeshRank> = self.step.group_of(rank)?.collect();
            if group.first() == Some(&rank) {
                let place = |rank: &MeshRank| {
                    Ok(self
                        .device_placement
                        .of_rank(self.device(before, *rank)?)
                        .place)
                };
                groups.push(group.iter().map(place).collect::<Result<_, Error>>()?);
            }
        }
        Ok(Some(LocalAllReduce {
            groups,
            reduction,
            exchanges,
        }))
    }

    /// Each block from what the rank has and what others of its group have.
    fn gathered(&self) -> Result<Vec<BlockSpec>, Error> {
        self.block_specs(|rank, block| {
            let own = [rank].into_iter();
            let others: Vec<MeshRank> = match self.step.kind().communicates() {
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
            Ok(BlockParts::Joined(moves, None))
        })
    }

    /// Whole blocks of other ranks.
    fn permuted(&self) -> Result<Vec<BlockSpec>, Error> {
        let mut donors = permutation(self.plan, self.step)?.into_iter();
        self.block_specs(|rank, block| {
            let donor = donors.next().unwrap_or(rank);
            let mut moves = Vec::new();
            self.take(donor, block, &mut vec![block.clone()], &mut moves)?;
            Ok(BlockParts::Joined(moves, None))
        })
    }

    /// The part that each rank keeps of what its group has, a term from each.
    fn reduced(&self) -> Result<Vec<BlockSpec>, Error> {
        self.block_specs(|rank, block| {
            let mut terms = Vec::new();
            for from in self.step.group_of(rank)? {
                self.take(from, block, &mut vec![block.clone()], &mut terms)?;
            }
            Ok(self.reduction_of(terms))
        })
    }

    /// Each rank's own block as a term, or one that changes nothing.
    fn terms(&self) -> Result<Vec<BlockSpec>, Error> {
        let had_copies = self.step.had_copies();
        self.block_specs(|rank, block| {
            let is_first = self.step.over().iter().all(|part| part.coord(rank) == 0);
            let mut moves = Vec::new();
            if is_first || !had_copies {
                self.take(rank, block, &mut vec![block.clone()], &mut moves)?;
            }
            Ok(BlockParts::Joined(moves, self.step.after().reduction()))
        })
    }

    /// For each rank its share of the elements that its group holds, a term from each.
    fn shares(&self) -> Result<Vec<BlockSpec>, Error> {
        self.flat_block_specs(|rank, len| {
            let group: Vec<MeshRank> = self.step.group_of(rank)?.collect();
            let share = share(len, group.len(), place_in(&group, rank));
            let terms = group
                .iter()
                .map(|&from| self.span(from, len, share.clone(), 0..share.len()));
            let terms = terms.collect::<Result<_, Error>>()?;
            let shape = [share.len()].into_iter().collect();
            Ok((shape, None, self.reduction_of(terms)))
        })
    }

    /// All shares of a rank's group.
    fn joined_shares(&self) -> Result<Vec<BlockSpec>, Error> {
        self.flat_block_specs(|rank, len| {
            let group: Vec<MeshRank> = self.step.group_of(rank)?.collect();
            let shares = group.iter().enumerate().map(|(place, &from)| {
                let share = share(len, group.len(), place);
                self.span(from, share.len(), 0..share.len(), share)
            });
            let shares = shares.collect::<Result<_, Error>>()?;
            let after = self.step.after();
            let is = key(after, rank, &after.shard(rank, self.plan.shape())?);
            Ok((
                self.sizes(rank)?,
                Some(is),
                BlockParts::Joined(shares, None),
            ))
        })
    }

    /// Terms of what is partial before the step; if it is not, there is one.
    fn reduction_of(&self, terms: Vec<Move>) -> BlockParts {
        match self.step.before().reduction() {
            Some(reduction) => BlockParts::Reduced(terms, reduction),
            None => BlockParts::Joined(terms, None),
        }
    }

    /// A part of the `held` elements of a rank, by their numbers.
    fn span(
        &self,
        from: MeshRank,
        held: usize,
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

    fn flat_block_specs(
        &self,
        block_spec: impl Fn(MeshRank, usize) -> Result<(Shape, Option<Key>, BlockParts), Error>,
    ) -> Result<Vec<BlockSpec>, Error> {
        let after = self.step.after();
        let block_spec = |rank: MeshRank| {
            let (shape, is, made) = block_spec(rank, self.sizes(rank)?.iter().product())?;
            let rank = self.device(after, rank)?;
            Ok(BlockSpec {
                rank,
                shape,
                is,
                made,
            })
        };
        after.mesh().ranks().map(block_spec).collect()
    }

    fn sizes(&self, rank: MeshRank) -> Result<Shape, Error> {
        let block = self.step.after().shard(rank, self.plan.shape())?;
        Ok(region::sizes(&block))
    }

    /// The sources of each rank's new block, by the rank and the block.
    fn block_specs(
        &self,
        mut made: impl FnMut(MeshRank, &Ranges) -> Result<BlockParts, Error>,
    ) -> Result<Vec<BlockSpec>, Error> {
        let after = self.step.after();
        let block_spec = |rank: MeshRank| {
            let block = after.shard(rank, self.plan.shape())?;
            Ok(BlockSpec {
                rank: self.device(after, rank)?,
                shape: region::sizes(&block),
                is: Some(key(after, rank, &block)),
                made: made(rank, &block)?,
            })
        };
        after.mesh().ranks().map(block_spec).collect()
    }

    /// Takes what a rank has of the boxes that are missing.
    fn take(
        &self,
        from: MeshRank,
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

    fn device(&self, placement: &MeshPlacement, rank: MeshRank) -> Result<MeshRank, Error> {
        Ok(self.plan.device_rank(placement, rank)?)
    }
}

/// For each rank after a permutation, in their order, the one whose block it then has.
pub(crate) fn permutation(plan: &Plan, step: &PlanStep) -> Result<Vec<MeshRank>, Error> {
    let mut donors: BTreeMap<Key, Vec<MeshRank>> = BTreeMap::new();
    let (before, after) = (step.before(), step.after());
    for rank in before.mesh().ranks() {
        let block = before.shard(rank, plan.shape())?;
        let donors = donors.entry(key(before, rank, &block)).or_default();
        donors.push(rank);
    }
    let donor = |rank: MeshRank| {
        let key = key(after, rank, &after.shard(rank, plan.shape())?);
        // A block of that kind for each rank that is to have one, or the plan is none.
        Ok(donors.get_mut(&key).and_then(Vec::pop).unwrap_or(rank))
    };
    after.mesh().ranks().map(donor).collect()
}

fn key(placement: &MeshPlacement, rank: MeshRank, block: &Ranges) -> Key {
    let bounds = block.iter().flat_map(|range| [range.start, range.end]);
    (bounds.collect(), placement.term(rank))
}

fn place_in(group: &[MeshRank], rank: MeshRank) -> usize {
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
