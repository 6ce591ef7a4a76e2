//! Workers whose data or gradients are not as they should be: right results, or an error that names
//! what is wrong, on all of them.

use crate::worker::{Ended, Job, Worker, outside_jobs};

/// Three workers, each to its end.
fn each(case: &str, transport: &'static str) -> Vec<Ended> {
    let job = Job::new(3).over(transport);
    let start = |index| {
        let mut command = outside_jobs(env!("CARGO_BIN_EXE_feeder"));
        job.configure(&mut command, index)
            .arg(format!("--case={case}"));
        Worker::start(command)
    };
    let workers: Vec<_> = (0..3).map(start).collect();
    workers.into_iter().map(Worker::end).collect()
}

#[test]
fn workers_with_other_numbers_of_batches_and_none_make_the_same_steps_with_right_means() {
    // Rank 0 has 5 batches of 4 samples, rank 1 has 2 of 3, rank 2 has none.
    let expected: Vec<String> = (0..5)
        .map(|step| {
            let (first, second) = (step as f64, (10 + step) as f64);
            let (rows, mean) = match step {
                0 | 1 => (7, (4.0 * first + 3.0 * second) / 7.0),
                _ => (4, first),
            };
            format!(
                "step {}: {rows} rows, mean {mean:.6}, weights 1.000000",
                step + 1
            )
        })
        .chain(["5 steps".to_owned()])
        .collect();
    for transport in ["auto", "quic"] {
        for ended in each("uneven", transport) {
            assert!(ended.status.success(), "{ended:?}");
            assert_eq!(ended.lines, expected);
        }
    }
}

#[test]
fn a_gradient_that_is_no_number_is_none_on_all_workers_with_equal_bits() {
    for transport in ["auto", "quic"] {
        let all = each("nan", transport);
        for ended in &all {
            assert!(ended.status.success(), "{ended:?}");
            assert_eq!(ended.lines, all[0].lines);
            let values: Vec<_> = ended
                .lines
                .iter()
                .filter_map(|line| line.split(' ').nth(2))
                .collect();
            assert_eq!(values, ["-1", "NaN", "NaN"]);
        }
    }
}

#[test]
fn a_worker_that_finishes_early_is_named_to_all_with_both_calls() {
    for transport in ["auto", "quic"] {
        for ended in each("early", transport) {
            ended.failed_naming(&["rank 1", "leave", "all_reduce", "make the same calls"]);
        }
    }
}
