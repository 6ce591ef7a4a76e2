//! A step takes no memory after the first ones: everything is allocated once.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use std::thread;

use meshwork_collectives::Group;
use meshwork_strategy::{Error, GradientPacks, MultiWorkerMirroredStrategy, VariableSpec, Wire};

/// Allocations of this thread in a hundred steps, after two.
fn allocations(group: Group, wire: Wire) -> u64 {
    let mut strategy = MultiWorkerMirroredStrategy::over(group).unwrap();
    let specs: Vec<_> = [300, 70_000, 5]
        .map(|len| VariableSpec::new(format!("v{len}"), &[len]).unwrap())
        .into();
    let gradients = GradientPacks::new(&mut strategy, &specs, 1);
    let mut gradients = gradients.unwrap().with_wire(wire);
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
    let counted = allocation_counter::measure(|| (0..100).for_each(|_| step()));
    strategy.leave().unwrap();
    counted.count_total
}

#[test]
fn no_step_after_the_first_ones_allocates() {
    for wire in [Wire::F32, Wire::Bf16] {
        thread::scope(|scope| {
            let groups = Group::local(2).unwrap().into_iter();
            let threads: Vec<_> = groups
                .map(|group| scope.spawn(move || allocations(group, wire)))
                .collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), 0, "{wire:?}");
            }
        });
    }
}
