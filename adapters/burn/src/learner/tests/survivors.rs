//! Workers that are lost in the middle of an epoch, others that go on without them, and newcomers.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Barrier;

use meshwork_strategy::{JobSecret, JoinMode};
use meshwork_testing::{child, free_addresses, in_threads, passed, tf_config};

use super::*;
use crate::testing::elastic;

/// Ten items for each of three workers, in five batches.
fn job() -> Job {
    Job {
        batch: 2,
        ..Job::new(30, 12)
    }
}

/// A worker whose data is damaged ends with an error of its own; what it had left is the others'.
fn without(victim: usize, change: impl Fn(&mut Job) + Sync) -> Vec<Ran> {
    elastic(3, |_, strategy| {
        let mut job = job();
        if strategy.rank().index() == victim {
            change(&mut job);
        }
        job.interrupter = Interrupter::new();
        job.run(strategy)
    })
}

#[track_caller]
fn assert_each_once(epoch: &[usize], all: std::ops::Range<usize>) {
    assert_eq!(sorted(epoch), all.collect::<Vec<_>>());
}

fn sorted(epoch: &[usize]) -> Vec<usize> {
    let mut epoch = epoch.to_vec();
    epoch.sort_unstable();
    epoch
}

#[test]
fn the_others_go_on_and_use_each_sample_of_the_epoch_once() {
    in_threads(
        [(1, None), (2, Some(2)), (1, Some(5))],
        |(victim, accumulation)| {
            // The fourth batch of its part, so that some of a step of two is lost with it.
            check_the_others_go_on(victim, |job| {
                job.accumulation = accumulation;
                job.train.damaged = Some(victim * 10 + 7);
            });
        },
    );
}

#[test]
fn others_read_what_is_left_in_the_order_in_which_it_was_shuffled() {
    // In the first epoch, and when each part was shuffled three times.
    in_threads([0, 2], |sound| {
        check_the_others_go_on(1, |job| {
            job.shuffle = Some(7);
            job.train.damaged = Some(14);
            job.train.sound = Arc::new(AtomicUsize::new(sound));
        });
    });
}

#[track_caller]
fn check_the_others_go_on(victim: usize, change: impl Fn(&mut Job) + Sync) {
    let ran = elastic(3, |_, strategy| {
        let mut job = job();
        change(&mut job);
        if strategy.rank().index() != victim {
            job.train.damaged = None;
        }
        job.interrupter = Interrupter::new();
        job.run(strategy)
    });
    let lost = &ran[victim].left;
    assert!(matches!(lost, Err(Error::Dataset(_))), "{ran:?}");
    let others = (0..3).filter(|worker| *worker != victim);
    for other in others.map(|worker| &ran[worker]) {
        assert!(other.error.is_none() && other.left.is_ok(), "{other:?}");
        assert_eq!(other.values, ran[0].values);
    }
    let [trained, validated] = &ran[0].seen;
    assert_eq!((trained.len(), validated.len()), (3, 3));
    for (trained, validated) in trained.iter().zip(validated) {
        assert_each_once(trained, 0..30);
        assert_each_once(validated, 100..112);
    }
    assert_eq!(ran[0].losses.len(), 3);
    assert!(ran[0].losses[2][0] < ran[0].losses[0][0], "{ran:?}");
}

#[test]
fn a_loss_in_validation_costs_no_sample_of_it() {
    let ran = without(2, |job| job.valid.damaged = Some(110));
    assert!(matches!(ran[2].left, Err(Error::Dataset(_))), "{ran:?}");
    assert!(ran[0].error.is_none() && ran[1].error.is_none(), "{ran:?}");
    assert_eq!(ran[0].values, ran[1].values);
    let [trained, validated] = &ran[0].seen;
    assert_eq!((trained.len(), validated.len()), (3, 3));
    trained
        .iter()
        .for_each(|epoch| assert_each_once(epoch, 0..30));
    validated
        .iter()
        .for_each(|epoch| assert_each_once(epoch, 100..112));
}

#[test]
fn the_next_worker_is_chief_and_tells_of_the_rest() {
    let ran = without(0, |job| job.train.damaged = Some(7));
    assert!(ran[1].error.is_none() && ran[2].error.is_none(), "{ran:?}");
    assert_eq!(ran[1].values, ran[2].values);
    let before: BTreeSet<_> = ran[0].seen[0][0].iter().collect();
    let behind: BTreeSet<_> = ran[1].seen[0][0].iter().collect();
    assert!(before.is_disjoint(&behind) && !before.is_empty(), "{ran:?}");
    assert_eq!(before.len() + behind.len(), 30);
    for epoch in &ran[1].seen[0][1..] {
        assert_each_once(epoch, 0..30);
    }
    assert_eq!(ran[1].losses.len(), 3);
    assert!(
        ran[2].losses.is_empty(),
        "only the chief asks whether to stop"
    );
}

#[test]
fn a_newcomer_takes_the_place_of_a_lost_worker() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("has begun");
    let met = Barrier::new(3);
    let ran = elastic(3, |addresses, strategy| {
        let rank = strategy.rank().index();
        let mut job = Job {
            epochs: 1_000_000,
            until: Some(note.clone()),
            interrupter: Interrupter::new(),
            ..job()
        };
        met.wait();
        if rank != 1 {
            return job.run(strategy);
        }
        let again = job.clone();
        job.train.damaged = Some(17);
        let lost = job.run(strategy);
        assert!(matches!(lost.left, Err(Error::Dataset(_))), "{lost:?}");
        let mut newcomer = Job {
            interrupter: Interrupter::new(),
            ..again
        };
        newcomer.train.note = Some(note.clone());
        newcomer.run(addresses.join(1, JoinMode::Late))
    });
    for worker in &ran {
        assert!(worker.error.is_none() && worker.left.is_ok(), "{worker:?}");
        assert_eq!(worker.values, ran[0].values);
    }
    for epoch in &ran[0].seen[0] {
        assert_each_once(epoch, 0..30);
    }
}

/// One process of a job; in a run of the tests themselves there is nothing to do.
#[test]
fn one_process_of_a_job() {
    let Some(note) = env::var_os(NOTE) else {
        return;
    };
    let distributed = Distributed::elastic_from_env().unwrap();
    let mut job = Job {
        epochs: 1_000_000,
        until: Some(note.clone().into()),
        ..job()
    };
    if env::var_os(VICTIM).is_some() {
        job.train.fatal = Some(15);
    }
    if env::var_os("MESHWORK_RESTARTS").is_some() {
        job.train.note = Some(note.into());
    }
    let own = f32::from(u8::from(distributed.is_chief()));
    let ran = job.run_by(distributed, own);
    ran.left.unwrap();
    println!("\nvalues {:?}", ran.values);
    for epoch in &ran.seen[0] {
        println!("epoch {:?}", sorted(epoch));
    }
}

#[test]
fn processes_go_on_without_one_that_has_died_and_take_it_in_again() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("has begun");
    let (addresses, secret) = (free_addresses(3), JobSecret::generate().unwrap());
    let start = |index: usize, variables: &[&str]| -> Child {
        let mut command = child("learner::tests::survivors::one_process_of_a_job");
        command
            .arg("--nocapture")
            .env("TF_CONFIG", tf_config(&addresses, index))
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .env(NOTE, Path::new(&note))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for variable in variables {
            command.env(variable, "1");
        }
        command.spawn().unwrap()
    };
    let chief = start(0, &[]);
    let victim = start(1, &[VICTIM]);
    let other = start(2, &[]);
    assert!(!victim.wait_with_output().unwrap().status.success());
    let newcomer = start(1, &["MESHWORK_RESTARTS"]);
    let said = [chief, other, newcomer].map(|worker| passed(&worker.wait_with_output().unwrap()));
    let values = said.each_ref().map(|said| {
        let line = said.lines().find(|line| line.starts_with("values "));
        line.unwrap()
    });
    assert!(values.iter().all(|other| *other == values[0]), "{values:?}");
    let all = format!("{:?}", (0..30).collect::<Vec<_>>());
    let epochs = said[0]
        .lines()
        .filter_map(|line| line.strip_prefix("epoch "));
    let epochs: Vec<&str> = epochs.collect();
    assert!(
        !epochs.is_empty() && epochs.iter().all(|epoch| **epoch == all),
        "{epochs:?}"
    );
}

/// A file that ends the training, and whether a process is the one that dies.
const NOTE: &str = "MESHWORK_BURN_TEST_NOTE";
const VICTIM: &str = "MESHWORK_BURN_TEST_VICTIM";
