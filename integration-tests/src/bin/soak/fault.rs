//! What goes wrong, with whom and when, and in which job: drawn from a seed.

use std::fmt::{self, Display};
use std::thread;
use std::time::Duration;

use crate::args::{Args, Buffers};

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
    /// SIGSTOP to this rank of a job that goes on, and SIGCONT after this time.
    Pause(u32, Duration),
}

/// What the ranks of a job reduce.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Load {
    pub(crate) elements: usize,
    pub(crate) buffers: Buffers,
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

/// Elements that the smallest buffer has, and how often they can be doubled: 16 KiB to 64 MiB.
const LEAST_ELEMENTS: u32 = 4096;
const DOUBLINGS: u32 = 12;

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
        if every(args.pause_every()) {
            return Fault::Pause(victim, self.pause());
        }
        match every(args.stop_every()) {
            true => Fault::Stop(victim),
            false => Fault::Kill(victim),
        }
    }

    /// What a job reduces, as far as it has not been said.
    pub(crate) fn load(&mut self, args: &Args) -> Load {
        let least = LEAST_ELEMENTS << self.below(DOUBLINGS);
        let elements = least + self.below(least + 1);
        let buffers = match self.below(2) {
            0 => Buffers::Registered,
            _ => Buffers::Private,
        };
        Load {
            elements: args.elements().unwrap_or(elements as usize),
            buffers: args.buffers().unwrap_or(buffers),
        }
    }

    /// Lets some time pass, after all ranks are at work, before a fault comes: up to a step or two.
    pub(crate) fn pass(&mut self, load: Load) {
        let step = Duration::from_nanos(load.bytes().saturating_mul(NANOS_PER_BYTE));
        let most = LEAST_SPREAD.saturating_add(step).as_micros();
        let delay = self.below(u32::try_from(most).unwrap_or(u32::MAX));
        thread::sleep(Duration::from_micros(delay.into()));
    }

    /// Too short to be noticed, so long that it may be, and longer than that.
    fn pause(&mut self) -> Duration {
        let millis = match self.below(3) {
            0 => 1 + self.below(199),
            1 => 200 + self.below(1_800),
            _ => 2_000 + self.below(6_000),
        };
        Duration::from_millis(millis.into())
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

/// The latest a fault comes after all ranks are at work, however small the buffers.
const LEAST_SPREAD: Duration = Duration::from_millis(20);
/// About what it takes to fill, to reduce and to check a large buffer.
const NANOS_PER_BYTE: u64 = 10;

impl Fault {
    /// Whether the error of rank `by` may name this rank.
    pub(crate) fn may_be_named(self, named: usize, by: usize) -> bool {
        let is = |rank: u32| named == rank as usize;
        match self {
            Self::Kill(rank) | Self::Stop(rank) | Self::Restart(rank) | Self::Pause(rank, _) => {
                is(rank)
            }
            Self::Cut(rank) => is(0) || is(rank),
            // Who is cut off has lost all others, and they have lost it.
            Self::Partition(rank) => is(rank) != (by == rank as usize),
        }
    }

    /// Who ends without a word.
    pub(crate) fn victim(self) -> Option<u32> {
        match self {
            Self::Kill(rank) | Self::Stop(rank) | Self::Restart(rank) | Self::Pause(rank, _) => {
                Some(rank)
            }
            Self::Cut(_) | Self::Partition(_) => None,
        }
    }
}

impl Load {
    fn bytes(self) -> u64 {
        (self.elements as u64).saturating_mul(size_of::<f32>() as u64)
    }
}

impl Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffers = match self.buffers {
            Buffers::Registered => "registered",
            Buffers::Private => "private",
        };
        write!(f, "{} KiB {buffers}", self.bytes() >> 10)
    }
}
