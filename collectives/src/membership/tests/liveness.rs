//! Evidence is quick, silence is patient: what ends a group, when, and what does not.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn causes(world: &World) -> Vec<Option<LossCause>> {
    let ends = world.ends.iter();
    ends.map(|end| match end {
        Some((_, End::Failed(OperationError::RankLost { cause, .. }))) => Some(*cause),
        _ => None,
    })
    .collect()
}

#[test]
fn a_rank_of_the_same_host_is_never_judged_by_its_silence() {
    for ranks in [2, 4, 9] {
        let mut world = World::joined(ranks, MS, Hosts::One);
        world.run(SECOND);
        // It starves: it runs, says the kernel, but says nothing itself.
        for other in 1..ranks {
            world.cut.insert(pair(0, other));
        }
        world.run(600 * SECOND);
        assert_eq!(world.ends, vec![None; ranks]);
        assert_eq!(world.said, []);
    }
}

/// As where two hosts have one name, or a kernel watches no processes.
#[test]
fn ranks_that_no_kernel_watches_are_judged_by_their_signs_of_life() {
    let mut world = World::joined(3, MS, Hosts::One);
    for rank in 0..3 {
        for other in (0..3).filter(|other| *other != rank) {
            world.happens(rank, Event::Unwatched(Rank::at(other)));
        }
    }
    world.run(60 * SECOND);
    assert_eq!(world.ends, vec![None; 3]);
    world.stops(2);
    world.run(70 * SECOND);
    world.all_blame(2, 60 * SECOND + 2 * TIMEOUTS.silence + GRACE);
    let silent = |cause: &Option<LossCause>| matches!(cause, Some(LossCause::Silent(_)));
    assert!(causes(&world)[..2].iter().all(silent), "{:?}", world.ends);
}

#[test]
fn ranks_of_one_host_send_each_other_no_signs_of_life() {
    let mut world = World::joined(8, MS, Hosts::One);
    world.run(SECOND);
    let before = world.sent;
    world.run(11 * SECOND);
    // Each looks at one process, every other beat.
    let looks = 10_000 / (2 * 250) * 8;
    assert!(world.sent - before <= looks, "{}", world.sent - before);
}

#[test]
fn a_stopped_process_has_the_patience_of_the_group_to_go_on() {
    for hosts in [Hosts::One, Hosts::Each] {
        for victim in 0..4 {
            let mut world = World::joined(4, MS, hosts);
            world.run(SECOND);
            world.stops(victim);
            world.run(SECOND + TIMEOUTS.silence - 2 * TIMEOUTS.heartbeat);
            world.goes_on(victim);
            world.run(60 * SECOND);
            assert_eq!(world.ends, vec![None; 4], "{hosts:?}");
        }
    }
}

#[test]
fn a_process_that_stays_stopped_is_lost_after_the_patience_and_not_before() {
    let mut world = World::joined(4, MS, Hosts::One);
    world.run(SECOND);
    world.stops(2);
    world.run(SECOND + TIMEOUTS.silence);
    assert_eq!(world.ends, vec![None; 4]);
    world.run(9 * SECOND);
    world.all_blame(2, SECOND + TIMEOUTS.silence + 4 * TIMEOUTS.check + GRACE);
    let others = [0, 1, 3].map(|rank| causes(&world)[rank]);
    assert_eq!(others, [Some(LossCause::Stopped); 3]);
}

#[test]
fn a_closed_port_ends_the_group_long_before_the_patience() {
    for victim in 0..4 {
        let mut world = World::joined(4, MS, Hosts::Each);
        world.refuses = true;
        world.run(SECOND);
        world.kill(victim);
        world.run(9 * SECOND);
        world.all_blame(victim, SECOND + 100 * MS);
        let first = causes(&world)[(victim + 1) % 4];
        assert_eq!(first, Some(LossCause::PortClosed));
    }
}

#[test]
fn a_silent_rank_of_another_host_is_looked_for_at_once_and_then_ever_more_rarely() {
    let mut world = World::joined(2, MS, Hosts::Each);
    world.run(SECOND);
    world.cut.insert(pair(0, 1));
    world.looked.clear();
    world.run(SECOND + TIMEOUTS.silence);
    let of_first = world.looked.iter().filter(|(by, ..)| *by == 0);
    let times: Vec<Duration> = of_first.map(|(.., at)| *at).collect();
    let pauses: Vec<Duration> = times.windows(2).map(|two| two[1] - two[0]).collect();
    let longest = TIMEOUTS.check + TIMEOUTS.check / 4;
    assert!(times[0] <= SECOND + 60 * MS, "{times:?}");
    assert!(pauses[0] < pauses[1] && pauses[1] < longest, "{pauses:?}");
    assert_eq!(pauses[2..], [longest; 4]);
}

#[test]
fn a_port_that_is_said_to_be_closed_while_its_rank_is_heard_means_nothing() {
    let mut world = World::joined(2, MS, Hosts::Each);
    world.run(10 * SECOND);
    let closed = |heard| Event::PortClosed {
        rank: Rank::new(1),
        heard,
    };
    world.happens(0, closed(world.now));
    // What a look has found that took long is as old as the look.
    world.happens(0, closed(world.now - SECOND));
    world.run(20 * SECOND);
    assert_eq!(world.ends, [None, None]);
}

/// Its address has changed, and the old one refuses: it is heard within moments from the new one.
#[test]
fn a_rank_that_is_heard_after_its_port_was_found_closed_is_not_lost() {
    let mut world = World::joined(2, MS, Hosts::Each);
    world.run(SECOND);
    world.stops(1);
    world.run(SECOND + TIMEOUTS.heartbeat + 5 * MS);
    let heard = world.ranks[0].heard_of(Rank::new(1)).unwrap();
    let rank = Rank::new(1);
    world.happens(0, Event::PortClosed { rank, heard });
    world.run(SECOND + TIMEOUTS.heartbeat + 20 * MS);
    world.goes_on(1);
    world.run(5 * SECOND);
    assert_eq!(world.ends, [None, None]);
    world.stops(1);
    let silent = 5 * SECOND + TIMEOUTS.heartbeat + 5 * MS;
    world.run(silent);
    let heard = world.ranks[0].heard_of(rank).unwrap();
    world.happens(0, Event::PortClosed { rank, heard });
    world.run(silent + LAST_WORDS);
    assert_eq!(causes(&world)[0], Some(LossCause::PortClosed));
}

#[test]
fn whose_port_closes_while_all_leave_has_finished() {
    let mut world = World::joined(3, MS, Hosts::Each);
    world.refuses = true;
    world.run(SECOND);
    world.happens(0, Event::Leave);
    world.happens(1, Event::Leave);
    world.run(2 * SECOND);
    // Its goodbye was lost.
    world.kill(2);
    world.run(4 * SECOND);
    let over = |end: &Option<(Duration, End)>| matches!(end, Some((_, End::Over)));
    assert!(world.ends[..2].iter().all(over), "{:?}", world.ends);
}

#[test]
fn a_rank_of_the_same_host_that_hangs_before_its_goodbye_is_not_waited_for_for_ever() {
    for ranks in [2, 4] {
        let mut world = World::joined(ranks, MS, Hosts::One);
        world.run(SECOND);
        let hangs = ranks - 1;
        for rank in 0..hangs {
            world.happens(rank, Event::Leave);
        }
        let limit = SECOND + 2 * TIMEOUTS.silence;
        world.run(limit - MS);
        assert_eq!(world.ends, vec![None; ranks]);
        // It runs, says the kernel.
        let looked = |(_, of, at): &(usize, Rank, Duration)| of.index() == hangs && *at > SECOND;
        assert!(world.looked.iter().any(looked), "{:?}", world.looked);
        world.run(limit + TIMEOUTS.check);
        let over = |end: &Option<(Duration, End)>| matches!(end, Some((_, End::Over)));
        assert!(world.ends[..hangs].iter().all(over), "{:?}", world.ends);
        // It has heard their goodbyes, and may go on whenever it can.
        world.run(60 * SECOND);
        assert_eq!(world.ends[hangs], None);
        world.happens(hangs, Event::Leave);
        assert!(over(&world.ends[hangs]), "{:?}", world.ends);
    }
}

#[test]
fn who_is_stopped_while_all_leave_is_lost_all_the_same() {
    let mut world = World::joined(2, MS, Hosts::One);
    world.run(SECOND);
    world.stops(1);
    world.happens(0, Event::Leave);
    world.run(SECOND + 2 * TIMEOUTS.silence);
    assert_eq!(causes(&world)[0], Some(LossCause::Stopped));
}

#[test]
fn where_the_way_to_one_rank_is_cut_others_vouch_for_it_for_as_long_again() {
    let mut world = World::joined(4, MS, Hosts::Each);
    world.run(SECOND);
    world.cut.insert([0, 1]);
    world.run(SECOND + 2 * TIMEOUTS.silence - TIMEOUTS.heartbeat);
    assert_eq!(world.ends, vec![None; 4]);
    // It heals: nobody was lost.
    world.cut.clear();
    world.run(60 * SECOND);
    assert_eq!(world.ends, vec![None; 4]);
    world.cut.insert([0, 1]);
    world.run(60 * SECOND + 2 * TIMEOUTS.silence + TIMEOUTS.heartbeat + GRACE);
    world.run(65 * SECOND);
    let silent = |cause: &Option<LossCause>| matches!(cause, Some(LossCause::Silent(_)));
    assert!(causes(&world).iter().all(silent), "{:?}", world.ends);
}

/// Two pings are asked for, one is answered at once, and the other by the suspect itself.
#[test]
fn a_suspect_refutes_by_any_sign_of_life_that_reaches_one_who_was_asked() {
    let mut world = World::joined(4, MS, Hosts::Each);
    world.run(SECOND);
    let [me, helper, suspect] = [0, 2, 1].map(Rank::new);
    let ping = Ping {
        origin: 0,
        target: 1,
    };
    let mut out = Vec::new();
    world.ranks[1].handle(world.now, Event::Asked { by: helper, ping }, &mut out);
    let answers = [
        Action::Send(helper, Message::Ack(ping)),
        Action::Send(me, Message::Heartbeat),
    ];
    assert_eq!(out[..2], answers);
    out.clear();
    world.ranks[2].handle(world.now, Event::Vouched { by: suspect, ping }, &mut out);
    assert_eq!(out[0], Action::Send(me, Message::Ack(ping)));
}

#[test]
fn probes_with_ranks_from_nowhere_are_passed_to_nobody() {
    let mut world = World::joined(3, MS, Hosts::Each);
    world.run(SECOND);
    let by = Rank::new(1);
    for (origin, target) in [(1, 77), (77, 0), (77, 78), (2, 2), (0, 77), (77, 1)] {
        let ping = Ping { origin, target };
        for event in [Event::Asked { by, ping }, Event::Vouched { by, ping }] {
            let mut out = Vec::new();
            world.ranks[0].handle(world.now, event, &mut out);
            let sends = |action: &Action| match action {
                Action::Send(to, Message::PingRequest(_) | Message::Ack(_)) => *to != by,
                _ => false,
            };
            assert!(!out.iter().any(sends), "{ping:?}: {out:?}");
        }
    }
}

#[test]
fn a_starved_process_is_more_patient_for_a_while_and_up_to_a_bound() {
    let mut world = World::joined(2, MS, Hosts::Each);
    world.run(SECOND);
    // Rank 0 gets to run only every two seconds, and hears nothing of rank 1 each time.
    let mut now = world.now;
    for _ in 0..6 {
        now += 2 * SECOND;
        world.ranks[0].handle(now, Event::Tick, &mut Vec::new());
    }
    world.now = now;
    let heard = Event::Heard(Rank::new(1));
    world.ranks[0].handle(now, heard, &mut Vec::new());
    let mut lost = None;
    while lost.is_none() {
        now += 100 * MS;
        let mut out = Vec::new();
        world.ranks[0].handle(now, Event::Tick, &mut out);
        let failed = out.iter().any(|action| matches!(action, Action::Fail(_)));
        lost = failed.then_some(now - world.now);
    }
    // Confidence has come back by two steps meanwhile.
    let took = lost.unwrap();
    assert!(took > 2 * TIMEOUTS.silence, "{took:?}");
    assert!(took <= 4 * TIMEOUTS.silence + GRACE + 200 * MS, "{took:?}");
}

#[test]
fn who_is_waited_for_is_said_rarely_and_with_the_reason() {
    let patient = MembershipTimeouts {
        silence: 40 * SECOND,
        ..TIMEOUTS
    };
    for (hosts, text) in [
        (
            Hosts::One,
            "waiting for rank 1 (host:4001, process 1001), stopped for ",
        ),
        (
            Hosts::Each,
            "waiting for rank 1 (host:4001), of which nothing was heard for ",
        ),
    ] {
        let mut world = World::joined(2, MS, hosts);
        world
            .ranks
            .iter_mut()
            .for_each(|rank| rank.timeouts = patient);
        world.run(SECOND);
        world.stops(1);
        world.run(3 * SECOND);
        assert_eq!(world.said, [], "{hosts:?}");
        world.run(SECOND + 35 * SECOND);
        // After 2, 4, 8, 16 and 32 seconds.
        assert_eq!(world.said.len(), 5, "{:?}", world.said);
        let said = |(rank, line): &(usize, String)| *rank == 0 && line.starts_with(text);
        assert!(world.said.iter().all(said), "{:?}", world.said);
        world.goes_on(1);
        world.run(100 * SECOND);
        assert_eq!(world.said.len(), 5);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(meshwork_testing::cases(60)))]

    /// Whoever is stopped, for less than the patience: nobody is lost. For longer: it alone is.
    #[test]
    fn whoever_is_stopped_for_longer_than_the_patience_is_lost_and_nobody_else(
        world in 2_usize..12,
        victim in any::<prop::sample::Index>(),
        latency in 0_u64..45,
        length in 0_u64..6000,
        hosts in prop_oneof![Just(Hosts::One), Just(Hosts::Each)],
    ) {
        let victim = victim.index(world);
        let mut all = World::joined(world, Duration::from_millis(latency), hosts);
        all.run(SECOND);
        all.stops(victim);
        let length = Duration::from_millis(length);
        all.run(SECOND + length);
        all.goes_on(victim);
        all.run(30 * SECOND);
        let failed = all.ends.iter().filter(|end| end.is_some()).count();
        let patience = TIMEOUTS.silence;
        if length + 2 * TIMEOUTS.heartbeat < patience {
            prop_assert_eq!(failed, 0);
        }
        if length > VOUCHED_AND_MORE * patience {
            prop_assert!(failed + 1 >= world);
        }
        for (rank, end) in all.ends.iter().enumerate().filter(|(rank, _)| *rank != victim) {
            if let Some((_, End::Failed(OperationError::RankLost { peer, .. }))) = end {
                prop_assert_eq!(peer.rank().index(), victim, "on rank {}", rank);
            }
        }
    }
}

/// Others may have heard of a rank at the end that this one has not.
const VOUCHED_AND_MORE: u32 = 3;
