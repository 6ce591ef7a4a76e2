//! Wrong cluster descriptions, missing peers and different models: one line each, and no panic.

use std::net::UdpSocket;
use std::process::Command;

use meshwork_collectives::{DataTransport, GroupConfig, JobSecret, Network, Timeouts};
use rustix::process::{Pid, Signal, kill_process};

use crate::worker::{Job, Worker, mlp, tf_config};

/// The worker with this `TF_CONFIG`, and a secret.
fn configured(tf_config: &str) -> Command {
    let mut command = mlp(&[]);
    command
        .env("TF_CONFIG", tf_config)
        .env(JobSecret::ENV, "5a".repeat(32));
    command
}

#[track_caller]
fn refuses(tf_config: &str, parts: &[&str]) {
    Worker::start(configured(tf_config))
        .end()
        .failed_naming(parts);
}

#[test]
fn a_malformed_tf_config_is_named_with_the_place_and_the_value() {
    refuses("", &["TF_CONFIG"]);
    refuses(
        r#"{"cluster": {"worker": ["a:1", }"#,
        &["TF_CONFIG", "line 1"],
    );
    refuses(
        r#"{"cluster": {"worker": "127.0.0.1:4000"}}"#,
        &["cluster.worker"],
    );
    refuses(
        r#"{"cluster": {"worker": ["127.0.0.1:4000"]}, "task": {"type": "worker", "index": "one"}}"#,
        &["task.index", "one"],
    );
    refuses(r#"{"cluster": {"worker": ["127.0.0.1:4000"]}}"#, &["task"]);
}

#[test]
fn a_setting_of_the_network_that_there_is_not_is_named_with_those_that_there_are() {
    let addresses = ["127.0.0.1:4000".to_owned(), "127.0.0.1:4001".to_owned()];
    for [variable, value, remedy] in [
        [DataTransport::ENV, "tcp", "quic or tls"],
        [Network::BUDGET_ENV, "few", "such as 40"],
    ] {
        let mut worker = configured(&tf_config(&addresses, 0));
        worker.env(variable, value);
        let named = [variable, value, remedy];
        Worker::start(worker).end().failed_naming(&named);
    }
}

#[test]
fn an_index_outside_the_cluster_is_named_with_the_clusters_size() {
    let addresses = ["127.0.0.1:4000".to_owned(), "127.0.0.1:4001".to_owned()];
    refuses(
        &tf_config(&addresses, 7),
        &["worker:7", "2 workers (0..=1)"],
    );
}

#[test]
fn a_duplicate_address_is_named_with_both_tasks() {
    let addresses = ["127.0.0.1:4000".to_owned(), "127.0.0.1:4000".to_owned()];
    refuses(
        &tf_config(&addresses, 0),
        &["worker:0", "worker:1", "127.0.0.1:4000"],
    );
}

#[test]
fn an_address_without_a_port_is_named_with_its_task() {
    let addresses = ["127.0.0.1".to_owned(), "127.0.0.1:4001".to_owned()];
    refuses(&tf_config(&addresses, 0), &["worker:0", "\"127.0.0.1\""]);
}

#[test]
fn a_taken_port_is_named() {
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut job = Job::new(2);
    job.addresses[0] = holder.local_addr().unwrap().to_string();
    let expected = format!(
        "rank 0 cannot listen on {}: the port is taken",
        job.addresses[0]
    );
    job.start(0, &[]).end().failed_naming(&[&expected]);
}

/// The first job stands still while the second tries, so that it has to go on afterwards.
#[test]
fn a_second_job_on_the_same_ports_ends_with_one_line_each_and_the_first_goes_on() {
    for transport in ["auto", "tls"] {
        let first = Job::new(2).over(transport);
        let mut second = Job::new(2).over(transport);
        second.addresses.clone_from(&first.addresses);
        let start = |rank| {
            let mut command = first.command(rank, &["--epochs=40"]);
            command.env(Timeouts::SILENCE_ENV, "50");
            Worker::start_merged(command)
        };
        let mut workers = [0, 1].map(start);
        for worker in &mut workers {
            worker.reaches("step 3 ");
        }
        let process = Pid::from_raw(i32::try_from(workers[1].id()).unwrap()).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        for (rank, worker) in second.start_all(&[]).into_iter().enumerate() {
            let named = format!("rank {rank} cannot listen on {}", second.addresses[rank]);
            worker.end().failed_naming(&[&named, "the port is taken"]);
        }
        kill_process(process, Signal::CONT).unwrap();
        for worker in workers {
            let ended = worker.end();
            assert!(ended.status.success(), "{ended:?}");
            let trained = ended.lines.iter().any(|line| line == "trained");
            let lost = ended.lines.iter().any(|line| line.contains("lost:"));
            assert!(trained && !lost, "{ended:?}");
        }
    }
}

#[test]
fn a_peer_that_never_appears_is_named_at_the_deadline() {
    let job = Job::new(3);
    let mut command = job.command(1, &[]);
    command.env("MESHWORK_JOIN_TIMEOUT", "0.3");
    let ended = Worker::start(command).end();
    let named = format!(
        "rank 0 ({}), rank 2 ({}) did not join within",
        job.addresses[0], job.addresses[2]
    );
    ended.failed_naming(&[&named]);
}

#[test]
fn a_peer_whose_name_has_no_address_is_told_from_one_that_is_late() {
    let mut job = Job::new(2);
    // Too long for a name, so that no service is asked.
    job.addresses[0] = format!("{}:4000", "a".repeat(64));
    let mut command = job.command(1, &[]);
    command.env("MESHWORK_JOIN_TIMEOUT", "0.3");
    let ended = Worker::start(command).end();
    assert!(!ended.status.success(), "{ended:?}");
    for part in ["has no address", "correct the list", "did not join"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
}

#[test]
fn a_time_out_that_is_no_time_is_named() {
    let job = Job::new(2);
    let mut command = job.command(1, &[]);
    command.env("MESHWORK_JOIN_TIMEOUT", "soon");
    Worker::start(command)
        .end()
        .failed_naming(&["MESHWORK_JOIN_TIMEOUT is \"soon\""]);
}

#[test]
fn a_missing_or_malformed_secret_is_explained_and_not_shown() {
    let job = Job::new(2);
    let mut without = job.command(0, &[]);
    without.env_remove(JobSecret::ENV);
    Worker::start(without)
        .end()
        .failed_naming(&["no job secret", "meshwork secret"]);
    let mut malformed = job.command(0, &[]);
    malformed.env(JobSecret::ENV, "hunter2hunter2");
    let ended = Worker::start(malformed).end();
    ended.failed_naming(&["14 characters", "64 digits"]);
    assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
}

#[test]
fn a_worker_with_a_secret_and_no_cluster_trains_and_says_that_it_is_alone() {
    let mut without = Job::new(2).command(0, &[]);
    without.env_remove("TF_CONFIG");
    let ended = Worker::start(without).end();
    assert!(ended.status.success(), "{ended:?}");
    let parts = ["trains alone", JobSecret::ENV, "TF_CONFIG"];
    assert!(
        parts.iter().all(|part| ended.stderr.contains(part)),
        "{ended:?}"
    );
    let on_purpose = Worker::start(mlp(&[])).end();
    assert_eq!(on_purpose.stderr, "", "{on_purpose:?}");
}

#[test]
fn a_secret_file_that_cannot_be_read_is_named() {
    let job = Job::new(2);
    let mut command = job.command(0, &[]);
    command
        .env_remove(JobSecret::ENV)
        .env(JobSecret::FILE_ENV, "no/such/secret");
    Worker::start(command).end().failed_naming(&[
        "job secret file no/such/secret cannot be read",
        "'meshwork secret'",
    ]);
}

#[test]
fn a_launcher_that_is_no_process_id_is_named() {
    let job = Job::new(2);
    let mut command = job.command(0, &[]);
    command.env(GroupConfig::LAUNCHER_ENV, "me");
    Worker::start(command)
        .end()
        .failed_naming(&["MESHWORK_LAUNCHER_PID is \"me\""]);
}

#[test]
fn a_global_batch_smaller_than_the_workers_is_refused_on_all_of_them() {
    let job = Job::new(3);
    for worker in job.start_all(&["--global-batch=2"]) {
        worker
            .end()
            .failed_naming(&["2 samples cannot be split among 3 workers"]);
    }
}

#[test]
fn workers_with_different_parameter_shapes_all_name_the_parameter_and_both_shapes() {
    let job = Job::new(3);
    for worker in job.start_all(&["--hidden-on=2:33"]) {
        worker
            .end()
            .failed_naming(&["layer1.weight", "[16, 33] on rank 2", "[16, 32] on rank 0"]);
    }
}

#[test]
fn clusters_of_different_size_refuse_each_other() {
    let job = Job::new(3);
    let mut narrow = job.command(1, &[]);
    narrow.env("TF_CONFIG", tf_config(&job.addresses[..2], 1));
    let mut wide = job.command(0, &[]);
    wide.env("MESHWORK_JOIN_TIMEOUT", "2");
    let [wide, narrow] = [wide, narrow].map(Worker::start);
    narrow
        .end()
        .failed_naming(&["refused rank 1", "3 ranks", "2"]);
    wide.end()
        .failed_naming(&["rank 1", "did not join", "was refused"]);
}
