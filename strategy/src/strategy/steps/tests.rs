//! Steps with several replicas as threads of one worker: errors, panics, hangs and early returns of
//! one replica, mismatched calls, and merge calls.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{CommunicationOptions, PerReplica, ReplicaReduceOp, SumOrder};

fn mirrored(replicas: usize) -> MultiWorkerMirroredStrategy {
    MultiWorkerMirroredStrategy::mirrored(replicas).unwrap()
}

#[test]
fn every_replica_runs_with_its_own_state_and_number() {
    let mut strategy = mirrored(3);
    let mut states = strategy.per_replica(|id| 10 * id);
    let ids = strategy.run_with(&mut states, |replica, state| {
        *state += replica.local_id();
        Ok::<_, Error>(replica.replica_id().index())
    });
    assert_eq!(ids.unwrap().into_vec(), [0, 1, 2]);
    assert_eq!(states.into_vec(), [0, 11, 22]);
}

proptest! {
    #[test]
    fn replicas_end_with_the_same_sum_as_one_that_adds_in_order(
        replicas in 1_usize..5, len in 0_usize..70, ring in any::<bool>(),
    ) {
        let order = if ring { SumOrder::TensorFlowRing } else { SumOrder::Fastest };
        let mut strategy = mirrored(replicas).with_sum_order(order);
        let own = |id: usize| (0..len).map(|at| (id * 31 + at) as f32).collect::<Vec<_>>();
        let mut values = strategy.per_replica(own);
        // Twice, as the second rendezvous must not find anything of the first.
        for _ in 0..2 {
            values = strategy.per_replica(own);
            strategy.run_with(&mut values, |replica, own| replica.all_reduce(ReplicaReduceOp::Sum, own)).unwrap();
        }
        // Whole numbers, so every order has the same sum.
        let sum: Vec<f32> = (0..len).map(|at| (0..replicas).map(|id| own(id)[at]).sum()).collect();
        prop_assert!(values.local_results().all(|own| *own == sum));
    }
}

#[test]
fn a_replica_that_ends_early_is_named_to_those_that_wait() {
    let mut strategy = mirrored(3);
    let error = strategy
        .run_each(|replica| match replica.local_id() {
            1 => Ok(()),
            _ => replica.all_reduce(ReplicaReduceOp::Sum, &mut [1.0_f32]),
        })
        .unwrap_err();
    let Error::ReplicaLeft { left: 1, call, .. } = error else {
        panic!("{error}");
    };
    assert!(
        call.starts_with("all_reduce at ") && call.contains("tests.rs"),
        "{call}"
    );
}

#[test]
fn the_error_that_came_first_is_the_one_that_is_told() {
    let mut strategy = mirrored(3);
    let error = strategy.run_each(|replica| match replica.local_id() {
        2 => Err(Error::NoSamples),
        _ => replica.all_reduce(ReplicaReduceOp::Sum, &mut [1.0_f32]),
    });
    assert_eq!(error, Err(Error::NoSamples));
}

#[test]
fn different_calls_and_types_are_told_on_both_sides() {
    let mut strategy = mirrored(2);
    let error = strategy
        .run_each(|replica| match replica.local_id() {
            0 => replica.all_reduce(ReplicaReduceOp::Sum, &mut [1.0_f32]),
            _ => replica.merge_call((), |_, values| Ok(values)),
        })
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("merge_call at") && error.contains("all_reduce at"),
        "{error}"
    );
    let error = strategy.run_each(|replica| match replica.local_id() {
        0 => replica.all_reduce(ReplicaReduceOp::Sum, &mut [1.0_f32]),
        _ => replica.all_reduce(ReplicaReduceOp::Sum, &mut [1.0_f64]),
    });
    assert!(matches!(
        error,
        Err(Error::ReplicasDisagree { replica: 1, .. })
    ));
}

#[test]
fn another_operation_is_another_call() {
    let error = mirrored(2).run_each(|replica| {
        let op = match replica.local_id() {
            0 => ReplicaReduceOp::Sum,
            _ => ReplicaReduceOp::Mean,
        };
        replica.all_reduce(op, &mut [1.0_f32])
    });
    let Err(Error::ReplicasDisagree {
        replica: 1,
        call,
        first,
    }) = error
    else {
        panic!("{error:?}");
    };
    assert!(call.ends_with("(Mean)"), "{call}");
    assert!(first.ends_with("(Sum)"), "{first}");
}

#[test]
#[cfg(feature = "ndarray")]
fn gathers_along_other_axes_and_of_slices_for_other_operations_are_other_calls() {
    use ndarray::ArrayD;

    let zeros = || ArrayD::<f32>::zeros(vec![1, 1]);
    let mut strategy = mirrored(2);
    let gathered = strategy.run_each(|replica| replica.all_gather(zeros(), replica.local_id()));
    let Err(Error::ReplicasDisagree {
        replica: 1,
        call,
        first,
    }) = gathered
    else {
        panic!("{gathered:?}");
    };
    assert!(call.ends_with("(axis 1)"), "{call}");
    assert!(first.ends_with("(axis 0)"), "{first}");
    let reduced = strategy.run_each(|replica| {
        let op = match replica.local_id() {
            0 => ReplicaReduceOp::Sum,
            _ => ReplicaReduceOp::Mean,
        };
        let slices = crate::IndexedSlices::new(vec![0], zeros())?;
        replica.all_reduce_slices(op, slices)
    });
    assert!(
        matches!(reduced, Err(Error::ReplicasDisagree { replica: 1, .. })),
        "{reduced:?}"
    );
}

#[test]
fn a_replica_that_hangs_is_waited_for_until_the_deadline() {
    let mut strategy = mirrored(2);
    strategy.options =
        CommunicationOptions::new().with_operation_timeout(Duration::from_millis(20));
    let (release, hold) = std::sync::mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let release = std::sync::Mutex::new(Some(release));
    let error = strategy.run_each(|replica| {
        if replica.local_id() == 1 {
            // Until the other one has given up.
            let _ = hold.lock().unwrap().recv();
            return Ok(());
        }
        let waited = replica.all_reduce(ReplicaReduceOp::Sum, &mut [1.0_f32]);
        drop(release.lock().unwrap().take());
        waited
    });
    assert!(
        matches!(error, Err(Error::ReplicaLate { replica: 0, .. })),
        "{error:?}"
    );
}

#[test]
#[should_panic(expected = "in replica 1")]
fn a_panic_of_one_replica_ends_the_step_of_all() {
    let _ = mirrored(2).run_each(|replica| {
        assert_eq!(replica.local_id(), 0, "in replica 1");
        replica.all_reduce(ReplicaReduceOp::Sum, &mut [1.0_f32])
    });
}

#[test]
fn shapes_that_differ_between_replicas_are_named() {
    let mut strategy = mirrored(2);
    let mut values = strategy.per_replica(|id| vec![1.0_f32; id + 1]);
    let error = strategy.run_with(&mut values, |replica, own| {
        replica.all_reduce(ReplicaReduceOp::Sum, own)
    });
    let expected = Error::ShapesDiffer {
        replica: 1,
        found: vec![2],
        first: vec![1],
    };
    assert_eq!(error, Err(expected));
}

#[test]
fn a_step_that_changes_what_it_captures_is_for_one_replica() {
    let mut count = 0;
    let step = mirrored(1).run(|_| {
        count += 1;
        Ok::<_, Error>(count)
    });
    assert_eq!(step.unwrap().into_first(), 1);
    let refused = mirrored(2).run(|_| Ok::<_, Error>(()));
    assert_eq!(refused, Err(Error::SeveralReplicas { replicas: 2 }));
}

#[test]
fn states_and_merged_values_are_one_for_each_replica() {
    let mut strategy = mirrored(2);
    let refused = strategy.run_with(&mut PerReplica::new(vec![0]), |_, _| Ok::<_, Error>(()));
    let expected = Error::ReplicaCount {
        found: 1,
        needed: 2,
    };
    assert_eq!(refused, Err(expected.clone()));
    let refused =
        strategy.run_each(|replica| replica.merge_call((), |_, _| Ok(PerReplica::new(vec![1]))));
    assert_eq!(refused.map(drop), Err(expected));
}

#[test]
fn there_are_replicas_and_not_too_many() {
    for replicas in [0, 4097] {
        let refused = MultiWorkerMirroredStrategy::mirrored(replicas).map(drop);
        let expected = Error::LocalReplicas {
            replicas,
            most: 4096,
        };
        assert_eq!(refused, Err(expected));
    }
}
