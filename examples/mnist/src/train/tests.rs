//! A run that is asked to end.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;

use super::*;
use crate::args::Args;
use crate::error::one_line;

/// Makes a step that is told to be the last, with such a folder for checkpoints.
fn asked_to_end(folder: &Path, made: impl FnOnce(&mut MultiWorkerMirroredStrategy, &mut Run<'_>)) {
    let args = Args::parse_from(["mnist", "--model", "mlp", "--global-batch", "16"]);
    let keep = Keep::of(folder, Arc::new(AtomicBool::new(true)));
    let settings = Settings::new(&args).unwrap();
    let images = Images::load(&args.data).unwrap();
    let mut reporter = Reporter::new(settings.epoch_steps(images.train_len()), 3, None);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let run = Run::new(settings, &images, &mut strategy, Some(&keep), &mut reporter);
    made(&mut strategy, &mut run.unwrap());
}

/// Where the step is not saved with which a run was asked to end, its worker knows all the same: it
/// makes the calls of others who have made as many steps.
#[test]
fn a_worker_that_is_asked_to_end_knows_it_before_it_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    // No save can follow that one.
    let last = format!("checkpoint.g{}-{:016x}.step-1.safetensors", u64::MAX, 0);
    fs::write(folder.path().join(last), []).unwrap();
    asked_to_end(folder.path(), |strategy, run| {
        let error = one_line(&strategy.train(run).unwrap_err());
        assert!(error.contains("no generation can follow"), "{error}");
        assert_eq!((run.steps(), run.ending), (1, Ending::Asked));
    });
}

/// Between two steps newcomers are waited for, longer than there may be time.
#[test]
fn a_run_that_is_asked_to_end_is_saved_at_once() {
    let folder = tempfile::tempdir().unwrap();
    asked_to_end(folder.path(), |strategy, run| {
        assert!(matches!(run.step(strategy), Ok(Progress::Done)));
        let restored = run.keep.unwrap().checkpoints().load().unwrap();
        assert_eq!(restored.snapshot().map(Snapshot::step), Some(1));
    });
}
