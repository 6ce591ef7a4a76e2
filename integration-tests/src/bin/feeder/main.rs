//! Data and gradients that are not as they should be: a worker for tests of whole processes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use meshwork_integration_tests::{ended, say};
use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, ReplicaReduceOp};

/// Trains on what the case says.
#[derive(Debug, Parser)]
struct Args {
    #[arg(long, value_enum)]
    case: Case,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Case {
    /// Each worker has another number of batches, of another size, and the last one none.
    Uneven,
    /// One worker's gradient is no number in the second step.
    Nan,
    /// One worker has finished when the others make their third step.
    Early,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let fed = MultiWorkerMirroredStrategy::from_env().and_then(|strategy| match args.case {
        Case::Uneven => uneven(strategy),
        Case::Nan => nan(strategy),
        Case::Early => early(strategy),
    });
    ended("feeder", fed)
}

/// Means over the samples of all workers, until nobody has any.
fn uneven(mut strategy: MultiWorkerMirroredStrategy) -> Result<(), Error> {
    let rank = strategy.rank().index();
    // 5 batches of 4 samples, 2 of 3, and none.
    let (count, rows) = [(5, 4), (2, 3), (0, 1)][rank];
    let mine = (0..count).map(move |step| vec![(10 * rank + step) as f64; rows]);
    let mut batches = strategy.distribute_local_batches(mine);
    let mut step = 0;
    while let Some(share) = batches.next_step(&mut strategy)? {
        let rows = share.global_rows();
        let (weights, pieces) = (share.weights().into_first(), share.into_shards());
        let piece = pieces.into_first().unwrap_or_default();
        let mean = piece.iter().sum::<f64>() / piece.len().max(1) as f64;
        let part = strategy.per_replica(|_| vec![mean * weights, weights]);
        let sums = strategy.reduce(ReplicaReduceOp::Sum, part)?;
        step += 1;
        say!(
            "step {step}: {rows} rows, mean {:.6}, weights {:.6}",
            sums[0],
            sums[1]
        );
    }
    say!("{step} steps");
    strategy.leave()
}

/// What is no number on one worker is none on all, with equal bits, and nobody waits.
fn nan(mut strategy: MultiWorkerMirroredStrategy) -> Result<(), Error> {
    let rank = strategy.rank().number();
    let mut weight = vec![0.0_f32; 1000];
    for step in 1..=3 {
        let spoilt = step == 2 && rank == 1;
        let mut gradient = vec![if spoilt { f32::NAN } else { 1.0 }; weight.len()];
        strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Mean, &mut gradient))?;
        weight
            .iter_mut()
            .zip(&gradient)
            .for_each(|(weight, slope)| *weight -= slope);
        let hash = strategy.verify_replicas(&weight)?;
        say!("step {step}: {} {hash:016x}", weight[0]);
    }
    strategy.leave()
}

/// Two steps of one worker, three of the others.
fn early(mut strategy: MultiWorkerMirroredStrategy) -> Result<(), Error> {
    let steps = if strategy.rank().number() == 1 { 2 } else { 3 };
    for _ in 0..steps {
        let mut gradient = [1.0_f32];
        strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut gradient))?;
    }
    strategy.leave()
}
