//! Trainings that go on from a checkpoint, against those that were not interrupted.

use super::*;
use crate::testing::elastic;

#[test]
fn a_training_goes_on_from_a_checkpoint_with_the_order_of_the_epochs_to_come() {
    for workers in [1, 2, 3] {
        let [whole, parts] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let kept = |folder: &tempfile::TempDir| Job {
            shuffle: Some(3),
            kept: Some(folder.path().to_owned()),
            ..Job::new(24, 24)
        };
        let straight = run(&kept(&whole), workers, |_, _| {});
        let first = Job {
            epochs: 1,
            ..kept(&parts)
        };
        let first = run(&first, workers, |_, _| {});
        let rest = Job {
            behind: Some(1),
            ..kept(&parts)
        };
        let rest = run(&rest, workers, |_, _| {});
        for worker in straight.iter().chain(&first).chain(&rest) {
            let is_well = worker.error.is_none() && worker.left.is_ok();
            assert!(is_well, "{worker:?}");
        }
        for data in 0..2 {
            let expected = &straight[0].seen[data];
            assert_eq!(expected.len(), 3);
            // Else any order would be that of each epoch.
            assert!(expected[0] != expected[1] && expected[1] != expected[2]);
            let found = [&first[0].seen[data][..], &rest[0].seen[data][..]].concat();
            assert_eq!(&found, expected, "{workers} workers");
        }
        for (found, expected) in rest.iter().zip(&straight) {
            assert_eq!(found.values, expected.values);
        }
    }
}

#[test]
fn who_loses_the_chief_before_an_elastic_job_begins_goes_on_from_the_checkpoint_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |epochs| Job {
        epochs,
        kept: Some(folder.path().to_owned()),
        interrupter: Interrupter::new(),
        ..Job::new(24, 24)
    };
    let first = alone(kept(1));
    assert!(first.error.is_none(), "{first:?}");
    let ran = elastic(3, |_, strategy| {
        let is_chief = strategy.is_chief();
        let distributed = Distributed::new(strategy);
        let behind = distributed.last_checkpoint(folder.path()).unwrap();
        assert_eq!(behind, Some(1));
        if is_chief {
            // Without a word to the others, as one that is killed.
            drop(distributed.shared.strategy().take());
            return None;
        }
        let job = Job { behind, ..kept(3) };
        Some(job.run_by(distributed, 0.0))
    });
    let [None, Some(chief), Some(other)] = &ran[..] else {
        panic!("{ran:?}");
    };
    for worker in [chief, other] {
        let is_well = worker.error.is_none() && worker.left.is_ok();
        assert!(is_well, "{worker:?}");
        assert_eq!(worker.values, chief.values);
    }
    // Of the second epoch and the third.
    assert_eq!((chief.losses.len(), chief.seen[0].len()), (2, 2));
}
