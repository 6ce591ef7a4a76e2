//! Trainings of several threads: who is late, what ends them, and what they go on from.

use std::sync::{Mutex, mpsc};

use meshwork_collectives::{Compression, Rank, Rounding};

use super::super::super::tests::{
    ELEMENTS, LENGTHS, beginning, bits, each, inner_step, settings, streaming, trained,
};
use super::super::super::{NotFinite, OuterOptimizer};
use super::super::*;
use super::{HOUR, quorum};
use crate::{CommunicationOptions, Cursor, Snapshot};

/// As [`trained`], with a quorum.
fn trained_with_quorum(
    world: u32,
    settings: LowCommunication,
    steps: u64,
) -> Vec<Vec<[Vec<u32>; 2]>> {
    each(world, |strategy| {
        let mut own = beginning();
        let quorum = quorum(1, HOUR);
        let made = QuorumOptimizer::new(strategy, settings, quorum, &LENGTHS, &own);
        let mut outer = made.unwrap();
        let mut history = Vec::new();
        for step in 1..=steps {
            inner_step(&mut own, outer.rank().index(), step);
            if !outer.step_alone() {
                outer.step(&mut own).unwrap();
            }
            history.push([bits(&own), bits(outer.agreed())]);
        }
        assert_eq!((outer.steps(), outer.missed()), (steps, 0));
        outer.finish(&mut own).unwrap();
        outer.into_strategy().leave().unwrap();
        history
    })
}

#[test]
fn where_nobody_is_late_it_has_the_bits_of_a_training_without_a_quorum() {
    let compressed = streaming().with_compression(Compression::Int8(Rounding::Nearest));
    for settings in [settings(5), streaming(), compressed] {
        for world in [1, 3] {
            let expected = trained(world, settings, 23);
            assert_eq!(trained_with_quorum(world, settings, 23), expected);
        }
    }
}

/// Waits until the other end is dropped.
#[track_caller]
fn is_let_on(other: &Mutex<mpsc::Receiver<()>>) {
    let heard = other.lock().unwrap().recv_timeout(Duration::from_secs(60));
    assert_eq!(heard, Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn a_late_worker_costs_nobody_and_ends_with_the_bits_of_all() {
    const ROUNDS: u64 = 3;
    let (late, others) = mpsc::channel::<()>();
    let (caught_up, waiting) = mpsc::channel::<()>();
    let (late, others) = (Mutex::new(Some(late)), Mutex::new(others));
    let (caught_up, waiting) = (Mutex::new(Some(caught_up)), Mutex::new(waiting));
    let ended = each(3, |strategy| {
        let mut own = beginning();
        let rank = strategy.rank().index();
        let two = quorum(2, Duration::from_millis(1));
        let made = QuorumOptimizer::new(strategy, settings(4), two, &LENGTHS, &own);
        let mut outer = made.unwrap();
        let mut step = |outer: &mut QuorumOptimizer| {
            inner_step(&mut own, rank, outer.steps());
            outer.step(&mut own).unwrap();
        };
        match rank {
            0 => {
                while outer.outer_steps() < ROUNDS {
                    step(&mut outer);
                }
                // The late one goes on only now.
                drop(late.lock().unwrap().take());
            }
            1 => {
                while outer.outer_steps() < ROUNDS {
                    step(&mut outer);
                }
                is_let_on(&waiting);
            }
            _ => {
                step(&mut outer);
                is_let_on(&others);
                // Its thread may still be in the last of them.
                while outer.missed() < ROUNDS {
                    step(&mut outer);
                }
                assert!(outer.steps() >= 4 * ROUNDS, "{}", outer.steps());
                drop(caught_up.lock().unwrap().take());
            }
        }
        while outer.steps() < 40 {
            step(&mut outer);
        }
        outer.finish(&mut own).unwrap();
        let agreed = bits(outer.agreed());
        assert_eq!(agreed, bits(&own));
        outer.into_strategy().leave().unwrap();
        agreed
    });
    assert!(ended.iter().all(|agreed| *agreed == ended[0]));
}

#[test]
fn a_worker_without_numbers_stops_all_or_is_excluded() {
    let run = |not_finite| {
        each(3, |strategy| {
            let mut own = beginning();
            let settings = settings(1).with_not_finite(not_finite);
            let all = quorum(3, HOUR);
            let made = QuorumOptimizer::new(strategy, settings, all, &LENGTHS, &own);
            let mut outer = made.unwrap();
            own.fill(match outer.rank().index() {
                1 => f32::NAN,
                _ => 0.5,
            });
            let stepped = outer.step(&mut own).and_then(|()| outer.finish(&mut own));
            outer.into_strategy().leave().unwrap();
            stepped.map(|()| bits(&own))
        })
    };
    for stopped in run(NotFinite::Stop) {
        let error = stopped.unwrap_err();
        assert_eq!(error.rank_at_fault(), Some(Rank::new(1)), "{error}");
    }
    let ended = run(NotFinite::Exclude);
    let agreed = ended[0].clone().unwrap();
    assert!(agreed.iter().all(|bits| f32::from_bits(*bits).is_finite()));
    assert!(ended.iter().all(|one| *one == ended[0]));
}

#[test]
fn a_worker_that_drops_it_early_ends_the_training_of_all() {
    let errors = each(3, |strategy| {
        let mut own = beginning();
        let all = quorum(3, HOUR);
        let made = QuorumOptimizer::new(strategy, settings(1), all, &LENGTHS, &own);
        let mut outer = made.unwrap();
        if outer.rank() == Rank::CHIEF {
            return None;
        }
        Some(outer.step(&mut own).unwrap_err())
    });
    for error in errors.into_iter().flatten() {
        assert_eq!(error.rank_at_fault(), Some(Rank::CHIEF), "{error}");
        assert!(
            error.to_string().contains("dropped its outer optimizer"),
            "{error}"
        );
    }
}

/// How long operations wait, and so others for a worker whose training hangs.
const LIMIT: Duration = Duration::from_secs(1);

fn joined_without_patience(
    strategy: MultiWorkerMirroredStrategy,
    workers: usize,
    settings: LowCommunication,
) -> QuorumOptimizer {
    let options = CommunicationOptions::new().with_operation_timeout(LIMIT);
    let quorum = quorum(workers, Duration::from_millis(1));
    let strategy = strategy.with_options(options);
    QuorumOptimizer::new(strategy, settings, quorum, &LENGTHS, &beginning()).unwrap()
}

#[test]
fn a_worker_whose_training_hangs_is_waited_for_until_the_operation_timeout_and_named() {
    // The other one waits in its step, or when it has finished.
    for workers in [2, 1] {
        let (told, hangs) = mpsc::channel::<()>();
        let (told, hangs) = (Mutex::new(Some(told)), Mutex::new(hangs));
        let errors = each(2, |strategy| {
            let mut outer = joined_without_patience(strategy, workers, settings(1));
            let mut own = beginning();
            if outer.rank() != Rank::CHIEF {
                is_let_on(&hangs);
                return outer.step(&mut own).unwrap_err();
            }
            let stepped = outer.step(&mut own);
            assert_eq!(stepped.is_ok(), workers == 1, "{stepped:?}");
            let ended = stepped.and_then(|()| outer.finish(&mut own));
            drop(told.lock().unwrap().take());
            ended.unwrap_err()
        });
        for error in errors {
            assert_eq!(error.rank_at_fault(), Some(Rank::new(1)), "{error}");
            assert!(error.to_string().contains("made no step for"), "{error}");
        }
    }
}

#[test]
fn who_makes_steps_is_waited_for_however_long_the_others_have_finished() {
    each(2, |strategy| {
        let mut outer = joined_without_patience(strategy, 1, settings(u32::MAX));
        let mut own = beginning();
        if outer.rank() != Rank::CHIEF {
            // Steps of either kind alone are enough.
            let began = Instant::now();
            while began.elapsed() < LIMIT * 3 / 2 {
                inner_step(&mut own, 1, outer.steps());
                assert!(outer.step_alone());
            }
            while began.elapsed() < LIMIT * 3 {
                inner_step(&mut own, 1, outer.steps());
                outer.step(&mut own).unwrap();
            }
        }
        outer.finish(&mut own).unwrap();
        outer.into_strategy().leave().unwrap();
    });
}

#[test]
fn what_one_worker_has_saved_all_go_on_from() {
    let all = quorum(2, HOUR);
    let saved = each(2, |strategy| {
        let mut own = beginning();
        let made = QuorumOptimizer::new(strategy, settings(5), all, &LENGTHS, &own);
        let mut outer = made.unwrap();
        for step in 1..=10 {
            inner_step(&mut own, outer.rank().index(), step);
            outer.step(&mut own).unwrap();
        }
        let snapshot = outer.save(Snapshot::new(10, Cursor::start())).unwrap();
        outer.finish(&mut own).unwrap();
        assert!(matches!(
            outer.step(&mut own),
            Err(Error::LowCommunication(LowCommunicationError::Finished))
        ));
        outer.into_strategy().leave().unwrap();
        (snapshot.to_bytes().unwrap(), bits(&own))
    });
    let snapshot = Snapshot::from_bytes(&saved[0].0).unwrap();
    for agreed in each(2, |strategy| {
        let restored = QuorumOptimizer::restore(strategy, settings(5), all, &LENGTHS, &snapshot);
        let (mut outer, mut own) = restored.unwrap();
        assert_eq!((outer.steps(), outer.outer_steps()), (10, 2));
        assert_eq!(own, outer.agreed());
        let agreed = bits(&own);
        outer.finish(&mut own).unwrap();
        outer.into_strategy().leave().unwrap();
        agreed
    }) {
        assert_eq!(agreed, saved[1].1);
    }
}

/// Behind so many exchanges; the last of them is not the last of the training.
const EVERY: NonZeroU64 = NonZeroU64::new(3).unwrap();

/// Makes steps up to this one, from where the training is; returns all checkpoints as bytes, and
/// all steps' bits.
fn steps_to(
    outer: &mut QuorumOptimizer,
    own: &mut [f32],
    last: u64,
) -> (Vec<Vec<u8>>, Vec<[Vec<u32>; 2]>) {
    let (mut saved, mut history) = (Vec::new(), Vec::new());
    while outer.steps() < last {
        inner_step(own, outer.rank().index(), outer.steps() + 1);
        if !outer.step_alone() {
            outer.step(own).unwrap();
        }
        history.push([bits(own), bits(outer.agreed())]);
        if let Some(state) = outer.checkpoint() {
            let snapshot = Snapshot::new(state.exchanges(), Cursor::start());
            saved.push(state.add_to(snapshot).unwrap().to_bytes().unwrap());
        }
    }
    (saved, history)
}

#[test]
fn where_nobody_is_late_a_training_goes_on_from_any_checkpoint_with_the_same_bits() {
    let compressed = streaming().with_compression(Compression::Int4(Rounding::Nearest));
    for settings in [settings(5), streaming(), compressed] {
        let all = quorum(3, HOUR).with_checkpoints(EVERY);
        let through = each(3, |strategy| {
            let mut own = beginning();
            let made = QuorumOptimizer::new(strategy, settings, all, &LENGTHS, &own);
            let mut outer = made.unwrap();
            let all = steps_to(&mut outer, &mut own, 40);
            outer.finish(&mut own).unwrap();
            outer.into_strategy().leave().unwrap();
            (all, bits(&own))
        });
        let checkpoints = through[0].0.0.len();
        assert!(checkpoints >= 2, "{checkpoints}");
        for number in 0..checkpoints {
            let again = each(3, |strategy| {
                let ((saved, _), _) = &through[strategy.rank().index()];
                let snapshot = Snapshot::from_bytes(&saved[number]).unwrap();
                let restored =
                    QuorumOptimizer::restore(strategy, settings, all, &LENGTHS, &snapshot);
                let (mut outer, mut own) = restored.unwrap();
                assert_eq!(snapshot.step(), EVERY.get() * (number as u64 + 1));
                let (_, history) = steps_to(&mut outer, &mut own, 40);
                outer.finish(&mut own).unwrap();
                outer.into_strategy().leave().unwrap();
                (history, bits(&own))
            });
            for (((_, history), ended), (again, again_ended)) in through.iter().zip(&again) {
                assert!(!again.is_empty());
                assert_eq!(history[history.len() - again.len()..], again[..]);
                assert_eq!(ended, again_ended);
            }
        }
    }
}

#[test]
fn what_a_worker_has_of_its_own_is_refused_to_others_and_behind_another_exchange() {
    let all = quorum(2, HOUR).with_checkpoints(EVERY);
    let saved = each(2, |strategy| {
        let mut own = beginning();
        let made = QuorumOptimizer::new(strategy, settings(5), all, &LENGTHS, &own);
        let mut outer = made.unwrap();
        let (saved, _) = steps_to(&mut outer, &mut own, 35);
        outer.finish(&mut own).unwrap();
        outer.into_strategy().leave().unwrap();
        saved
    });
    let restored = |which: [[usize; 2]; 2]| {
        each(2, |strategy| {
            let [worker, number] = which[strategy.rank().index()];
            let snapshot = Snapshot::from_bytes(&saved[worker][number]).unwrap();
            let made = QuorumOptimizer::restore(strategy, settings(5), all, &LENGTHS, &snapshot);
            made.map(drop)
        })
    };
    let of_one = restored([[0, 0], [0, 0]]);
    let expected = LowCommunicationError::SnapshotOfOther {
        saved: Rank::CHIEF,
        rank: Rank::new(1),
    };
    assert_eq!(of_one[1], Err(expected.into()));
    for error in restored([[0, 0], [1, 1]]) {
        let error = error.unwrap_err();
        assert!(error.to_string().contains("step"), "{error}");
    }
}

#[test]
fn in_an_elastic_job_whoever_has_an_older_snapshot_goes_on_from_what_the_others_have_come_to() {
    let all = quorum(2, HOUR).with_checkpoints(EVERY);
    let through = each(2, |strategy| {
        let mut own = beginning();
        let made = QuorumOptimizer::new(strategy, streaming(), all, &LENGTHS, &own);
        let mut outer = made.unwrap();
        let all = steps_to(&mut outer, &mut own, 40);
        outer.finish(&mut own).unwrap();
        outer.into_strategy().leave().unwrap();
        all
    });
    let again = each(2, |strategy| {
        let worker = strategy.rank().index();
        let snapshot = Snapshot::from_bytes(&through[worker].0[worker]).unwrap();
        let elastic = strategy.made_elastic();
        let restored = QuorumOptimizer::restore(elastic, streaming(), all, &LENGTHS, &snapshot);
        let (mut outer, mut own) = restored.unwrap();
        let begun = (
            outer.steps(),
            outer.outer_steps(),
            bits(&own),
            bits(outer.agreed()),
        );
        steps_to(&mut outer, &mut own, 40);
        outer.finish(&mut own).unwrap();
        outer.into_strategy().leave().unwrap();
        (begun, bits(&own))
    });
    let [((_, exchanges, own, agreed), ended), later] = &again[..] else {
        panic!("two workers");
    };
    assert_eq!((exchanges, own), (&(2 * EVERY.get()), agreed));
    let ((step, exchanges, later, agreed), later_ended) = later;
    let saved = &through[1].1[usize::try_from(*step).unwrap() - 1];
    assert_eq!(
        (*exchanges, [later, agreed]),
        (2 * EVERY.get(), saved.each_ref())
    );
    assert_ne!(later, agreed);
    assert_eq!(ended, later_ended);
}

#[test]
fn workers_that_do_not_train_alike_are_told_and_settings_that_cannot_be_are_refused() {
    let errors = each(2, |strategy| {
        let patience = Duration::from_secs(1 + u64::from(strategy.rank().number()));
        let one = quorum(1, patience);
        let made = QuorumOptimizer::new(strategy, settings(5), one, &LENGTHS, &beginning());
        made.unwrap_err()
    });
    for error in errors {
        assert_eq!(error.rank_at_fault(), Some(Rank::new(1)), "{error}");
    }
    let refused = |settings: LowCommunication, workers| {
        let strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let quorum = quorum(workers, HOUR);
        let own = vec![0.0; ELEMENTS];
        match QuorumOptimizer::new(strategy, settings, quorum, &LENGTHS, &own).unwrap_err() {
            Error::LowCommunication(error) => error,
            other => panic!("{other} is another error"),
        }
    };
    let (workers, world) = (2, 1);
    let expected = LowCommunicationError::QuorumSize { workers, world };
    assert_eq!(refused(settings(5), 2), expected);
    let by_time = settings(5).with_round_time(HOUR);
    assert_eq!(refused(by_time, 1), LowCommunicationError::QuorumRoundTime);
    // The other one is the same as ever.
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    assert!(OuterOptimizer::new(&mut strategy, settings(5), &LENGTHS, &beginning()).is_ok());
}
