//! Ranks that wait for each other in different calls, and some that only seem to.

use super::*;

/// What ranks that wait for each other for ever are told, all the same, over every transport.
fn found_at_once(world: u32, program: impl Fn(&mut Group) -> Result<(), OperationError> + Sync) {
    each(Over::ALL, |over| {
        let errors = over.run(world, |mut group| {
            let began = Instant::now();
            let error = program(&mut group).unwrap_err();
            // Long before the operation's own time is up.
            assert!(began.elapsed() < PATIENCE / 2, "{over:?}: {error}");
            error
        });
        let text = errors[0].to_string();
        for error in errors {
            let named = matches!(error, OperationError::Disagreement { .. });
            let sites = text.matches("deadlocks.rs:").count();
            assert!(named && sites == 2, "{over:?}: {text}");
            assert_eq!(error.to_string(), text, "{over:?}");
        }
    });
}

fn next(group: &Group) -> Rank {
    Rank::new((group.rank().number() + 1) % group.world())
}

#[test]
fn two_ranks_that_wait_for_each_others_messages_are_told_at_once() {
    found_at_once(2, |group| group.receive(&mut [0_u8; 4], next(group)));
    // After some that went well, and the first of which are still on their way.
    found_at_once(2, |group| {
        let other = next(group);
        for _ in 0..3 {
            match group.rank() {
                Rank::CHIEF => group.send(&[1_u8; 4], other)?,
                _ => group.receive(&mut [0_u8; 4], other)?,
            }
        }
        group.receive(&mut [0_u8; 4], other)
    });
}

#[test]
fn two_ranks_that_send_each_other_more_than_is_taken_ahead_are_told_at_once() {
    let much = vec![1_u8; 64 << 20];
    found_at_once(2, |group| group.send(&much, next(group)));
}

/// All that may be under way is taken by bytes that nobody reads, in each of several groups.
#[test]
fn groups_that_are_all_backed_up_leave_room_for_the_word_that_tells_of_it() {
    let much = vec![1_u8; 16 << 20];
    for over in [Over::Quic, Over::Tls] {
        let errors = over.run(2, |mut group| {
            let other = next(&group);
            let splits = [(); 5].map(|()| group.split(Some(0), 0).unwrap().unwrap());
            let began = Instant::now();
            let errors = each(splits, |mut split| split.send(&much, other).unwrap_err());
            assert!(began.elapsed() < PATIENCE / 2, "{over:?}: {errors:?}");
            errors
        });
        for error in errors.into_iter().flatten() {
            let named = matches!(error, OperationError::Disagreement { .. });
            assert!(named, "{over:?}: {error}");
        }
    }
}

#[test]
fn ranks_around_a_ring_that_wait_for_the_next_ones_message_are_told_at_once() {
    found_at_once(7, |group| group.receive(&mut [0_u8; 4], next(group)));
}

#[test]
fn pairs_of_ranks_that_meet_in_another_order_are_told_at_once() {
    // Each rank is in two of four groups, and begins with the one that its neighbours end with.
    found_at_once(4, |group| {
        let rank = group.rank().number();
        let mut ahead = group.split(Some(rank / 2), 0)?.expect("it has a color");
        let mut behind = group
            .split(Some((rank + 1) % 4 / 2), 0)?
            .expect("it has a color");
        match rank % 2 {
            0 => ahead.barrier().and_then(|()| behind.barrier()),
            _ => behind.barrier().and_then(|()| ahead.barrier()),
        }
    });
}

#[test]
fn messages_that_are_late_are_waited_for() {
    each(Over::ALL, |over| {
        over.run(2, |mut group| {
            let mut turn = [0_u8; 4];
            if group.rank() == Rank::CHIEF {
                group.receive(&mut turn, Rank::new(1)).unwrap();
                group.send(&turn, Rank::new(1)).unwrap();
            } else {
                let until = Instant::now() + Duration::from_millis(700);
                while Instant::now() < until {
                    thread::park_timeout(until.saturating_duration_since(Instant::now()));
                }
                group.send(&[7_u8; 4], Rank::CHIEF).unwrap();
                group.receive(&mut turn, Rank::CHIEF).unwrap();
                assert_eq!(turn, [7; 4]);
            }
            group.leave().unwrap();
        });
    });
}

#[test]
fn groups_that_are_used_in_another_order_by_threads_of_their_own_agree() {
    for over in Over::ALL {
        over.run(2, |mut group| {
            let [mut one, mut other] = [(); 2].map(|()| group.split(Some(0), 0).unwrap().unwrap());
            thread::scope(|scope| {
                let one = scope.spawn(move || (0..50).try_for_each(|_| one.barrier()));
                let other = scope.spawn(move || (0..50).try_for_each(|_| other.barrier()));
                one.join().unwrap().unwrap();
                other.join().unwrap().unwrap();
            });
            group.leave().unwrap();
        });
    }
}
