//! Workers whose differences are no numbers: they begin anew, and are part of the training again.

use std::time::Duration;

use super::super::{Quorum, QuorumOptimizer};
use super::*;

/// Adam, whose moments keep what is no number.
struct Adam {
    moments: Vec<[f32; 2]>,
    made: i32,
}

impl Adam {
    fn at_rest() -> Self {
        Self {
            moments: vec![[0.0; 2]; ELEMENTS],
            made: 0,
        }
    }

    fn step(&mut self, parameters: &mut [f32], gradient: &[f32]) {
        self.made += 1;
        let [first, second] = [0.9_f32, 0.95].map(|beta| 1.0 - beta.powi(self.made));
        let places = parameters.iter_mut().zip(gradient);
        for ((own, gradient), moments) in places.zip(&mut self.moments) {
            moments[0] = 0.9 * moments[0] + 0.1 * gradient;
            moments[1] = 0.95 * moments[1] + 0.05 * gradient * gradient;
            *own -= 0.01 * (moments[0] / first) / ((moments[1] / second).sqrt() + 1e-8);
        }
    }
}

/// The step at which one element of rank 1's gradient, in the last fragment, is no number. By the
/// next step none of its parameters is one.
const FAILS_AT: u64 = 7;

/// Towards a goal of this worker, by gradients that depend on all parameters.
fn gradient(parameters: &[f32], rank: Rank, step: u64) -> Vec<f32> {
    let mean = parameters.iter().sum::<f32>() / ELEMENTS as f32;
    let goal = |at: usize| ((at + rank.index() * 31) as f32).cos();
    let places = parameters.iter().enumerate();
    let mut gradient: Vec<f32> = places
        .map(|(at, own)| own - goal(at) + 0.01 * mean)
        .collect();
    if rank.number() == 1 && step == FAILS_AT {
        gradient[ELEMENTS - 1] = f32::NAN;
    }
    gradient
}

/// What the program does when its parameters were reset.
#[derive(Clone, Copy, PartialEq)]
enum Moments {
    Reset,
    Kept,
}

const STEPS: u64 = 36;

#[test]
fn a_worker_that_was_excluded_recovers_in_all_fragments_with_moments_at_rest() {
    let compressed = streaming().with_compression(Compression::Int8(Rounding::Nearest));
    for settings in [streaming(), compressed] {
        let settings = settings.with_not_finite(NotFinite::Exclude);
        let ended = each(3, |mut strategy| {
            let (mut own, mut adam, rank) = (beginning(), Adam::at_rest(), strategy.rank());
            let mut outer = OuterOptimizer::new(&mut strategy, settings, &LENGTHS, &own).unwrap();
            let mut excluded = Vec::new();
            for step in 1..=STEPS {
                let gradient = gradient(&own, rank, step);
                adam.step(&mut own, &gradient);
                let before = (outer.resets(), outer.outer_steps());
                outer.step(&mut strategy, &mut own).unwrap();
                if outer.resets() > before.0 {
                    adam = Adam::at_rest();
                    assert!(own.iter().all(|one| one.is_finite()), "after step {step}");
                }
                if outer.outer_steps() > before.1 && outer.excluded().is_some() {
                    excluded.push((step, outer.excluded().unwrap().number()));
                }
            }
            assert_eq!(outer.resets(), u64::from(rank.number() == 1));
            // Each counts as one that has made all steps of a round.
            assert_eq!(outer.rounds.last_seal.weight, 3.0);
            strategy.leave().unwrap();
            (excluded, bits(outer.agreed()))
        });
        // The first fragment begins at step 8, and is applied two steps later.
        assert_eq!(ended[0].0, [(10, 1)]);
        assert!(ended.iter().all(|one| *one == ended[0]));
    }
}

#[test]
fn with_a_quorum_it_recovers_as_well_and_not_without_a_reset_of_its_moments() {
    let settings = settings(6)
        .with_fragments(NonZeroUsize::new(3).unwrap())
        .with_not_finite(NotFinite::Exclude);
    let quorum = Quorum::new(NonZeroUsize::new(3).unwrap(), Duration::from_hours(1));
    for moments in [Moments::Reset, Moments::Kept] {
        let ended = each(3, |strategy| {
            let (mut own, mut adam, rank) = (beginning(), Adam::at_rest(), strategy.rank());
            let made = QuorumOptimizer::new(strategy, settings, quorum, &LENGTHS, &own);
            let mut outer = made.unwrap();
            let mut excluded = 0;
            for step in 1..=STEPS {
                let gradient = gradient(&own, rank, step);
                adam.step(&mut own, &gradient);
                let (resets, exchanges) = (outer.resets(), outer.outer_steps());
                outer.step(&mut own).unwrap();
                if outer.resets() > resets && moments == Moments::Reset {
                    adam = Adam::at_rest();
                }
                // All have waited for this exchange, and none can begin before the next step.
                excluded +=
                    u64::from(outer.outer_steps() > exchanges && outer.excluded().is_some());
            }
            outer.finish(&mut own).unwrap();
            let resets = outer.resets();
            outer.into_strategy().leave().unwrap();
            (resets, excluded, bits(&own))
        });
        let times = match moments {
            Moments::Reset => 1,
            // In each exchange after step 7.
            Moments::Kept => 15,
        };
        assert_eq!([ended[0].0, ended[1].0, ended[2].0], [0, times, 0]);
        assert!(
            ended
                .iter()
                .all(|one| one.1 == times && one.2 == ended[0].2)
        );
    }
}
