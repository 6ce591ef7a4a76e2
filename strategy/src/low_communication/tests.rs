//! Trainings of several workers against one process that simulates all of them.

mod excluded;
mod members;

use std::num::{NonZeroU8, NonZeroU32, NonZeroUsize};

use meshwork_collectives::{Rank, Rounding};

use super::rounds::Rounds;
use super::*;
pub(super) use crate::testing::each;
use crate::{Cursor, Error, LowCommunicationError, MultiWorkerMirroredStrategy, Part, Snapshot};

pub(super) const LENGTHS: [usize; 4] = [5, 300, 1, 90];
pub(super) const ELEMENTS: usize = 396;

pub(super) fn settings(inner_steps: u32) -> LowCommunication {
    LowCommunication::new(NonZeroU32::new(inner_steps).unwrap())
}

pub(super) fn streaming() -> LowCommunication {
    settings(6)
        .with_fragments(NonZeroUsize::new(3).unwrap())
        .with_delay(2)
        .with_local_share(0.5)
}

pub(super) fn beginning() -> Vec<f32> {
    (0..ELEMENTS).map(|at| (at as f32 * 0.7).sin()).collect()
}

/// An inner step towards a goal that differs from worker to worker and step to step.
pub(super) fn inner_step(parameters: &mut [f32], rank: usize, step: u64) {
    for (at, own) in parameters.iter_mut().enumerate() {
        let goal = ((at + rank * 31) as f32 + step as f32 * 0.3).cos();
        *own -= 0.1 * (*own - goal);
    }
}

/// Own and agreed parameters of every worker after each step.
pub(super) fn trained(
    world: u32,
    settings: LowCommunication,
    steps: u64,
) -> Vec<Vec<[Vec<u32>; 2]>> {
    each(world, |mut strategy| {
        let mut own = beginning();
        let mut outer = OuterOptimizer::new(&mut strategy, settings, &LENGTHS, &own).unwrap();
        let mut history = Vec::new();
        for step in 1..=steps {
            inner_step(&mut own, strategy.rank().index(), step);
            outer.step(&mut strategy, &mut own).unwrap();
            history.push([bits(&own), bits(outer.agreed())]);
        }
        assert_eq!(outer.steps(), steps);
        strategy.leave().unwrap();
        history
    })
}

pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// When fragments begin within a round, and what elements they have, worked out by hand.
struct Plan {
    round: u64,
    fragments: &'static [(u64, std::ops::Range<usize>)],
    delay: u64,
    share: f32,
}

/// As groups add within one host: the left half is a power of two.
fn sum_of(values: &[f32]) -> f32 {
    match values {
        [one] => *one,
        _ => {
            let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
            sum_of(left) + sum_of(right)
        }
    }
}

fn simulated(world: usize, plan: &Plan, steps: u64) -> Vec<Vec<[Vec<u32>; 2]>> {
    let mut own = vec![beginning(); world];
    let (mut agreed, mut velocity) = (beginning(), vec![0.0_f32; ELEMENTS]);
    let mut on_their_way = Vec::new();
    let mut history = vec![Vec::new(); world];
    for step in 1..=steps {
        for (rank, own) in own.iter_mut().enumerate() {
            inner_step(own, rank, step);
        }
        for (at, range) in plan.fragments {
            if step % plan.round == at % plan.round {
                let mean = |at: usize| {
                    let each: Vec<f32> = own.iter().map(|own| agreed[at] - own[at]).collect();
                    sum_of(&each) / world as f32
                };
                let gradient: Vec<f32> = range.clone().map(mean).collect();
                on_their_way.push((step + plan.delay, range.clone(), gradient));
            }
        }
        for (_, range, gradient) in on_their_way.extract_if(.., |(due, ..)| *due == step) {
            for (at, gradient) in range.zip(gradient) {
                velocity[at] = 0.9 * velocity[at] + gradient;
                agreed[at] -= 0.7 * (gradient + 0.9 * velocity[at]);
                for own in &mut own {
                    own[at] = plan.share * own[at] + (1.0 - plan.share) * agreed[at];
                }
            }
        }
        for (history, own) in history.iter_mut().zip(&own) {
            history.push([bits(own), bits(&agreed)]);
        }
    }
    history
}

#[test]
fn workers_have_the_bits_of_a_simulation() {
    let whole = Plan {
        round: 5,
        fragments: &[(5, 0..396)],
        delay: 0,
        share: 0.0,
    };
    let parts = Plan {
        round: 6,
        fragments: &[(2, 0..132), (4, 132..264), (6, 264..396)],
        delay: 2,
        share: 0.5,
    };
    for world in [1, 2, 3, 4] {
        let workers = world as usize;
        assert_eq!(
            trained(world, settings(5), 23),
            simulated(workers, &whole, 23)
        );
        assert_eq!(
            trained(world, streaming(), 40),
            simulated(workers, &parts, 40)
        );
    }
}

#[test]
fn compressed_trainings_agree_to_the_bit_and_come_near_the_exact_one() {
    let floats =
        |bits: &[u32]| -> Vec<f32> { bits.iter().map(|one| f32::from_bits(*one)).collect() };
    let exact = trained(3, streaming(), 60);
    let exact = floats(&exact[0][59][1]);
    for (compression, bound) in [
        (Compression::Int8(Rounding::Nearest), 0.02),
        (Compression::Int4(Rounding::Stochastic { seed: 1 }), 0.4),
        (Compression::TopK(NonZeroU8::new(64).unwrap()), 1.0),
    ] {
        let workers = trained(3, streaming().with_compression(compression), 60);
        for worker in &workers {
            for (step, other) in worker.iter().zip(&workers[0]) {
                assert_eq!(step[1], other[1]);
            }
        }
        for (one, exact) in floats(&workers[0][59][1]).iter().zip(&exact) {
            assert!(
                (one - exact).abs() < bound,
                "{compression:?}: {one} is far from {exact}"
            );
        }
    }
}

#[test]
fn a_worker_without_numbers_stops_all_or_is_excluded() {
    let run = |settings: LowCommunication| {
        each(3, |mut strategy| {
            let mut own = beginning();
            let mut outer = OuterOptimizer::new(&mut strategy, settings, &LENGTHS, &own).unwrap();
            own.fill(if strategy.rank().index() == 1 {
                f32::NAN
            } else {
                0.5
            });
            let stepped = outer.step(&mut strategy, &mut own);
            let excluded = stepped.as_ref().ok().and_then(|()| outer.excluded());
            assert!(
                stepped.is_err() || excluded == Some(Rank::new(1)),
                "{excluded:?}"
            );
            strategy.leave().unwrap();
            stepped.map(|()| [bits(&own), bits(outer.agreed())])
        })
    };
    for compression in [None, Some(Compression::Int8(Rounding::Nearest))] {
        let mut settings = settings(1);
        settings.compression = compression;
        for result in run(settings) {
            let error = result.unwrap_err();
            assert_eq!(error.rank_at_fault(), Some(Rank::new(1)), "{error}");
        }
        let results = run(settings.with_not_finite(NotFinite::Exclude));
        let [own, agreed] = results[0].clone().unwrap();
        assert_eq!(own, agreed);
        assert!(agreed.iter().all(|bits| f32::from_bits(*bits).is_finite()));
        assert!(results.iter().all(|result| *result == results[0]));
    }
}

#[test]
fn a_worker_with_other_settings_tensors_or_parameters_is_named_to_all() {
    for what in 0..3 {
        let errors = each(3, |mut strategy| {
            let mut settings = settings(5);
            let mut lengths = LENGTHS;
            let mut own = beginning();
            if strategy.rank().index() == 2 {
                match what {
                    0 => settings = settings.with_outer(0.5, 0.9),
                    1 => lengths.swap(0, 1),
                    _ => own[0] = 9.0,
                }
            }
            let made = OuterOptimizer::new(&mut strategy, settings, &lengths, &own);
            strategy.leave().unwrap();
            made.unwrap_err()
        });
        for error in errors {
            let expected = LowCommunicationError::Differs {
                part: [Part::Settings, Part::Tensors, Part::Parameters][what],
                rank: Rank::new(2),
                other: Rank::CHIEF,
            };
            assert_eq!(error.rank_at_fault(), Some(Rank::new(2)), "{error}");
            assert_eq!(error, Error::LowCommunication(expected));
        }
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let refused = |settings: LowCommunication, parameters: usize| {
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let made = OuterOptimizer::new(&mut strategy, settings, &LENGTHS, &vec![0.0; parameters]);
        match made.unwrap_err() {
            Error::LowCommunication(error) => error,
            other => panic!("{other} is another error"),
        }
    };
    let parts = NonZeroUsize::new(5).unwrap();
    let expected = LowCommunicationError::TooManyFragments {
        fragments: 5,
        tensors: 4,
    };
    assert_eq!(
        refused(settings(5).with_fragments(parts), ELEMENTS),
        expected
    );
    let expected = LowCommunicationError::Delay {
        delay: 5,
        inner_steps: 5,
    };
    assert_eq!(refused(settings(5).with_delay(5), ELEMENTS), expected);
    let expected = LowCommunicationError::ParameterCount {
        found: 7,
        expected: ELEMENTS,
    };
    assert_eq!(refused(settings(5), 7), expected);
    let no_time = settings(5).with_round_time(Duration::ZERO);
    assert_eq!(
        refused(no_time, ELEMENTS),
        LowCommunicationError::NoRoundTime
    );
    for rate in [-1.0, f32::NAN, f32::INFINITY] {
        let error = refused(settings(5).with_outer(rate, 0.9), ELEMENTS);
        assert!(
            error.to_string().starts_with("the outer rate is "),
            "{error}"
        );
    }
}

#[test]
fn the_end_applies_what_is_under_way_and_gives_all_the_same_parameters() {
    let ended = each(3, |mut strategy| {
        let mut own = beginning();
        let made = OuterOptimizer::new(&mut strategy, streaming(), &LENGTHS, &own);
        let mut outer = made.unwrap();
        for step in 1..=12 {
            inner_step(&mut own, strategy.rank().index(), step);
            outer.step(&mut strategy, &mut own).unwrap();
        }
        let before = outer.outer_steps();
        outer.finish(&mut strategy, &mut own).unwrap();
        strategy.leave().unwrap();
        (
            before,
            outer.outer_steps(),
            bits(&own),
            bits(outer.agreed()),
        )
    });
    for (before, after, own, agreed) in &ended {
        // The last fragment of the second round began after step 12.
        assert_eq!((*before, *after), (5, 6));
        assert_eq!((own, agreed), (&ended[0].2, &ended[0].2));
    }
}

#[test]
fn differences_count_by_the_inner_steps_that_they_stand_for() {
    // Of two workers in rounds that end by time, one is slower: in a round of its own making.
    let settings = settings(4).with_round_time(Duration::from_hours(1));
    let mut rounds = Rounds::new(settings, &[1], &[1.0]).unwrap();
    let weight = |rounds: &mut Rounds, inner_steps: u64| {
        (0..inner_steps).for_each(|_| rounds.made_inner_step());
        let begun: usize = (0..4).map(|_| rounds.advance(&[0.5])).sum();
        assert_eq!(begun, 1);
        let exchange = rounds.exchanges.pop_back().unwrap();
        let own = exchange.contribution.unwrap();
        (own.weight, own.values)
    };
    assert_eq!(weight(&mut rounds, 4), (1.0, vec![0.5]));
    assert_eq!(weight(&mut rounds, 1), (0.25, vec![0.125]));
    assert_eq!(weight(&mut rounds, 0), (0.0, vec![0.0]));
    assert_eq!(weight(&mut rounds, 12), (3.0, vec![1.5]));
}

#[test]
fn workers_of_different_speed_end_rounds_together_and_agree() {
    let settings = settings(20).with_round_time(Duration::from_millis(20));
    let ended = each(3, |mut strategy| {
        let mut own = beginning();
        let mut outer = OuterOptimizer::new(&mut strategy, settings, &LENGTHS, &own).unwrap();
        let mut made = 0;
        while outer.steps() < 5 * 20 {
            // Rank 0 does 20 times the work of rank 2 for each inner step.
            for _ in 0..20_usize.pow(2 - strategy.rank().number()) {
                inner_step(&mut own, strategy.rank().index(), made);
            }
            made += 1;
            outer.step(&mut strategy, &mut own).unwrap();
        }
        strategy.leave().unwrap();
        (outer.outer_steps(), bits(outer.agreed()), made)
    });
    assert!(ended.iter().all(|one| one.0 == 5 && one.1 == ended[0].1));
    assert!(ended[0].2 < ended[2].2, "{} {}", ended[0].2, ended[2].2);
}

#[test]
fn a_restart_after_any_step_goes_on_with_the_same_bits() {
    let compression = Compression::Int4(Rounding::Stochastic { seed: 3 });
    let settings = streaming().with_compression(compression);
    let whole = trained(2, settings, 20);
    for restart in 0..20 {
        let parts = each(2, |mut strategy| {
            let mut own = beginning();
            let made = OuterOptimizer::new(&mut strategy, settings, &LENGTHS, &own);
            let mut outer = made.unwrap();
            for step in 1..=20 {
                if step == restart + 1 {
                    let snapshot = Snapshot::new(restart, Cursor::start());
                    let snapshot = outer.save(&mut strategy, snapshot);
                    let bytes = snapshot.unwrap().to_bytes().unwrap();
                    let read = Snapshot::from_bytes(&bytes).unwrap();
                    outer =
                        OuterOptimizer::restore(&mut strategy, settings, &LENGTHS, &read).unwrap();
                }
                inner_step(&mut own, strategy.rank().index(), step);
                outer.step(&mut strategy, &mut own).unwrap();
            }
            strategy.leave().unwrap();
            [bits(&own), bits(outer.agreed())]
        });
        for (part, whole) in parts.iter().zip(&whole) {
            assert_eq!(part, &whole[19], "restarted after step {restart}");
        }
    }
}

#[test]
fn a_snapshot_of_another_worker_is_refused_where_it_says_whose_it_is() {
    let saved = each(2, |mut strategy| {
        let made = OuterOptimizer::new(&mut strategy, settings(5), &LENGTHS, &beginning());
        let snapshot = Snapshot::new(0, Cursor::start());
        let saved = made.unwrap().save(&mut strategy, snapshot).unwrap();
        strategy.leave().unwrap();
        saved
    });
    let restore = |strategy: &mut MultiWorkerMirroredStrategy, saved: &Snapshot| {
        OuterOptimizer::restore(strategy, settings(5), &LENGTHS, saved).map(drop)
    };
    let of_one = each(2, |mut strategy| restore(&mut strategy, &saved[0]));
    let expected = LowCommunicationError::SnapshotOfOther {
        saved: Rank::CHIEF,
        rank: Rank::new(1),
    };
    assert_eq!(of_one[1], Err(expected.into()));
    let residual = crate::VariableSpec::new("outer.residual", &[ELEMENTS]).unwrap();
    let text = |name| saved[0].text(name).unwrap();
    let earlier = Snapshot::new(0, Cursor::start())
        .with_bytes("outer.common", saved[0].bytes("outer.common").unwrap())
        .unwrap()
        .with_text("outer.made", text("outer.made"))
        .with_text("outer.excluded", text("outer.excluded"))
        .with_array(&residual, &[0.0; ELEMENTS])
        .unwrap();
    let of_earlier = each(2, |mut strategy| {
        let restored = restore(&mut strategy, &earlier);
        strategy.leave().unwrap();
        restored
    });
    assert_eq!(of_earlier, [Ok(()), Ok(())]);
}

#[test]
fn a_snapshot_of_another_step_or_model_is_refused() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let made = OuterOptimizer::new(&mut strategy, settings(5), &LENGTHS, &beginning());
    let mut outer = made.unwrap();
    let other = Snapshot::new(7, Cursor::start());
    let error = outer.save(&mut strategy, other).unwrap_err();
    let expected = LowCommunicationError::SnapshotStep {
        snapshot: 7,
        made: 0,
    };
    assert_eq!(error, Error::LowCommunication(expected));
    let snapshot = Snapshot::new(0, Cursor::start());
    let saved = outer.save(&mut strategy, snapshot).unwrap();
    let other = OuterOptimizer::restore(&mut strategy, settings(5), &[300, 6], &saved);
    assert!(matches!(other.unwrap_err(), Error::NotInCheckpoint { .. }));
    let empty = Snapshot::new(0, Cursor::start());
    let missing = OuterOptimizer::restore(&mut strategy, settings(5), &LENGTHS, &empty);
    assert!(matches!(
        missing.unwrap_err(),
        Error::NotInCheckpoint { .. }
    ));
}
