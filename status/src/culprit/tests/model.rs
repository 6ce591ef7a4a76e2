//! A small model of ranks that compute, wait for each other and exchange packets: what each would
//! say of itself at any time, of a cause that is planted from a moment on.

use crate::look::{Look, Silence, Unanswered};
use crate::process::CpuTimes;
use crate::snapshot::{PeerLink, RankCall, RankStatus};

/// Numbers by a seed, the same everywhere (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.next() % u64::from(end)).unwrap()
    }

    pub(super) fn one_in(&mut self, chances: u32) -> bool {
        self.below(chances) == 0
    }
}

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plant {
    Nothing,
    /// The rank needs so many times as long, as it gets no core for the rest of the time.
    Starved {
        rank: u32,
        times: f64,
    },
    /// The rank computes, or waits for data, for so many times as long.
    Late {
        rank: u32,
        times: f64,
        computes: bool,
    },
    /// Operations take so many times as long, as packets of the rank, or of one of its links, are
    /// lost or slow.
    Link {
        rank: u32,
        peer: Option<u32>,
        times: f64,
        loss: f64,
        delay: f64,
    },
    /// The rank does nothing any more.
    Stopped {
        rank: u32,
        silence: Silence,
    },
    /// Two ranks do the same.
    Both([u32; 2], f64),
    /// The rank takes no part in what others do.
    Apart {
        rank: u32,
    },
    /// Half of the ranks are far from the other half.
    Sites {
        delay: f64,
    },
}

/// A job, and what is usual in it. Times are in seconds.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) world: u32,
    pub(super) compute: f64,
    pub(super) operation: f64,
    /// Up to which share a step of a rank differs from another.
    pub(super) jitter: f64,
    /// The share of time that whoever wants a core has none, on all ranks.
    pub(super) crowded: f64,
    /// Whether who waits uses a core.
    pub(super) spins: bool,
    pub(super) loss: f64,
    pub(super) round_trip: f64,
    pub(super) plant: Plant,
    pub(super) from: f64,
    pub(super) random: Random,
}

/// One step of all ranks.
#[derive(Clone, Debug)]
struct Step {
    /// When each came to the operation.
    came: Vec<f64>,
    began: f64,
    /// When the last came that takes part.
    met: f64,
    ended: f64,
}

/// What has happened until some time.
pub(super) struct Story {
    model: Model,
    steps: Vec<Step>,
    /// When it begins to show: the others are in the first operation that the cause delays.
    pub(super) shows: f64,
}

/// For how long a wait must last before the rank says whom it waits for.
const LONG: f64 = 0.05;
/// The patience of whoever asks.
const PATIENCE: f64 = 0.7;
const NEVER: f64 = f64::INFINITY;

impl Model {
    /// All steps up to a time.
    pub(super) fn play(mut self, until: f64) -> Story {
        let (mut steps, mut now, mut shows) = (Vec::new(), 0.0, NEVER);
        while now < until {
            let planted = now >= self.from;
            let came: Vec<f64> = (0..self.world)
                .map(|rank| {
                    let times = if planted {
                        self.times(rank)
                    } else {
                        self.always(rank)
                    };
                    now + self.compute * times * self.noise()
                })
                .collect();
            let of = |rank: &u32| came[*rank as usize];
            let others = (0..self.world).filter(|rank| !self.is_planted(*rank));
            if planted && shows == NEVER {
                shows = others.map(|rank| of(&rank)).fold(0.0, f64::max);
            }
            let part = (0..self.world).filter(|rank| self.plant != Plant::Apart { rank: *rank });
            let last = part.map(|rank| of(&rank)).fold(0.0, f64::max);
            let slow = match self.plant {
                Plant::Link { times, .. } if planted => times,
                _ => 1.0,
            };
            let ended = last + self.operation * slow * self.noise();
            steps.push(Step {
                came,
                began: now,
                met: last,
                ended,
            });
            now = ended;
        }
        Story {
            model: self,
            steps,
            shows,
        }
    }

    fn noise(&mut self) -> f64 {
        let jitter = self.jitter;
        self.random.between(1.0, 1.0 + jitter)
    }

    /// How many times as long a rank takes.
    fn times(&self, rank: u32) -> f64 {
        match self.plant {
            Plant::Starved { rank: slow, times }
            | Plant::Late {
                rank: slow, times, ..
            } if slow == rank => times,
            Plant::Both(slow, times) if slow.contains(&rank) => times,
            Plant::Stopped { rank: slow, .. } if slow == rank => NEVER,
            _ => self.always(rank),
        }
    }

    /// The same before anything is planted.
    fn always(&self, rank: u32) -> f64 {
        match self.plant {
            Plant::Apart { rank: apart } if apart == rank => NEVER,
            _ => 1.0,
        }
    }

    fn is_planted(&self, rank: u32) -> bool {
        match self.plant {
            Plant::Starved { rank: slow, .. }
            | Plant::Late { rank: slow, .. }
            | Plant::Stopped { rank: slow, .. }
            | Plant::Apart { rank: slow } => slow == rank,
            Plant::Both(slow, _) => slow.contains(&rank),
            Plant::Nothing | Plant::Link { .. } | Plant::Sites { .. } => false,
        }
    }
}

impl Step {
    /// The share of its packets that were sent by some time.
    fn share(&self, at: f64) -> f64 {
        ((at - self.met) / (self.ended - self.met)).clamp(0.0, 1.0)
    }
}

impl Story {
    /// What is said when all ranks are asked at a time, and when all have answered.
    pub(super) fn look(&mut self, at: f64) -> Look {
        let planted = at >= self.model.from;
        let silent = match self.model.plant {
            Plant::Stopped { rank, silence } if planted => Some((rank, silence)),
            _ => None,
        };
        let ranks =
            (0..self.model.world).filter(|rank| Some(*rank) != silent.map(|silent| silent.0));
        // Operations, and those of them since the cause was planted.
        let moved = |step: &Step| step.share(at);
        let planted = self
            .steps
            .iter()
            .filter(|step| step.began >= self.model.from);
        let moved = [self.steps.iter().map(moved).sum(), planted.map(moved).sum()];
        let said = ranks.map(|rank| self.snapshot(rank, at, moved)).collect();
        let unanswered = silent.map(|(rank, silence)| Unanswered {
            rank: Some(rank),
            why: "it has not answered".to_owned(),
            silence,
        });
        let answered = at + if silent.is_some() { PATIENCE } else { 0.01 };
        Look::new(answered, said, unanswered.into_iter().collect())
    }

    fn snapshot(&mut self, rank: u32, at: f64, moved: [f64; 2]) -> RankStatus {
        let (mut inside, mut operations, mut current) = (0.0, 0, None);
        let mut cpu = CpuTimes {
            used: 0.1,
            ..CpuTimes::default()
        };
        for step in self.steps.iter().take_while(|step| step.began <= at) {
            let came = step.came[rank as usize].min(at);
            let left = step.ended.min(at);
            self.compute(&mut cpu, rank, [step.began, came.min(left)]);
            if came >= left && step.came[rank as usize] > at {
                continue;
            }
            inside += (left - came).max(0.0);
            if self.model.spins {
                cpu.used += (left - came).max(0.0);
            }
            match step.ended <= at {
                true => operations += 1,
                false => current = Some(self.call(step, rank, at)),
            }
        }
        RankStatus {
            rank,
            address: format!("node:{rank}"),
            world: self.model.world,
            view: 1,
            age: at,
            in_operations: inside,
            waiting_share: inside / at,
            current,
            operations,
            links: self.links(rank, moved),
            cpu: Some(cpu),
            ..RankStatus::default()
        }
    }

    /// What a rank uses while it computes.
    fn compute(&self, cpu: &mut CpuTimes, rank: u32, [from, to]: [f64; 2]) {
        let (crowded, time) = (self.model.crowded, (to - from).max(0.0));
        let planted = from >= self.model.from;
        let (used, queued) = match self.model.plant {
            Plant::Starved { rank: slow, times } if planted && slow == rank => {
                (time / times, time - time / times)
            }
            Plant::Late {
                rank: slow,
                times,
                computes: false,
            } if planted && slow == rank => (time / times, crowded * time / times),
            Plant::Apart { rank: apart } if apart == rank => (0.0, 0.0),
            _ => (time * (1.0 - crowded), time * crowded),
        };
        cpu.used += used;
        cpu.queued += queued;
    }

    /// As in a ring: each waits for the one before it, until the one that has not come.
    fn call(&self, step: &Step, rank: u32, at: f64) -> RankCall {
        let seconds = at - step.came[rank as usize];
        let world = self.model.world;
        let before = |rank: u32| (rank + world - 1) % world;
        let before = match self.model.plant {
            Plant::Apart { rank: apart } if apart == before(rank) => before(apart),
            _ => before(rank),
        };
        RankCall {
            what: "all_reduce".to_owned(),
            site: "train.rs:7".to_owned(),
            seconds,
            awaited: (seconds >= LONG).then_some(before),
        }
    }

    fn links(&mut self, rank: u32, moved: [f64; 2]) -> Vec<PeerLink> {
        let world = self.model.world;
        let hops = (0..).map(|bit| 1_u32 << bit).take_while(|hop| *hop < world);
        let mut peers: Vec<u32> = hops
            .flat_map(|hop| [(rank + hop) % world, (rank + world - hop) % world])
            .collect();
        peers.sort_unstable();
        peers.dedup();
        peers
            .into_iter()
            .map(|to| self.link([rank, to], moved))
            .collect()
    }

    fn link(&mut self, [from, to]: [u32; 2], [operations, planted]: [f64; 2]) -> PeerLink {
        let (bad, loss, delay) = match self.model.plant {
            Plant::Link {
                rank,
                peer,
                loss,
                delay,
                ..
            } => {
                let ends = [from, to];
                let bad = ends.contains(&rank) && peer.is_none_or(|peer| ends.contains(&peer));
                (bad && planted > 0.0, loss, delay)
            }
            Plant::Sites { delay } => {
                let half = self.model.world / 2;
                ((from < half) != (to < half), 0.0, delay)
            }
            _ => (false, 0.0, 0.0),
        };
        let packets = 400.0;
        let usual = packets * operations * self.model.loss;
        let more = if bad { packets * planted * loss } else { 0.0 };
        let round_trip = self.model.round_trip * self.model.random.between(0.8, 1.4);
        PeerLink {
            to,
            round_trip: round_trip + if bad { delay } else { 0.0 },
            packets_sent: whole(packets * operations),
            packets_lost: whole(usual + more),
            ..PeerLink::default()
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no model has so many packets, and none has fewer than none"
)]
fn whole(packets: f64) -> u64 {
    packets as u64
}
