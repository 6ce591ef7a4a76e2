use std::collections::HashMap;

use super::{OnReceive, Receive, Round, chunk};
use crate::Rank;

/// What a collective must have done when its last round is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Goal {
    /// Every rank holds the same expression, in which each rank's contribution stands once.
    AllReduce,
    /// Every rank holds this rank's initial buffer.
    Broadcast(Rank),
}

/// Why a schedule is wrong. Rounds and elements are counted from 0.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Ranks disagree on how many rounds there are.
    #[error("{rank} has {rounds} rounds, rank 0 has {expected}")]
    RoundCount {
        /// The rank that differs from rank 0.
        rank: Rank,
        /// Its rounds.
        rounds: usize,
        /// Rank 0's rounds.
        expected: usize,
    },
    /// A chunk is sent that the receiver does not expect in this round, from this rank.
    #[error("round {round}: {rank} sends chunk {chunk} to {to}, which does not expect it")]
    UnmatchedSend {
        /// The round.
        round: usize,
        /// The sender.
        rank: Rank,
        /// The receiver.
        to: Rank,
        /// The chunk.
        chunk: usize,
    },
    /// A rank waits for a chunk that nobody sends in this round: it would wait for ever.
    #[error("round {round}: {rank} waits for chunk {chunk} of {from}, which does not send it")]
    UnmatchedReceive {
        /// The round.
        round: usize,
        /// The receiver.
        rank: Rank,
        /// The supposed sender.
        from: Rank,
        /// The chunk.
        chunk: usize,
    },
    /// A rank sends and receives the same chunk in one round: which value goes out is a race.
    #[error("round {round}: {rank} sends and receives chunk {chunk} at once")]
    ChunkInUse {
        /// The round.
        round: usize,
        /// The rank.
        rank: Rank,
        /// The chunk.
        chunk: usize,
    },
    /// A contribution would enter a reduction twice.
    #[error(
        "round {round}: {rank} reduces element {element} with a value that shares a contribution with it"
    )]
    Doubled {
        /// The round.
        round: usize,
        /// The rank that reduces.
        rank: Rank,
        /// The element.
        element: usize,
    },
    /// A rank ends with something else than the goal.
    #[error("{rank} ends with a wrong or incomplete value in element {element}")]
    WrongResult {
        /// The rank.
        rank: Rank,
        /// The element.
        element: usize,
    },
}

/// Replays a schedule over symbols and proves that it reaches `goal`.
///
/// `plan` holds each rank's rounds, `chunks` and `len` say how the buffer is cut. All ranks move
/// in lock step: if each receive has its send in the same round, then no rank that walks its own
/// rounds in order can be stuck. Every element carries the *expression* that computes it, so equal
/// expressions on all ranks mean equal bits.
///
/// # Errors
/// The first [`Violation`] found.
///
/// ```
/// use meshwork_collectives::Rank;
/// use meshwork_collectives::schedule::{Algorithm, Goal, Schedule, check};
///
/// let plan: Vec<Vec<_>> = Rank::all(5)
///     .map(|rank| Schedule::all_reduce(Algorithm::Ring, 5, rank).rounds().collect())
///     .collect();
/// assert_eq!(check(&plan, 5, 17, Goal::AllReduce), Ok(()));
/// assert!(check(&plan[..4], 5, 17, Goal::AllReduce).is_err());
/// ```
pub fn check(plan: &[Vec<Round>], chunks: usize, len: usize, goal: Goal) -> Result<(), Violation> {
    let rounds = plan.first().map_or(0, Vec::len);
    for (rank, own) in plan.iter().enumerate() {
        if own.len() != rounds {
            return Err(Violation::RoundCount {
                rank: named(rank),
                rounds: own.len(),
                expected: rounds,
            });
        }
    }
    let mut replay = Replay::new(plan, chunks, len);
    for round in 0..rounds {
        replay.pairs_match(round)?;
        replay.step(round)?;
    }
    replay.reached(goal)
}

/// An interned expression: equal ids are equal expressions.
type Symbol = usize;

struct Replay<'a> {
    plan: &'a [Vec<Round>],
    chunks: usize,
    len: usize,
    /// `held[rank][element]`.
    held: Vec<Vec<Symbol>>,
    /// Who contributes to each symbol, as a bit set over ranks; the first `world` are the leaves.
    contributors: Vec<Vec<u64>>,
    sums: HashMap<(Symbol, Symbol), Symbol>,
}

impl<'a> Replay<'a> {
    fn new(plan: &'a [Vec<Round>], chunks: usize, len: usize) -> Self {
        let world = plan.len();
        let leaf = |rank: usize| {
            let mut bits = vec![0_u64; world.div_ceil(64)];
            bits[rank / 64] |= 1 << (rank % 64);
            bits
        };
        Self {
            plan,
            chunks,
            len,
            held: (0..world).map(|rank| vec![rank; len]).collect(),
            contributors: (0..world).map(leaf).collect(),
            sums: HashMap::new(),
        }
    }

    fn pairs_match(&self, round: usize) -> Result<(), Violation> {
        for (rank, own) in self.plan.iter().enumerate() {
            let Round { send, receive } = own[round];
            let rank = named(rank);
            if let Some(send) = send {
                let expected = self.at(send.to, round).and_then(|other| other.receive);
                if expected.map(|other| (other.from, other.chunk)) != Some((rank, send.chunk)) {
                    return Err(Violation::UnmatchedSend {
                        round,
                        rank,
                        to: send.to,
                        chunk: send.chunk,
                    });
                }
            }
            if let Some(Receive { from, chunk, .. }) = receive {
                let sent = self.at(from, round).and_then(|other| other.send);
                if sent.map(|other| (other.to, other.chunk)) != Some((rank, chunk)) {
                    return Err(Violation::UnmatchedReceive {
                        round,
                        rank,
                        from,
                        chunk,
                    });
                }
                if send.is_some_and(|send| send.chunk == chunk) {
                    return Err(Violation::ChunkInUse { round, rank, chunk });
                }
            }
        }
        Ok(())
    }

    fn at(&self, rank: Rank, round: usize) -> Option<Round> {
        self.plan.get(rank.index()).map(|own| own[round])
    }

    fn step(&mut self, round: usize) -> Result<(), Violation> {
        let before = self.held.clone();
        for (rank, own) in self.plan.iter().enumerate() {
            let Some(receive) = own[round].receive else {
                continue;
            };
            for element in chunk(self.len, self.chunks, receive.chunk) {
                let (local, received) =
                    (before[rank][element], before[receive.from.index()][element]);
                self.held[rank][element] = match receive.then {
                    OnReceive::Replace => received,
                    OnReceive::Reduce => {
                        self.sum(local, received)
                            .ok_or_else(|| Violation::Doubled {
                                round,
                                rank: named(rank),
                                element,
                            })?
                    }
                };
            }
        }
        Ok(())
    }

    /// The symbol of `left + right`, `None` when a rank contributes to both.
    fn sum(&mut self, left: Symbol, right: Symbol) -> Option<Symbol> {
        // Addition commutes bit for bit, so the order of the two operands is no difference.
        let key = (left.min(right), left.max(right));
        if let Some(known) = self.sums.get(&key) {
            return Some(*known);
        }
        let (a, b) = (&self.contributors[left], &self.contributors[right]);
        if a.iter().zip(b).any(|(a, b)| a & b != 0) {
            return None;
        }
        let union = a.iter().zip(b).map(|(a, b)| a | b).collect();
        self.contributors.push(union);
        self.sums.insert(key, self.contributors.len() - 1);
        Some(self.contributors.len() - 1)
    }

    fn reached(&self, goal: Goal) -> Result<(), Violation> {
        for (rank, held) in self.held.iter().enumerate() {
            for (element, symbol) in held.iter().enumerate() {
                let right = match goal {
                    Goal::Broadcast(root) => *symbol == root.index(),
                    Goal::AllReduce => *symbol == self.held[0][element] && self.complete(*symbol),
                };
                if !right {
                    return Err(Violation::WrongResult {
                        rank: named(rank),
                        element,
                    });
                }
            }
        }
        Ok(())
    }

    fn complete(&self, symbol: Symbol) -> bool {
        let contributors: u32 = self.contributors[symbol]
            .iter()
            .map(|bits| bits.count_ones())
            .sum();
        contributors as usize == self.plan.len()
    }
}

fn named(rank: usize) -> Rank {
    super::rank_at(rank)
}
