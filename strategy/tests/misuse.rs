//! Mistakes that compile: each is a typed error with the values that tell it. Those that do not
//! compile are in the documentation of `meshwork_strategy::misuse`; those of several workers are
//! with what they are mistakes in.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use meshwork_strategy::{
    Aggregation, DistributedVariable, ElementType, Error, InputContext,
    MultiWorkerMirroredStrategy, PerReplica, ReplicaReduceOp, Synchronization, VariablePolicy,
};
use ndarray::{Array1, ArrayD, arr0};

fn mirrored() -> MultiWorkerMirroredStrategy {
    MultiWorkerMirroredStrategy::mirrored(2).unwrap()
}

fn variable(
    strategy: &mut MultiWorkerMirroredStrategy,
    aggregation: Aggregation,
) -> DistributedVariable<f32> {
    let policy = VariablePolicy::new(Synchronization::OnRead, aggregation);
    let built = strategy.scope(|scope| scope.distributed("count", arr0(0.0).into_dyn(), policy));
    built.unwrap()
}

fn arrays(strategy: &MultiWorkerMirroredStrategy) -> PerReplica<ArrayD<f32>> {
    strategy.per_replica(|_| Array1::zeros(3).into_dyn())
}

#[test]
fn a_batch_that_does_not_split_evenly() {
    let context = InputContext::new(3, 1, 6).unwrap();
    let expected = Error::BatchNotDivisible {
        global_batch: 64,
        replicas: 6,
    };
    assert_eq!(context.per_replica_batch_size(64), Err(expected));
}

#[test]
fn an_axis_that_is_not_there() {
    let mut strategy = mirrored();
    let outside = Error::NoSuchAxis {
        axis: 1,
        dimensions: 1,
    };
    let values = arrays(&strategy);
    let reduced = strategy.reduce_axes(ReplicaReduceOp::Sum, &values, &[1]);
    assert_eq!(reduced.unwrap_err(), outside);
    assert_eq!(strategy.gather(&values, 1).unwrap_err(), outside);
    let scalars = strategy.per_replica(|_| arr0(1.0_f32).into_dyn());
    let of_a_scalar = Error::NoSuchAxis {
        axis: 0,
        dimensions: 0,
    };
    assert_eq!(strategy.gather(&scalars, 0).unwrap_err(), of_a_scalar);
}

#[test]
fn a_mean_of_integers() {
    let mut strategy = mirrored();
    let numbers = strategy.per_replica(|replica| replica as i64);
    let expected = Error::IntegerMean {
        found: ElementType::I64,
    };
    assert_eq!(
        strategy.reduce(ReplicaReduceOp::Mean, numbers),
        Err(expected)
    );
}

#[test]
fn a_variable_that_is_never_brought_together() {
    let mut strategy = mirrored();
    let count = variable(&mut strategy, Aggregation::None);
    let expected = Error::NotAggregated {
        name: "count".to_owned(),
    };
    assert_eq!(strategy.read(&count).unwrap_err(), expected);
}

#[test]
fn something_added_to_a_sum_of_copies() {
    let mut strategy = mirrored();
    let count = variable(&mut strategy, Aggregation::Sum);
    let expected = Error::SumChanged {
        name: "count".to_owned(),
    };
    let one = arr0(1.0).into_dyn();
    assert_eq!(strategy.assign_add(&count, &one), Err(expected.clone()));
    assert_eq!(strategy.assign_sub(&count, &one), Err(expected));
}

#[test]
fn a_value_of_another_shape() {
    let mut strategy = mirrored();
    let count = variable(&mut strategy, Aggregation::Sum);
    let expected = Error::ValueShape {
        spec: count.spec().clone(),
        found: vec![3],
    };
    let value = Array1::zeros(3).into_dyn();
    assert_eq!(strategy.assign(&count, &value), Err(expected));
}

#[test]
fn a_step_for_one_replica_on_several() {
    let refused = mirrored().run(|_| Ok::<_, Error>(()));
    assert_eq!(refused.unwrap_err(), Error::SeveralReplicas { replicas: 2 });
}
