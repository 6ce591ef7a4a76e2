//! All-to-all over several hosts: between two hosts each rank sends one message, however many ranks
//! they have.
//!
//! ```text
//!   host A: ranks 0 1        host B: ranks 2 3          blocks, from and for whom
//!
//!   local    0 <-> 1   2 <-> 3     0 has 02 12 for 2, 1 has 03 13 for 3, 2 has 20 30, 3 has 21 31
//!   across   0 <-> 2   1 <-> 3     0 has 20 30, 1 has 21 31, 2 has 02 12, 3 has 03 13
//! ```
//!
//! Which blocks go where in which round is the hierarchical schedule of the collective. It has a
//! third round, on the hosts, where some have more ranks than the smallest.

use std::collections::BTreeMap;
use std::ops::Range;

use meshwork_accel::Element;

use super::{CallOfParts, Hierarchy};
use crate::contract::Kind;
use crate::operation::{OnArrival, OperationSpec, ReceiveBlock, SendBlocks, Transfer, Work};
use crate::schedule::{Algorithm, Collective, Hosts, Round, Schedule};
use crate::session::Session;
use crate::{OperationError, Rank};

impl Hierarchy {
    /// Gives all ranks their blocks of all, which have one length; all have agreed on the call
    /// before.
    pub(super) fn all_to_all<T: Element>(
        &mut self,
        call: CallOfParts,
        transfer: Transfer<'_, T>,
    ) -> Result<(), OperationError> {
        let Transfer {
            outgoing_blocks,
            receives,
            output,
            ..
        } = transfer;
        let (me, world) = (self.me, self.hosts.world());
        let mut held = Held {
            me,
            world,
            own: outgoing_blocks,
            passed: Vec::new(),
            places: BTreeMap::new(),
        };
        let here: Vec<usize> = self.hosts.members(self.hosts.host(me)).collect();
        let carriers: Vec<usize> = Self::carriers(&self.hosts, me).collect();
        for index in 0..rounds(&self.hosts, me).len() {
            let (session, places) = match (index, &mut self.across) {
                (1, Some(across)) => (across, &carriers),
                (1, None) => continue,
                // Nobody is left to be handed anything.
                (2.., _) if here.len() <= self.shares => continue,
                _ => (&mut self.local, &here),
            };
            let leg = Leg {
                hosts: &self.hosts,
                places,
                index,
            };
            leg.carry_out(call, session, &mut held)?;
        }
        for take in receives {
            let block = take.from * world + me;
            output[take.into.clone()].copy_from_slice(held.block(block));
        }
        Ok(())
    }
}

/// The rounds of the rank at a place.
fn rounds(hosts: &Hosts, place: usize) -> impl ExactSizeIterator<Item = Round> + use<> {
    let rank = Rank::at(place);
    Schedule::new(Collective::AllToAll, Algorithm::Hierarchical, hosts, rank).rounds()
}

/// One round, in a group of those among whom it moves anything.
struct Leg<'a> {
    hosts: &'a Hosts,
    /// The places of its ranks among all.
    places: &'a [usize],
    index: usize,
}

impl Leg<'_> {
    fn carry_out<T: Element>(
        &self,
        call: CallOfParts,
        session: &mut Session,
        held: &mut Held<'_, T>,
    ) -> Result<(), OperationError> {
        let round = self.round(held.me);
        let length = held.own.blocks[held.me].len();
        let (mut packed, mut blocks) = (Vec::new(), Vec::new());
        for to in self.places {
            let start = packed.len();
            for block in sent(&round, *to) {
                packed.extend_from_slice(held.block(block));
            }
            blocks.push(start..packed.len());
        }
        let mut arriving = Vec::new();
        let mut receives = Vec::new();
        let own = session.rank.index();
        for (from, place) in self.places.iter().enumerate() {
            let start = arriving.len() * length;
            arriving.extend(received(&round, *place));
            if from != own {
                let into = start..arriving.len() * length;
                let begins = match self.index {
                    // Over links it plays no part, and takes long to find out among many hosts.
                    1 => 0,
                    _ => self.blocks_before(*place, own) * length,
                };
                receives.push(ReceiveBlock::new(from, own, begins, into));
            }
        }
        let mut arrived = vec![T::default(); arriving.len() * length];
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::each(&packed, &blocks),
            receives: &receives,
            output: &mut arrived,
            then: OnArrival::Copy,
        };
        // Not of one length, as everybody knows from where everybody is.
        let spec = OperationSpec::new(Kind::AllToAll, held.own.input.len());
        let spec = spec.with_lengths(&[self.index, length]);
        call.perform(session, spec, Work::Exchange(transfer))?;
        held.keep(&arriving, &arrived);
        Ok(())
    }

    fn round(&self, place: usize) -> Round {
        rounds(self.hosts, place)
            .nth(self.index)
            .expect("ranks have equally many rounds")
    }

    /// How many blocks the one at a place has for those before a rank of the group.
    fn blocks_before(&self, place: usize, rank: usize) -> usize {
        let round = self.round(place);
        let before = self.places[..rank].iter();
        before.map(|to| sent(&round, *to).count()).sum()
    }
}

fn sent(round: &Round, to: usize) -> impl Iterator<Item = usize> + '_ {
    let sends = round.sends().iter();
    let sends = sends.filter(move |send| send.to.index() == to);
    sends.flat_map(|send| send.blocks.clone())
}

fn received(round: &Round, from: usize) -> impl Iterator<Item = usize> + '_ {
    let receives = round.receives().iter();
    let receives = receives.filter(move |receive| receive.from.index() == from);
    receives.flat_map(|receive| receive.blocks.clone())
}

/// What a rank has: its own input, and blocks of others, for itself or on their way.
struct Held<'a, T> {
    me: usize,
    world: usize,
    own: SendBlocks<'a, T>,
    passed: Vec<T>,
    /// Where in `passed` each block is.
    places: BTreeMap<usize, Range<usize>>,
}

impl<T: Element> Held<'_, T> {
    fn block(&self, block: usize) -> &[T] {
        match block / self.world == self.me {
            true => &self.own.input[self.own.blocks[block % self.world].clone()],
            false => &self.passed[self.places[&block].clone()],
        }
    }

    /// Takes in blocks that have come, one after the other.
    fn keep(&mut self, blocks: &[usize], values: &[T]) {
        let length = self.own.blocks[self.me].len();
        let start = self.passed.len();
        self.passed.extend_from_slice(values);
        let ranges = (0..).map(|at| start + at * length..start + (at + 1) * length);
        self.places.extend(blocks.iter().copied().zip(ranges));
    }
}
