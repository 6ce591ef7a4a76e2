//! All ranks' buffers as symbols, round by round.

use std::collections::BTreeMap;

use super::super::{OnReceive, Receive, Round, Send, rank_at};
use super::symbols::{Symbol, Symbols, set_of};
use super::{Goal, Order, Violation};
use crate::Rank;

/// All ranks' buffers while a schedule is played.
pub(super) struct Replay<'a> {
    plan: &'a [Vec<Round>],
    /// `held[rank][block]`; `None` where a rank holds nothing of use.
    held: Vec<Vec<Option<Symbol>>>,
    /// From whom each rank has heard, as a bit set over ranks.
    heard: Vec<Vec<u64>>,
    symbols: Symbols,
}

impl<'a> Replay<'a> {
    pub(super) fn new(plan: &'a [Vec<Round>], blocks: usize, goal: &Goal) -> Self {
        let world = plan.len();
        let begins_with = |rank: usize, block: usize| match goal {
            Goal::AllReduce | Goal::Reduce(_) | Goal::ReduceScatter => true,
            Goal::Broadcast(root) | Goal::Scatter(root) => root.index() == rank,
            Goal::AllGather | Goal::Gather(_) | Goal::Permute(_) => block == rank,
            Goal::AllToAll => block / world == rank,
            Goal::Barrier => false,
        };
        let buffer = |rank| {
            let held = |block| begins_with(rank, block).then_some(rank);
            (0..blocks).map(held).collect()
        };
        Self {
            plan,
            held: (0..world).map(buffer).collect(),
            heard: (0..world).map(|rank| set_of(world, rank)).collect(),
            symbols: Symbols::new(world),
        }
    }

    /// Whether each transfer has two sides, which come in the same order on both.
    pub(super) fn transfers_match(&self, round: usize) -> Result<(), Violation> {
        for (index, own) in self.plan.iter().enumerate() {
            let (rank, own) = (rank_at(index), &own[round]);
            self.nearest_first(round, rank, own)?;
            let mut counts = BTreeMap::new();
            for Send { to, blocks } in own.sends() {
                let mut expected = self.round_of(*to, round).flat_map(Round::receives);
                let expected = expected.by_ref().filter(|receive| receive.from == rank);
                let expected = nth(expected, &mut counts, *to).map(|receive| &receive.blocks);
                if expected != Some(blocks) || *to == rank {
                    let (to, blocks) = (*to, blocks.clone());
                    return Err(Violation::UnmatchedSend {
                        round,
                        rank,
                        to,
                        blocks,
                    });
                }
            }
            let mut counts = BTreeMap::new();
            for Receive { from, blocks, .. } in own.receives() {
                let mut sent = self.round_of(*from, round).flat_map(Round::sends);
                let sent = sent.by_ref().filter(|send| send.to == rank);
                if nth(sent, &mut counts, *from).map(|send| &send.blocks) != Some(blocks) {
                    let (from, blocks) = (*from, blocks.clone());
                    return Err(Violation::UnmatchedReceive {
                        round,
                        rank,
                        from,
                        blocks,
                    });
                }
            }
        }
        Ok(())
    }

    fn nearest_first(&self, round: usize, rank: Rank, own: &Round) -> Result<(), Violation> {
        let (world, me) = (self.plan.len(), rank.index());
        let ahead = own.sends().iter().map(|send| {
            let distance = (send.to.index() + world - me) % world;
            (distance, send.to)
        });
        let behind = own.receives().iter().map(|receive| {
            let distance = (me + world - receive.from.index().min(me + world)) % world;
            (distance, receive.from)
        });
        for side in [ahead.collect::<Vec<_>>(), behind.collect()] {
            let farther = side.windows(2).find(|pair| pair[0].0 > pair[1].0);
            if let Some([_, (_, peer)]) = farther {
                let peer = *peer;
                return Err(Violation::OutOfOrder { round, rank, peer });
            }
        }
        Ok(())
    }

    /// What a rank does in a round; nothing, of a rank that does not exist.
    fn round_of(&self, rank: Rank, round: usize) -> impl Iterator<Item = &'a Round> {
        self.plan
            .get(rank.index())
            .map(|own| &own[round])
            .into_iter()
    }

    /// Moves all that moves in a round.
    pub(super) fn step(&mut self, round: usize) -> Result<(), Violation> {
        let plan = self.plan;
        let heard = self.heard.clone();
        let mut changes = Vec::new();
        for (index, own) in plan.iter().enumerate() {
            let mut arrived: BTreeMap<usize, Vec<(Rank, OnReceive)>> = BTreeMap::new();
            for receive in own[round].receives() {
                for block in receive.blocks.clone() {
                    let from = (receive.from, receive.then);
                    arrived.entry(block).or_default().push(from);
                }
                let news = &heard[receive.from.index()];
                for (known, news) in self.heard[index].iter_mut().zip(news) {
                    *known |= news;
                }
            }
            for (block, from) in arrived {
                let symbol = self.received(round, rank_at(index), block, &from)?;
                changes.push((index, block, symbol));
            }
        }
        for (rank, block, symbol) in changes {
            self.held[rank][block] = Some(symbol);
        }
        Ok(())
    }

    /// What a block becomes by all that arrives for it.
    fn received(
        &mut self,
        round: usize,
        rank: Rank,
        block: usize,
        from: &[(Rank, OnReceive)],
    ) -> Result<Symbol, Violation> {
        let mut operands = Vec::new();
        for (sender, _) in from {
            let symbol = self.symbol(*sender, block).ok_or(Violation::NotHeld {
                round,
                rank: *sender,
                to: rank,
                block,
            })?;
            operands.push((*sender, symbol));
        }
        if from.iter().all(|(_, then)| *then == OnReceive::Reduce) {
            let doubled = Violation::Doubled { round, rank, block };
            let own = self.symbol(rank, block).ok_or_else(|| doubled.clone())?;
            operands.push((rank, own));
            operands.sort_unstable();
            let operands: Vec<Symbol> = operands.into_iter().map(|(_, symbol)| symbol).collect();
            return self.symbols.fold(&operands).ok_or(doubled);
        }
        let mut sends = self.plan[rank.index()][round].sends().iter();
        match operands[..] {
            [(_, only)] if !sends.any(|send| send.blocks.contains(&block)) => Ok(only),
            _ => Err(Violation::BlockInUse { round, rank, block }),
        }
    }

    fn symbol(&self, rank: Rank, block: usize) -> Option<Symbol> {
        self.held[rank.index()].get(block).copied().flatten()
    }

    /// Whether the goal is reached, and in which order its reductions were made.
    pub(super) fn reached(&mut self, goal: &Goal) -> Result<Order, Violation> {
        let world = self.plan.len();
        if *goal == Goal::Barrier {
            return self.all_heard();
        }
        let mut order = Order::BalancedAtOnce;
        for index in 0..world {
            for block in 0..self.held[index].len() {
                let rank = rank_at(index);
                let wrong = Violation::WrongResult { rank, block };
                let symbol = self.held[index][block];
                match wanted(goal, world, index, block) {
                    Wanted::Nothing => {}
                    Wanted::Contribution(of) if symbol == Some(of) => {}
                    Wanted::Contribution(_) => return Err(wrong),
                    Wanted::Reduction => {
                        let symbol = symbol.filter(|symbol| self.symbols.is_complete(*symbol));
                        let symbol = symbol.ok_or_else(|| wrong.clone())?;
                        if *goal == Goal::AllReduce && self.held[0][block] != Some(symbol) {
                            return Err(wrong);
                        }
                        order = order.min(self.symbols.order(symbol));
                    }
                }
            }
        }
        Ok(order)
    }

    fn all_heard(&self) -> Result<Order, Violation> {
        for (rank, heard) in self.heard.iter().enumerate() {
            let missing =
                (0..self.plan.len()).find(|from| heard[from / 64] >> (from % 64) & 1 == 0);
            if let Some(from) = missing {
                let (rank, from) = (rank_at(rank), rank_at(from));
                return Err(Violation::NotHeard { rank, from });
            }
        }
        Ok(Order::BalancedAtOnce)
    }
}

/// What a rank must end with in a block.
enum Wanted {
    Nothing,
    /// What this rank began with.
    Contribution(usize),
    /// The contributions of all ranks.
    Reduction,
}

fn wanted(goal: &Goal, world: usize, rank: usize, block: usize) -> Wanted {
    let wanted = match goal {
        Goal::AllReduce => Some(Wanted::Reduction),
        Goal::Reduce(root) => (root.index() == rank).then_some(Wanted::Reduction),
        Goal::ReduceScatter => (block == rank).then_some(Wanted::Reduction),
        Goal::Broadcast(root) => Some(Wanted::Contribution(root.index())),
        Goal::AllGather => Some(Wanted::Contribution(block)),
        Goal::Gather(root) => (root.index() == rank).then_some(Wanted::Contribution(block)),
        Goal::Scatter(root) => (block == rank).then_some(Wanted::Contribution(root.index())),
        Goal::AllToAll => (block % world == rank).then_some(Wanted::Contribution(block / world)),
        Goal::Permute(targets) => targets
            .get(block)
            .filter(|target| **target == Some(rank_at(rank)))
            .map(|_| Wanted::Contribution(block)),
        Goal::Barrier => None,
    };
    wanted.unwrap_or(Wanted::Nothing)
}

/// The next of those that belong to a peer.
fn nth<T>(
    mut of_peer: impl Iterator<Item = T>,
    counts: &mut BTreeMap<Rank, usize>,
    peer: Rank,
) -> Option<T> {
    let count = counts.entry(peer).or_insert(0);
    *count += 1;
    of_peer.nth(*count - 1)
}
