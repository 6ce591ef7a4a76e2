//! What a strategy costs a step besides computing and moving bytes: a step with nothing in it, and
//! what a step of two workers takes longer than the all-reduce of its bytes alone, both measured
//! in turn by the same two threads. The second can come out as zero, as the two times it is the
//! difference of vary by more.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lock_step::{LockStep, Span};
use meshwork_collectives::{Group, ReduceOp};
use meshwork_strategy::{Error, GradientBuckets, MultiWorkerMirroredStrategy, VariableSpec};

#[path = "all_reduce/lock_step.rs"]
mod lock_step;

/// Variables of each model.
const VARIABLES: usize = 8;

#[derive(Clone, Copy)]
enum What {
    Bare,
    Step,
}

/// One worker, with a group of its own for the bare operation.
struct Worker {
    bare: Group,
    strategy: MultiWorkerMirroredStrategy,
    len: usize,
}

fn specs(len: usize) -> Result<Vec<VariableSpec>, Error> {
    (0..VARIABLES)
        .map(|number| VariableSpec::new(format!("v{number}"), &[len]))
        .collect()
}

/// A step with gradients, two more numbers and their sum, and no computing.
fn step(
    strategy: &mut MultiWorkerMirroredStrategy,
    gradients: &mut GradientBuckets,
) -> Result<f32, Error> {
    let loss = strategy.run(|replica| {
        for index in (0..VARIABLES).rev() {
            black_box(gradients.gradient_mut(index)?);
            gradients.ready(replica, index)?;
        }
        gradients.extra_mut()?.copy_from_slice(&[0.5, 0.0]);
        gradients.finish(replica)?;
        Ok::<_, Error>(gradients.extra()[0])
    })?;
    Ok(loss.into_first())
}

fn serve(worker: Worker, orders: Receiver<(What, u64)>, report: Sender<Span>) {
    let Worker {
        mut bare,
        mut strategy,
        len,
    } = worker;
    let specs = specs(len).expect("the sizes are small");
    let mut gradients = GradientBuckets::new(&mut strategy, &specs, 2).expect("there is memory");
    let mut buffer = bare
        .alloc::<f32>(VARIABLES * len + 2)
        .expect("there is memory");
    while let Ok((what, steps)) = orders.recv() {
        let start = Instant::now();
        for _ in 0..steps {
            match what {
                What::Bare => bare
                    .all_reduce(&mut buffer, ReduceOp::Sum)
                    .expect("the other worker does the same"),
                What::Step => {
                    black_box(step(&mut strategy, &mut gradients))
                        .expect("the other worker does the same");
                }
            }
        }
        let end = Instant::now();
        if report.send(Span { start, end }).is_err() {
            break;
        }
    }
}

fn two_workers(len: usize) -> LockStep<(What, u64)> {
    let pairs = Group::local(2)
        .into_iter()
        .flatten()
        .zip(Group::local(2).into_iter().flatten());
    let worker = |(bare, group)| Worker {
        bare,
        strategy: MultiWorkerMirroredStrategy::from_group(group).expect("two workers make a mesh"),
        len,
    };
    LockStep::start(pairs.map(worker).collect(), serve)
}

fn overhead(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("strategy");
    let mut alone = MultiWorkerMirroredStrategy::alone().expect("one worker is always there");
    group.bench_function("empty step, 1 worker", |bencher| {
        bencher.iter(|| alone.run(|replica| Ok::<_, Error>(black_box(replica.replica_id()))));
    });
    let mut gradients = specs(1024)
        .and_then(|specs| GradientBuckets::new(&mut alone, &specs, 2))
        .expect("there is memory");
    group.bench_function("step with 8 gradients, 1 worker", |bencher| {
        bencher.iter(|| step(&mut alone, &mut gradients));
    });
    for len in [128, 32 * 1024] {
        let bytes = VARIABLES * len * size_of::<f32>();
        let workers = two_workers(len);
        group.bench_function(
            BenchmarkId::new("bare all-reduce, 2 workers", bytes),
            |bencher| {
                bencher.iter_custom(|steps| workers.run((What::Bare, steps)));
            },
        );
        group.bench_function(
            BenchmarkId::new("step less all-reduce, 2 workers", bytes),
            |bencher| {
                bencher.iter_custom(|steps| {
                    let bare = workers.run((What::Bare, steps));
                    let step = workers.run((What::Step, steps));
                    // Criterion takes no zero.
                    step.saturating_sub(bare).max(Duration::from_nanos(steps))
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, overhead);
criterion_main!(benches);
