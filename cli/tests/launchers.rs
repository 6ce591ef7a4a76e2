//! Programs that other launchers start: they find each other by what the launcher tells them.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

use std::net::UdpSocket;
use std::process::{Command, Output};

use meshwork_collectives::JobSecret;
use meshwork_testing::{Need, installed, two_hosts};

const MESHWORK: &str = env!("CARGO_BIN_EXE_meshwork");

const WORKER: [&str; 9] = [
    "bench",
    "all-reduce",
    "--worker",
    "--transport",
    "quic",
    "--bytes",
    "4K",
    "--csv",
    "--seconds=0.01",
];

#[test]
fn processes_of_mpirun_find_each_other() {
    let Some(mpirun) = Need::Mpirun.or_skip(installed("mpirun")) else {
        return;
    };
    let mut command = Command::new(mpirun);
    command.args(["--oversubscribe", "-np", "3", MESHWORK]);
    measures_with_all_three(command.args(WORKER));
}

/// Which names no job: a port does, that is nobody's now.
#[test]
fn processes_of_mpiexec_find_each_other() {
    let Some(mpiexec) = Need::Mpich.or_skip(installed("mpiexec.hydra")) else {
        return;
    };
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    let mut command = Command::new(mpiexec);
    command.args(["-genv", "MASTER_PORT", &port, "-np", "3", MESHWORK]);
    measures_with_all_three(command.args(WORKER));
}

#[test]
fn processes_of_torchrun_find_each_other() {
    let Some(torchrun) = Need::Torchrun.or_skip(installed("torchrun")) else {
        return;
    };
    let mut command = Command::new(torchrun);
    command.args([
        "--standalone",
        "--nproc-per-node=3",
        "--no-python",
        MESHWORK,
    ]);
    measures_with_all_three(command.args(WORKER));
}

#[test]
fn the_rank_of_a_process_that_mpirun_starts_is_that_of_mpirun() {
    let Some(mpirun) = Need::Mpirun.or_skip(installed("mpirun")) else {
        return;
    };
    let mut command = Command::new(mpirun);
    command.args(["--oversubscribe", "--tag-output", "-np", "2"]);
    let said = passed(command.args([MESHWORK, "resolve"]));
    assert_eq!(
        said.matches("open-mpi, because OMPI_COMM_WORLD_SIZE is set")
            .count(),
        2,
        "{said}"
    );
    for rank in 0..2 {
        let tagged = |line: &&str| line.contains(&format!(",{rank}]<stdout>"));
        let task = format!("worker:{rank}");
        assert!(
            said.lines().filter(tagged).any(|line| line.contains(&task)),
            "{said}"
        );
    }
}

#[test]
fn a_variable_that_torchrun_would_set_is_asked_for_by_its_name() {
    let variables = [
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_WORLD_SIZE", "2"),
    ];
    let mut command = Command::new(MESHWORK);
    command.args(WORKER).env_clear().envs(variables);
    let Output { status, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert!(!status.success());
    assert!(said.contains("MASTER_ADDR is not set"), "{said}");
}

/// As torchrun starts them on two hosts, which are network namespaces here.
#[test]
fn processes_of_two_hosts_meet_at_the_address_that_all_know() {
    let Some(mut command) = two_hosts() else {
        return;
    };
    command.arg(MESHWORK).args(WORKER).envs([
        ("WORLD_SIZE", "2"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "10.7.0.1"),
        ("MASTER_PORT", "29500"),
    ]);
    measures_with_both(&mut command);
}

/// A worker fails before it has met the other, which waits until torchrun has started it again.
#[test]
fn processes_that_torchrun_starts_again_on_two_hosts_meet_again() {
    const ON_EACH: &str = r#"exec "$0" --nnodes 2 --node-rank $RANK --nproc-per-node 1 \
        --master-addr 10.7.0.1 --master-port 29500 --max-restarts 3 \
        --monitor-interval 0.1 --no-python sh -c "$1" "$@""#;
    const FAILS_FIRST: &str = r#"
        [ $RANK = 0 ] || [ $TORCHELASTIC_RESTART_COUNT != 0 ] || exit 3
        exec "$@""#;
    let Some(torchrun) = Need::Torchrun.or_skip(installed("torchrun")) else {
        return;
    };
    let Some(mut command) = two_hosts() else {
        return;
    };
    command.args(["sh", "-euc", ON_EACH]).arg(torchrun);
    command.args([FAILS_FIRST, MESHWORK]).args(WORKER);
    measures_with_both(&mut command);
}

#[track_caller]
fn measures_with_both(command: &mut Command) {
    let said = passed(command);
    assert_eq!(said.matches(",allreduce,2,4096,").count(), 1, "{said}");
}

/// All ranks are there if the first one's table says so, which it prints once and for all.
#[track_caller]
fn measures_with_all_three(command: &mut Command) {
    let said = passed(command);
    let rows: Vec<_> = said
        .lines()
        .filter(|line| line.contains(",4096,"))
        .collect();
    assert!(
        matches!(rows[..], [row] if row.contains(",allreduce,3,4096,")),
        "{said}"
    );
}

/// The output of a command that has to succeed, given a job secret and no other source.
#[track_caller]
fn passed(command: &mut Command) -> String {
    let secret = JobSecret::generate().unwrap();
    let ended = command
        .env(JobSecret::ENV, secret.to_hex().as_str())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env_remove("TF_CONFIG")
        .output()
        .unwrap();
    let (said, error) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    assert!(ended.status.success(), "{said}{error}");
    said.into_owned()
}
