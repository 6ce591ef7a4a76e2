//! Schedules: how long it takes to compute all rounds of all ranks, and to prove them right.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use meshwork_collectives::schedule::{Goal, Round, Schedule, check};
use meshwork_collectives::{Algorithm, Rank};

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    bench_rounds(&mut criterion);
    bench_check(&mut criterion);
    criterion.final_summary();
}

/// All ranks' rounds: what a simulator walks. One rank of a real group walks its own only.
fn bench_rounds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rounds of all ranks");
    for algorithm in Algorithm::ALL {
        for world in [2, 8, 64] {
            let id = BenchmarkId::new(algorithm.to_string(), world);
            group.bench_with_input(id, &world, |bencher, &world| {
                bencher.iter(|| {
                    for rank in Rank::all(world) {
                        let schedule = Schedule::all_reduce(algorithm, world, rank);
                        schedule.rounds().for_each(|round| {
                            black_box(round);
                        });
                    }
                });
            });
        }
    }
    group.finish();
}

fn bench_check(criterion: &mut Criterion) {
    const WORLD: u32 = 8;
    let mut group = criterion.benchmark_group("check 8 ranks");
    for algorithm in Algorithm::ALL {
        let schedules: Vec<Schedule> = Rank::all(WORLD)
            .map(|rank| Schedule::all_reduce(algorithm, WORLD, rank))
            .collect();
        let plan: Vec<Vec<Round>> = schedules
            .iter()
            .map(|schedule| schedule.rounds().collect())
            .collect();
        let blocks = schedules[0].blocks();
        group.bench_function(algorithm.to_string(), |bencher| {
            bencher.iter(|| check(black_box(&plan), blocks, &Goal::AllReduce));
        });
    }
    group.finish();
}
