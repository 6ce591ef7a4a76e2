//! What PowerSGD leaves out, over a restart: equal bits, and what does not fit is named.

use meshwork_collectives::Rank;

use super::*;
use crate::{Cursor, LowCommunicationError, Snapshot};

fn rank(rank: usize) -> NonZeroUsize {
    NonZeroUsize::new(rank).unwrap()
}

fn matrices() -> [VariableSpec; 3] {
    [("w", &[12, 20][..]), ("bias", &[20]), ("v", &[30, 10])]
        .map(|(name, shape)| VariableSpec::new(name, shape).unwrap())
}

/// Makes these steps, and returns the bits of all gradients of each.
fn steps(
    strategy: &mut MultiWorkerMirroredStrategy,
    gradients: &mut GradientBuckets,
    steps: Range<u32>,
) -> Vec<Vec<u32>> {
    let worker = strategy.rank().number();
    let made = steps.map(|step| {
        let reduced = strategy.run(|replica| {
            for index in (0..gradients.specs().len()).rev() {
                for (at, one) in (0_u16..).zip(gradients.gradient_mut(index)?) {
                    *one = (f32::from(at) * 0.7 + (step * 5 + worker) as f32).sin();
                }
                gradients.ready(replica, index)?;
            }
            gradients.finish(replica)
        });
        reduced.unwrap();
        let all = (0..gradients.specs().len()).flat_map(|index| gradients.gradient(index).to_vec());
        all.map(f32::to_bits).collect()
    });
    made.collect()
}

fn made(
    strategy: &mut MultiWorkerMirroredStrategy,
    specs: &[VariableSpec],
    of: usize,
) -> GradientBuckets {
    let gradients = GradientBuckets::new(strategy, specs, 0).unwrap();
    gradients.with_power_sgd(rank(of))
}

/// What three workers have saved after five steps, and the bits of the five behind them.
fn saved() -> Vec<(Vec<u8>, Vec<Vec<u32>>)> {
    each(3, 64, |mut strategy| {
        let mut gradients = made(&mut strategy, &matrices(), 2);
        steps(&mut strategy, &mut gradients, 0..5);
        let snapshot = gradients.save(&strategy, Snapshot::new(5, Cursor::start()));
        let behind = steps(&mut strategy, &mut gradients, 5..10);
        strategy.leave().unwrap();
        (snapshot.unwrap().to_bytes().unwrap(), behind)
    })
}

#[test]
fn a_training_that_is_restored_goes_on_with_the_bits_of_one_that_went_through() {
    let saved = saved();
    let run = |restores: fn(&mut GradientBuckets, &MultiWorkerMirroredStrategy, &Snapshot)| {
        each(3, 64, |mut strategy| {
            let snapshot = Snapshot::from_bytes(&saved[strategy.rank().index()].0).unwrap();
            let mut gradients = made(&mut strategy, &matrices(), 2);
            restores(&mut gradients, &strategy, &snapshot);
            let behind = steps(&mut strategy, &mut gradients, 5..10);
            strategy.leave().unwrap();
            behind
        })
    };
    let again = run(|gradients, strategy, snapshot| gradients.restore(strategy, snapshot).unwrap());
    let without = run(|_, _, _| {});
    for (worker, (_, behind)) in saved.iter().enumerate() {
        assert_eq!(again[worker], *behind);
        assert_ne!(without[worker], *behind);
    }
}

#[test]
fn a_snapshot_of_another_rank_worker_or_model_is_refused_by_what_differs_and_changes_nothing() {
    let saved = saved();
    let snapshot = |worker: usize| Snapshot::from_bytes(&saved[worker].0).unwrap();
    let mut alone = MultiWorkerMirroredStrategy::alone().unwrap();
    let refused = |strategy: &MultiWorkerMirroredStrategy, one: &mut GradientBuckets, of| {
        let error = one.restore(strategy, &snapshot(of)).unwrap_err();
        (error.to_string(), error)
    };
    let mut other = made(&mut alone, &matrices(), 3);
    let (_, error) = refused(&alone, &mut other, 0);
    let expected = LowCommunicationError::PowerSgdRank { saved: 2, rank: 3 };
    assert_eq!(error, expected.into());
    let mut whole = GradientBuckets::new(&mut alone, &matrices(), 0).unwrap();
    let (_, error) = refused(&alone, &mut whole, 0);
    let expected = LowCommunicationError::PowerSgdRank { saved: 2, rank: 0 };
    assert_eq!(error, expected.into());

    let mut own = made(&mut alone, &matrices(), 2);
    let (_, error) = refused(&alone, &mut own, 2);
    let expected = LowCommunicationError::SnapshotOfOther {
        saved: Rank::new(2),
        rank: Rank::CHIEF,
    };
    assert_eq!(error, expected.into());
    let none = own.restore(&alone, &Snapshot::new(5, Cursor::start()));
    let expected = LowCommunicationError::PowerSgdRank { saved: 0, rank: 2 };
    assert_eq!(none, Err(expected.into()));

    let mut specs = matrices();
    specs[2] = VariableSpec::new("v", &[10, 30]).unwrap();
    let mut turned = made(&mut alone, &specs, 2);
    let (text, _) = refused(&alone, &mut turned, 0);
    assert!(text.contains("power_sgd.residual.v [10, 30]"), "{text}");
    assert!(text.contains("[30, 10]"), "{text}");
    // As if nothing had been tried.
    let mut fresh = made(&mut alone, &specs, 2);
    let expected = steps(&mut alone, &mut fresh, 0..2);
    assert_eq!(steps(&mut alone, &mut turned, 0..2), expected);
}
