//! What a start, signs of life, a death and a reconfiguration cost in groups of any size: the
//! product's own membership and agreement of every rank, on links that take a tenth of a
//! millisecond and lose nothing.
//!
//! All members know what happens around them as real processes would: who is connected, whose
//! connection breaks, and what is said. Nothing is scaled up: each figure is counted from the
//! messages of all ranks.

mod net;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::agreement::{
    self, Agreement, AgreementRules, AgreementTimeouts, MemberId, PreviousEpoch, Proof,
    TwoMemberPolicy,
};
use crate::membership::{self, Membership, MembershipTimeouts};
use crate::schedule::{Algorithm, Schedule};
use crate::wire::{Cores, MemberProcess, MemberRecord, MemberState, Message, Spoken};
use crate::{Member, OperationError, Rank, links, overlay};
use net::{LATENCY, Net};

const TIMEOUTS: MembershipTimeouts = MembershipTimeouts {
    join: Duration::from_secs(30),
    heartbeat: Duration::from_millis(250),
    check: Duration::from_millis(250),
    silence: Duration::from_secs(10),
};

/// What all ranks together have said until all were told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Cost {
    /// Until the last of them was.
    pub took: Duration,
    /// Messages of all ranks.
    pub messages: u64,
    /// Messages of the rank with most of them.
    pub most_messages: u64,
    /// Bytes of all messages, as they are encoded; handshakes, and greetings of members that call
    /// each other, are not in them.
    pub bytes: u64,
}

impl Cost {
    /// The rounds of a start: how many messages the last rank waited for, one after the other,
    /// behind its handshakes.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.latencies().saturating_sub(2)
    }

    /// How many times the latency of a link it took.
    #[must_use]
    pub fn latencies(&self) -> u32 {
        let latencies = self.took.as_micros() / LATENCY.as_micros();
        u32::try_from(latencies).expect("nothing that is played takes days")
    }
}

/// The peers of a rank, and the rounds, of an all-reduce.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Rounds {
    /// The most that a rank goes through.
    pub rounds: usize,
    /// The most ranks that one exchanges with.
    pub peers: usize,
}

/// The most connections that a rank has before an operation needs more. Takes one rank at the
/// least.
#[must_use]
pub fn connections(ranks: u32) -> usize {
    let places = [0, 1, ranks / 3, ranks / 2, ranks - 1];
    let count = |rank| overlay::neighbours(Rank::new(rank % ranks), ranks).len();
    places.map(count).into_iter().max().expect("five places")
}

/// What an all-reduce takes by its schedule; looks at some ranks. Takes one at the least.
#[must_use]
pub fn all_reduce(algorithm: Algorithm, ranks: u32) -> Rounds {
    let places = [0, 1, ranks / 3, ranks / 2, ranks - 1];
    let schedule = |rank| Schedule::all_reduce(algorithm, ranks, Rank::new(rank % ranks));
    let schedules = places.map(schedule);
    let most = |of: fn(&Schedule) -> usize| schedules.iter().map(of).max();
    Rounds {
        rounds: most(|schedule| schedule.rounds().len()).expect("five places"),
        peers: most(|schedule| schedule.peers().len()).expect("five places"),
    }
}

/// A start: from the first handshakes until every rank knows of all. Takes some 100 bytes for each
/// pair of ranks.
#[must_use]
pub fn start(ranks: u32) -> Cost {
    let mut world = Memberships::new(ranks);
    for rank in Rank::all(ranks) {
        for other in overlay::neighbours(rank, ranks) {
            let joined = membership::Event::Joined(other);
            world.net.post(2 * LATENCY, rank.index(), joined);
        }
    }
    world.run();
    assert_eq!(world.begun, ranks, "all ranks begin");
    world.net.cost()
}

/// Bytes that a rank keeps of each member that it is not connected with, by the sizes of what they
/// are kept in: its address, of so many bytes, what it has told of itself, its member id and
/// incarnation, and its empty place among the links of the group.
#[must_use]
pub fn member_bytes(address: usize) -> usize {
    // A tree's leaf holds 11 entries and is two thirds full.
    let incarnation = 3 * (size_of::<MemberId>() + size_of::<u64>()) / 2;
    let links = size_of::<Option<links::Outgoing>>() + size_of::<Option<links::Incoming>>();
    // The list that a process was given, and the members of the epoch.
    let addresses = size_of::<String>() + size_of::<Member>() + 2 * address;
    addresses + size_of::<MemberRecord>() + size_of::<MemberId>() + incarnation + links
}

/// A death in a group that runs: from the broken connections until all ranks have named it.
#[must_use]
pub fn death(ranks: u32) -> Cost {
    let mut world = Memberships::begun(ranks);
    let victim = Rank::new(ranks / 3);
    world.lost = Some(victim);
    for other in overlay::neighbours(victim, ranks) {
        let broken = membership::Event::Disconnected(victim);
        world.net.post(LATENCY, other.index(), broken);
    }
    world.run();
    assert_eq!(world.named, ranks - 1, "all that are left name {victim}");
    world.net.cost()
}

/// A rack of `rack` ranks, half of them at the most, is cut off from all others, without a word:
/// until all of either side have named somebody of the other. Signs of life are counted too. Takes
/// two ranks at the least.
#[must_use]
pub fn cut(ranks: u32, rack: u32) -> Cost {
    let mut world = Memberships::begun(ranks);
    world.rack = Some(rack.clamp(1, ranks / 2));
    world.run_with_clocks();
    assert_eq!(world.named, ranks, "all ranks name somebody beyond the cut");
    world.net.cost()
}

/// A reconfiguration after so many ranks, of which all others know, have ended: from the end of
/// the epoch until all that are left have decided. Every third rank has ended, the lowest among
/// them. Takes three ranks at the least.
#[must_use]
pub fn reconfiguration(ranks: u32, ended: u32) -> Cost {
    let mut world = Agreements::new(ranks, ended.clamp(1, ranks / 3));
    world.run();
    assert_eq!(
        world.decided,
        ranks - world.ended,
        "all that are left decide"
    );
    world.net.cost()
}

/// The memberships of all ranks.
struct Memberships {
    ranks: Vec<Membership>,
    net: Net<membership::Event>,
    begun: u32,
    /// Who has ended, and how many have named it.
    lost: Option<Rank>,
    named: u32,
    /// So many of the lowest ranks are cut off from the others.
    rack: Option<u32>,
    /// When each rank wants to look at the clock next.
    clocks: Vec<Option<Instant>>,
}

impl Memberships {
    fn new(ranks: u32) -> Self {
        Self::of(ranks, |rank, members, now| {
            Membership::new(rank, record(rank), members, TIMEOUTS, now)
        })
    }

    /// Every rank knows all others, without a message.
    fn begun(ranks: u32) -> Self {
        let records: Arc<[_]> = Rank::all(ranks).map(record).collect();
        Self::of(ranks, |rank, members, now| {
            Membership::begun(rank, records.clone(), members, TIMEOUTS, now)
        })
    }

    fn of(ranks: u32, new: impl Fn(Rank, Arc<[Member]>, Instant) -> Membership) -> Self {
        let net = Net::new(ranks);
        let member = |rank| Member::new(rank, "a simulated rank");
        let members: Arc<[Member]> = Rank::all(ranks).map(member).collect();
        Self {
            ranks: Rank::all(ranks)
                .map(|rank| new(rank, members.clone(), net.now))
                .collect(),
            clocks: vec![None; ranks as usize],
            net,
            begun: 0,
            lost: None,
            named: 0,
            rack: None,
        }
    }

    /// As [`run`](Self::run), with every rank looking at the clock when it wants to, until all have
    /// named somebody.
    fn run_with_clocks(&mut self) {
        for rank in 0..self.ranks.len() {
            self.happens(rank, membership::Event::Tick);
            self.set_clock(rank);
        }
        let ranks = u32::try_from(self.ranks.len()).expect("counted as u32");
        while self.named < ranks
            && let Some((rank, event)) = self.net.next()
        {
            let is_clock = matches!(event, membership::Event::Tick);
            if is_clock && self.clocks[rank].is_none_or(|at| at > self.net.now) {
                // It was set anew meanwhile.
                continue;
            }
            self.happens(rank, event);
            self.set_clock(rank);
        }
    }

    fn set_clock(&mut self, rank: usize) {
        let wake = self.ranks[rank].wake().map(|at| at.max(self.net.now));
        let clock = &mut self.clocks[rank];
        if clock.is_some_and(|at| at > self.net.now) && *clock <= wake {
            return;
        }
        *clock = wake;
        if let Some(at) = wake {
            let delay = at - self.net.now + Duration::from_micros(1);
            self.clocks[rank] = Some(self.net.now + delay);
            self.net.post(delay, rank, membership::Event::Tick);
        }
    }

    /// Whether nothing gets from one rank to another.
    fn is_cut(&self, one: Rank, other: Rank) -> bool {
        let inside = |rank: Rank| self.rack.is_some_and(|rack| rank.number() < rack);
        inside(one) != inside(other)
    }

    fn run(&mut self) {
        while let Some((rank, event)) = self.net.next() {
            self.happens(rank, event);
            if self.net.queue.is_empty() {
                self.pass_time();
            }
        }
    }

    /// Lets those go on that wait for no message, but for the time: who collects evidence of a
    /// death.
    fn pass_time(&mut self) {
        if self.lost.is_none() || self.named > 0 {
            return;
        }
        self.net.now += membership::GRACE;
        for rank in 0..self.ranks.len() {
            self.happens(rank, membership::Event::Tick);
        }
    }

    fn happens(&mut self, rank: usize, event: membership::Event) {
        if self.lost.is_some_and(|lost| lost.index() == rank) {
            return;
        }
        let mut out = Vec::new();
        self.ranks[rank].handle(self.net.now, event, &mut out);
        for action in out {
            self.does(Rank::at(rank), action);
        }
    }

    fn does(&mut self, me: Rank, action: membership::Action) {
        use membership::{Action, Event};
        match action {
            Action::Send(to, message) => {
                let event = match &message {
                    Message::Records(batch) => Event::Records(batch.clone()),
                    Message::Abort(abort) => Event::Aborted {
                        by: me,
                        abort: abort.clone(),
                    },
                    // Signs of life go on besides, and are counted apart.
                    Message::Heartbeat if self.rack.is_none() => return,
                    Message::Heartbeat => Event::Heard(me),
                    Message::PingRequest(ping) => Event::Asked {
                        by: me,
                        ping: *ping,
                    },
                    Message::Ack(ping) => Event::Vouched {
                        by: me,
                        ping: *ping,
                    },
                    other => unreachable!("nobody leaves: {other:?}"),
                };
                match self.is_cut(me, to) {
                    true => self.net.count(me.index(), &message),
                    false => self.net.send(me.index(), to.index(), &message, event),
                }
            }
            // What the kernel would tell is known, and nobody reads along.
            Action::Examine { .. } | Action::Say(_) => {}
            Action::Ready(_) => {
                self.begun += 1;
                self.net.told = self.net.now;
            }
            Action::Fail(OperationError::RankLost { peer, .. }) => {
                let named = peer.rank();
                let is_right = match self.rack {
                    // It may be anybody beyond the cut, as the first to notice tells it.
                    Some(_) => self.is_cut(me, named),
                    None => Some(named) == self.lost,
                };
                self.named += u32::from(is_right);
                self.net.told = self.net.now;
            }
            Action::Fail(_) | Action::Over => unreachable!("one rank is lost, and nobody leaves"),
        }
    }
}

fn record(rank: Rank) -> MemberRecord {
    MemberRecord {
        incarnation: u64::from(rank.number()) + 1,
        process: rank.number(),
        host: [0; 16],
        cores: Cores::default(),
    }
}

/// What a member takes in.
enum Heard {
    Event(agreement::Event),
    /// Another has called, and can be answered.
    Called(MemberId),
}

/// The agreements of all members of an epoch that is over.
struct Agreements {
    members: Vec<Agreement>,
    net: Net<Heard>,
    ended: u32,
    decided: u32,
    /// Who has called whom: at the most a handshake each.
    calls: BTreeSet<(MemberId, MemberId)>,
    /// Who was called by whom, and has not called that one.
    called: BTreeSet<(MemberId, MemberId)>,
}

impl Agreements {
    fn new(ranks: u32, ended: u32) -> Self {
        let net = Net::new(ranks);
        let previous_epoch = PreviousEpoch {
            epoch: 1,
            members: (0..ranks).collect(),
            incarnations: Arc::new((0..ranks).map(|member_id| (member_id, 1)).collect()),
        };
        let rules = AgreementRules {
            pair: TwoMemberPolicy::Proven,
            timeouts: AgreementTimeouts {
                gather: Duration::from_secs(15),
                retry: Duration::from_secs(1),
                limit: Duration::from_secs(30),
            },
        };
        let own = MemberState::default();
        let new = |member_id| {
            let previous_epoch = previous_epoch.clone();
            Agreement::new(
                process(member_id),
                previous_epoch,
                rules,
                own.clone(),
                net.now,
            )
        };
        let mut all = Self {
            members: (0..ranks).map(new).collect(),
            net,
            ended,
            decided: 0,
            calls: BTreeSet::new(),
            called: BTreeSet::new(),
        };
        for rank in 0..ranks {
            if all.has_ended(rank) {
                continue;
            }
            for victim in (0..ended).map(|nth| 3 * nth) {
                let lost = agreement::Event::Lost(victim, Proof::Ended);
                all.net
                    .post(Duration::ZERO, rank as usize, Heard::Event(lost));
            }
        }
        all
    }

    fn has_ended(&self, rank: MemberId) -> bool {
        rank.is_multiple_of(3) && rank / 3 < self.ended
    }

    fn run(&mut self) {
        let mut out = Vec::new();
        while let Some((member, heard)) = self.net.next() {
            let me = member_id(member);
            let event = match heard {
                Heard::Event(event) => event,
                // One that is called as well is reached by that.
                Heard::Called(by) if self.calls.contains(&(me, by)) => continue,
                Heard::Called(by) => {
                    self.called.insert((me, by));
                    agreement::Event::Reached(process(by))
                }
            };
            self.members[member].handle(self.net.now, event, &mut out);
            for action in out.drain(..) {
                self.does(member, action);
            }
        }
    }

    /// Has a member call another, unless there is a line between them.
    fn call(&mut self, by: MemberId, to: MemberId) {
        if self.called.contains(&(by, to)) || !self.calls.insert((by, to)) {
            return;
        }
        let caller = by as usize;
        // There and back, and a greeting each way.
        self.net.messages[caller] += 1;
        if !self.has_ended(to) {
            self.net.post(3 * LATENCY, to as usize, Heard::Called(by));
            let reached = agreement::Event::Reached(process(to));
            self.net.post(4 * LATENCY, caller, Heard::Event(reached));
        }
    }

    fn does(&mut self, me: usize, action: agreement::Action) {
        let by = process(member_id(me));
        match action {
            agreement::Action::Call(to) => self.call(by.member_id, to),
            agreement::Action::Send(to, message) => {
                self.call(by.member_id, to);
                let spoken = Message::Spoken(Spoken {
                    epoch: 1,
                    message: message.clone(),
                });
                let said = agreement::Event::Said { by, message };
                self.net.send(me, to as usize, &spoken, Heard::Event(said));
            }
            agreement::Action::Decided(_) => {
                self.decided += 1;
                self.net.told = self.net.now;
            }
            agreement::Action::Excluded(_) | agreement::Action::NoMajority(_) => {
                unreachable!("a majority is left, and nobody is left out")
            }
        }
    }
}

fn member_id(place: usize) -> MemberId {
    u32::try_from(place).expect("counted as u32")
}

fn process(member_id: MemberId) -> MemberProcess {
    MemberProcess {
        member_id,
        incarnation: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LossCause;

    /// What grows with the logarithm grows by as much with each doubling.
    #[test]
    fn a_start_takes_rounds_and_connections_as_the_logarithm_says() {
        for doublings in 1..=9 {
            let ranks = 1 << doublings;
            let cost = start(ranks);
            assert_eq!(cost.messages, u64::from(ranks * doublings), "{ranks} ranks");
            assert_eq!(cost.most_messages, u64::from(doublings));
            assert_eq!(cost.took, (2 + doublings) * LATENCY);
            assert!(connections(ranks) <= 2 * doublings as usize);
            assert!(all_reduce(Algorithm::Tree, ranks).rounds <= 2 * doublings as usize);
        }
    }

    #[test]
    fn a_death_is_known_after_grace_and_a_logarithm_of_hops() {
        for doublings in 2..=9 {
            let ranks = 1 << doublings;
            let cost = death(ranks);
            assert!(cost.took <= membership::GRACE + (1 + doublings) * LATENCY);
            assert!(cost.most_messages <= 2 * u64::from(doublings));
        }
    }

    #[test]
    fn a_rack_that_is_cut_off_is_named_by_all_and_names_others_after_the_patience() {
        for (ranks, rack) in [(16, 4), (64, 2), (100, 10)] {
            let cost = cut(ranks, rack);
            assert!(cost.took >= TIMEOUTS.silence, "{cost:?}");
            assert!(cost.took <= 2 * TIMEOUTS.silence + SLACK, "{cost:?}");
        }
    }

    #[test]
    fn whoever_names_one_on_its_own_side_of_a_cut_has_not_noticed_it() {
        let mut world = Memberships::begun(16);
        world.rack = Some(4);
        let names = |peer| {
            let peer = Member::new(Rank::new(peer), "");
            membership::Action::Fail(OperationError::lost(peer, LossCause::Disconnected))
        };
        world.does(Rank::new(1), names(2));
        assert_eq!(world.named, 0);
        world.does(Rank::new(1), names(9));
        assert_eq!(world.named, 1);
    }

    #[test]
    fn what_is_sent_into_a_cut_counts_with_its_bytes() {
        let cost = cut(2, 1);
        assert!(cost.messages > 0 && cost.bytes > 0, "{cost:?}");
    }

    /// For beats, and for words to go round.
    const SLACK: Duration = Duration::from_secs(2);

    #[test]
    fn what_a_member_costs_that_is_no_neighbour_is_bounded() {
        assert!(member_bytes("10.0.0.1:4000".len()) <= 200);
    }

    #[test]
    fn a_reconfiguration_costs_each_rank_what_the_logarithm_says() {
        for ranks in [10, 50, 150, 600] {
            let cost = reconfiguration(ranks, ranks / 10);
            let doublings = ranks.next_power_of_two().ilog2();
            assert!(cost.messages <= 7 * u64::from(ranks), "{cost:?}");
            assert!(
                cost.most_messages <= u64::from(4 * doublings + 8),
                "{cost:?}"
            );
            assert!(cost.took <= (9 * doublings + 4) * LATENCY, "{cost:?}");
        }
    }

    /// Each of those that are left but the lowest is told by one call, and its answer takes none;
    /// the lowest and the two that follow it call each other besides, to see that they live.
    #[test]
    fn a_reconfiguration_takes_about_as_many_calls_as_members() {
        for ranks in [4, 16, 50, 600] {
            let mut world = Agreements::new(ranks, 1);
            world.run();
            let calls = u32::try_from(world.calls.len()).unwrap();
            assert!(
                (ranks - 2..=ranks + 2).contains(&calls),
                "{calls} of {ranks}"
            );
        }
    }
}
