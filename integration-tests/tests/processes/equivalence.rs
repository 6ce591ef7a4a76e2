//! One, two and four workers are one and the same training.

use crate::worker::{Job, Worker, mlp};

/// One step as a worker printed it.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    loss: f64,
    hash: String,
}

fn steps(lines: &[String]) -> Vec<Step> {
    let step = |line: &String| {
        let mut words = line.strip_prefix("step ")?.split(' ').skip(2);
        let loss = words.next()?.parse().ok()?;
        Some(Step {
            loss,
            hash: words.nth(1)?.to_owned(),
        })
    };
    lines.iter().filter_map(step).collect()
}

/// The steps of every worker of a job that must succeed, and make so many of them.
#[track_caller]
fn train(workers: usize, args: &[&str], count: usize) -> Vec<Vec<Step>> {
    let job = Job::new(workers);
    let started = job.start_all(args);
    let ended: Vec<_> = started.into_iter().map(Worker::end).collect();
    for end in &ended {
        assert!(end.status.success(), "{end:?}");
    }
    let all: Vec<_> = ended.iter().map(|end| steps(&end.lines)).collect();
    let counts: Vec<_> = all.iter().map(Vec::len).collect();
    assert_eq!(counts, vec![count; workers]);
    all
}

/// How far two losses may be apart, of their size: sums of another order differ in their last bits,
/// which was at most 3e-6 where it was measured.
const APART: f64 = 1e-4;

#[track_caller]
fn same_curve(one: &[Step], other: &[Step]) {
    assert_eq!(one.len(), other.len());
    let apart = |(a, b): (&Step, &Step)| (a.loss - b.loss).abs() / a.loss;
    let apart: Vec<f64> = one.iter().zip(other).map(apart).collect();
    // As no comparison with a loss that is no number holds.
    let same = apart.iter().all(|apart| *apart <= APART);
    assert!(same, "{apart:?}");
}

#[test]
fn one_two_and_four_workers_have_one_loss_curve_and_equal_parameters_in_every_step() {
    let args = ["--samples=2048", "--epochs=2"];
    let alone = train(1, &args, 64).remove(0);
    assert!(
        alone[63].loss < 0.5 * alone[0].loss,
        "it does not learn: {alone:?}"
    );
    for workers in [2, 4] {
        let all = train(workers, &args, 64);
        for worker in &all {
            assert_eq!(worker, &all[0], "workers differ");
        }
        same_curve(&alone, &all[0]);
    }
}

#[test]
fn batches_that_do_not_divide_evenly_give_the_same_curve_too() {
    // 3 workers, batches of 10 and a last one of 1: parts of 4, 3, 3 and of 1, 0, 0 samples.
    let args = ["--samples=301", "--global-batch=10", "--epochs=1"];
    let alone = train(1, &args, 31).remove(0);
    let three = train(3, &args, 31);
    same_curve(&alone, &three[0]);
}

#[test]
fn the_same_run_again_is_the_same_to_the_last_bit() {
    let args = ["--samples=512", "--epochs=1"];
    assert_eq!(train(3, &args, 8), train(3, &args, 8));
}

#[test]
fn a_process_without_a_cluster_trains_alone_and_needs_no_secret() {
    let ended = Worker::start(mlp(&["--samples=128", "--epochs=1"])).end();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(steps(&ended.lines).len(), 2);
}

#[test]
fn the_only_worker_of_a_cluster_needs_no_secret_either() {
    let mut command = mlp(&["--samples=128", "--epochs=1"]);
    command.env(
        "TF_CONFIG",
        r#"{"cluster":{"worker":["127.0.0.1:9"]},"task":{"type":"worker","index":0}}"#,
    );
    let ended = Worker::start(command).end();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn the_launcher_starts_workers_that_find_each_other() {
    let ended = Worker::start(mlp(&["--launch=3", "--samples=128", "--epochs=1"])).end();
    assert!(ended.status.success(), "{ended:?}");
    for rank in 0..3 {
        let joined = format!("[{rank}] joined as rank {rank} of 3");
        assert!(ended.lines.contains(&joined), "{ended:?}");
    }
}
