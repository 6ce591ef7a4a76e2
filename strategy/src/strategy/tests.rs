//! Strategies of several workers as threads: initial values, reductions, shapes and replica counts
//! that differ, copies that diverge, and weighted means over uneven batches.

use std::sync::atomic::{AtomicUsize, Ordering};

use meshwork_cluster_resolver::{Cluster, ClusterSpec, SimpleResolver, TfConfigResolver};

use super::*;
use crate::JobSecret;
use crate::distributed::PerReplica;
use crate::replica::ReplicaReduceOp;
use crate::testing::each;

#[test]
fn every_worker_begins_with_the_chiefs_values() {
    let values = each(3, |mut strategy| {
        let own = strategy.rank().number() as f32;
        let variables = strategy.scope(|scope| {
            let weight = scope.variable("weight", &[2, 2], vec![own; 4])?;
            Ok((weight, scope.variable("bias", &[2], vec![own + 0.5; 2])?))
        });
        let (weight, bias) = variables.unwrap();
        strategy.leave().unwrap();
        [weight.values(), bias.values()].concat()
    });
    assert_eq!(values, vec![vec![0.0, 0.0, 0.0, 0.0, 0.5, 0.5]; 3]);
}

#[test]
fn a_reduction_in_asynchronous_code_is_an_error_and_no_panic() {
    let errors = each(2, |mut strategy| {
        let one = PerReplica::new(vec![1.0_f32]);
        if strategy.rank() != Rank::CHIEF {
            return strategy.reduce(ReplicaReduceOp::Sum, one).unwrap_err();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        runtime.block_on(async { strategy.reduce(ReplicaReduceOp::Sum, one).unwrap_err() })
    });
    for error in errors {
        assert!(error.to_string().contains("asynchronous code"), "{error}");
    }
}

#[test]
fn workers_with_different_shapes_all_fail_and_name_the_variable() {
    let errors = each(3, |mut strategy| {
        let width = if strategy.rank() == Rank::new(2) {
            5
        } else {
            4
        };
        let built =
            strategy.scope(|scope| scope.variable("fc.weight", &[2, width], vec![0.0; 2 * width]));
        built
            .and_then(|_| strategy.reduce(ReplicaReduceOp::Sum, PerReplica::new(vec![1.0_f32])))
            .unwrap_err()
    });
    for error in errors {
        let text = error.to_string();
        assert!(
            text.contains("fc.weight of shape [2, 5] on rank 2")
                && text.contains("[2, 4] on rank 0"),
            "{text}"
        );
    }
}

#[test]
fn one_name_for_two_variables_is_refused() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let refused = strategy.scope(|scope| {
        scope.variable("w", &[1], vec![0.0])?;
        scope.variable("w", &[1], vec![0.0])
    });
    assert_eq!(
        refused,
        Err(Error::DuplicateVariable {
            name: "w".to_owned()
        })
    );
}

#[test]
fn sums_and_means_are_over_all_replicas_and_counted_in_the_stats() {
    each(4, |mut strategy| {
        let step = strategy.run(|replica| {
            let own = replica.replica_id().number() as f32;
            let (mut sum, mut mean) = ([own, 1.0], [own, 1.0]);
            replica.all_reduce(ReplicaReduceOp::Sum, &mut sum)?;
            replica.all_reduce(ReplicaReduceOp::Mean, &mut mean)?;
            Ok::<_, Error>((sum, mean))
        });
        assert_eq!(step.unwrap().into_first(), ([6.0, 4.0], [1.5, 1.0]));
        let rank = PerReplica::new(vec![f64::from(strategy.rank().number())]);
        assert_eq!(strategy.reduce(ReplicaReduceOp::Mean, rank).unwrap(), 1.5);
        assert_eq!(
            (
                strategy.communication_stats().operations(),
                strategy.communication_stats().bytes()
            ),
            (3, 24)
        );
        strategy.leave().unwrap();
    });
}

#[test]
fn sums_in_the_order_of_tensorflow_are_counted_as_others_are() {
    let counted = |strategy: MultiWorkerMirroredStrategy| {
        let mut strategy = strategy.with_local_replicas(2).unwrap();
        let mut own = strategy.per_replica(|_| [1.0_f32; 3]);
        let step = strategy.run_with(&mut own, |replica, own| {
            replica.all_reduce(ReplicaReduceOp::Sum, own)
        });
        step.unwrap();
        let stats = strategy.communication_stats();
        strategy.leave().unwrap();
        (stats.operations(), stats.bytes())
    };
    for order in [SumOrder::Fastest, SumOrder::TensorFlowRing] {
        let all = each(2, |strategy| counted(strategy.with_sum_order(order)));
        assert_eq!(all, [(1, 12); 2], "{order:?}");
        let alone = MultiWorkerMirroredStrategy::alone().unwrap();
        assert_eq!(counted(alone.with_sum_order(order)), (0, 0), "{order:?}");
    }
}

#[test]
fn a_mean_of_short_floats_is_there_where_their_sum_is_not() {
    each(3, |mut strategy| {
        let large = crate::f16::from_f32(60_000.0);
        let mut mean = [large; 5];
        strategy
            .run(|replica| replica.all_reduce(ReplicaReduceOp::Mean, &mut mean))
            .unwrap();
        assert_eq!(mean, [large; 5]);
        strategy.leave().unwrap();
    });
}

#[test]
fn a_mean_of_short_floats_is_one_in_a_step_and_outside_with_any_replicas() {
    for replicas in [1, 2] {
        each(2, |strategy| {
            let mut strategy = strategy.with_local_replicas(replicas).unwrap();
            let large = crate::f16::from_f32(60_000.0);
            let mut own = strategy.per_replica(|_| vec![large; 5]);
            let mean = strategy.reduce(ReplicaReduceOp::Mean, own.clone());
            assert_eq!(mean.unwrap(), [large; 5]);
            let step = strategy.run_with(&mut own, |replica, own| {
                replica.all_reduce(ReplicaReduceOp::Mean, own)
            });
            step.unwrap();
            assert!(own.local_results().all(|own| *own == [large; 5]));
            strategy.leave().unwrap();
        });
    }
}

#[test]
fn short_floats_of_replicas_are_rounded_once_but_in_the_order_of_tensorflow() {
    let short = crate::bf16::from_f32;
    // 256 + 1 is 256 in 8 bits.
    for (order, sum) in [
        (SumOrder::Fastest, 258.0),
        (SumOrder::TensorFlowRing, 256.0),
    ] {
        let strategy = MultiWorkerMirroredStrategy::mirrored(3).unwrap();
        let mut strategy = strategy.with_sum_order(order);
        let own = strategy.per_replica(|id| short(if id == 0 { 256.0 } else { 1.0 }));
        let reduced = strategy.reduce(ReplicaReduceOp::Sum, own).unwrap();
        assert_eq!(reduced, short(sum), "{order:?}");
    }
}

#[test]
fn the_error_of_one_workers_step_ends_all_with_its_reason() {
    let errors = each(3, |mut strategy| {
        let broken = strategy.rank() == Rank::new(1);
        strategy
            .run(|replica| {
                if broken {
                    return Err(Error::NoSamples);
                }
                replica.all_reduce(ReplicaReduceOp::Sum, &mut [1.0])
            })
            .unwrap_err()
    });
    assert_eq!(errors[1], Error::NoSamples);
    for error in [&errors[0], &errors[2]] {
        let text = error.to_string();
        assert!(
            text.starts_with("rank 1 (") && text.contains(&Error::NoSamples.to_string()),
            "{text}"
        );
    }
}

#[test]
fn copies_that_differ_in_one_bit_are_found_and_named() {
    each(3, |mut strategy| {
        let mut values = vec![1.0_f32; 100];
        assert!(strategy.verify_replicas(&values).is_ok());
        if strategy.rank() == Rank::new(2) {
            values[50] = f32::from_bits(1.0_f32.to_bits() + 1);
        }
        let expected = Error::ReplicasDiverged {
            ranks: vec![Rank::new(2)],
        };
        assert_eq!(strategy.verify_replicas(&values), Err(expected));
        strategy.leave().unwrap();
    });
}

#[test]
fn a_checked_sum_finds_copies_that_differed_before_it() {
    each(3, |mut strategy| {
        let rank = strategy.rank().number();
        let mut copy = [1.0, 2.0];
        let mut step = |copy: &[f32]| {
            strategy.run(|replica| {
                let mut values = vec![rank as f32; 1 + replica.check_len()];
                replica.all_reduce_checked(&mut values, copy)?;
                Ok::<_, Error>(values[0])
            })
        };
        assert_eq!(step(&copy).unwrap().into_first(), 3.0);
        if rank == 1 {
            copy[1] = 2.5;
        }
        // Whoever finds it first may end the group before another has looked.
        let text = step(&copy).unwrap_err().to_string();
        assert!(
            text.contains("those of rank 1 differ from rank 0's"),
            "{text}"
        );
    });
}

#[test]
fn a_checked_sum_needs_room_for_its_hashes() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let refused = strategy.run(|replica| replica.all_reduce_checked(&mut [1.0; 3], &[1.0]));
    assert_eq!(
        refused,
        Err(Error::NoRoomForCheck {
            found: 3,
            needed: 4
        })
    );
}

#[test]
fn hashes_are_read_from_as_much_room_as_they_take() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    for found in [0, 3, 5] {
        let refused = strategy.run(|replica| replica.read_check(&vec![0.0; found]));
        assert_eq!(refused, Err(Error::NoRoomForCheck { found, needed: 4 }));
    }
}

#[test]
fn a_cluster_without_this_processs_task_is_refused() {
    let spec = ClusterSpec::from_addresses(["a:1", "b:1"]).unwrap();
    let secret = JobSecret::generate().unwrap();
    let refused = MultiWorkerMirroredStrategy::new(
        &SimpleResolver::new(spec),
        secret,
        CommunicationOptions::new(),
    );
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("task"), "{text}");
}

/// A cluster of one worker that counts how often it is asked for.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl ClusterResolver for Counting {
    fn snapshot(&self) -> Result<Cluster, meshwork_cluster_resolver::Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let cluster = Cluster::new(ClusterSpec::from_addresses(["a:1"])?);
        Ok(cluster.with_task(&Task::new("worker", 0)))
    }
}

#[test]
fn a_start_asks_its_resolver_once() {
    let secret = || JobSecret::generate().unwrap();
    let (resolver, options) = (Counting::default(), CommunicationOptions::new);
    MultiWorkerMirroredStrategy::new(&resolver, secret(), options()).unwrap();
    assert_eq!(resolver.0.load(Ordering::Relaxed), 1);
    let founding = JoinMode::Founding;
    MultiWorkerMirroredStrategy::elastic(&resolver, secret(), options(), founding).unwrap();
    assert_eq!(resolver.0.into_inner(), 2);
}

#[test]
fn an_empty_cluster_is_one_worker_and_needs_no_secret_of_others() {
    let resolver = TfConfigResolver::from_json("{}");
    let secret = JobSecret::generate().unwrap();
    let strategy =
        MultiWorkerMirroredStrategy::new(&resolver, secret, CommunicationOptions::new()).unwrap();
    assert_eq!(
        (strategy.num_replicas_in_sync(), strategy.is_chief()),
        (1, true)
    );
    assert_eq!(strategy.mesh().size(), 1);
}

#[test]
fn workers_of_several_replicas_reduce_over_all_of_them() {
    for (workers, replicas) in [(2, 2), (3, 1), (2, 3), (4, 2)] {
        let sums = each(workers, |strategy| {
            let mut strategy = strategy.with_local_replicas(replicas).unwrap();
            let mut own = strategy.per_replica(|id| vec![id as f32, 1.0]);
            let step = strategy.run_with(&mut own, |replica, own| {
                replica.all_reduce(ReplicaReduceOp::Sum, own)?;
                Ok::<_, Error>(replica.replica_id().index())
            });
            let ids = step.unwrap().into_vec();
            let first = strategy.rank().index() * replicas;
            assert_eq!(ids, (first..first + replicas).collect::<Vec<_>>());
            strategy.leave().unwrap();
            own.into_vec()
        });
        let all = workers as usize * replicas;
        let sum = vec![(0..all).sum::<usize>() as f32, all as f32];
        assert!(sums.concat().iter().all(|own| *own == sum), "{sums:?}");
    }
}

#[test]
fn a_worker_with_another_number_of_replicas_is_named_to_all() {
    let errors = each(3, |strategy| {
        let replicas = 1 + usize::from(strategy.rank() == Rank::new(2));
        strategy
            .with_local_replicas(replicas)
            .map(drop)
            .unwrap_err()
    });
    for error in errors {
        let text = error.to_string();
        assert!(
            text.contains("rank 2 has 2 replicas, but rank 0 has 1"),
            "{text}"
        );
    }
}

#[test]
#[cfg(feature = "ndarray")]
fn a_weighted_mean_over_uneven_batches_is_the_mean_over_all_samples() {
    each(3, |mut strategy| {
        let rank = strategy.rank().index();
        let losses =
            strategy.per_replica(|_| ndarray::Array1::from_elem(rank, rank as f64).into_dyn());
        let mean = strategy
            .reduce_axes(ReplicaReduceOp::Mean, &losses, &[0])
            .unwrap();
        assert_eq!(mean, ndarray::arr0((1.0 + 2.0 + 2.0) / 3.0).into_dyn());
        let gathered = strategy.gather(&losses, 0).unwrap();
        assert_eq!(gathered.into_iter().collect::<Vec<_>>(), [1.0, 2.0, 2.0]);
        strategy.leave().unwrap();
    });
}

#[test]
#[cfg(feature = "ndarray")]
fn long_sums_of_short_floats_go_on_growing() {
    use ReplicaReduceOp::{Mean, Sum};
    each(2, |mut strategy| {
        let ones = ndarray::Array1::from_elem(1_000, crate::bf16::ONE).into_dyn();
        let ones = strategy.per_replica(|_| ones.clone());
        for (op, expected) in [(Mean, 1.0), (Sum, 2_000.0)] {
            let reduced = strategy.reduce_axes(op, &ones, &[0]).unwrap();
            let expected = crate::bf16::from_f32(expected);
            assert_eq!(reduced, ndarray::arr0(expected).into_dyn(), "{op:?}");
        }
        let ten = crate::f16::from_f32(10.0);
        let tens = ndarray::Array1::from_elem(8_192, ten).into_dyn();
        let tens = strategy.per_replica(|_| tens.clone());
        let mean = strategy.reduce_axes(Mean, &tens, &[0]).unwrap();
        assert_eq!(mean, ndarray::arr0(ten).into_dyn());
        strategy.leave().unwrap();
    });
}

#[test]
fn bytes_of_any_length_come_from_every_worker_in_order() {
    let all = each(3, |mut strategy| {
        let own = vec![7; strategy.rank().index() * 2];
        let gathered = strategy.run(|replica| replica.all_gather_bytes(&own));
        gathered.unwrap().into_first()
    });
    assert_eq!(all, vec![vec![vec![], vec![7; 2], vec![7; 4]]; 3]);
    let mut several = MultiWorkerMirroredStrategy::mirrored(2).unwrap();
    let refused = several.run_each(|replica| replica.all_gather_bytes(b"x"));
    assert!(matches!(refused, Err(Error::SeveralReplicas { .. })));
}
