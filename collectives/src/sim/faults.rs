//! What goes wrong in a job, and where its ranks are: all from one seed.

use std::collections::BTreeMap;

use super::Scenario;
use super::dice::Dice;
use super::net::{Cut, Link, MICROSECOND, MILLISECOND, SECOND, Time};
use crate::agreement::Seat;

/// Everything that is decided before a job begins.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    pub(super) ranks: u32,
    /// The host of each seat.
    pub(super) hosts: Vec<u64>,
    pub(super) links: BTreeMap<(Seat, Seat), Link>,
    pub(super) cuts: Vec<Cut>,
    pub(super) crashes: Vec<Crash>,
    /// When which seat stands still, and until when.
    pub(super) pauses: Vec<(Time, Seat, Time)>,
    /// Offset and millionths of haste of each seat's clock.
    pub(super) clocks: Vec<(Time, u64)>,
    pub(super) works: u64,
}

/// A process ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crash {
    pub(super) at: Time,
    pub(super) seat: Seat,
    /// When another one starts at its seat, if ever.
    pub(super) again: Option<Time>,
}

impl Faults {
    pub(super) fn of(scenario: Scenario, ranks: Option<u32>, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let ranks = ranks.unwrap_or_else(|| u32::try_from(dice.between(2, 8)).unwrap_or(2));
        let spread = dice.between(1, 4);
        let hosts: Vec<u64> = (0..ranks).map(|_| dice.between(0, spread)).collect();
        let links = links(&hosts, &mut dice);
        let mut faults = Self {
            ranks,
            links,
            cuts: Vec::new(),
            crashes: Vec::new(),
            pauses: Vec::new(),
            clocks: (0..ranks).map(|_| clock(&mut dice)).collect(),
            works: dice.between(6, 16),
            hosts,
        };
        let count = match scenario {
            Scenario::Calm => 0,
            Scenario::Mixed => dice.between(0, 5),
            _ => dice.between(1, 4),
        };
        for _ in 0..count {
            faults.add(scenario, &mut dice);
        }
        faults.crashes.sort_by_key(|crash| crash.at);
        faults
    }

    /// Whether nothing goes wrong.
    pub(super) fn none(&self) -> bool {
        self.cuts.is_empty() && self.crashes.is_empty() && self.pauses.is_empty()
    }

    /// Whether processes that have found each other stay in touch.
    pub(super) fn reach_is_lasting(&self) -> bool {
        self.cuts.is_empty() && self.crashes.is_empty()
    }

    fn add(&mut self, scenario: Scenario, dice: &mut Dice) {
        let at = dice.between(50 * MILLISECOND, 3 * SECOND);
        let seat = Seat::try_from(dice.between(0, self.ranks.into())).unwrap_or_default();
        let any = [
            Scenario::Crash,
            Scenario::Restart,
            Scenario::Partition,
            Scenario::Pause,
        ];
        let kind = match scenario {
            Scenario::Mixed => any[usize::try_from(dice.between(0, 4)).unwrap_or_default()],
            one => one,
        };
        match kind {
            Scenario::Crash => self.crash(at, seat, None),
            Scenario::Restart => {
                let again = at + dice.between(10 * MILLISECOND, 3 * SECOND);
                self.crash(at, seat, Some(again));
            }
            Scenario::Partition => {
                let side = dice.between(1, 1 << self.ranks);
                let until = at + dice.between(100 * MILLISECOND, 8 * SECOND);
                self.cuts.push(Cut {
                    from: at,
                    until,
                    side,
                });
            }
            Scenario::Pause => {
                let until = at + dice.between(50 * MILLISECOND, 6 * SECOND);
                self.pauses.push((at, seat, until));
            }
            Scenario::Calm | Scenario::Mixed => {}
        }
    }

    /// Once for each seat: whoever starts again there is not ended again.
    fn crash(&mut self, at: Time, seat: Seat, again: Option<Time>) {
        if self.crashes.iter().all(|crash| crash.seat != seat) {
            self.crashes.push(Crash { at, seat, again });
        }
    }
}

fn links(hosts: &[u64], dice: &mut Dice) -> BTreeMap<(Seat, Seat), Link> {
    let far = dice.between(20, 20_000) * MICROSECOND;
    let loss = if dice.happens(400) {
        dice.between(1, 60)
    } else {
        0
    };
    let seats = || (0..).zip(hosts);
    let mut links = BTreeMap::new();
    for ((from, here), (to, there)) in
        seats().flat_map(|one| seats().map(move |other| (one, other)))
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
