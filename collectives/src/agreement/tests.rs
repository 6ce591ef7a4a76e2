//! Whole agreements in virtual time: members that start late, die, are cut off, and links that lose
//! and repeat what is said.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::wire::Newcomer;

const MS: Duration = Duration::from_millis(1);
const PACE: AgreementTimeouts = AgreementTimeouts {
    gather: Duration::from_millis(500),
    retry: Duration::from_millis(200),
    limit: Duration::from_secs(20),
};

/// What a member came to, and when.
type End = Option<(Duration, Action)>;

struct World {
    began: Instant,
    now: Instant,
    latency: Duration,
    members: Vec<Agreement>,
    alive: Vec<bool>,
    /// Of two members, whether they hear each other.
    cut: BTreeSet<(MemberId, MemberId)>,
    ends: Vec<End>,
    /// When, in which order, to whom, and which of `events`.
    queue: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    events: Vec<Event>,
    /// Decides what is lost and repeated, in thousandths.
    dice: u64,
    loss: u64,
    /// Messages of each member.
    said: Vec<u64>,
    /// What was proposed in each ballot.
    proposals: BTreeMap<Ballot, Decision>,
    /// Calls so far, which are answered by members that live if this is so.
    calls: u64,
    answers: bool,
    /// After how long a member that does not answer is lost to whoever calls it.
    silence: Option<Duration>,
    /// Members that get their machine only so often: all that they hear and do waits for that.
    late: BTreeMap<usize, Duration>,
    /// Ballots that the last member was told of, in their order.
    ballots: Vec<Ballot>,
}

/// The process that is with a member id first.
fn process(member_id: MemberId) -> MemberProcess {
    let incarnation = 100 + u64::from(member_id);
    MemberProcess {
        member_id,
        incarnation,
    }
}

/// An epoch whose members have all met.
fn previous_epoch(world: u32) -> PreviousEpoch {
    let incarnations = (0..world).map(|member_id| (member_id, process(member_id).incarnation));
    PreviousEpoch {
        epoch: 1,
        members: (0..world).collect(),
        incarnations: Arc::new(incarnations.collect()),
    }
}

/// One whose members have not met anybody before it was over.
fn unmet(world: u32) -> PreviousEpoch {
    PreviousEpoch {
        incarnations: Arc::default(),
        ..previous_epoch(world)
    }
}

fn survivors(decision: &Decision) -> Vec<MemberId> {
    let member_ids = decision.survivors.iter().map(|process| process.member_id);
    member_ids.collect()
}

fn standing(completed: u64) -> MemberState {
    MemberState {
        completed,
        newcomers: Vec::new(),
    }
}

impl World {
    /// Member `n` has completed `10 + n` operations.
    fn new(world: u32, pair: TwoMemberPolicy, latency: Duration) -> Self {
        let began = Instant::now();
        let member = |member_id| {
            let own = standing(10 + u64::from(member_id));
            Agreement::new(
                process(member_id),
                previous_epoch(world),
                AgreementRules {
                    pair,
                    timeouts: PACE,
                },
                own,
                began,
            )
        };
        let count = world as usize;
        Self {
            began,
            now: began,
            latency,
            members: (0..world).map(member).collect(),
            alive: vec![true; count],
            cut: BTreeSet::new(),
            ends: vec![None; count],
            queue: BinaryHeap::new(),
            events: Vec::new(),
            dice: 1,
            loss: 0,
            said: vec![0; count],
            proposals: BTreeMap::new(),
            calls: 0,
            answers: false,
            silence: None,
            late: BTreeMap::new(),
            ballots: Vec::new(),
        }
    }

    /// When a member gets its machine that has something to do then.
    fn runs(&self, member: usize, at: Instant) -> Instant {
        let Some(turn) = self.late.get(&member) else {
            return at;
        };
        let turns = (at - self.began).as_nanos().div_ceil(turn.as_nanos());
        self.began + *turn * u32::try_from(turns).unwrap()
    }

    fn post(&mut self, at: Instant, to: usize, event: Event) {
        let at = self.runs(to, at);
        let number = self.events.len() as u64;
        self.events.push(event);
        self.queue.push(Reverse((at, number, to)));
    }

    fn member_ids(&self) -> impl Iterator<Item = MemberId> + use<> {
        0..u32::try_from(self.members.len()).unwrap()
    }

    fn pairs(&self) -> impl Iterator<Item = (MemberId, MemberId)> + use<> {
        let member_ids = 0..u32::try_from(self.members.len()).unwrap();
        member_ids
            .clone()
            .flat_map(move |a| member_ids.clone().map(move |b| (a, b)))
    }

    fn heard(&self, a: MemberId, b: MemberId) -> bool {
        !self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// All that hear each other meet; of the others they learn what `proof` says.
    fn meet(&mut self, proof: Proof) {
        for (a, b) in self.pairs() {
            if a != b {
                let event = match self.alive[b as usize] && self.heard(a, b) {
                    true => Event::Reached(self.members[b as usize].me),
                    false => Event::Lost(b, proof),
                };
                self.post(self.now + self.latency, a as usize, event);
            }
        }
    }

    fn kill(&mut self, victim: MemberId, proof: Proof) {
        self.alive[victim as usize] = false;
        for other in self.member_ids() {
            self.post(
                self.now + self.latency,
                other as usize,
                Event::Lost(victim, proof),
            );
        }
    }

    /// Starts a process anew that knows nothing but the member list, as a founder.
    fn replace(&mut self, member_id: MemberId) {
        let world = u32::try_from(self.members.len()).unwrap();
        let me = MemberProcess {
            incarnation: self.members[member_id as usize].me.incarnation + 1000,
            ..process(member_id)
        };
        let fresh = Agreement::new(
            me,
            unmet(world),
            AgreementRules {
                pair: TwoMemberPolicy::Proven,
                timeouts: PACE,
            },
            standing(0),
            self.now,
        );
        self.members[member_id as usize] = fresh;
        self.ends[member_id as usize] = None;
    }

    fn split(&mut self, side: impl Fn(MemberId) -> bool) {
        for (a, b) in self.pairs() {
            if a < b && side(a) != side(b) {
                self.cut.insert((a, b));
            }
        }
    }

    fn run(&mut self, until: Duration) {
        let until = self.began + until;
        // Asked once after each event of a member, not of all at each event of one.
        let mut wakes: Vec<_> = self.members.iter().map(Agreement::wake).collect();
        loop {
            let due = self.queue.peek().map(|Reverse((at, ..))| *at);
            let living = (0..self.members.len()).filter(|member| self.alive[*member]);
            let tick = living
                .filter_map(|member| {
                    let wake = wakes[member]?.max(self.now);
                    Some((self.runs(member, wake), member))
                })
                .min();
            let turn = match (due, tick) {
                (Some(at), _) if at <= until && tick.is_none_or(|(tick, _)| at <= tick) => {
                    let Reverse((at, number, to)) = self.queue.pop().unwrap();
                    self.now = at;
                    let event = self.events[usize::try_from(number).unwrap()].clone();
                    self.happens(to, event);
                    to
                }
                (_, Some((at, member))) if at <= until => {
                    self.now = at;
                    self.happens(member, Event::Tick);
                    member
                }
                _ => break,
            };
            wakes[turn] = self.members[turn].wake();
        }
        self.now = until;
    }

    fn happens(&mut self, member: usize, event: Event) {
        if !self.alive[member] {
            return;
        }
        let mut out = Vec::new();
        self.members[member].handle(self.now, event, &mut out);
        for action in out {
            match action {
                Action::Call(to) => self.call(member, to),
                Action::Send(to, message) => self.send(member, to, &message),
                end => {
                    assert_eq!(self.ends[member], None, "member {member} ends twice");
                    self.ends[member] = Some((self.now - self.began, end));
                }
            }
        }
    }

    fn call(&mut self, from: usize, to: MemberId) {
        self.calls += 1;
        let me = u32::try_from(from).unwrap();
        let is_there = self.alive[to as usize] && self.heard(me, to);
        if let (false, Some(silence)) = (is_there, self.silence) {
            let lost = Event::Lost(to, Proof::Unreached);
            self.post(self.now + silence, from, lost);
        }
        if self.answers && is_there {
            let there = self.members[to as usize].me;
            let answer = match &self.ends[to as usize] {
                Some((_, Action::Decided(decision))) => Event::Decided(decision.clone()),
                _ => Event::Reached(there),
            };
            self.post(self.now + 2 * self.latency, from, answer);
        }
    }

    fn send(&mut self, from: usize, to: MemberId, message: &AgreementMessage) {
        let by = u32::try_from(from).unwrap();
        self.said[from] += 1;
        if let AgreementMessage::Prepare { ballot, .. } = message
            && to as usize == self.members.len() - 1
            && self.ballots.last() != Some(ballot)
        {
            self.ballots.push(*ballot);
        }
        if let AgreementMessage::Propose {
            ballot, decision, ..
        } = message
        {
            let first = self
                .proposals
                .entry(*ballot)
                .or_insert_with(|| decision.clone());
            assert_eq!(
                first, decision,
                "two proposals of member {by} in {ballot:?}"
            );
        }
        if to as usize >= self.members.len() || !self.heard(by, to) {
            return;
        }
        let copies = match self.roll() {
            roll if roll < self.loss => 0,
            roll if roll < 2 * self.loss => 2,
            _ => 1,
        };
        for copy in 0..copies {
            let late = u32::try_from(self.roll()).unwrap() * (copy + 1) / 1000;
            let at = self.now + self.latency * (1 + 3 * late);
            let (by, message) = (self.members[from].me, message.clone());
            self.post(at, to as usize, Event::Said { by, message });
        }
    }

    fn roll(&mut self) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.dice >> 33) % 1000
    }

    /// The decision of these members, which is one.
    #[track_caller]
    fn decided(&self, members: impl IntoIterator<Item = usize>) -> (Duration, Decision) {
        let mut found: Option<(Duration, Decision)> = None;
        for member in members {
            let (at, decision) = match &self.ends[member] {
                Some((at, Action::Decided(decision) | Action::Excluded(decision))) => {
                    (*at, decision)
                }
                other => panic!("member {member} came to {other:?}"),
            };
            let latest = found.as_ref().map_or(at, |(latest, _)| at.max(*latest));
            if let Some((_, first)) = &found {
                assert_eq!(first, decision, "member {member}");
            }
            found = Some((latest, decision.clone()));
        }
        found.unwrap()
    }

    /// No two members have decided differently.
    fn agrees(&self) -> Result<(), TestCaseError> {
        let mut first: Option<&Decision> = None;
        for end in self.ends.iter().flatten() {
            if let Action::Decided(decision) | Action::Excluded(decision) = &end.1 {
                prop_assert_eq!(*first.get_or_insert(decision), decision);
            }
        }
        Ok(())
    }
}

#[test]
fn survivors_of_a_proven_death_decide_at_once_whoever_died() {
    for victim in 0..4 {
        let mut world = World::new(4, TwoMemberPolicy::Proven, MS);
        world.alive[victim] = false;
        world.meet(Proof::Ended);
        world.run(Duration::from_secs(1));
        let (at, decision) = world.decided((0..4).filter(|member| *member != victim));
        assert!(at <= 20 * MS, "{at:?}");
        let survivors: Vec<_> = (0..4)
            .filter(|member_id| *member_id as usize != victim)
            .map(process)
            .collect();
        let completed = 10 + u64::from(survivors[0].member_id);
        let expected = Decision {
            epoch: 2,
            survivors,
            newcomers: Vec::new(),
            completed,
        };
        assert_eq!(decision, expected);
    }
}

/// A connection took the answer and was cut: whoever asks again for the same ballot has not heard.
#[test]
fn who_is_asked_again_promises_again() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    world.meet(Proof::Unreached);
    // It is reached and does not answer: all is open.
    world.split(|member_id| member_id == 1);
    world.run(20 * MS);
    let (proposer, ballot) = (world.members[0].me, *world.ballots.last().unwrap());
    let message = AgreementMessage::Prepare {
        ballot,
        part: Vec::new(),
    };
    let by = proposer;
    let mut out = Vec::new();
    world.members[2].handle(world.now, Event::Said { by, message }, &mut out);
    let promises = |action: &Action| {
        let Action::Send(to, message) = action else {
            return false;
        };
        *to == 0 && matches!(message, AgreementMessage::Promise { .. })
    };
    assert!(out.iter().any(promises), "{out:?}");
}

/// The same of the vote: whoever proposes reaches the member again, and asks again.
#[test]
fn a_vote_that_was_lost_on_its_way_is_told_again() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    world.alive[1] = false;
    world.meet(Proof::Ended);
    world.run(3 * MS);
    world.split(|member_id| member_id == 2);
    world.run(4 * MS);
    assert!(world.members[2].accepted.is_some());
    world.cut.clear();
    world.happens(0, Event::Reached(process(2)));
    world.run(Duration::from_secs(5));
    let (at, decision) = world.decided([0, 2]);
    assert_eq!(survivors(&decision), [0, 2]);
    assert!(at <= 10 * MS, "{at:?}");
}

#[test]
fn no_member_calls_or_tells_more_others_than_the_logarithm_says() {
    for members in [2, 3, 5, 16, 70] {
        for victim in [0, 1, members / 2, members - 1] {
            let mut world = World::new(members, TwoMemberPolicy::Proven, MS);
            world.answers = true;
            world.kill(victim, Proof::Ended);
            world.run(Duration::from_secs(5));
            let is_left = |member: &usize| *member != victim as usize;
            let (at, decision) = world.decided((0..members as usize).filter(is_left));
            let doublings = u64::from(members.next_power_of_two().ilog2());
            // For each level a call and a message down, four more up and down, and two at first.
            let bound = MS * u32::try_from(2 + 7 * doublings).unwrap();
            assert!(at <= bound, "{members} without {victim}: {at:?}");
            assert_eq!(decision.survivors.len(), members as usize - 1);
            let (calls, all) = (world.calls, world.said.iter().sum::<u64>());
            let most = *world.said.iter().max().unwrap();
            let context = format!("{members} without {victim}: {calls}, {all}, {most}");
            assert!(most <= 3 * doublings + 7, "{context}");
            let members = u64::from(members);
            // Each is called once, and the first by those that follow them.
            assert!(calls <= members + 8, "{context}");
            assert!(all <= 6 * members, "{context}");
        }
    }
}

#[test]
fn in_place_of_a_member_that_dies_while_it_passes_a_ballot_on_comes_the_next() {
    for victim in [1, 2, 4, 8, 12] {
        for moment in 0..60 {
            let mut world = World::new(16, TwoMemberPolicy::Proven, MS);
            world.answers = true;
            world.run(MS / 2 * moment);
            world.kill(victim, Proof::Ended);
            world.run(Duration::from_secs(8));
            let left = (0..16).filter(|member| *member != victim as usize);
            let (at, decision) = world.decided(left.clone());
            assert!(at <= 3 * PACE.retry, "{victim} after {moment}: {at:?}");
            let others = survivors(&decision);
            let others = others.into_iter().filter(|other| *other != victim);
            assert!(others.map(|other| other as usize).eq(left), "{decision:?}");
        }
    }
}

#[test]
fn those_that_are_left_are_called_though_the_lowest_are_gone_without_a_word() {
    for gone in [1, 2, 5, 19] {
        let mut world = World::new(40, TwoMemberPolicy::Proven, MS);
        world.answers = true;
        world.alive[..gone].fill(false);
        world.run(Duration::from_secs(10));
        let (at, decision) = world.decided(gone..40);
        assert!(at <= PACE.gather + 10 * PACE.retry, "{gone} gone: {at:?}");
        let left = u32::try_from(gone).unwrap()..40;
        assert!(left.eq(survivors(&decision)), "{gone} gone: {decision:?}");
    }
}

#[test]
fn a_proposer_that_dies_at_any_moment_is_replaced() {
    for moment in 0..40 {
        let mut world = World::new(5, TwoMemberPolicy::Proven, MS);
        world.alive[4] = false;
        world.meet(Proof::Ended);
        world.run(MS / 4 * moment);
        world.kill(0, Proof::Ended);
        world.run(Duration::from_secs(5));
        let (at, decision) = world.decided(1..4);
        assert!(at <= 2 * PACE.retry + 50 * MS, "after {moment}: {at:?}");
        // Rank 0 may have been heard before it died; then it is a member that is lost at once.
        assert!(survivors(&decision).ends_with(&[1, 2, 3]), "{decision:?}");
    }
}

/// Those that are late need not be few, and may be the lowest or pass the ballot on to others.
#[test]
fn whoever_answers_is_waited_for_however_late() {
    for members in [3, 4, 5, 16, 40] {
        for victim in [0, 1, members / 2] {
            for (every, late) in [(1, 1), (2, 3), (3, 9), (members, 15), (members - 1, 20)] {
                let mut world = World::new(members, TwoMemberPolicy::Proven, MS);
                world.answers = true;
                let late = PACE.retry / 4 * late;
                let slow =
                    (0..members as usize).filter(|member| (member + 2) % every as usize == 0);
                world.late = slow.map(|member| (member, late)).collect();
                world.kill(victim, Proof::Ended);
                world.run(PACE.limit);
                let is_left = |member: &usize| *member != victim as usize;
                let left: Vec<_> = (0..members as usize).filter(is_left).collect();
                let (at, decision) = world.decided(left.clone());
                let context =
                    format!("{members} without {victim}, 1 of {every} {late:?} late: {at:?}");
                let survivors = survivors(&decision).into_iter().map(|other| other as usize);
                assert!(survivors.eq(left), "{context}: {decision:?}");
                assert!(at <= 6 * late + 3 * PACE.retry, "{context}");
            }
        }
    }
}

#[test]
fn nobody_begins_a_ballot_while_one_waits_for_a_member_that_is_late() {
    let mut world = World::new(16, TwoMemberPolicy::Proven, MS);
    world.answers = true;
    world.late.insert(9, 20 * PACE.retry);
    world.kill(3, Proof::Ended);
    world.run(PACE.limit);
    assert_eq!(world.proposals.len(), 1, "{:?}", world.proposals);
    assert_eq!(world.ballots.len(), 1, "{:?}", world.ballots);
    let (at, decision) = world.decided((0..16).filter(|member| *member != 3));
    assert_eq!(decision.survivors.len(), 15);
    assert!(at <= 42 * PACE.retry, "{at:?}");
}

#[test]
fn whoever_was_reached_is_waited_for_until_it_is_lost_and_no_longer() {
    for (victim, silence) in [(9, 10), (15, 30), (1, 10), (0, 10)] {
        let mut world = World::new(16, TwoMemberPolicy::Proven, MS);
        world.answers = true;
        world.kill(3, Proof::Ended);
        // It answers calls, and then no more.
        world.late.insert(victim as usize, 2 * PACE.limit);
        let silence = silence * PACE.retry;
        world.run(silence);
        let early = world.ends.iter().flatten().next();
        assert_eq!(early, None, "without {victim}");
        world.kill(victim, Proof::Unreached);
        world.run(PACE.limit);
        let left = (0..16).filter(|member| ![3, victim as usize].contains(member));
        let (at, decision) = world.decided(left);
        assert!(at <= silence + 3 * PACE.retry, "without {victim}: {at:?}");
        assert_eq!(decision.survivors.len(), 14, "without {victim}");
    }
}

#[test]
fn a_member_that_is_reached_and_never_answers_nor_is_lost_does_not_hold_up_the_others_for_good() {
    let mut world = World::new(5, TwoMemberPolicy::Proven, MS);
    world.answers = true;
    world.kill(1, Proof::Ended);
    world.late.insert(3, 2 * PACE.limit);
    world.run(PACE.limit);
    let (at, decision) = world.decided([0, 2, 4]);
    assert_eq!(survivors(&decision), [0, 2, 4]);
    assert!(at < PACE.limit - PACE.retry, "{at:?}");
}

#[test]
fn a_member_that_some_reach_and_some_do_not_goes_on_with_the_others() {
    for victim in [0, 3, 15] {
        for cut_off in [2, 7, 8, 14] {
            for late in [1, 4] {
                let mut world = World::new(16, TwoMemberPolicy::Proven, MS);
                (world.answers, world.silence) = (true, Some(10 * PACE.retry));
                // The lowest that is left, and half of the others.
                world.cut = (0..16)
                    .step_by(2)
                    .map(|other| (other.min(cut_off), other.max(cut_off)))
                    .collect();
                world.cut.insert((1.min(cut_off), 1.max(cut_off)));
                world.late.insert(cut_off as usize, late * PACE.retry / 4);
                world.kill(victim, Proof::Ended);
                world.run(PACE.limit);
                let left = (0..16).filter(|member| *member != victim as usize);
                let context = format!("{cut_off} without {victim}, {late} late");
                let (at, decision) = world.decided(left);
                assert_eq!(decision.survivors.len(), 15, "{context}: {decision:?}");
                assert!(at <= 12 * PACE.retry, "{context}: {at:?}");
            }
        }
    }
}

#[test]
fn a_member_that_never_answers_is_decided_without_after_a_while() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    world.alive[0] = false;
    for (to, other) in [(1, 2), (2, 1)] {
        world.post(world.now + MS, to, Event::Reached(process(other)));
    }
    world.run(Duration::from_secs(5));
    let (at, decision) = world.decided(1..3);
    assert_eq!(survivors(&decision), [1, 2]);
    assert!(
        at >= PACE.gather && at <= PACE.gather + PACE.retry,
        "{at:?}"
    );
}

#[test]
fn only_the_side_with_the_majority_goes_on() {
    for (world, minority) in [(5_u32, 2), (4, 1), (7, 3)] {
        let mut all = World::new(world, TwoMemberPolicy::Proven, MS);
        all.split(|member_id| member_id < minority);
        all.meet(Proof::Unreached);
        all.run(Duration::from_secs(30));
        let (_, decision) = all.decided(minority as usize..world as usize);
        assert_eq!(survivors(&decision), (minority..world).collect::<Vec<_>>());
        for member in 0..minority {
            let (at, end) = all.ends[member as usize].clone().unwrap();
            assert_eq!(end, Action::NoMajority((0..minority).collect()));
            assert_eq!(at, PACE.limit);
        }
    }
}

#[test]
fn of_two_halves_the_one_with_rank_0_goes_on() {
    let mut world = World::new(4, TwoMemberPolicy::Proven, MS);
    world.split(|member_id| member_id % 2 == 0);
    world.meet(Proof::Unreached);
    world.run(Duration::from_secs(30));
    let (_, decision) = world.decided([0, 2]);
    assert_eq!(survivors(&decision), [0, 2]);
    for member in [1, 3] {
        let end = world.ends[member].clone().unwrap().1;
        assert_eq!(end, Action::NoMajority(vec![1, 3]));
    }
}

#[test]
fn the_last_of_two_goes_on_with_proof_only() {
    for (proof, goes_on) in [(Proof::Ended, true), (Proof::Unreached, false)] {
        let mut world = World::new(2, TwoMemberPolicy::Proven, MS);
        world.alive[0] = false;
        world.meet(proof);
        world.run(Duration::from_secs(30));
        let decided = matches!(world.ends[1], Some((_, Action::Decided(_))));
        assert_eq!(decided, goes_on, "{:?}", world.ends[1]);
    }
}

#[test]
fn newcomers_are_admitted_behind_the_survivors_and_only_in_their_own_incarnation() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    let seven = MemberProcess {
        member_id: 7,
        incarnation: 70,
    };
    let again = MemberProcess {
        member_id: 7,
        incarnation: 71,
    };
    // Asked for by one member only.
    world.members[2]
        .own
        .newcomers
        .push(Newcomer::at(again, "a:1"));
    world.meet(Proof::Unreached);
    world.run(Duration::from_secs(5));
    let (_, decision) = world.decided(0..3);
    assert_eq!(decision.newcomers, [Newcomer::at(again, "a:1")]);
    assert_eq!(
        decision
            .members()
            .map(|one| one.member_id)
            .collect::<Vec<_>>(),
        [0, 1, 2, 7]
    );
    for (me, admitted) in [(again, true), (seven, false)] {
        let (now, nowhere) = (world.now, PreviousEpoch::nowhere());
        let mut listener = Agreement::new(
            me,
            nowhere,
            AgreementRules {
                pair: TwoMemberPolicy::Proven,
                timeouts: PACE,
            },
            standing(0),
            now,
        );
        let message = AgreementMessage::Decided(decision.clone());
        let mut out = Vec::new();
        listener.handle(
            now,
            Event::Said {
                by: process(1),
                message,
            },
            &mut out,
        );
        let decided = out.contains(&Action::Decided(decision.clone()));
        assert_eq!(decided, admitted, "{out:?}");
    }
}

#[test]
fn who_comes_after_the_decision_is_told_that_it_is_excluded() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    world.alive[2] = false;
    world.meet(Proof::Unreached);
    world.run(Duration::from_secs(2));
    world.alive[2] = true;
    world.happens(1, Event::Reached(process(2)));
    world.run(Duration::from_secs(3));
    let Some((_, Action::Excluded(decision))) = &world.ends[2] else {
        panic!("{:?}", world.ends[2]);
    };
    assert_eq!(survivors(decision), [0, 1]);
}

#[test]
fn who_is_told_that_it_is_itself_lost_goes_on_with_the_others() {
    for proof in [Proof::Unreached, Proof::Ended] {
        let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
        world.happens(0, Event::Lost(0, proof));
        world.meet(Proof::Unreached);
        world.happens(0, Event::Lost(0, proof));
        world.run(Duration::from_secs(5));
        assert_eq!(survivors(&world.decided(0..3).1), [0, 1, 2], "{proof:?}");
    }
}

#[test]
fn every_ballot_of_a_member_is_higher_than_its_last_whatever_it_hears_of_itself() {
    let mut alone = World::new(3, TwoMemberPolicy::Proven, MS);
    // Nobody answers: one ballot after the other comes to nothing.
    alone.alive = vec![true, false, false];
    for member_id in [1, 2] {
        alone.happens(0, Event::Reached(process(member_id)));
    }
    alone.happens(0, Event::Lost(0, Proof::Ended));
    alone.run(PACE.limit);
    assert!(alone.ballots.len() > 5, "{:?}", alone.ballots);
    assert!(
        alone.ballots.is_sorted_by(|one, next| one < next),
        "{:?}",
        alone.ballots
    );
}

#[test]
fn above_the_highest_ballot_nobody_begins_another() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    let ballot = Ballot {
        round: u64::MAX,
        proposer: 2,
    };
    let message = AgreementMessage::Prepare {
        ballot,
        part: Vec::new(),
    };
    world.happens(
        0,
        Event::Said {
            by: process(2),
            message,
        },
    );
    for member_id in [1, 2] {
        world.happens(0, Event::Reached(process(member_id)));
    }
    world.alive = vec![true, false, false];
    world.run(Duration::from_secs(30));
    assert_eq!(world.ballots, []);
    let end = world.ends[0].clone().unwrap().1;
    assert_eq!(end, Action::NoMajority(vec![0, 1, 2]));
}

#[test]
fn a_member_that_was_started_again_has_no_vote_in_what_it_has_forgotten() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    // The first two go on, and the third does not hear of it.
    world.split(|member_id| member_id < 2);
    world.meet(Proof::Unreached);
    world.run(Duration::from_secs(3));
    assert_eq!(survivors(&world.decided(0..2).1), [0, 1]);
    let first = world.ends[0].take();
    // Now it is the first that is cut off.
    (world.cut, world.alive[0]) = (BTreeSet::from([(0, 1), (0, 2)]), false);
    world.replace(1);
    world.meet(Proof::Unreached);
    world.run(Duration::from_secs(60));
    for member in [1, 2] {
        let end = world.ends[member].clone().unwrap().1;
        assert!(matches!(end, Action::NoMajority(_)), "{member}: {end:?}");
    }
    assert!(matches!(first, Some((_, Action::Decided(_)))));
}

#[test]
fn who_is_started_again_while_the_others_decide_is_left_out_and_told_so() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, 20 * MS);
    world.meet(Proof::Unreached);
    world.run(30 * MS);
    world.replace(1);
    world.meet(Proof::Unreached);
    world.run(Duration::from_secs(10));
    assert_eq!(survivors(&world.decided([0, 2]).1), [0, 2]);
    let Some((_, Action::Excluded(decision))) = &world.ends[1] else {
        panic!("{:?}", world.ends[1]);
    };
    assert_eq!(survivors(decision), [0, 2]);
}

#[test]
fn founders_that_have_not_all_met_decide_with_whom_they_hear_first_and_nobody_after_it() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    for member_id in 0..3 {
        world.replace(member_id);
    }
    let first = world.members[1].me;
    world.happens(2, Event::Reached(first));
    world.alive[0] = false;
    world.replace(1);
    world.meet(Proof::Unreached);
    world.run(Duration::from_secs(30));
    for member in [1, 2] {
        let end = world.ends[member].clone().unwrap().1;
        assert!(matches!(end, Action::NoMajority(_)), "{member}: {end:?}");
    }
    let mut all = World::new(3, TwoMemberPolicy::Proven, MS);
    for member_id in 0..3 {
        all.replace(member_id);
    }
    all.meet(Proof::Unreached);
    all.run(Duration::from_secs(5));
    assert_eq!(survivors(&all.decided(0..3).1), [0, 1, 2]);
}

#[test]
fn a_group_of_one_decides_alone() {
    let mut world = World::new(1, TwoMemberPolicy::Stop, MS);
    world.run(MS);
    assert_eq!(survivors(&world.decided([0]).1), [0]);
}

#[test]
fn messages_of_unauthenticated_peers_and_of_nonsense_change_nothing() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    let ballot = Ballot {
        round: u64::MAX,
        proposer: 9,
    };
    world.happens(
        0,
        Event::Said {
            by: process(9),
            message: AgreementMessage::Prepare {
                ballot,
                part: vec![9, 1, 1, 0],
            },
        },
    );
    world.happens(
        0,
        Event::Said {
            by: process(9),
            message: AgreementMessage::Accept {
                ballot,
                voters: vec![process(9), process(1)],
            },
        },
    );
    world.happens(0, Event::Reached(process(9)));
    world.meet(Proof::Unreached);
    world.run(Duration::from_secs(2));
    assert_eq!(survivors(&world.decided(0..3).1), [0, 1, 2]);
}

#[test]
fn nobody_is_lost_who_was_no_member_whoever_says_so() {
    let mut world = World::new(3, TwoMemberPolicy::Proven, MS);
    let promises = Promises {
        ended: (100..1000).collect(),
        ..Promises::default()
    };
    world.happens(
        0,
        Event::Said {
            by: process(1),
            message: AgreementMessage::Promise {
                ballot: Ballot::NONE,
                promises,
            },
        },
    );
    assert_eq!(world.members[0].lost, BTreeMap::new());
    world.meet(Proof::Unreached);
    world.run(Duration::from_secs(2));
    assert_eq!(survivors(&world.decided(0..3).1), [0, 1, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(meshwork_testing::cases(80)))]

    /// Whoever dies or is cut off whenever, and whatever is lost: one decision, and only ever with
    /// a majority of the last epoch behind it.
    #[test]
    fn no_two_members_decide_differently(
        world in 2_u32..18,
        dice in any::<u64>(),
        loss in 0_u64..300,
        latency in 1_u32..120,
        faults in prop::collection::vec((0_u64..900, 0_u32..18, any::<bool>()), 0..4),
    ) {
        let mut all = World::new(world, TwoMemberPolicy::Proven, latency * MS);
        (all.dice, all.loss) = (dice, loss);
        all.meet(Proof::Unreached);
        let mut faults = faults;
        faults.sort_unstable();
        for (at, member_id, dies) in faults {
            all.run(Duration::from_millis(at));
            match dies {
                true => all.kill(member_id % world, Proof::Unreached),
                false => {
                    let (side, pivot) = (member_id % world, all.roll());
                    all.split(|other| other == side || u64::from(other) * 150 < pivot / 2);
                }
            }
        }
        all.run(Duration::from_secs(25));
        all.agrees()?;
        for end in all.ends.iter().flatten() {
            if let Action::Decided(decision) = &end.1 {
                let votes = survivors(decision).into_iter().collect();
                let members: Vec<_> = (0..world).collect();
                prop_assert!(quorum::decides(&members, TwoMemberPolicy::Proven, &votes, |_| false));
            }
        }
    }

    /// With a majority that hears each other and loses little, everybody decides in time.
    #[test]
    fn a_majority_decides_whoever_else_died(
        world in 3_u32..18,
        dice in any::<u64>(),
        latency in 1_u32..25,
        deaths in prop::collection::vec((0_u64..300, any::<prop::sample::Index>()), 0..3),
    ) {
        let mut all = World::new(world, TwoMemberPolicy::Proven, latency * MS);
        all.dice = dice;
        all.meet(Proof::Unreached);
        let mut deaths = deaths;
        deaths.truncate((world as usize - 1) / 2);
        deaths.sort_unstable_by_key(|(at, _)| *at);
        for (at, member_id) in deaths {
            all.run(Duration::from_millis(at));
            let victim = u32::try_from(member_id.index(world as usize)).unwrap();
            all.kill(victim, Proof::Unreached);
        }
        all.run(Duration::from_secs(8));
        let living: Vec<_> = (0..world as usize).filter(|member| all.alive[*member]).collect();
        all.decided(living);
    }
}
