//! What goes wrong in a job, and where its ranks are: all from one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Scenario;
use super::dice::Dice;
use super::net::{Cut, Link, MICROSECOND, MILLISECOND, SECOND, Time};
use crate::agreement::{MemberId, TwoMemberPolicy};
use crate::wire::MemberProcess;

/// How long links drop that everybody waits for.
const OUTAGE: Range<Time> = 32 * SECOND..60 * SECOND;

/// Everything that is decided before a job begins.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    /// Those that the job begins with.
    pub(super) ranks: u32,
    /// Which of two ranks may go on alone.
    pub(super) pair: TwoMemberPolicy,
    /// The host of each member id.
    pub(super) hosts: Vec<u64>,
    pub(super) links: BTreeMap<(MemberId, MemberId), Link>,
    pub(super) cuts: Vec<Cut>,
    /// Cuts that are no longer than this, and all of them together, nobody takes for a loss.
    outlasted: Time,
    pub(super) crashes: Vec<Crash>,
    pub(super) pauses: Vec<Pause>,
    pub(super) rumours: Vec<Rumour>,
    /// Processes that are on no list.
    pub(super) arrivals: Vec<Arrival>,
    /// Offset and millionths of haste of each member id's clock.
    pub(super) clocks: Vec<(Time, u64)>,
    pub(super) works: u64,
}

/// A process ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crash {
    pub(super) at: Time,
    pub(super) member_id: MemberId,
    /// When another one starts with its member id, if ever, and as what.
    pub(super) again: Option<(Time, Comeback)>,
}

/// As what a process starts in the place of one that has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Comeback {
    /// It asks to be let in.
    Newcomer,
    /// It does what the first one did: it knows nothing of what has been.
    Founder,
}

/// A process starts that nobody has listed, and asks to be let in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Time,
    pub(super) member_id: MemberId,
}

/// A process stands still.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    pub(super) member_id: MemberId,
    pub(super) from: Time,
    pub(super) until: Time,
}

/// A process hears, and not from the kernel, that another one has ended, or it itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rumour {
    pub(super) at: Time,
    pub(super) to: MemberId,
    pub(super) about: MemberId,
}

impl Faults {
    pub(super) fn of(scenario: Scenario, ranks: Option<u32>, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let any = u32::try_from(dice.between(2, 8)).unwrap_or(2);
        let ranks = match scenario {
            Scenario::TwoMemberPolicy => 2,
            _ => ranks.unwrap_or(any),
        };
        let spread = dice.between(1, 4);
        let hosts: Vec<u64> = (0..ranks).map(|_| dice.between(0, spread)).collect();
        let links = links(&hosts, &mut dice);
        let mut faults = Self {
            ranks,
            pair: match dice.between(0, 3) {
                0 => TwoMemberPolicy::Proven,
                1 => TwoMemberPolicy::Chief,
                _ => TwoMemberPolicy::Stop,
            },
            links,
            cuts: Vec::new(),
            outlasted: match scenario {
                Scenario::Outage => OUTAGE.end,
                _ => 0,
            },
            crashes: Vec::new(),
            pauses: Vec::new(),
            rumours: Vec::new(),
            arrivals: Vec::new(),
            clocks: (0..ranks).map(|_| clock(&mut dice)).collect(),
            works: dice.between(6, 16),
            hosts,
        };
        let count = match scenario {
            Scenario::Calm => 0,
            Scenario::Mixed => dice.between(0, 5),
            Scenario::Growth => dice.between(0, 3),
            _ => dice.between(1, 4),
        };
        for _ in 0..count {
            faults.add(scenario, &mut dice);
        }
        let arrivals = match scenario {
            Scenario::Growth => dice.between(1, 4),
            Scenario::Mixed if dice.happens(300) => dice.between(1, 3),
            _ => 0,
        };
        for _ in 0..arrivals {
            faults.arrive(&mut dice);
        }
        faults.crashes.sort_by_key(|crash| crash.at);
        faults
    }

    /// All processes that there are at any time.
    pub(super) fn places(&self) -> u32 {
        let arrivals = u32::try_from(self.arrivals.len()).expect("a few");
        self.ranks + arrivals
    }

    /// One more process comes, on the host of another or on its own; at times it is killed on its
    /// way in.
    fn arrive(&mut self, dice: &mut Dice) {
        let (at, member_id) = (
            dice.between(50 * MILLISECOND, 1500 * MILLISECOND),
            self.places(),
        );
        let near = self.member_id(dice);
        let host = match dice.happens(500) {
            true => self.hosts[near as usize],
            false => u64::from(member_id) + 100,
        };
        for cut in &mut self.cuts {
            let other = self.hosts.iter().position(|other| *other == host);
            let side = match other {
                Some(other) => cut.side >> other & 1,
                None => dice.between(0, 2),
            };
            cut.side |= side << member_id;
        }
        self.hosts.push(host);
        self.clocks.push(clock(dice));
        let links = links(&self.hosts, dice);
        let new = |way: &(MemberId, MemberId)| way.0 == member_id || way.1 == member_id;
        self.links
            .extend(links.into_iter().filter(|(way, _)| new(way)));
        self.arrivals.push(Arrival { at, member_id });
        if dice.happens(300) {
            let ends = at + dice.between(10 * MILLISECOND, 1500 * MILLISECOND);
            let again = ends + dice.between(10 * MILLISECOND, 2 * SECOND);
            let again = dice.happens(300).then_some((again, Comeback::Newcomer));
            self.crash(ends, member_id, again);
        }
    }

    /// Whether nothing goes wrong.
    pub(super) fn none(&self) -> bool {
        self.harmful_cuts().next().is_none()
            && self.crashes.is_empty()
            && self.pauses.is_empty()
            && self.rumours.is_empty()
    }

    /// The processes that the job begins with.
    pub(super) fn founders(&self) -> Vec<MemberProcess> {
        let founder = |member_id| MemberProcess {
            member_id,
            incarnation: 1,
        };
        (0..self.ranks).map(founder).collect()
    }

    /// What is to go wrong, line by line.
    pub(super) fn describe(&self, seed: u64, lines: &mut Vec<String>) {
        let Self { hosts, pair, .. } = self;
        lines.push(format!(
            "seed {seed}: hosts of the ranks {hosts:?}, {pair:?}"
        ));
        lines.extend(self.cuts.iter().map(|cut| format!("{cut:?}")));
        lines.extend(self.crashes.iter().map(|crash| format!("{crash:?}")));
        lines.extend(self.pauses.iter().map(|pause| format!("{pause:?}")));
        lines.extend(self.rumours.iter().map(|rumour| format!("{rumour:?}")));
        lines.extend(self.arrivals.iter().map(|arrival| format!("{arrival:?}")));
    }

    /// Whether two member ids could hear each other all this time, and neither stood still.
    pub(super) fn together(&self, one: MemberId, other: MemberId, during: &Range<Time>) -> bool {
        let meets = |from, until| from < during.end && during.start < until;
        let stood = |pause: &Pause| {
            [one, other].contains(&pause.member_id) && meets(pause.from, pause.until)
        };
        let cut = |cut: &Cut| cut.parts(one, other) && meets(cut.from, cut.until);
        !self.pauses.iter().any(stood) && !self.cuts.iter().any(cut)
    }

    /// Member ids that nobody ever has a reason to take for lost.
    pub(super) fn innocent(&self) -> BTreeSet<MemberId> {
        let cut = |member_id| {
            let parted = |cut: &Cut| (0..self.places()).any(|other| cut.parts(member_id, other));
            self.harmful_cuts().any(parted)
        };
        let suspicious = |member_id: &MemberId| {
            cut(*member_id)
                || self
                    .crashes
                    .iter()
                    .any(|crash| crash.member_id == *member_id)
                || self
                    .pauses
                    .iter()
                    .any(|pause| pause.member_id == *member_id)
                || self.rumours.iter().any(|rumour| rumour.about == *member_id)
        };
        (0..self.places())
            .filter(|member_id| !suspicious(member_id))
            .collect()
    }

    fn harmful_cuts(&self) -> impl Iterator<Item = &Cut> {
        let cuts = self.cuts.iter();
        cuts.filter(|cut| cut.until - cut.from > self.outlasted)
    }

    fn add(&mut self, scenario: Scenario, dice: &mut Dice) {
        let at = dice.between(50 * MILLISECOND, 3 * SECOND);
        let member_id = self.member_id(dice);
        let any = [
            Scenario::Crash,
            Scenario::Restart,
            Scenario::Partition,
            Scenario::Pause,
            Scenario::Stop,
            Scenario::Amnesia,
            Scenario::Rumour,
        ];
        let kind = match scenario {
            // What matters most for a list that has grown is who counts it, and how.
            Scenario::Growth if dice.happens(400) => Scenario::Partition,
            Scenario::Mixed | Scenario::TwoMemberPolicy | Scenario::Growth => {
                any[usize::try_from(dice.between(0, any.len() as u64)).unwrap_or_default()]
            }
            one => one,
        };
        let soon = dice.between(10 * MILLISECOND, 3 * SECOND);
        match kind {
            Scenario::Crash => self.crash(at, member_id, None),
            Scenario::Restart => {
                self.crash(at, member_id, Some((at + soon, Comeback::Newcomer)));
            }
            Scenario::Amnesia => self.crash(at, member_id, Some((at + soon, Comeback::Founder))),
            Scenario::Partition => self.cuts.push(Cut {
                from: at,
                until: at + dice.between(100 * MILLISECOND, 8 * SECOND),
                side: self.side(dice),
            }),
            // All begin within three seconds.
            Scenario::Outage => self.cuts.push(Cut {
                from: at,
                until: at + dice.between(OUTAGE.start, OUTAGE.end),
                side: self.side(dice),
            }),
            Scenario::Pause => self.pauses.push(Pause {
                member_id,
                from: at,
                until: at + dice.between(50 * MILLISECOND, 6 * SECOND),
            }),
            Scenario::Stop => self.pauses.push(Pause {
                member_id,
                from: at,
                until: at + dice.between(4 * SECOND, 25 * SECOND),
            }),
            Scenario::Rumour => {
                let about = self.member_id(dice);
                self.rumours.push(Rumour {
                    at,
                    to: member_id,
                    about,
                });
            }
            Scenario::Calm | Scenario::Mixed | Scenario::TwoMemberPolicy | Scenario::Growth => {}
        }
    }

    /// Some hosts, as the member ids of their ranks: no cable is within a host.
    fn side(&self, dice: &mut Dice) -> u64 {
        let hosts = dice.between(1, 1 << self.ranks);
        let members = (0..).zip(&self.hosts);
        members.fold(0, |side, (member_id, host): (u32, _)| {
            side | (hosts >> host & 1) << member_id
        })
    }

    fn member_id(&self, dice: &mut Dice) -> MemberId {
        MemberId::try_from(dice.between(0, self.ranks.into())).unwrap_or_default()
    }

    /// Once for each member id: whoever starts again there is not ended again. Of founders that
    /// forget there are never so many that they are half of all: nobody could tell them from a new
    /// job.
    fn crash(&mut self, at: Time, member_id: MemberId, again: Option<(Time, Comeback)>) {
        let forgets = |again: Option<(Time, _)>| {
            again.is_some_and(|(_, comeback)| comeback == Comeback::Founder)
        };
        let forgetful = self
            .crashes
            .iter()
            .filter(|crash| forgets(crash.again))
            .count();
        if forgets(again) && 2 * (forgetful + 1) >= self.ranks as usize {
            return;
        }
        if self
            .crashes
            .iter()
            .all(|crash| crash.member_id != member_id)
        {
            self.crashes.push(Crash {
                at,
                member_id,
                again,
            });
        }
    }
}

fn links(hosts: &[u64], dice: &mut Dice) -> BTreeMap<(MemberId, MemberId), Link> {
    let far = dice.between(20, 20_000) * MICROSECOND;
    let loss = if dice.happens(400) {
        dice.between(1, 60)
    } else {
        0
    };
    let member_ids = || (0..).zip(hosts);
    let mut links = BTreeMap::new();
    for ((from, here), (to, there)) in
        member_ids().flat_map(|one| member_ids().map(move |other| (one, other)))
    {
        let link = match here == there {
            true => Link {
                latency: 2 * MICROSECOND,
                jitter: 3 * MICROSECOND,
                loss: 0,
                bandwidth: 8000,
            },
            false => Link {
                latency: far + dice.between(0, far),
                jitter: dice.between(0, far),
                loss,
                bandwidth: dice.between(5, 3000),
            },
        };
        links.insert((from, to), link);
    }
    links
}

fn clock(dice: &mut Dice) -> (Time, u64) {
    (dice.between(0, 1000) * SECOND, dice.between(0, 500))
}
