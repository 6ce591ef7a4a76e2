//! A training whose rounds end with a quorum: the last worker makes steps that take many times as
//! long as those of the others.

use std::num::NonZeroUsize;
use std::time::Duration;

use meshwork_integration_tests::say;
use meshwork_strategy::low_communication::{Quorum, QuorumOptimizer};
use meshwork_strategy::{Error, Fingerprint, JoinMode, MultiWorkerMirroredStrategy, Rank};

use crate::death::{Death, Where};
use crate::{Args, inner_step, lengths, settings};

/// How many times as long.
const SLOWER: u32 = 40;
const PATIENCE: Duration = Duration::from_millis(5);

pub(crate) fn train(args: &Args, workers: NonZeroUsize) -> Result<(), Error> {
    say!("process {}", std::process::id());
    let strategy = match JoinMode::from_env()? {
        Some(_) => MultiWorkerMirroredStrategy::elastic_from_env()?,
        None => MultiWorkerMirroredStrategy::from_env()?,
    };
    let death = Death::of(args.death, strategy.rank());
    let lengths = lengths(args)?;
    let mut own = vec![1.0_f32; lengths.iter().sum()];
    let quorum = Quorum::new(workers, PATIENCE);
    let mut outer = QuorumOptimizer::new(strategy, settings(args), quorum, &lengths, &own)?;
    own.copy_from_slice(outer.agreed());
    let (mut made, mut told) = (0, 0);
    while outer.steps() < args.steps {
        let (rank, workers) = (outer.rank(), outer.workers());
        let pause = match rank.number() + 1 == workers {
            true => SLOWER * args.pause(),
            false => args.pause(),
        };
        let step = outer.steps() + 1;
        Death::comes(death, step, Where::Inner);
        // As if it were alone: all have one goal, so that who is late changes nothing to learn.
        inner_step(&mut own, Rank::CHIEF, 1, pause);
        Death::comes(death, step, Where::Exchange);
        outer.step(&mut own)?;
        Death::comes(death, step, Where::Behind);
        made += 1;
        if outer.outer_steps() > told {
            told = outer.outer_steps();
            say!("step {} of {workers} workers", outer.steps());
        }
    }
    outer.finish(&mut own)?;
    let far = own.iter().map(|one| (one - 3.0).abs()).fold(0.0, f32::max);
    let (hash, exchanges) = (Fingerprint::of(&own).value(), outer.outer_steps());
    say!("trained {exchanges} exchanges, hash {hash:016x}, far {far:.4}");
    say!("made {made} steps, late for {} exchanges", outer.missed());
    outer.into_strategy().leave()
}
