//! A cost model of schedules: latency, messages and bytes of each round, added up.
//!
//! Which algorithm is chosen by it, [`communication`](super) says.

use std::ops::Range;

use super::Effort;
use crate::schedule::{Algorithm, Blocks, Collective, Hosts, OnReceive, Round, Schedule};
use crate::{DataTransport, Rank};

/// Predicts how long a schedule takes, from its own rounds.
///
/// A round takes as long as its busiest rank, and rounds follow each other. A rank takes, for each
/// kind of link that it uses in the round,
///
/// ```text
/// latency + messages * per_message + bytes * per_byte * (1 + crowding * (messages - 1))
/// ```
///
/// where messages and bytes are what it sends or what it receives, whichever is more, as links
/// carry both ways at once (where more than two ranks share a core, which is busy at both ends, it
/// is half of the bytes of both ways); and for each byte that it reduces, what that takes.
/// (Hockney, "The communication challenge for MPP", 1994, with the overhead of a message as in
/// Culler et al., "LogP", 1993.)
///
/// Ranks that share a core also wait for each other's messages and bytes: a schedule takes no less
/// than an average rank's without latency, half of it for each end of a message, times the ranks of
/// a core. (Brent, "The parallel evaluation of general arithmetic expressions", 1974, bounds the
/// time of a parallel program by the longest chain in it, and by its work over the processors.) Of
/// messages that a rank awaits from several in one round, it finds some when it is woken for
/// others: each but the first counts for three quarters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Between ranks of one host.
    within: LinkCost,
    /// Between hosts.
    between: LinkCost,
    /// Seconds to reduce a byte into another.
    reduce: f64,
    /// On the most heavily shared host.
    ranks_per_core: f64,
}

/// What a schedule takes, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Of rounds that follow each other.
    pub(super) chain: f64,
    /// Of a core, for all ranks that share it; nothing where each has its own.
    pub(super) work: f64,
}

impl Cost {
    pub(super) fn seconds(self) -> f64 {
        self.chain.max(self.work)
    }
}

/// What moving bytes over one kind of link takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// Seconds until the first byte arrives.
    pub latency: f64,
    /// Seconds for each message.
    pub per_message: f64,
    /// Seconds for each byte.
    pub per_byte: f64,
    /// By how much longer a byte takes for each further rank that sends or receives at the same
    /// time.
    pub crowding: f64,
}

impl LinkCost {
    /// QUIC on loopback: between measurements with packets of 1,452 and of 6,500 bytes, both
    /// directions busy.
    pub const QUIC: Self = Self {
        latency: 85e-6,
        per_message: 15e-6,
        per_byte: 1.0 / 0.6e9,
        // Four ranks of 2 cores exchange 16 MiB with one at a time in 15 to 20 % less time than
        // with all three.
        crowding: 0.08,
    };

    /// TLS over TCP on loopback, both directions busy: within 30 % of what two ranks with a core
    /// each take for 1 KiB to 64 MiB by every algorithm but the tree, which overlaps its rounds.
    pub const TLS: Self = Self {
        latency: 5e-6,
        per_message: 8e-6,
        per_byte: 1.0 / 3.0e9,
        // As over QUIC: 10 to 40 % more time where four ranks of 2 cores all send to all at once.
        crowding: 0.13,
    };

    /// Memory that two processes or threads share: one wake-up by a flag, and a copy in and out.
    pub const MEMORY: Self = Self {
        latency: 0.5e-6,
        per_message: 0.3e-6,
        per_byte: 1.0 / 7e9,
        crowding: 0.0,
    };
}

impl CostModel {
    /// Everything over QUIC.
    pub const QUIC: Self = Self::new(LinkCost::QUIC, LinkCost::QUIC);

    /// Everything over TLS.
    pub const TLS: Self = Self::new(LinkCost::TLS, LinkCost::TLS);

    /// Everything over what carries the bytes of operations.
    #[must_use]
    pub const fn over(data_transport: DataTransport) -> Self {
        match data_transport {
            DataTransport::Quic => Self::QUIC,
            DataTransport::Tls => Self::TLS,
        }
    }

    /// A model of two kinds of link: within hosts and between them.
    #[must_use]
    pub const fn new(within: LinkCost, between: LinkCost) -> Self {
        Self {
            within,
            between,
            // One source read, one destination read and written, in memory.
            reduce: 1.0 / 7.5e9,
            ranks_per_core: 1.0,
        }
    }

    /// The same among ranks of which so many share a core, where most do. Fewer than one are as
    /// good as one.
    #[must_use]
    pub const fn with_ranks_per_core(self, ranks_per_core: f64) -> Self {
        Self {
            ranks_per_core,
            ..self
        }
    }

    /// Whether so many ranks share a core that each message displaces one of them.
    pub(super) fn displaces(&self) -> bool {
        const PAIR: f64 = 2.0;
        self.ranks_per_core > PAIR
    }

    /// The time of a collective, in seconds, for `bytes` in the whole buffer; of blocks per rank or
    /// pair of ranks, all are taken as equal.
    #[must_use]
    pub fn seconds(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        hosts: &Hosts,
        bytes: usize,
    ) -> f64 {
        self.cost(collective, algorithm, hosts, bytes).seconds()
    }

    pub(super) fn cost(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        hosts: &Hosts,
        bytes: usize,
    ) -> Cost {
        let mut rounds: Vec<f64> = Vec::new();
        let mut work = 0.0;
        for Observed { rank, stands_for } in observed(hosts.world()) {
            let schedule = Schedule::new(collective, algorithm, hosts, rank);
            let blocks = Blocks::even(bytes, schedule.blocks());
            rounds.resize(schedule.rounds().len(), 0.0);
            for (slowest, round) in rounds.iter_mut().zip(schedule.rounds()) {
                let cost = self.round(&round, rank, hosts, &blocks);
                *slowest = slowest.max(cost.chain);
                work += cost.work * stands_for;
            }
        }
        let is_shared = self.ranks_per_core > 1.0;
        Cost {
            chain: rounds.iter().sum(),
            work: match is_shared {
                true => work / hosts.world() as f64 * self.ranks_per_core,
                false => 0.0,
            },
        }
    }

    /// What a round takes a rank, and what of that it has to do itself.
    fn round(&self, round: &Round, rank: Rank, hosts: &Hosts, blocks: &Blocks) -> Cost {
        let mut seconds = Cost::default();
        for (cost, near) in [(&self.within, true), (&self.between, false)] {
            let here = |peer: Rank| hosts.share(rank.index(), peer.index()) == near;
            let len = |range: &Range<usize>| blocks.elements(range.clone()).len();
            let sends = round.sends().iter().filter(|send| here(send.to));
            let sent = Load::of(sends.map(|send| len(&send.blocks)));
            let receives = round.receives().iter().filter(|receive| here(receive.from));
            let received = Load::of(receives.clone().map(|receive| len(&receive.blocks)));
            let reduced = receives.filter(|receive| receive.then == OnReceive::Reduce);
            let reduced = Load::of(reduced.map(|receive| len(&receive.blocks)));
            if sent.messages + received.messages > 0 {
                let messages = sent.messages.max(received.messages) as f64;
                let both = (sent.bytes + received.bytes) as f64;
                let bytes = match self.displaces() {
                    // No link is the bound, but a core: each end does half.
                    true => both / 2.0,
                    false => sent.bytes.max(received.bytes) as f64,
                };
                let crowded = 1.0 + cost.crowding * (messages - 1.0);
                let reducing = reduced.bytes as f64 * self.reduce;
                let moving = |messages: f64, bytes: f64| {
                    messages * cost.per_message + bytes * cost.per_byte * crowded
                };
                seconds.chain += cost.latency + moving(messages, bytes) + reducing;
                let messages = sent.messages as f64 + wakes(received.messages);
                seconds.work += moving(messages / 2.0, both / 2.0) + reducing;
            }
        }
        seconds
    }
}

/// As how many messages, taken in one by one, those count that a rank receives in one round.
fn wakes(messages: usize) -> f64 {
    const AWAKE: f64 = 0.75;
    match messages {
        0 => 0.0,
        several => 1.0 + AWAKE * (several - 1) as f64,
    }
}

/// What an algorithm asks of ranks besides their time.
pub(super) fn effort(collective: Collective, algorithm: Algorithm, hosts: &Hosts) -> Effort {
    let (mut peers, mut messages, mut rounds, mut ranks) = (0, 0, 0, 0);
    for Observed { rank, .. } in observed(hosts.world()) {
        let schedule = Schedule::new(collective, algorithm, hosts, rank);
        peers = peers.max(schedule.peers().len());
        let sends = schedule.rounds().map(|round| round.sends().len());
        messages += sends.sum::<usize>();
        rounds = schedule.rounds().len();
        ranks += 1;
    }
    Effort {
        peers,
        messages: messages as f64 / f64::from(ranks.max(1)),
        rounds,
    }
}

/// What goes one way.
#[derive(Default)]
struct Load {
    messages: usize,
    bytes: usize,
}

impl Load {
    fn of(lengths: impl Iterator<Item = usize>) -> Self {
        lengths.fold(Self::default(), |load, bytes| Self {
            messages: load.messages + 1,
            bytes: load.bytes + bytes,
        })
    }
}

/// A rank whose rounds are looked at.
struct Observed {
    rank: Rank,
    /// How many ranks do about as much, itself among them.
    stands_for: f64,
}

/// All ranks of a small world, of a large one the first, which are the busiest of trees, the last,
/// and some in between.
fn observed(world: usize) -> impl Iterator<Item = Observed> {
    const ALL: usize = 16;
    let of_large = move |index: usize| match index {
        0..4 => index,
        4..8 => world - 1 - (index - 4),
        _ => (index - 7) * world / 9,
    };
    let in_between = (world.max(ALL) - 8) as f64 / 8.0;
    let is_in_between = move |index: usize| world > ALL && index >= 8;
    (0..world.min(ALL)).map(move |index| Observed {
        rank: Rank::at(if world <= ALL { index } else { of_large(index) }),
        stands_for: if is_in_between(index) {
            in_between
        } else {
            1.0
        },
    })
}
