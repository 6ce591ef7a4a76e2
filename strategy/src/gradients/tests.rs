//! Gradient buckets: any bucket size and any order of gradients give the sums of one buffer;
//! accumulation, 16-bit communication, NaN and infinities.

mod elastic;
mod restored;

use proptest::prelude::*;

use super::*;
use crate::CommunicationOptions;
use crate::testing;

fn each<R: Send>(
    world: u32,
    bytes_per_bucket: usize,
    program: impl Fn(MultiWorkerMirroredStrategy) -> R + Sync,
) -> Vec<R> {
    testing::each(world, |strategy| {
        let options = CommunicationOptions::new().with_bytes_per_bucket(bytes_per_bucket);
        program(strategy.with_options(options))
    })
}

fn specs(lengths: &[usize]) -> Vec<VariableSpec> {
    let named = lengths.iter().enumerate();
    named
        .map(|(index, len)| VariableSpec::new(format!("v{index}"), &[*len]).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn buckets_of_any_size_and_gradients_in_any_order_give_the_sums(
        lengths in prop::collection::vec(0_usize..40, 0..6), limit in 0_usize..200,
        world in 1_u32..4, forwards in any::<bool>(),
    ) {
        let specs = specs(&lengths);
        each(world, limit, |mut strategy| {
            let rank = strategy.rank().number() as f32;
            let mut gradients = GradientBuckets::new(&mut strategy, &specs, 2).unwrap();
            for step in 1..3_u8 {
                let order: Vec<usize> = (0..specs.len()).collect();
                let order: Vec<usize> = if forwards { order } else { order.into_iter().rev().collect() };
                strategy.run(|replica| {
                    for index in order {
                        gradients.gradient_mut(index)?.fill(rank + f32::from(step) + index as f32);
                        gradients.ready(replica, index)?;
                    }
                    gradients.extra_mut()?.fill(rank);
                    gradients.finish(replica)
                }).unwrap();
                let ranks: f32 = (0..world).map(|rank| rank as f32).sum();
                for (index, spec) in specs.iter().enumerate() {
                    let sum = ranks + world as f32 * (f32::from(step) + index as f32);
                    assert!(gradients.gradient(index).iter().all(|value| *value == sum));
                    assert_eq!(gradients.gradient(index).len(), spec.len());
                }
                assert_eq!(gradients.extra(), [ranks; 2]);
            }
            strategy.leave().unwrap();
        });
    }
}

#[test]
fn several_passes_add_up_and_are_reduced_once() {
    let specs = specs(&[3]);
    each(2, 0, |mut strategy| {
        let mut gradients = GradientBuckets::new(&mut strategy, &specs, 0).unwrap();
        for _ in 0..4 {
            gradients
                .gradient_mut(0)
                .unwrap()
                .iter_mut()
                .for_each(|value| *value += 0.5);
        }
        strategy.run(|replica| gradients.finish(replica)).unwrap();
        assert_eq!(gradients.gradient(0), [4.0; 3]);
        assert_eq!(strategy.communication_stats().operations(), 1);
        gradients.clear();
        assert_eq!(gradients.gradient(0), [0.0; 3]);
        strategy.leave().unwrap();
    });
}

#[test]
fn half_the_bytes_give_sums_to_two_roundings() {
    let specs = specs(&[1000, 37]);
    let sums = each(3, 0, |mut strategy| {
        let rank = strategy.rank().index();
        let mut gradients = GradientBuckets::new(&mut strategy, &specs, 1)
            .unwrap()
            .with_communication_dtype(CommunicationDtype::Bf16);
        for index in 0..2 {
            for (at, value) in gradients
                .gradient_mut(index)
                .unwrap()
                .iter_mut()
                .enumerate()
            {
                *value = ((at * 7 + rank * 13 + index) % 101) as f32 / 101.0 + 0.1;
            }
        }
        let own: Vec<Vec<f32>> = (0..2)
            .map(|index| gradients.gradient(index).to_vec())
            .collect();
        // A number of more than 8 bits.
        gradients.extra_mut().unwrap()[0] = 1001.0;
        strategy.run(|replica| gradients.finish(replica)).unwrap();
        let stats = strategy.communication_stats();
        strategy.leave().unwrap();
        assert_eq!(gradients.extra(), [3003.0]);
        let bytes = 2 * own.concat().len() as u64 + 4;
        assert_eq!((stats.operations(), stats.bytes()), (2, bytes));
        (
            own.concat(),
            [gradients.gradient(0), gradients.gradient(1)].concat(),
        )
    });
    for (at, sum) in sums[0].1.iter().enumerate() {
        let exact: f32 = sums.iter().map(|(own, _)| own[at]).sum();
        assert!((sum - exact).abs() <= exact / 100.0, "{sum} for {exact}");
        assert!(sums.iter().all(|(_, other)| other[at] == *sum));
    }
}

#[test]
fn products_of_thin_matrices_come_near_the_sums_and_the_rest_is_exact() {
    let specs = [
        VariableSpec::new("w", &[12, 4, 5]).unwrap(),
        VariableSpec::new("bias", &[20]).unwrap(),
        VariableSpec::new("small", &[2, 2]).unwrap(),
        VariableSpec::new("v", &[30, 10]).unwrap(),
    ];
    let three = NonZeroUsize::new(3).unwrap();
    let value = |rank: usize, index: usize, at: usize| {
        // Of rank 2 in each step, and so exact; the same space on all workers.
        let (row, column) = (at / 20, at % 20);
        let slope = (1 + rank + index) as f32 / 8.0;
        (row as f32).sin() * slope + (column as f32).cos()
    };
    let told = each(3, 64, |mut strategy| {
        let rank = strategy.rank().index();
        let mut gradients = GradientBuckets::new(&mut strategy, &specs, 2)
            .unwrap()
            .with_power_sgd(three);
        for _ in 0..4 {
            strategy
                .run(|replica| {
                    for (index, spec) in specs.iter().enumerate().rev() {
                        let gradient = gradients.gradient_mut(index)?;
                        for (at, one) in gradient.iter_mut().enumerate() {
                            *one = value(rank, index, at);
                        }
                        assert_eq!(gradient.len(), spec.len());
                        gradients.ready(replica, index)?;
                    }
                    gradients.extra_mut()?.fill(rank as f32);
                    gradients.finish(replica)
                })
                .unwrap();
        }
        let stats = strategy.communication_stats();
        strategy.leave().unwrap();
        assert_eq!((gradients.extra(), stats.operations()), (&[3.0; 2][..], 8));
        let each = (0..specs.len()).map(|index| gradients.gradient(index).to_vec());
        each.collect::<Vec<_>>()
    });
    for (index, gradient) in told[0].iter().enumerate() {
        assert!(told.iter().all(|other| other[index] == *gradient));
        for (at, one) in gradient.iter().enumerate() {
            let sum: f32 = (0..3).map(|rank| value(rank, index, at)).sum();
            let off = (one - sum).abs();
            let most = if [1, 2].contains(&index) { 0.0 } else { 2e-3 };
            assert!(off <= most, "{one} for {sum} at {at} of {}", specs[index]);
        }
    }
}

#[test]
fn what_is_under_way_is_not_touched_and_nothing_is_ready_twice() {
    let specs = specs(&[4, 4]);
    each(2, 1, |mut strategy| {
        let mut gradients = GradientBuckets::new(&mut strategy, &specs, 0).unwrap();
        assert_eq!(gradients.buckets(), 2);
        strategy
            .run(|replica| {
                gradients.ready(replica, 1)?;
                let name = "v1".to_owned();
                assert_eq!(
                    gradients.gradient_mut(1).map(drop),
                    Err(Error::GradientInFlight { name: name.clone() })
                );
                assert_eq!(
                    gradients.ready(replica, 1),
                    Err(Error::GradientTwice { name })
                );
                gradients.finish(replica)
            })
            .unwrap();
        strategy.leave().unwrap();
    });
}

#[test]
fn a_gradient_that_is_ready_twice_does_not_stand_for_another_of_its_bucket() {
    let specs = specs(&[1, 1, 1]);
    each(1, 4, |mut strategy| {
        let mut gradients = GradientBuckets::new(&mut strategy, &specs, 0).unwrap();
        assert_eq!(gradients.buckets(), 2);
        for _ in 0..2 {
            strategy
                .run(|replica| {
                    gradients.ready(replica, 2)?;
                    let name = "v2".to_owned();
                    assert_eq!(
                        gradients.ready(replica, 2),
                        Err(Error::GradientTwice { name })
                    );
                    // Nothing is under way.
                    gradients.gradient_mut(1)?.fill(1.0);
                    gradients.ready(replica, 1)?;
                    gradients.finish(replica)
                })
                .unwrap();
        }
        strategy.leave().unwrap();
    });
}

#[test]
fn gradients_that_are_no_numbers_reach_every_worker() {
    let specs = specs(&[2]);
    each(2, 0, |mut strategy| {
        let mut gradients = GradientBuckets::new(&mut strategy, &specs, 0).unwrap();
        if strategy.is_chief() {
            gradients.gradient_mut(0).unwrap()[1] = f32::NAN;
        }
        strategy.run(|replica| gradients.finish(replica)).unwrap();
        assert!(gradients.gradient(0)[0] == 0.0 && gradients.gradient(0)[1].is_nan());
        strategy.leave().unwrap();
    });
}
