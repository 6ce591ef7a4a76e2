//! A small classifier, written by hand, that trains on numbers made from a seed: a worker for
//! tests of whole processes. It says on standard output what it has reached, and can hold there
//! until it is killed.
#![forbid(unsafe_code)]

mod args;
mod model;

use std::process::ExitCode;

use args::{Args, Point};
use clap::Parser;
use meshwork_integration_tests::{ended, launch_again, say};
use meshwork_strategy::{
    Batch, Error, FlatGradients, MultiWorkerMirroredStrategy, ReplicaReduceOp,
};
use model::Model;

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_max_level(args.log_level())
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    match args.launch() {
        Some(workers) => ended("mlp", launch_again(&["--launch="], workers, None)),
        None => ended("mlp", train(&args)),
    }
}

fn train(args: &Args) -> Result<(), Error> {
    say!("started as process {}", std::process::id());
    if args.holds_at_start() {
        hold();
    }
    let mut strategy = MultiWorkerMirroredStrategy::from_env()?;
    let rank = strategy.rank().number();
    say!(
        "joined as rank {rank} of {}",
        strategy.num_replicas_in_sync()
    );
    let mut model = strategy.scope(|scope| Model::new(scope, args.hidden_on(rank), rank))?;
    let mut gradients = FlatGradients::new(&model.specs(), 1)?;
    let data = strategy
        .distribute_dataset(args.samples(), args.global_batch())?
        .shuffled(1);
    let mut step = 0;
    for batch in (0..args.epochs()).flat_map(|epoch| data.epoch(epoch)) {
        step += 1;
        let held = args.holds(rank, Point::Step(step));
        let loss = strategy.run(|replica| {
            gradients.clear();
            part_of(&model, &batch, &mut gradients)?;
            if held {
                hold();
            }
            replica.all_reduce(ReplicaReduceOp::Sum, gradients.as_mut_slice())?;
            model.apply(&gradients);
            Ok::<_, Error>(gradients.extra()[0])
        })?;
        let hash = strategy.verify_replicas(&model.values())?;
        say!("step {step} loss {} hash {hash:016x}", loss.into_first());
    }
    say!("trained");
    if args.holds(rank, Point::End) {
        hold();
    }
    strategy.leave()
}

/// This worker's part of the mean loss over the global batch, and of its gradient.
fn part_of(model: &Model, batch: &Batch, gradients: &mut FlatGradients) -> Result<(), Error> {
    let scale = 1.0 / batch.global_len() as f32;
    let mut loss = 0.0;
    for index in batch.indices() {
        loss += model.accumulate(*index, scale, gradients);
    }
    gradients.extra_mut()[0] = loss;
    Ok(())
}

/// Waits to be killed.
fn hold() -> ! {
    say!("holding");
    loop {
        std::thread::park();
    }
}
