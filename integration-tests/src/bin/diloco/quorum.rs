//! A training whose rounds end with a quorum: the last worker makes steps that take many times as
//! long as those of the others.

use std::io::Write;
use std::num::NonZeroUsize;
use std::time::Duration;

use meshwork_strategy::low_communication::{Quorum, QuorumOptimizer};
use meshwork_strategy::{Error, Fingerprint, MultiWorkerMirroredStrategy};

use crate::{Args, inner_step, lengths, settings};

/// How many times as long.
const SLOWER: u64 = 40;
const PATIENCE: Duration = Duration::from_millis(5);

pub(crate) fn train(args: &Args, workers: NonZeroUsize) -> Result<(), Error> {
    let mut strategy = MultiWorkerMirroredStrategy::from_env()?;
    let lengths = lengths(args)?;
    let mut own = vec![1.0_f32; lengths.iter().sum()];
    let quorum = Quorum::new(workers, PATIENCE);
    let made = QuorumOptimizer::new(&mut strategy, settings(args), quorum, &lengths, &own);
    let mut outer = made?;
    let is_last = strategy.rank().index() + 1 == strategy.num_replicas_in_sync();
    let pause = if is_last {
        SLOWER * args.pause
    } else {
        args.pause
    };
    let mut made = 0;
    while outer.steps() < args.steps {
        inner_step(&mut own, &strategy, pause);
        outer.step(&mut own)?;
        made += 1;
    }
    outer.finish(&mut own)?;
    let far = own.iter().map(|one| (one - 3.0).abs()).fold(0.0, f32::max);
    let (hash, exchanges) = (Fingerprint::of(&own).value(), outer.outer_steps());
    say!("trained {exchanges} exchanges, hash {hash:016x}, far {far:.4}");
    say!("made {made} steps, late for {} exchanges", outer.missed());
    drop(outer);
    strategy.leave()
}
