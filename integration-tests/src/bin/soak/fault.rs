//! What goes wrong, with whom and when: drawn from a seed.

use std::time::Duration;

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

    pub(crate) fn fault(&mut self, turn: u32, args: &Args) -> Fault {
        let every = |number: Option<u32>| number.is_some_and(|every| turn.is_multiple_of(every));
        if every(args.cut_every()) {
            return Fault::Cut(1 + self.below(args.ranks() - 1));
        }
        let victim = self.below(args.ranks());
        match every(args.stop_every()) {
            true => Fault::Stop(victim),
            false => Fault::Kill(victim),
        }
    }

    /// How long after all ranks are at work a fault comes.
    pub(crate) fn delay(&mut self) -> Duration {
        Duration::from_micros(self.below(SPREAD).into())
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
    /// Whom the survivors' errors may name.
    pub(crate) fn culprits(self) -> Vec<u32> {
        match self {
            Self::Kill(rank) | Self::Stop(rank) => vec![rank],
            Self::Cut(rank) => vec![0, rank],
        }
    }

    /// Who ends without a word.
    pub(crate) fn victim(self) -> Option<u32> {
        match self {
            Self::Kill(rank) | Self::Stop(rank) => Some(rank),
            Self::Cut(_) => None,
        }
    }
}
