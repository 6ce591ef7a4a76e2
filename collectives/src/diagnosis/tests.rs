//! Whole jobs, built call by call, of every small size and with every rank at fault.

use super::call_pattern::{CallPattern, call_pattern};
use super::dump::{Afterwards, Failure, Kind, Loss, Operation};
use super::*;

const SECOND: u64 = 1_000_000;

fn call(what: &str, sequence: u64) -> PastCall {
    PastCall {
        group: "0000000000000000".to_owned(),
        sequence,
        what: what.to_owned(),
        by: None,
        site: format!("{what}.rs:1"),
    }
}

/// A rank that has made these calls, one a second, and then was in the last one or in none.
fn dump(rank: u32, world: u32, done: &[&str], stuck: Option<&str>) -> Dump {
    let operation = |(sequence, what): (u64, &str), well: bool| Operation {
        call: call(what, sequence),
        began: sequence * SECOND,
        ended: well.then_some(sequence * SECOND + 1),
        well,
        data_transport: "memory".to_owned(),
        waits: Vec::new(),
    };
    let last = done.len() as u64 + 1;
    let done = (1..).zip(done.iter().copied());
    Dump {
        rank: Rank::new(rank),
        world,
        address: format!("host{rank}:1"),
        run: None,
        joined: 0,
        written: (last + 5) * SECOND,
        failure: None,
        afterwards: Afterwards::Nothing,
        operations: done
            .map(|call| operation(call, true))
            .chain(stuck.map(|what| operation((last, what), false)))
            .collect(),
    }
}

fn failed(dump: Dump, kind: Kind) -> Dump {
    let text = "it failed".to_owned();
    let failure = Some(Failure { text, kind });
    Dump { failure, ..dump }
}

fn lost(peer: u32, how: Loss, reporter: Option<u32>) -> Kind {
    Kind::Lost {
        peer: Rank::new(peer),
        how,
        reporter: reporter.map(Rank::new),
    }
}

fn disagreement(one: &(Rank, PastCall), other: &(Rank, PastCall)) -> Kind {
    Kind::Disagreement(Box::new([one.clone(), other.clone()]))
}

fn cause(dumps: &[Dump]) -> Cause {
    let found = diagnose(dumps);
    assert!(found.evidence().iter().all(|line| !line.contains('\n')));
    assert!(!found.cause().to_string().contains('\n'));
    assert!(found.cause().to_string().starts_with(found.cause().class()));
    found.cause().clone()
}

/// The dumps of all ranks but `away`, each made by `one`.
fn of_all_but(away: Option<u32>, world: u32, one: impl Fn(u32) -> Dump) -> Vec<Dump> {
    let ranks = (0..world).filter(|rank| Some(*rank) != away);
    ranks.map(one).collect()
}

/// Every word of these lengths over three letters.
fn words(longest: usize) -> Vec<Vec<&'static str>> {
    let mut all = vec![vec![]];
    let mut start = 0;
    for _ in 0..longest {
        let end = all.len();
        for word in start..end {
            for letter in ["a", "b", "c"] {
                let longer: Vec<_> = all[word].iter().copied().chain([letter]).collect();
                all.push(longer);
            }
        }
        start = end;
    }
    all.split_off(1)
}

#[test]
fn whoever_leaves_out_a_call_of_its_loop_is_named_with_the_call() {
    for word in words(4) {
        let program: Vec<&str> = word.iter().copied().cycle().take(6 * word.len()).collect();
        for skipped in 4 * word.len()..5 * word.len() {
            let mut odd = program.clone();
            odd.remove(skipped);
            let Some(place) = (skipped..odd.len()).find(|at| odd[*at] != program[*at]) else {
                continue;
            };
            for (world, rank) in [(2, 0), (2, 1), (3, 2), (4, 1)] {
                let number = place as u64 + 1;
                let usual = (Rank::new((rank + 1) % world), call(program[place], number));
                let other = (Rank::new(rank), call(odd[place], number));
                let disagreement = || disagreement(&usual, &other);
                let dumps = of_all_but(None, world, |own| {
                    let calls = if own == rank { &odd } else { &program };
                    let done = dump(own, world, &program[..place], Some(calls[place]));
                    failed(done, disagreement())
                });
                let missing = Some(call(program[place], place as u64 + 1));
                let expected = Cause::MissingCall {
                    rank: Rank::new(rank),
                    missing,
                    instead: Some(call(odd[place], place as u64 + 1)),
                };
                assert_eq!(cause(&dumps), expected, "{word:?} without {skipped}");
            }
        }
    }
}

#[test]
fn whoever_makes_a_call_that_it_never_made_before_is_the_other_of_a_mismatch() {
    for word in words(3) {
        let program: Vec<&str> = word.iter().copied().cycle().take(5 * word.len()).collect();
        for place in 3 * word.len()..program.len() {
            for rank in 0..2 {
                let number = place as u64 + 1;
                let calls = [
                    (Rank::new(rank), call("x", number)),
                    (Rank::new(1 - rank), call(program[place], number)),
                ];
                let dumps = of_all_but(None, 2, |own| {
                    let last = if own == rank { "x" } else { program[place] };
                    let done = dump(own, 2, &program[..place], Some(last));
                    failed(done, disagreement(&calls[0], &calls[1]))
                });
                let [odd, usual] = calls;
                let expected = Cause::Mismatch {
                    one: usual,
                    other: odd,
                };
                assert_eq!(cause(&dumps), expected, "{word:?} at {place}");
            }
        }
    }
}

#[test]
fn without_a_past_different_calls_are_a_mismatch() {
    let (one, other) = ((Rank::new(0), call("a", 1)), (Rank::new(1), call("b", 1)));
    let kind = || disagreement(&one, &other);
    let whats = ["a", "b"];
    let dumps = of_all_but(None, 2, |rank| {
        failed(dump(rank, 2, &[], Some(whats[rank as usize])), kind())
    });
    let expected = Cause::Mismatch {
        one: one.clone(),
        other: other.clone(),
    };
    assert_eq!(cause(&dumps), expected);
    assert_eq!(cause(&dumps[..1]), expected);
}

#[test]
fn a_rank_whose_end_was_seen_by_anybody_is_dead() {
    for world in 2..6 {
        for victim in 0..world {
            for witness in (0..world).filter(|rank| *rank != victim) {
                let dumps = of_all_but(Some(victim), world, |rank| {
                    let how = if rank == witness {
                        lost(victim, Loss::Died, None)
                    } else {
                        lost(victim, Loss::Unheard, Some(witness))
                    };
                    failed(dump(rank, world, &["a"], Some("b")), how)
                });
                let (rank, seen) = (Rank::new(victim), Death::Ended);
                assert_eq!(cause(&dumps), Cause::DeadRank { rank, seen });
            }
        }
    }
}

#[test]
fn a_silent_rank_without_a_dump_is_dead_and_with_one_its_link_is() {
    for world in 2..6 {
        for victim in 0..world {
            let unheard = |rank: u32| {
                let peer = if rank == victim {
                    (victim + 1) % world
                } else {
                    victim
                };
                let done = dump(rank, world, &["a"], Some("b"));
                failed(done, lost(peer, Loss::Unheard, None))
            };
            let (rank, seen) = (Rank::new(victim), Death::Silent);
            let without = of_all_but(Some(victim), world, unheard);
            assert_eq!(cause(&without), Cause::DeadRank { rank, seen });
            let with = of_all_but(None, world, unheard);
            let found = cause(&with);
            assert_eq!(found.class(), "dead link", "{world} {victim}");
            assert!(found.ranks().contains(&rank), "{world} {victim}");
        }
    }
}

#[test]
fn a_rank_that_was_away_and_could_be_told_so_is_slow() {
    let away = failed(dump(1, 2, &["a"], None), lost(1, Loss::Unheard, Some(0)));
    let waiting = failed(dump(0, 2, &["a"], Some("b")), lost(1, Loss::Unheard, None));
    let found = cause(&[waiting, away]);
    assert_eq!(
        (found.class(), found.ranks()),
        ("slow rank", vec![Rank::new(1)])
    );
}

#[test]
fn a_rank_that_waited_for_whoever_did_not_hear_it_has_a_dead_link() {
    let mut cut_off = failed(
        dump(1, 3, &["a"], Some("b")),
        lost(1, Loss::Unheard, Some(2)),
    );
    cut_off.operations[1].waits = vec![(Rank::new(0), 4 * SECOND)];
    let witness = failed(dump(0, 3, &["a"], Some("b")), lost(1, Loss::Unheard, None));
    let told = failed(
        dump(2, 3, &["a"], Some("b")),
        lost(1, Loss::Unheard, Some(0)),
    );
    let (one, other) = (Rank::new(0), Rank::new(1));
    let dumps = [witness, cut_off, told];
    assert_eq!(cause(&dumps), Cause::DeadLink { one, other });
    // The same when the one that was told of its own loss comes first, and was told by a third.
    let mut cut_off = failed(
        dump(0, 3, &["a"], Some("b")),
        lost(0, Loss::Unheard, Some(2)),
    );
    cut_off.operations[1].waits = vec![(Rank::new(1), 4 * SECOND)];
    let witness = failed(dump(1, 3, &["a"], Some("b")), lost(0, Loss::Unheard, None));
    let told = failed(
        dump(2, 3, &["a"], Some("b")),
        lost(0, Loss::Unheard, Some(1)),
    );
    let dumps = [cut_off, witness, told];
    assert_eq!(cause(&dumps), Cause::DeadLink { one, other });
}

#[test]
fn waits_of_more_microseconds_than_can_be_added_up_are_waits() {
    let witness = failed(dump(0, 2, &["a"], Some("b")), lost(1, Loss::Unheard, None));
    let (one, other) = (Rank::new(0), Rank::new(1));
    for waits in [vec![3 * SECOND], vec![u64::MAX, 1]] {
        let mut cut_off = failed(
            dump(1, 2, &["a"], Some("b")),
            lost(1, Loss::Unheard, Some(0)),
        );
        cut_off.operations[1].waits = waits.into_iter().map(|micros| (one, micros)).collect();
        let dumps = [witness.clone(), cut_off];
        assert_eq!(cause(&dumps), Cause::DeadLink { one, other });
    }
}

#[test]
fn a_rank_that_drops_its_group_misses_the_call_that_the_others_are_in() {
    for world in 2..5 {
        for victim in 0..world {
            let dumps = of_all_but(None, world, |rank| {
                let stuck = (rank != victim).then_some("b");
                let done = dump(rank, world, &["a"], stuck);
                failed(done, lost(victim, Loss::Left, None))
            });
            let expected = Cause::MissingCall {
                rank: Rank::new(victim),
                missing: Some(call("b", 2)),
                instead: None,
            };
            assert_eq!(cause(&dumps), expected);
        }
    }
}

/// Rank 0's time is up while it waits for rank 1, which did this afterwards.
fn delayed(afterwards: Afterwards) -> Cause {
    let timed_out = Kind::TimedOut {
        rank: Rank::new(0),
        peer: Rank::new(1),
    };
    let late = Dump {
        afterwards,
        ..failed(dump(1, 2, &["a"], None), Kind::Other)
    };
    cause(&[failed(dump(0, 2, &["a"], Some("b")), timed_out), late])
}

#[test]
fn what_a_late_rank_does_afterwards_tells_the_slow_from_those_who_never_come() {
    let slow = |micros| Cause::SlowRank {
        rank: Rank::new(1),
        micros,
    };
    let missing = |instead| Cause::MissingCall {
        rank: Rank::new(1),
        missing: Some(call("b", 2)),
        instead,
    };
    assert_eq!(delayed(Afterwards::Nothing), slow(5 * SECOND));
    let came = Afterwards::CallOutcome(call("b", 2), 9 * SECOND);
    assert_eq!(delayed(came), slow(7 * SECOND));
    let elsewhere = Afterwards::CallOutcome(call("c", 2), 9 * SECOND);
    assert_eq!(delayed(elsewhere), missing(Some(call("c", 2))));
    assert_eq!(delayed(Afterwards::Dropped), missing(None));
}

#[test]
fn a_rank_that_made_the_call_after_the_others_had_given_up_is_slow() {
    let timed_out = Kind::TimedOut {
        rank: Rank::new(0),
        peer: Rank::new(1),
    };
    let mut late = dump(1, 2, &["a", "b"], Some("c"));
    late.operations[1].began = 9 * SECOND;
    let waiter = failed(dump(0, 2, &["a"], Some("b")), timed_out);
    let found = cause(&[waiter, failed(late, Kind::Other)]);
    let (rank, micros) = (Rank::new(1), 7 * SECOND);
    assert_eq!(found, Cause::SlowRank { rank, micros });
}

#[test]
fn whoever_is_waited_for_in_the_end_is_slow_however_long_the_line() {
    for world in 2..7_u32 {
        let timed_out = || Kind::TimedOut {
            rank: Rank::new(0),
            peer: Rank::new(1),
        };
        let mut dumps = of_all_but(None, world, |rank| {
            let stuck = (rank + 1 < world).then_some("b");
            let kind = if rank == 0 { timed_out() } else { Kind::Other };
            let mut own = failed(dump(rank, world, &["a"], stuck), kind);
            if let Some(last) = own.operations.last_mut().filter(|last| !last.well) {
                last.waits = vec![(Rank::new(rank + 1), SECOND)];
            }
            own
        });
        let found = cause(&dumps);
        assert_eq!(found.class(), "slow rank");
        assert_eq!(found.ranks(), [Rank::new(world - 1)]);
        // A line that bites its own tail ends too.
        if let Some(last) = dumps.last_mut() {
            *last = dump(world - 1, world, &["a"], Some("b"));
            last.operations[1].waits = vec![(Rank::new(0), SECOND)];
        }
        assert_eq!(cause(&dumps).class(), "slow rank");
    }
}

#[test]
fn nothing_and_something_else_are_said_as_they_are() {
    assert_eq!(cause(&[]), Cause::Unknown);
    assert_eq!(cause(&[dump(0, 2, &["a"], None)]), Cause::Unknown);
    let other = failed(dump(0, 2, &["a"], None), Kind::Other);
    let text = "it failed".to_owned();
    assert_eq!(cause(&[other]), Cause::Other { text });
}

#[test]
fn habits_need_a_past() {
    let first = dump(0, 2, &[], None);
    assert_eq!(call_pattern(&first, &call("a", 1)), CallPattern::Unknown);
    let second = dump(0, 2, &["a"], None);
    assert_eq!(call_pattern(&second, &call("a", 2)), CallPattern::Unknown);
    let third = dump(0, 2, &["a", "a"], None);
    assert_eq!(call_pattern(&third, &call("a", 3)), CallPattern::Kept);
    assert_eq!(call_pattern(&third, &call("b", 3)), CallPattern::Left);
}

#[test]
fn a_trace_has_every_operation_at_its_time_and_one_failure_a_rank() {
    let died = || lost(2, Loss::Died, None);
    let dumps = of_all_but(Some(2), 3, |rank| {
        failed(dump(rank, 3, &["a", "b"], Some("c")), died())
    });
    let trace: serde_json::Value = serde_json::from_str(&trace(&dumps)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
    assert_eq!(
        (of("X").count(), of("i").count(), of("M").count()),
        (6, 2, 4)
    );
    let stuck = of("X").find(|event| event["name"] == "c").unwrap();
    assert_eq!(stuck["ts"], 3 * SECOND);
    assert_eq!(stuck["dur"], 5 * SECOND);
    assert_eq!(stuck["args"]["finished"], false);
}

#[test]
fn what_is_no_dump_is_refused_by_its_field() {
    let field = |text: &str| match Dump::from_json(text) {
        Err(DumpError::Field { field }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field("{}"), "version");
    assert_eq!(field(r#"{"version":1,"rank":3,"world":3}"#), "rank");
    assert_eq!(
        field(r#"{"version":1,"rank":2,"world":3,"operations":7}"#),
        "operations"
    );
    assert_eq!(
        Dump::from_json("{\n").unwrap_err(),
        DumpError::NotJson { line: 2, column: 0 }
    );
    assert_eq!(
        Dump::from_json(r#"{"version":2}"#).unwrap_err(),
        DumpError::Version { found: 2 }
    );
}

/// A rank that has waited for another for so long, and goes on.
fn waiting(rank: u32, world: u32, peer: u32, micros: u64) -> Dump {
    let mut dump = dump(rank, world, &["sum"], Some("sum"));
    let stuck = dump.operations.last_mut().unwrap();
    stuck.waits.push((Rank::new(peer), micros));
    dump.written = stuck.began + micros;
    dump
}

#[test]
fn while_a_job_runs_whoever_is_waited_for_is_named() {
    for world in 2..=4 {
        for slow in 0..world {
            let others = (0..world).filter(|rank| *rank != slow);
            let waiting: Vec<_> = others
                .map(|rank| waiting(rank, world, slow, 3 * SECOND))
                .collect();
            let cause =
                |dumps: &[Dump], unanswered| diagnose_live(dumps, unanswered).cause().clone();
            let (rank, micros) = (Rank::new(slow), 3 * SECOND);
            // It was asked and is silent, or nobody asked it.
            let seen = Death::Silent;
            assert_eq!(cause(&waiting, 1), Cause::DeadRank { rank, seen });
            assert_eq!(cause(&waiting, 0), Cause::SlowRank { rank, micros });
            // It computes.
            let mut all = waiting.clone();
            all.push(dump(slow, world, &["sum"], None));
            assert_eq!(cause(&all, 0), Cause::SlowRank { rank, micros });
        }
    }
}

#[test]
fn while_a_job_runs_a_chain_of_waits_ends_at_who_does_not_wait() {
    let chain = [waiting(0, 3, 1, 2 * SECOND), waiting(1, 3, 2, 2 * SECOND)];
    let slow = dump(2, 3, &["sum"], None);
    let dumps = [&chain[..], &[slow]].concat();
    let found = diagnose_live(&dumps, 0);
    assert_eq!(found.cause().ranks(), [Rank::new(2)]);
    assert_eq!(found.cause().class(), "slow rank");
}

#[test]
fn a_job_that_runs_well_has_no_fault_and_one_that_failed_is_judged_as_ever() {
    let short = waiting(0, 2, 1, 49_999);
    let calls = dump(1, 2, &["sum"], Some("sum"));
    assert_eq!(*diagnose_live(&[short, calls], 0).cause(), Cause::Running);
    assert_eq!(*diagnose_live(&[], 2).cause(), Cause::Unknown);
    let over = failed(waiting(0, 2, 1, SECOND), lost(1, Loss::Died, None));
    let dumps = [over];
    assert_eq!(diagnose_live(&dumps, 1), diagnose(&dumps));
}
