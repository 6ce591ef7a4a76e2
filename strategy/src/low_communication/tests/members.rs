//! Newcomers to a training in which some have gone on before all had noticed a loss.

use super::*;

const LAST: u64 = 12;

/// A worker that runs and has made so many steps while a newcomer was to get the state before
/// these. The exchanges that it has begun are in no group.
fn gone_on(how: LowCommunication, rank: usize, steps: u64) -> (OuterOptimizer, Vec<f32>) {
    let mut alone = MultiWorkerMirroredStrategy::alone().unwrap();
    let mut own = beginning();
    let mut outer = OuterOptimizer::new(&mut alone, how, &LENGTHS, &own).unwrap();
    for step in 1..=steps {
        inner_step(&mut own, rank, step);
        outer.rounds.made_inner_step();
        outer.rounds.advance(&own);
    }
    (outer, own)
}

/// Trains until the last step with a newcomer, and returns where that one began.
fn trained_with_a_newcomer(how: LowCommunication, steps: [u64; 2]) -> u64 {
    let ended = each(3, |strategy| {
        let (rank, mut strategy) = (strategy.rank().index(), strategy.made_elastic());
        let (mut outer, mut own) = match steps.get(rank) {
            Some(steps) => {
                let (mut outer, mut own) = gone_on(how, rank, *steps);
                outer.assemble(&mut strategy).unwrap();
                outer.apply_due(&mut strategy, &mut own).unwrap();
                (outer, own)
            }
            None => {
                let other = [9.0; ELEMENTS];
                let made = OuterOptimizer::new(&mut strategy, how, &LENGTHS, &other);
                let outer = made.unwrap();
                let own = outer.agreed().to_vec();
                (outer, own)
            }
        };
        let began = outer.steps();
        while outer.steps() < LAST {
            inner_step(&mut own, rank, outer.steps() + 1);
            outer.step(&mut strategy, &mut own).unwrap();
        }
        outer.finish(&mut strategy, &mut own).unwrap();
        strategy.leave().unwrap();
        (began, outer.rounds.sealed, bits(&own))
    });
    for (_, sealed, own) in &ended {
        assert_eq!((*sealed, own), (ended[0].1, &ended[0].2));
    }
    ended[2].0
}

#[test]
fn a_newcomer_begins_with_those_who_have_not_gone_on() {
    assert_eq!(trained_with_a_newcomer(streaming(), [3, 0]), 0);
    assert_eq!(trained_with_a_newcomer(streaming(), [0, 3]), 0);
    assert_eq!(trained_with_a_newcomer(settings(1), [1, 0]), 0);
}

#[test]
fn a_newcomer_takes_part_in_what_all_others_have_begun_before_they_noticed_a_loss() {
    assert_eq!(trained_with_a_newcomer(streaming(), [2, 3]), 2);
    assert_eq!(trained_with_a_newcomer(settings(1), [1, 1]), 1);
    // Two exchanges begin after each step.
    let two = settings(1).with_fragments(NonZeroUsize::new(2).unwrap());
    assert_eq!(trained_with_a_newcomer(two, [1, 1]), 1);
}
