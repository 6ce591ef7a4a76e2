//! Whole groups in virtual time: links with a latency, ranks that die, fall silent or are cut off.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;
use crate::wire::Cores;
use crate::{JoinError, UnauthenticatedCause};

mod liveness;
mod released;

const TIMEOUTS: MembershipTimeouts = MembershipTimeouts {
    join: Duration::from_secs(30),
    heartbeat: Duration::from_millis(40),
    check: Duration::from_millis(250),
    silence: Duration::from_millis(1500),
};

/// What became of one rank's group, and when.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Over,
    Failed(OperationError),
}

/// Where ranks run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Hosts {
    /// The end of a process is seen by the others at once.
    One,
    /// Each on its own.
    Each,
}

/// A group whose messages take `latency`, and whose members are `alive` or not.
struct World {
    began: Instant,
    now: Instant,
    latency: Duration,
    hosts: Hosts,
    /// Whether hosts say that a port is closed.
    refuses: bool,
    /// What happens to stopped processes when they go on.
    stopped: BTreeMap<usize, Vec<Event>>,
    /// Pairs that do not hear each other, the lower first.
    cut: BTreeSet<[usize; 2]>,
    said: Vec<(usize, String)>,
    /// Who looked for whom, and when.
    looked: Vec<(usize, Rank, Duration)>,
    ranks: Vec<Membership>,
    alive: Vec<bool>,
    begun: Vec<bool>,
    ends: Vec<Option<(Duration, End)>>,
    queue: BinaryHeap<Reverse<Entry>>,
    sent: u64,
}

/// When, in which order, to whom, what.
type Entry = (Instant, u64, usize, Box<Queued>);

/// Ordered by nothing: the time and number before it in the queue decide.
struct Queued(Event);

impl PartialEq for Queued {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

fn members(world: usize) -> Arc<[Member]> {
    Rank::all(u32::try_from(world).unwrap())
        .map(|rank| Member::new(rank, format!("host:{}", 4000 + rank.index())))
        .collect()
}

/// On one host, or each on its own.
fn record(rank: Rank, hosts: Hosts) -> MemberRecord {
    let mut host = [1; 16];
    if hosts == Hosts::Each {
        host[..4].copy_from_slice(&rank.number().to_le_bytes());
    }
    MemberRecord {
        incarnation: u64::from(rank.number()) + 1,
        process: 1000 + rank.number(),
        host,
        cores: Cores::default(),
    }
}

impl World {
    fn new(world: usize, latency: Duration, hosts: Hosts) -> Self {
        let began = Instant::now();
        let own = |rank| record(rank, hosts);
        let rank = |rank| Membership::new(rank, own(rank), members(world), TIMEOUTS, began);
        Self {
            began,
            now: began,
            latency,
            hosts,
            refuses: false,
            stopped: BTreeMap::new(),
            cut: BTreeSet::new(),
            said: Vec::new(),
            looked: Vec::new(),
            ranks: Rank::all(u32::try_from(world).unwrap()).map(rank).collect(),
            alive: vec![true; world],
            begun: vec![false; world],
            ends: vec![None; world],
            queue: BinaryHeap::new(),
            sent: 0,
        }
    }

    /// Everybody appears at 0 and connects to its neighbours.
    fn joined(world: usize, latency: Duration, hosts: Hosts) -> Self {
        let mut all = Self::new(world, latency, hosts);
        for rank in 0..world {
            all.connects(rank);
        }
        all
    }

    fn connects(&mut self, rank: usize) {
        let world = u32::try_from(self.ranks.len()).unwrap();
        for other in overlay::neighbours(Rank::at(rank), world) {
            if self.alive[other.index()] && !self.cut.contains(&pair(rank, other.index())) {
                self.post(self.latency, rank, Event::Joined(other));
            }
        }
    }

    fn post(&mut self, delay: Duration, to: usize, event: Event) {
        self.sent += 1;
        self.queue.push(Reverse((
            self.now + delay,
            self.sent,
            to,
            Box::new(Queued(event)),
        )));
    }

    fn kill(&mut self, victim: usize) {
        self.alive[victim] = false;
        if self.hosts == Hosts::One {
            self.all_see(victim, Duration::ZERO, Event::Died);
        }
    }

    fn all_see(&mut self, of: usize, delay: Duration, event: impl Fn(Rank) -> Event) {
        let hears = |other: &usize| *other != of && !self.cut.contains(&pair(*other, of));
        for other in (0..self.ranks.len()).filter(hears).collect::<Vec<_>>() {
            self.post(delay, other, event(Rank::new(u32::try_from(of).unwrap())));
        }
    }

    /// Lets all events up to `until` happen, in order of time.
    fn run(&mut self, until: Duration) {
        let until = self.began + until;
        // Asked once after each event of a rank, not of all at each event of one.
        let mut wakes: Vec<_> = self.ranks.iter().map(Membership::wake).collect();
        loop {
            let due = self.queue.peek().map(|Reverse((at, ..))| *at);
            let tick = (0..self.ranks.len())
                .filter(|rank| self.alive[*rank] && !self.stopped.contains_key(rank))
                .filter_map(|rank| Some((wakes[rank]?.max(self.now), rank)))
                .min();
            let turn = match (due, tick) {
                (Some(at), _) if at <= until && tick.is_none_or(|(tick, _)| at <= tick) => {
                    let Reverse((at, _, rank, queued)) = self.queue.pop().unwrap();
                    self.now = at;
                    self.happens(rank, queued.0);
                    rank
                }
                (_, Some((at, rank))) if at <= until => {
                    self.now = at;
                    self.happens(rank, Event::Tick);
                    rank
                }
                _ => break,
            };
            wakes[turn] = self.ranks[turn].wake();
        }
        self.now = until;
    }

    fn happens(&mut self, rank: usize, event: Event) {
        if !self.alive[rank] {
            return;
        }
        if let Some(later) = self.stopped.get_mut(&rank) {
            return later.push(event);
        }
        let mut out = Vec::new();
        self.ranks[rank].handle(self.now, event, &mut out);
        for action in out {
            self.does(rank, action);
        }
    }

    fn does(&mut self, rank: usize, action: Action) {
        let me = Rank::new(u32::try_from(rank).unwrap());
        match action {
            Action::Send(to, _) if self.cut.contains(&pair(rank, to.index())) => {}
            Action::Send(to, message) => {
                let event = match message {
                    Message::Heartbeat => Event::Heard(me),
                    Message::Goodbye => Event::Goodbye(me),
                    Message::Abort(abort) => Event::Aborted { by: me, abort },
                    Message::Records(batch) => Event::Records(batch),
                    Message::Absent(absence) => Event::Absent(absence),
                    Message::PingRequest(ping) => Event::Asked { by: me, ping },
                    Message::Ack(ping) => Event::Vouched { by: me, ping },
                    other => panic!("a membership does not send {other:?}"),
                };
                self.post(self.latency, to.index(), event);
            }
            Action::Examine { rank: of, heard } => self.looks(rank, of, heard),
            Action::Say(awaited) => self.said.push((rank, awaited.to_string())),
            Action::Ready(records) => {
                let ranks = Rank::all(u32::try_from(self.ranks.len()).unwrap());
                let hosts = self.hosts;
                let expected: Vec<_> = ranks.map(|rank| record(rank, hosts)).collect();
                assert_eq!(records[..], expected);
                self.begun[rank] = true;
            }
            Action::Fail(error) => {
                self.ends[rank] = Some((self.now - self.began, End::Failed(error)));
                // A process whose group fails exits soon, and that is seen as well.
                self.alive[rank] = false;
                if self.hosts == Hosts::One {
                    self.all_see(rank, Duration::from_millis(1), Event::Died);
                }
                self.all_see(rank, self.latency, Event::Disconnected);
            }
            Action::Over => {
                self.ends[rank] = Some((self.now - self.began, End::Over));
                self.alive[rank] = false;
                self.all_see(rank, self.latency, Event::Disconnected);
            }
        }
    }

    /// What a kernel tells of a process, or of a port.
    fn looks(&mut self, by: usize, of: Rank, heard: Instant) {
        let there = of.index();
        self.looked.push((by, of, self.now - self.began));
        if self.cut.contains(&pair(by, there)) {
            return;
        }
        let sight = match (self.hosts, self.alive[there]) {
            (Hosts::One, true) if self.stopped.contains_key(&there) => Event::Stopped(of),
            (Hosts::One, true) => Event::Heard(of),
            (Hosts::Each, false) if self.refuses => Event::PortClosed { rank: of, heard },
            (Hosts::One | Hosts::Each, _) => return,
        };
        self.post(2 * self.latency, by, sight);
    }

    fn stops(&mut self, rank: usize) {
        self.stopped.insert(rank, Vec::new());
    }

    fn goes_on(&mut self, rank: usize) {
        let missed = self.stopped.remove(&rank).unwrap_or_default();
        missed
            .into_iter()
            .for_each(|event| self.happens(rank, event));
    }

    /// Every rank but `victim` failed by `deadline`, and blames `victim`.
    #[track_caller]
    fn all_blame(&self, victim: usize, deadline: Duration) {
        for (rank, end) in self
            .ends
            .iter()
            .enumerate()
            .filter(|(rank, _)| *rank != victim)
        {
            let Some((at, End::Failed(OperationError::RankLost { peer, .. }))) = end else {
                panic!("rank {rank} ended with {end:?}");
            };
            assert_eq!(peer.rank().index(), victim, "rank {rank}: {end:?}");
            assert!(*at <= deadline, "rank {rank} noticed after {at:?}");
        }
    }
}

fn pair(one: usize, other: usize) -> [usize; 2] {
    [one.min(other), one.max(other)]
}

const MS: Duration = Duration::from_millis(1);

/// Who has said goodbye waits for the others, of whom some may still be at work.
#[test]
fn a_rank_that_has_said_goodbye_hears_of_those_at_work_and_blames_whom_they_blame() {
    for reported in [false, true] {
        let mut world = World::joined(4, 5 * MS, Hosts::Each);
        world.run(Duration::from_secs(2));
        world.happens(0, Event::Leave);
        world.run(Duration::from_secs(4));
        assert_eq!(world.ends, vec![None; 4], "nobody blames those who work");
        match reported {
            true => {
                world.kill(3);
                world.happens(1, Event::Reported(Rank::new(3)));
            }
            false => world.stops(3),
        }
        world.run(Duration::from_secs(7));
        world.all_blame(3, Duration::from_secs(7));
    }
}

#[test]
fn a_group_that_joins_and_leaves_is_over_on_every_rank() {
    let mut world = World::joined(4, 5 * MS, Hosts::Each);
    world.run(Duration::from_secs(2));
    assert_eq!(world.ends, vec![None; 4]);
    for rank in 0..4 {
        world.happens(rank, Event::Leave);
    }
    world.run(Duration::from_secs(3));
    assert!(
        world
            .ends
            .iter()
            .all(|end| matches!(end, Some((_, End::Over)))),
        "{:?}",
        world.ends
    );
}

#[test]
fn a_rank_that_never_appears_is_named_at_the_deadline_with_those_that_were_refused() {
    let mut alone = World::new(3, MS, Hosts::Each);
    alone.alive[2] = false;
    alone.post(MS, 0, Event::Joined(Rank::new(1)));
    let peer = UnauthenticatedPeer::new(
        "10.0.0.9:5".parse().unwrap(),
        UnauthenticatedCause::OtherJob,
    );
    alone.post(MS, 0, Event::Refused(peer.clone()));
    alone.post(MS, 1, Event::Joined(Rank::new(0)));
    alone.run(Duration::from_secs(31));
    let Some((_, End::Failed(error))) = &alone.ends[0] else {
        panic!("{:?}", alone.ends[0])
    };
    let missing = vec![members(3)[2].clone()];
    let waited = TIMEOUTS.join;
    assert_eq!(
        error,
        &OperationError::Join(JoinError::NotJoined {
            missing,
            waited,
            refused: vec![peer]
        })
    );
}

#[test]
fn who_comes_while_the_absent_are_named_is_not_among_them() {
    let late = TIMEOUTS.join - 300 * MS;
    // The last rank never comes.
    for (last, met) in [
        (2, &[(0, 1, late)][..]),
        // Two who have missed it have told each other.
        (3, &[(0, 2, MS), (0, 1, late), (1, 2, late)]),
    ] {
        let mut world = World::new(last + 1, MS, Hosts::Each);
        world.alive[last] = false;
        for (one, other, delay) in met {
            let (one, other) = (Rank::new(*one), Rank::new(*other));
            world.post(*delay, one.index(), Event::Joined(other));
            world.post(*delay, other.index(), Event::Joined(one));
        }
        world.run(TIMEOUTS.join + Duration::from_secs(1));
        for end in &world.ends[..last] {
            assert_eq!(missing(end), [last]);
        }
    }
}

/// Whom a rank that has given up joining names.
#[track_caller]
fn missing(end: &Option<(Duration, End)>) -> Vec<usize> {
    let Some((_, End::Failed(OperationError::Join(JoinError::NotJoined { missing, .. })))) = end
    else {
        panic!("{end:?}")
    };
    missing.iter().map(|member| member.rank().index()).collect()
}

/// Whoever is refused ends at the first refusal, so one member alone knows why it does not come.
#[test]
fn why_somebody_was_not_let_in_is_named_by_all_once() {
    for (world, absent, met_by, late) in [
        (9, 8, 7, Duration::ZERO),
        (9, 0, 4, Duration::ZERO),
        // While the others name each other already.
        (9, 8, 6, TIMEOUTS.join - 400 * MS),
        (40, 20, 4, Duration::ZERO),
    ] {
        let mut all = World::new(world, 20 * MS, Hosts::Each);
        all.alive[absent] = false;
        (0..world).for_each(|rank| all.connects(rank));
        let cause = UnauthenticatedCause::Refused(crate::Refusal::Members);
        let peer = UnauthenticatedPeer::new("10.0.0.9:5".parse().unwrap(), cause);
        for _ in 0..2 {
            all.post(late + MS, met_by, Event::Refused(peer.clone()));
        }
        all.run(TIMEOUTS.join + Duration::from_secs(1));
        for rank in (0..world).filter(|rank| *rank != absent) {
            let Some((
                _,
                End::Failed(OperationError::Join(JoinError::NotJoined {
                    missing, refused, ..
                })),
            )) = &all.ends[rank]
            else {
                panic!("rank {rank} ended with {:?}", all.ends[rank]);
            };
            assert_eq!(missing, &[members(world)[absent].clone()], "rank {rank}");
            assert_eq!(
                refused,
                std::slice::from_ref(&peer),
                "rank {rank} of {world}"
            );
        }
    }
}

#[test]
fn whoever_does_not_come_is_named_by_all_and_nobody_else_is() {
    for (world, absent) in [
        (2, vec![1]),
        (6, vec![0, 5]),
        (17, vec![3]),
        (40, vec![2, 3, 20]),
    ] {
        let mut all = World::new(world, 20 * MS, Hosts::Each);
        absent.iter().for_each(|rank| all.alive[*rank] = false);
        (0..world).for_each(|rank| all.connects(rank));
        all.run(TIMEOUTS.join + Duration::from_secs(1));
        assert_eq!(all.begun, vec![false; world]);
        for (rank, end) in all.ends.iter().enumerate() {
            match end {
                None => assert!(absent.contains(&rank)),
                end => assert_eq!(missing(end), absent, "{world} ranks, on rank {rank}"),
            }
        }
    }
}

/// Both ends of a way that is cut miss each other, and others are connected with both.
#[test]
fn whoever_misses_another_is_named_by_all_even_by_those_who_are_connected_with_it() {
    for (cut, absent) in [
        (vec![pair(2, 3)], vec![2, 3]),
        (vec![pair(1, 3), pair(2, 3)], vec![1, 2, 3]),
    ] {
        let mut all = World::new(6, 20 * MS, Hosts::Each);
        all.cut.extend(&cut);
        (0..6).for_each(|rank| all.connects(rank));
        all.run(TIMEOUTS.join + Duration::from_secs(1));
        for (rank, end) in all.ends.iter().enumerate() {
            assert_eq!(missing(end), absent, "rank {rank}, without {cut:?}");
        }
    }
}

/// Ranks of some size, connected with a logarithm of the others: all begin, and each has sent no
/// more than a logarithm of messages for it.
#[test]
fn all_begin_after_a_logarithm_of_messages() {
    for world in [2, 3, 8, 33, 100] {
        let mut all = World::joined(world, MS, Hosts::Each);
        all.run(TIMEOUTS.heartbeat / 2);
        assert_eq!(all.begun, vec![true; world]);
    }
}

#[test]
fn a_death_on_one_host_is_named_by_all_within_the_grace_time() {
    for victim in 0..4 {
        let mut world = World::joined(4, MS, Hosts::One);
        world.run(Duration::from_secs(1));
        world.kill(victim);
        world.run(Duration::from_secs(9));
        world.all_blame(victim, Duration::from_secs(1) + GRACE);
    }
}

#[test]
fn a_silent_rank_is_named_by_all_within_its_patience() {
    let mut world = World::joined(4, MS, Hosts::Each);
    world.run(Duration::from_secs(1));
    world.kill(2);
    world.run(Duration::from_secs(9));
    world.all_blame(
        2,
        Duration::from_secs(1) + TIMEOUTS.silence + TIMEOUTS.heartbeat + GRACE,
    );
}

#[test]
fn the_end_of_a_survivor_is_never_blamed_even_if_it_is_seen_first() {
    let mut world = World::joined(3, 20 * MS, Hosts::Each);
    world.run(Duration::from_secs(1));
    // Rank 1 has lost rank 2 and closes; rank 0 sees rank 1 go before it hears why.
    world.alive[2] = false;
    world.happens(0, Event::Died(Rank::new(1)));
    let abort = Abort {
        culprit: 2,
        reporter: 1,
        cause: 1,
        heard_ms: None,
        text: String::new(),
        calls: Vec::new(),
    };
    world.post(
        20 * MS,
        0,
        Event::Aborted {
            by: Rank::new(1),
            abort,
        },
    );
    world.run(Duration::from_secs(2));
    let Some((_, End::Failed(OperationError::RankLost { peer, reporter, .. }))) = &world.ends[0]
    else {
        panic!("{:?}", world.ends[0]);
    };
    assert_eq!((peer.rank(), *reporter), (Rank::new(2), Some(Rank::new(1))));
}

#[test]
fn a_loss_says_how_long_before_its_rank_was_last_heard_of() {
    let mut world = World::joined(3, MS, Hosts::Each);
    world.refuses = true;
    world.run(Duration::from_secs(2));
    world.kill(2);
    world.run(Duration::from_secs(4));
    for end in &world.ends[..2] {
        let Some((_, End::Failed(OperationError::RankLost { heard, cause, .. }))) = end else {
            panic!("{end:?}");
        };
        assert_eq!(*cause, LossCause::PortClosed);
        // It is seen soon, and signs of life come several times a second.
        let recent = |heard: &Duration| *heard < Duration::from_secs(1);
        assert!(heard.as_ref().is_some_and(recent), "{heard:?}");
    }
}

#[test]
fn after_its_goodbye_a_rank_may_vanish() {
    let mut world = World::joined(3, MS, Hosts::One);
    world.run(Duration::from_secs(1));
    world.happens(2, Event::Leave);
    world.run(Duration::from_secs(2));
    world.kill(2);
    world.run(Duration::from_secs(6));
    assert_eq!(world.ends[..2], [None, None]);
    world.happens(0, Event::Leave);
    world.happens(1, Event::Leave);
    world.run(Duration::from_secs(7));
    assert!(
        world.ends[..2]
            .iter()
            .all(|end| matches!(end, Some((_, End::Over)))),
        "{:?}",
        world.ends
    );
}

#[test]
fn an_end_that_is_seen_before_the_goodbye_is_read_is_no_loss() {
    let mut world = World::joined(2, MS, Hosts::One);
    world.run(Duration::from_secs(1));
    world.happens(1, Event::Leave);
    world.happens(1, Event::Died(Rank::new(0)));
    world.run(Duration::from_secs(3));
    assert!(
        matches!(world.ends[1], Some((_, End::Over))),
        "{:?}",
        world.ends
    );
}

#[test]
fn the_reason_of_a_rank_that_gives_up_reaches_all() {
    let mut world = World::joined(3, MS, Hosts::Each);
    world.run(Duration::from_secs(1));
    let reason = OperationError::Aborted {
        peer: members(3)[1].clone(),
        message: "no data".to_owned(),
    };
    world.happens(1, Event::GiveUp(reason.clone()));
    world.run(Duration::from_secs(2));
    for end in &world.ends {
        assert_eq!(
            end.as_ref().map(|(_, end)| end),
            Some(&End::Failed(reason.clone()))
        );
    }
}

#[test]
fn a_process_that_slept_itself_blames_nobody() {
    let mut world = World::joined(2, MS, Hosts::Each);
    world.run(Duration::from_secs(1));
    // Rank 0 is stopped for a minute and then runs before its mail is read.
    world.now = world.began + Duration::from_secs(61);
    world.happens(0, Event::Tick);
    world.happens(0, Event::Heard(Rank::new(1)));
    world.happens(0, Event::Tick);
    assert_eq!(world.ends[0], None);
}

#[test]
fn an_abort_with_a_rank_or_cause_from_nowhere_blames_its_sender() {
    let abort = Abort {
        culprit: 77,
        reporter: 78,
        cause: 200,
        heard_ms: None,
        text: "odd\nlines".to_owned(),
        calls: Vec::new(),
    };
    let error = abort::from_wire(&abort, Rank::new(1), &members(3));
    let expected = OperationError::Aborted {
        peer: members(3)[1].clone(),
        message: "odd lines".to_owned(),
    };
    assert_eq!(error, expected);
}

#[test]
fn a_silence_of_no_length_is_not_one_of_no_time() {
    const SILENT: u8 = 2;
    let abort = |heard_ms| Abort {
        culprit: 2,
        reporter: 1,
        cause: SILENT,
        heard_ms,
        text: "quiet".to_owned(),
        calls: Vec::new(),
    };
    let understood = |abort| abort::from_wire(&abort, Rank::new(1), &members(3));
    let OperationError::RankLost { cause, .. } = understood(abort(Some(900))) else {
        panic!("a silence is a loss");
    };
    assert_eq!(cause, LossCause::Silent(Duration::from_millis(900)));
    assert!(matches!(
        understood(abort(None)),
        OperationError::Aborted { .. }
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(meshwork_testing::cases(100)))]

    /// Whoever dies, whenever, whatever the latency: all others end, blame the victim, in time.
    #[test]
    fn any_death_while_running_is_blamed_on_the_victim(
        world in 2_usize..20,
        victim in any::<prop::sample::Index>(),
        latency in 0_u64..45,
        at in 100_u64..5000,
        hosts in prop_oneof![Just(Hosts::One), Just(Hosts::Each)],
    ) {
        let victim = victim.index(world);
        let mut all = World::joined(world, Duration::from_millis(latency), hosts);
        all.run(Duration::from_millis(at));
        all.kill(victim);
        all.run(Duration::from_secs(12));
        // Those who do not watch the victim are told from neighbour to neighbour.
        let hops = world.next_power_of_two().ilog2() + 1;
        let told = hops * Duration::from_millis(latency);
        let limit = TIMEOUTS.silence + TIMEOUTS.heartbeat + GRACE + told;
        all.all_blame(victim, Duration::from_millis(at) + limit);
    }

    /// A death while all leave ends every survivor in time, over or with the victim's name.
    #[test]
    fn any_death_while_leaving_ends_everybody(
        world in 2_usize..6,
        victim in any::<prop::sample::Index>(),
        latency in 0_u64..45,
        after in 0_u64..100,
    ) {
        let victim = victim.index(world);
        let mut all = World::joined(world, Duration::from_millis(latency), Hosts::One);
        all.run(Duration::from_secs(1));
        for rank in 0..world {
            all.happens(rank, Event::Leave);
        }
        all.run(Duration::from_millis(1000 + after));
        all.kill(victim);
        all.run(Duration::from_secs(9));
        for (rank, end) in all.ends.iter().enumerate().filter(|(rank, _)| *rank != victim) {
            match end {
                Some((_, End::Over)) => {}
                Some((_, End::Failed(OperationError::RankLost { peer, .. }))) => prop_assert_eq!(peer.rank().index(), victim),
                other => panic!("rank {rank} ended with {other:?}"),
            }
        }
    }
}
