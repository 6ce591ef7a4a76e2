//! A run that is asked to end.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;

use super::*;
use crate::args::Args;
use crate::error::one_line;

/// Where the step is not saved with which a run was asked to end, its worker knows all the same: it
/// makes the calls of others who have made as many steps.
#[test]
fn a_worker_that_is_asked_to_end_knows_it_before_it_is_saved() {
    let args = Args::parse_from(["mnist", "--model", "mlp", "--global-batch", "16"]);
    let folder = tempfile::tempdir().unwrap();
    // No save can follow that one.
    let last = format!("checkpoint.g{}-{:016x}.step-1.safetensors", u64::MAX, 0);
    fs::write(folder.path().join(last), []).unwrap();
    let keep = Keep::of(folder.path(), Arc::new(AtomicBool::new(true)));
    let settings = Settings::new(&args).unwrap();
    let images = Images::load(&args.data).unwrap();
    let mut reporter = Reporter::new(settings.epoch_steps(images.train_len()), 3, None);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let made = Run::new(settings, &images, &mut strategy, Some(&keep), &mut reporter);
    let mut run = made.unwrap();
    let error = one_line(&strategy.train(&mut run).unwrap_err());
    assert!(error.contains("no generation can follow"), "{error}");
    assert_eq!((run.steps(), run.ending), (1, Ending::Asked));
}
