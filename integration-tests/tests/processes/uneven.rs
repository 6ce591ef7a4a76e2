//! Workers whose data or gradients are not as they should be: right results, or an error that names
//! what is wrong, on all of them.

use std::process::Command;

use meshwork_collectives::{JobSecret, Transport};

use crate::worker::{Ended, Worker, free_addresses, tf_config};

/// Three workers, each to its end.
fn each(case: &str, transport: &str) -> Vec<Ended> {
    let (addresses, secret) = (free_addresses(3), JobSecret::generate().unwrap());
    let start = |index| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feeder"));
        command
            .arg(format!("--case={case}"))
            .env("TF_CONFIG", tf_config(&addresses, index))
            .env(Transport::ENV, transport)
            .env(JobSecret::ENV, secret.to_hex().as_str());
        Worker::start(command)
    };
    let workers: Vec<_> = (0..addresses.len()).map(start).collect();
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
