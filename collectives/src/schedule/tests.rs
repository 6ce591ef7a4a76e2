use super::*;

fn plan(world: u32, schedule: impl Fn(Rank) -> Schedule) -> (Vec<Vec<Round>>, usize) {
    let plan = Rank::all(world)
        .map(|rank| schedule(rank).rounds().collect())
        .collect();
    (plan, schedule(Rank::CHIEF).chunks())
}

/// The lengths at which cutting in `world` chunks changes its shape, and one beyond.
fn lengths(world: u32) -> [usize; 6] {
    let world = world as usize;
    [0, 1, world - 1, world, world + 1, 3 * world + 2]
}

#[track_caller]
fn proves(world: u32, goal: Goal, schedule: impl Fn(Rank) -> Schedule) {
    let (plan, chunks) = plan(world, schedule);
    for len in lengths(world) {
        assert_eq!(
            check(&plan, chunks, len, goal),
            Ok(()),
            "world {world}, {len} elements"
        );
    }
}

#[test]
fn all_reduce_is_proved_for_every_world_up_to_64() {
    for algorithm in Algorithm::ALL {
        for world in 1..=64 {
            proves(world, Goal::AllReduce, |rank| {
                Schedule::all_reduce(algorithm, world, rank)
            });
        }
    }
}

#[test]
fn broadcast_is_proved_from_every_root_of_every_world_up_to_64() {
    for algorithm in Algorithm::ALL {
        for world in 1..=64 {
            // Every root of small worlds; the ends, the middle and an odd one of large worlds.
            let roots: Vec<u32> = if world <= 17 {
                (0..world).collect()
            } else {
                vec![0, 1, world / 2, world - 1]
            };
            for root in roots.into_iter().map(Rank::new) {
                let goal = Goal::Broadcast(root);
                proves(world, goal, |rank| {
                    Schedule::broadcast(algorithm, world, rank, root)
                });
            }
        }
    }
}

#[test]
fn every_single_change_to_a_schedule_is_found() {
    for algorithm in Algorithm::ALL {
        for world in 2..=5 {
            let (sound, chunks) = plan(world, |rank| Schedule::all_reduce(algorithm, world, rank));
            for mutant in mutants(&sound, world) {
                let verdict = check(&mutant, chunks, 2 * world as usize, Goal::AllReduce);
                assert!(verdict.is_err(), "{algorithm:?} of {world}: {mutant:?}");
            }
        }
    }
}

/// Each schedule that differs from `sound` in one field of one rank's one round.
fn mutants(sound: &[Vec<Round>], world: u32) -> Vec<Vec<Vec<Round>>> {
    let mut mutants = Vec::new();
    for (rank, rounds) in sound.iter().enumerate() {
        for (index, round) in rounds.iter().enumerate() {
            for changed in changes(*round, world) {
                let mut mutant = sound.to_vec();
                mutant[rank][index] = changed;
                mutants.push(mutant);
            }
        }
    }
    mutants
}

fn changes(round: Round, world: u32) -> Vec<Round> {
    let shifted = |rank: Rank| Rank::new((rank.number() + 1) % world);
    let mut changes = Vec::new();
    if let Some(send) = round.send {
        changes.push(Round {
            send: None,
            ..round
        });
        changes.push(Round {
            send: Some(Send {
                to: shifted(send.to),
                ..send
            }),
            ..round
        });
        changes.push(Round {
            send: Some(Send {
                chunk: send.chunk + 1,
                ..send
            }),
            ..round
        });
    }
    if let Some(receive) = round.receive {
        let other = match receive.then {
            OnReceive::Reduce => OnReceive::Replace,
            OnReceive::Replace => OnReceive::Reduce,
        };
        changes.push(Round {
            receive: None,
            ..round
        });
        changes.push(Round {
            receive: Some(Receive {
                from: shifted(receive.from),
                ..receive
            }),
            ..round
        });
        changes.push(Round {
            receive: Some(Receive {
                then: other,
                ..receive
            }),
            ..round
        });
    }
    changes
}

#[test]
fn the_checker_names_what_is_wrong() {
    let (mut two, chunks) = plan(2, |rank| Schedule::all_reduce(Algorithm::Ring, 2, rank));
    two[1].pop();
    let expected = Violation::RoundCount {
        rank: Rank::new(1),
        rounds: 1,
        expected: 2,
    };
    assert_eq!(check(&two, chunks, 4, Goal::AllReduce), Err(expected));
    let (mut two, chunks) = plan(2, |rank| Schedule::all_reduce(Algorithm::Tree, 2, rank));
    two[0][0].receive = None;
    let expected = Violation::UnmatchedSend {
        round: 0,
        rank: Rank::new(1),
        to: Rank::new(0),
        chunk: 0,
    };
    assert_eq!(check(&two, chunks, 4, Goal::AllReduce), Err(expected));
}

#[test]
fn rounds_and_bytes_are_those_of_the_textbook() {
    let sent = |schedule: Schedule| {
        schedule
            .rounds()
            .filter(|round| round.send.is_some())
            .count()
    };
    assert_eq!(
        sent(Schedule::all_reduce(Algorithm::Ring, 8, Rank::new(3))),
        14
    );
    assert_eq!(
        Schedule::all_reduce(Algorithm::Tree, 9, Rank::new(3))
            .rounds()
            .len(),
        8
    );
    assert_eq!(
        Schedule::broadcast(Algorithm::Tree, 8, Rank::new(3), Rank::new(5))
            .rounds()
            .len(),
        3
    );
    assert_eq!(
        Schedule::all_reduce(Algorithm::Ring, 1, Rank::new(0))
            .rounds()
            .len(),
        0
    );
}

#[test]
fn chunks_tile_the_buffer_and_differ_by_at_most_one() {
    for chunks in 1..=17 {
        for len in 0..=70 {
            let mut covered = 0;
            for index in 0..chunks {
                let range = chunk(len, chunks, index);
                assert_eq!(range.start, covered);
                assert!(range.len() == len / chunks || range.len() == len.div_ceil(chunks));
                covered = range.end;
            }
            assert_eq!(covered, len);
        }
    }
}

#[test]
fn codes_and_algorithms_are_inverse() {
    let known: Vec<u8> = (0..=u8::MAX)
        .filter(|code| Algorithm::from_code(*code).is_some())
        .collect();
    assert_eq!(known, Algorithm::ALL.map(Algorithm::code));
}
