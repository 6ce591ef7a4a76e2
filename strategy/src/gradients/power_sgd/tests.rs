//! Steps of PowerSGD that fail half-way, and workers that go on from what others have.

use super::super::Form;
use super::*;
use crate::{Cursor, MultiWorkerMirroredStrategy, Rank, Snapshot, testing};

const WORLD: u32 = 3;
/// The step that is not like the others.
const ODD: u32 = 5;

fn made(strategy: &mut MultiWorkerMirroredStrategy) -> GradientBuckets {
    let specs = [("w", &[12, 20][..]), ("bias", &[20]), ("v", &[30, 10])]
        .map(|(name, shape)| VariableSpec::new(name, shape).unwrap());
    let two = NonZeroUsize::new(2).unwrap();
    let gradients = GradientBuckets::new(strategy, &specs, 1).unwrap();
    gradients.with_power_sgd(two)
}

fn fill(gradients: &mut GradientBuckets, step: u32, worker: u32) {
    for index in 0..gradients.specs().len() {
        let gradient = gradients.gradient_mut(index).unwrap();
        for (at, one) in (0_u16..).zip(gradient) {
            *one = (f32::from(at) * 0.7 + (step * 5 + worker) as f32).sin();
        }
    }
}

/// Makes a step, and returns the bits of all gradients.
fn step(
    strategy: &mut MultiWorkerMirroredStrategy,
    gradients: &mut GradientBuckets,
    number: u32,
) -> Vec<u32> {
    fill(gradients, number, strategy.rank().number());
    strategy.run(|replica| gradients.finish(replica)).unwrap();
    let all = (0..gradients.specs().len()).flat_map(|index| gradients.gradient(index));
    all.map(|one| one.to_bits()).collect()
}

/// What a worker does of a step that it does not end.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// The first operation.
    First,
    /// And what goes into the second one, without it.
    Second,
    /// And that too, without what comes of it.
    All,
}

fn step_in_part(
    strategy: &mut MultiWorkerMirroredStrategy,
    gradients: &mut GradientBuckets,
    part: Part,
) {
    fill(gradients, ODD, strategy.rank().number());
    let Form::LowRank(mut low_rank) = std::mem::take(&mut gradients.form) else {
        panic!("gradients of low rank");
    };
    let parted = strategy.run(|replica| {
        let mut first = low_rank.project(gradients)?;
        replica.all_reduce(ReplicaReduceOp::Sum, &mut first)?;
        if !matches!(part, Part::First) {
            let mut second = low_rank.project_back(gradients, &first)?;
            if matches!(part, Part::All) {
                replica.all_reduce(ReplicaReduceOp::Sum, &mut second)?;
            }
        }
        Ok::<_, Error>(())
    });
    parted.unwrap();
    gradients.form = Form::LowRank(low_rank);
}

/// The bits of all steps of all workers, of which one is made as this says.
fn trained(
    odd: impl Fn(&mut MultiWorkerMirroredStrategy, &mut GradientBuckets) -> Option<Vec<u32>> + Sync,
) -> Vec<Vec<Option<Vec<u32>>>> {
    testing::each(WORLD, |mut strategy| {
        let mut gradients = made(&mut strategy);
        let all = (0..2 * ODD).map(|number| match number {
            ODD => odd(&mut strategy, &mut gradients),
            number => Some(step(&mut strategy, &mut gradients, number)),
        });
        let all = all.collect();
        strategy.leave().unwrap();
        all
    })
}

fn undisturbed() -> Vec<Vec<Option<Vec<u32>>>> {
    trained(|strategy, gradients| Some(step(strategy, gradients, ODD)))
}

/// Gives all workers what the first has in common with them.
fn share(strategy: &mut MultiWorkerMirroredStrategy, gradients: &GradientBuckets) -> Snapshot {
    let snapshot = gradients.save_shared(Snapshot::new(0, Cursor::start()));
    let bytes = snapshot.unwrap().to_bytes().unwrap();
    let bytes = strategy.bytes_of(Rank::CHIEF, bytes).unwrap();
    Snapshot::from_bytes(&bytes).unwrap()
}

#[test]
fn a_step_that_fails_at_any_place_is_made_again_with_the_bits_of_one_that_does_not() {
    let expected = undisturbed();
    for part in [Part::First, Part::Second] {
        let again = trained(|strategy, gradients| {
            step_in_part(strategy, gradients, part);
            gradients.regroup(strategy, 1).unwrap();
            Some(step(strategy, gradients, ODD))
        });
        assert_eq!(again, expected, "{part:?}");
    }
}

#[test]
fn who_missed_only_the_end_of_a_step_goes_on_with_the_bits_of_one_who_did_not() {
    let missed = Rank::new(1);
    let mut expected = undisturbed();
    expected[missed.index()][ODD as usize] = None;
    for regroups in [true, false] {
        let with = trained(|strategy, gradients| {
            let made = match strategy.rank() == missed {
                true => {
                    step_in_part(strategy, gradients, Part::All);
                    None
                }
                false => Some(step(strategy, gradients, ODD)),
            };
            let shared = share(strategy, gradients);
            if regroups {
                gradients.regroup(strategy, 1).unwrap();
            }
            gradients.restore_shared(&shared).unwrap();
            made
        });
        assert_eq!(with, expected, "regroups: {regroups}");
    }
}

/// What a worker has left out, and what all have in common.
fn kept(gradients: &GradientBuckets) -> [Vec<f32>; 2] {
    let Form::LowRank(low_rank) = &gradients.form else {
        panic!("gradients of low rank");
    };
    let kept = || low_rank.matrices.iter().flatten().map(LowRank::kept);
    let [residuals, rights]: [Vec<&[f32]>; 2] = [
        kept().map(|one| one.residual).collect(),
        kept().map(|one| one.right).collect(),
    ];
    [residuals.concat(), rights.concat()]
}

#[test]
fn a_newcomer_begins_with_nothing_left_out_and_with_the_factors_of_all() {
    let told = testing::each(WORLD, |mut strategy| {
        let mut gradients = made(&mut strategy);
        (0..ODD).for_each(|number| drop(step(&mut strategy, &mut gradients, number)));
        let before = kept(&gradients);
        if strategy.rank() == Rank::new(2) {
            gradients = made(&mut strategy);
        } else {
            gradients.regroup(&mut strategy, 1).unwrap();
        }
        let shared = share(&mut strategy, &gradients);
        gradients.restore_shared(&shared).unwrap();
        let after = kept(&gradients);
        let next = step(&mut strategy, &mut gradients, ODD);
        strategy.leave().unwrap();
        (before, after, next)
    });
    for (rank, (before, after, next)) in told.iter().enumerate() {
        assert!(before[0].iter().any(|one| *one != 0.0));
        match rank {
            2 => assert_eq!(after[0], vec![0.0; before[0].len()]),
            _ => assert_eq!(after[0], before[0]),
        }
        assert_eq!((&after[1], next), (&told[0].0[1], &told[0].2), "{rank}");
    }
}

#[test]
fn factors_of_another_rank_or_of_none_are_left_and_what_is_damaged_is_named() {
    let mut alone = MultiWorkerMirroredStrategy::alone().unwrap();
    let mut gradients = made(&mut alone);
    step(&mut alone, &mut gradients, 0);
    let before = kept(&gradients);
    let empty = || Snapshot::new(0, Cursor::start());
    let three = NonZeroUsize::new(3).unwrap();
    let other = made(&mut alone).with_power_sgd(three);
    for snapshot in [empty(), other.save_shared(empty()).unwrap()] {
        gradients.restore_shared(&snapshot).unwrap();
        assert_eq!(kept(&gradients), before);
    }
    let damaged = empty().with_text("power_sgd.shared", "2 many");
    let error = gradients.restore_shared(&damaged).unwrap_err();
    assert!(error.to_string().contains("power_sgd.shared"), "{error}");
    let without = empty().with_text("power_sgd.shared", "2 7");
    assert!(gradients.restore_shared(&without).is_err());
    assert_eq!(kept(&gradients), before);
    // Another course, of which this worker has left out nothing.
    let own = gradients.save(&alone, empty()).unwrap();
    step(&mut alone, &mut gradients, 1);
    gradients.restore_shared(&own).unwrap();
    assert_eq!(
        kept(&gradients),
        [vec![0.0; before[0].len()], before[1].clone()]
    );
    gradients.restore(&alone, &own).unwrap();
    assert_eq!(kept(&gradients), before);
}
