//! What goes wrong, with whom and when: drawn from a seed.

use std::time::{Duration, Instant};

use crate::args::Args;

/// One thing that goes wrong in a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// SIGKILL to this rank.
    Kill(u32),
    /// SIGSTOP to this rank.
    Stop(u32),
    /// Nothing goes through between rank 0 and this one any more.
    Cut(u32),
    /// Nothing goes through between this rank and all others any more.
    Partition(u32),
    /// SIGKILL to this rank of a job that goes on, and another process in its place.
    Restart(u32),
}

/// How ranks can be parted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Parting {
    /// Each rank has a network of its own, whose link can be taken down.
    Namespaces,
    /// What goes to rank 0 goes through a relay.
    Relay,
}

/// A row of random numbers: SplitMix64.
#[derive(Debug)]
pub(crate) struct Moments(u64);

/// The latest a fault comes after all ranks are at work.
const SPREAD: u32 = 20_000;

impl Moments {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn fault(&mut self, turn: u32, args: &Args, parting: Parting) -> Fault {
        let every = |number: Option<u32>| number.is_some_and(|every| turn.is_multiple_of(every));
        if every(args.cut_every()) {
            return match parting {
                Parting::Namespaces => Fault::Partition(self.below(args.ranks())),
                Parting::Relay => Fault::Cut(1 + self.below(args.ranks() - 1)),
            };
        }
        let victim = self.below(args.ranks());
        if every(args.restart_every()) {
            return Fault::Restart(victim);
        }
        match every(args.stop_every()) {
            true => Fault::Stop(victim),
            false => Fault::Kill(victim),
        }
    }

    /// Lets some time pass, after all ranks are at work, before a fault comes.
    pub(crate) fn pass(&mut self) {
        let delay = Duration::from_micros(self.below(SPREAD).into());
        let until = Instant::now() + delay;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let number = (z ^ (z >> 31)) >> 32;
        (number % u64::from(bound.max(1))) as u32
    }
}

impl Fault {
    /// Whether the error of rank `by` may name this rank.
    pub(crate) fn may_be_named(self, named: usize, by: usize) -> bool {
        let is = |rank: u32| named == rank as usize;
        match self {
            Self::Kill(rank) | Self::Stop(rank) | Self::Restart(rank) => is(rank),
            Self::Cut(rank) => is(0) || is(rank),
            // Who is cut off has lost all others, and they have lost it.
            Self::Partition(rank) => is(rank) != (by == rank as usize),
        }
    }

    /// Who ends without a word.
    pub(crate) fn victim(self) -> Option<u32> {
        match self {
            Self::Kill(rank) | Self::Stop(rank) | Self::Restart(rank) => Some(rank),
            Self::Cut(_) | Self::Partition(_) => None,
        }
    }
}
