//! A step takes no memory after the first ones: everything is allocated once.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use meshwork_collectives::Group;
use meshwork_strategy::{
    CommunicationDtype, CommunicationOptions, Error, GradientBuckets, MultiWorkerMirroredStrategy,
    ReplicaReduceOp, VariableSpec,
};
use meshwork_testing::in_threads;

/// Allocations of this thread in five steps, after two: the fewest of many times, as a wait that
/// lasts long on a busy machine is told to others, which takes memory.
fn allocations(group: Group, dtype: CommunicationDtype, bytes_per_bucket: usize) -> u64 {
    let options = CommunicationOptions::new().with_bytes_per_bucket(bytes_per_bucket);
    let mut strategy = MultiWorkerMirroredStrategy::from_group(group)
        .unwrap()
        .with_options(options);
    let specs: Vec<_> = [300, 70_000, 5]
        .map(|len| VariableSpec::new(format!("v{len}"), &[len]).unwrap())
        .into();
    let gradients = GradientBuckets::new(&mut strategy, &specs, 1);
    let mut gradients = gradients.unwrap().with_communication_dtype(dtype);
    let mut step = || {
        let loss = strategy.run(|replica| {
            for index in (0..3).rev() {
                gradients.gradient_mut(index)?.fill(0.5);
                gradients.ready(replica, index)?;
            }
            gradients.extra_mut()?[0] = 1.0;
            gradients.finish(replica)?;
            Ok::<_, Error>(gradients.extra()[0])
        });
        assert_eq!(loss.unwrap().into_first(), 2.0);
    };
    (0..2).for_each(|_| step());
    let counted = (0..20).map(|_| {
        let five = allocation_counter::measure(|| (0..5).for_each(|_| step()));
        five.count_total
    });
    let fewest = counted.min().unwrap();
    strategy.leave().unwrap();
    fewest
}

#[test]
fn no_step_after_the_first_ones_allocates() {
    // In one bucket, and with each variable in its own.
    for (dtype, bytes_per_bucket) in [
        (CommunicationDtype::F32, 0),
        (CommunicationDtype::F32, 1),
        (CommunicationDtype::Bf16, 0),
    ] {
        let groups = Group::local(2).unwrap();
        let counts = in_threads(groups, |group| allocations(group, dtype, bytes_per_bucket));
        assert_eq!(counts, [0, 0], "{dtype:?}, {bytes_per_bucket}");
    }
}

/// Steps of several replicas, which are threads, take memory for those threads and for what they
/// give each other: in each step as much as in the one before.
#[test]
fn steps_of_several_replicas_take_no_more_each_time() {
    let mut strategy = MultiWorkerMirroredStrategy::mirrored(2).unwrap();
    let mut gradients = strategy.per_replica(|_| vec![0.5_f32; 10_000]);
    let mut steps = |steps: usize| {
        let counted = allocation_counter::measure(|| {
            for _ in 0..steps {
                let step = strategy.run_with(&mut gradients, |replica, own| {
                    replica.all_reduce(ReplicaReduceOp::Mean, own)
                });
                step.unwrap();
            }
        });
        counted.count_total
    };
    steps(2);
    let few = steps(10);
    let many = steps(100);
    assert!(many <= 11 * few, "{few} in 10 steps, {many} in 100");
}
