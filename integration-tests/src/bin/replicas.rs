//! Everything that crosses replicas, once: a worker for tests of whole processes. What it prints is
//! the same however the replicas are spread over workers, as all sums of it are exact.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use meshwork_integration_tests::{ended, say};
use meshwork_strategy::{
    Aggregation, AutoShard, Cursor, DistributedVariable, Error, Input, MultiWorkerMirroredStrategy,
    ReplicaReduceOp, Synchronization, VariablePolicy,
};
use ndarray::{Array1, arr0};

#[derive(Debug, Parser)]
struct Args {
    /// Replicas of each worker
    #[arg(long, default_value_t = 1)]
    replicas: usize,
    /// Take another number on one worker, which must not do
    #[arg(long)]
    odd_one_out: bool,
}

fn main() -> ExitCode {
    ended("replicas", train(&Args::parse()))
}

fn train(args: &Args) -> Result<(), Error> {
    let strategy = MultiWorkerMirroredStrategy::from_env()?;
    let more = usize::from(args.odd_one_out && !strategy.is_chief());
    let mut strategy = strategy.with_local_replicas(args.replicas + more)?;
    let start = f64::from(strategy.rank().number()) + 2.0;
    let counted = VariablePolicy::new(Synchronization::OnRead, Aggregation::Sum);
    let (weight, seen) = strategy.scope(|scope| {
        let weight = arr0(start).into_dyn();
        let weight = scope.distributed("weight", weight, VariablePolicy::default())?;
        Ok((
            weight,
            scope.distributed("seen", arr0(0_i64).into_dyn(), counted)?,
        ))
    })?;
    steps(&mut strategy, &weight, &seen)?;
    say!("seen {}", strategy.read(&seen)?);
    exchange(&mut strategy)?;
    strategy.leave()
}

/// Two epochs of 50 numbers in batches of 7, the weight lowered by their exact mean each time.
fn steps(
    strategy: &mut MultiWorkerMirroredStrategy,
    weight: &DistributedVariable<f64>,
    seen: &DistributedVariable<i64>,
) -> Result<(), Error> {
    let input = Input::batches(|epoch| {
        let numbers: Vec<u64> = (epoch..epoch + 50).collect();
        numbers.chunks(7).map(<[u64]>::to_vec).collect::<Vec<_>>()
    });
    let mut cursor = Cursor::start();
    for step in 0.. {
        // Each step by a new iterator, as a resumed job has it.
        let mut batches = strategy.distribute_batches(&input, AutoShard::Auto, cursor)?;
        let Some(share) = batches.next_step(strategy)? else {
            break;
        };
        cursor = batches.cursor();
        let rows = share.global_rows();
        let mut pieces = share.into_shards();
        strategy.run_with(&mut pieces, |replica, piece| {
            let piece = piece.take().unwrap_or_default();
            let count = i64::try_from(piece.len()).unwrap_or(i64::MAX);
            replica.assign_add(seen, arr0(count).into_dyn())?;
            let mut sum = [piece.iter().sum::<u64>() as f64];
            replica.all_reduce(ReplicaReduceOp::Sum, &mut sum)?;
            replica.update(weight, |weight| *weight -= sum[0] / 64.0);
            Ok::<_, Error>(())
        })?;
        say!(
            "step {step} rows {rows} weight {:016x}",
            strategy.read(weight)?[[]].to_bits()
        );
    }
    Ok(())
}

/// Reductions and gathers in and outside of steps, of arrays whose length is the replica's number.
fn exchange(strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
    let mut own = strategy.per_replica(|id| Array1::from_elem(id, id as f64).into_dyn());
    say!(
        "mean {}",
        strategy.reduce_axes(ReplicaReduceOp::Mean, &own, &[0])?
    );
    say!("gathered {}", strategy.gather(&own, 0)?);
    let inside = strategy.run_with(&mut own, |replica, own| replica.all_gather(own.clone(), 0))?;
    for all in inside.local_results().take(1) {
        say!("gathered in a step {all}");
    }
    let merged = strategy.run_each(|replica| {
        let own = f64::from(replica.replica_id().number());
        replica.merge_call(own, |cross, values| {
            let sum = cross.reduce(ReplicaReduceOp::Sum, values.clone())?;
            Ok(values.map(|_| sum))
        })
    })?;
    say!("merged {}", merged.into_first());
    Ok(())
}
