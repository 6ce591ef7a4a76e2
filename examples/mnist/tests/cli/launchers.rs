//! The losses are the same whoever starts the workers.

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use meshwork_launcher::{HostList, Launch, Outcome};
use meshwork_strategy::JobSecret;
use meshwork_testing::{Need, Slurm, Ssh, child, installed, passed, this_test, two_hosts};
use rustix::process::{Pid, Signal, kill_process};

use crate::{data_folder, logged, losses, losses_and_accuracy};

const MNIST: &str = env!("CARGO_BIN_EXE_mnist");

/// What two workers of other launchers are to do like two of the program's own, which it starts as
/// `meshwork run` does.
const ARGS: [&str; 8] = [
    "--epochs",
    "2",
    "--global-batch",
    "16",
    "--data",
    ".",
    "--json",
    "other.json",
];

#[test]
fn workers_of_mpirun_have_the_same_losses() {
    if let Some(mpirun) = Need::Mpirun.or_skip(installed("mpirun")) {
        let mut command = Command::new(mpirun);
        command
            .args(["--oversubscribe", "-np", "2", MNIST])
            .args(ARGS);
        assert_same_losses(&mut command);
    }
}

#[test]
fn workers_of_mpiexec_have_the_same_losses() {
    if let Some(mpiexec) = Need::Mpich.or_skip(installed("mpiexec.hydra")) {
        let free = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("an address").port().to_string();
        let mut command = Command::new(mpiexec);
        command.args(["-genv", "MASTER_PORT", &port, "-np", "2", MNIST]);
        command.args(ARGS);
        assert_same_losses(&mut command);
    }
}

#[test]
fn workers_of_torchrun_have_the_same_losses() {
    if let Some(torchrun) = Need::Torchrun.or_skip(installed("torchrun")) {
        let mut command = Command::new(torchrun);
        command.args(["--standalone", "--nproc-per-node=2", "--no-python", MNIST]);
        command.args(ARGS);
        assert_same_losses(&mut command);
    }
}

/// With the variables of torchrun, each worker in a network of its own.
#[test]
fn workers_of_two_hosts_have_the_same_losses() {
    if let Some(mut command) = two_hosts() {
        command.arg(MNIST).args(ARGS).envs([
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "1"),
            ("MASTER_ADDR", "10.7.0.1"),
            ("MASTER_PORT", "29500"),
        ]);
        assert_same_losses(&mut command);
    }
}

/// As `meshwork run --hosts` starts them.
#[test]
fn workers_over_ssh_have_the_same_losses() {
    const CONFIGURATION: &str = "MESHWORK_TEST_SSH";
    if let Some(file) = env::var_os(CONFIGURATION) {
        let hosts: HostList = "127.0.0.1,127.0.0.2".parse().expect("two hosts");
        let launch = Launch::new(MNIST).args(ARGS).workers(2).expect("two");
        let ended = launch.hosts(hosts).ssh_config(file).run();
        return assert_eq!(ended.expect("ssh"), Outcome::Succeeded);
    }
    if let Some(ssh) = Ssh::or_skip() {
        let mut command = child(&this_test());
        command.env(CONFIGURATION, ssh.configuration());
        assert_same_losses(&mut command);
    }
}

/// By ports that Slurm's tasks share with nobody, and names of nodes that lead to this machine;
/// they are only looked up where there is an address besides loopback.
#[test]
fn tasks_of_srun_have_the_same_losses() {
    const INSIDE: &str = "MESHWORK_TEST_NETWORK";
    const WITHIN: &str = r#"
        printf '127.0.0.1 localhost n1 %s\n127.0.0.2 n2\n' "$(hostname -s)" >hosts
        ip link set lo up; ip link add near type veth peer name far
        ip addr add 10.7.0.1/24 dev near; ip link set near up
        mount --bind hosts /etc/hosts; exec "$@""#;
    if env::var_os(INSIDE).is_some() {
        let Some(slurm) = Slurm::or_skip() else {
            return;
        };
        let mut command = slurm.command("srun");
        command.args(["--mpi=pmi2", "-N2", "-n2", MNIST]).args(ARGS);
        return assert_same_losses(&mut command);
    }
    let folder = tempfile::tempdir().expect("a new folder");
    let within = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-euc", WITHIN, "sh"]);
        command.args(words).current_dir(folder.path());
        command
    };
    let works = within(&["true"]).output();
    let works = works.is_ok_and(|tried| tried.status.success());
    let works = works.then_some(()).ok_or("unshare makes no namespaces");
    if Need::Namespaces.or_skip(works).is_none() {
        return;
    }
    let program = env::current_exe().expect("a test runs from a file");
    let mut command = within(&[&*program.to_string_lossy(), "--exact", &this_test()]);
    // What is missing is said there.
    let ended = command.env(INSIDE, "").stderr(Stdio::inherit()).output();
    drop(passed(&ended.expect("it has been tried")));
}

#[test]
fn workers_in_a_placement_group_of_ray_have_the_same_losses() {
    let python = env::var_os("MESHWORK_PYTHON").unwrap_or_else(|| "python3".into());
    let found = Command::new(&python).args(["-c", "import ray"]).output();
    let found = found.is_ok_and(|found| found.status.success());
    let missing = format!("{} has no module ray", python.display());
    if Need::Ray
        .or_skip(found.then_some(()).ok_or(missing))
        .is_some()
    {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/book/src/files/ray_job.py"
        );
        let mut command = Command::new(python);
        command.args([script, "--workers", "2", "--secret-file", SECRET]);
        command.args(["--", MNIST]).args(ARGS);
        assert_same_losses(command.env("RAY_USAGE_STATS_ENABLED", "0"));
    }
}

/// Where a launcher that wants a file finds the job's secret.
const SECRET: &str = "secret";

/// This launcher of two workers is started where the data are.
#[track_caller]
fn assert_same_losses(launcher: &mut Command) {
    let folder = data_folder();
    let own = losses_and_accuracy(folder.path(), &["--epochs", "2", "--workers", "2"]);
    in_job(launcher, folder.path());
    let output = launcher.output().expect("it is installed");
    assert!(output.status.success(), "{output:?}");
    let (steps, last) = logged(&folder.path().join("other.json"));
    assert_eq!(last["workers"], 2);
    assert_eq!((losses(&steps), last["test_accuracy"].clone()), own);
}

/// torchrun ends all workers when one has failed, and starts all of them again.
#[test]
fn workers_that_torchrun_starts_again_go_on_from_their_checkpoint() {
    // torchrun makes one dollar sign of two.
    const RUN: &str = r#"echo $$$$ >process-$RANK-$TORCHELASTIC_RESTART_COUNT
        exec "$0" --epochs 60 --lr 0.01 --global-batch 16 --data . --checkpoint saved \
            --json attempt-$TORCHELASTIC_RESTART_COUNT.json"#;
    let Some(torchrun) = Need::Torchrun.or_skip(installed("torchrun")) else {
        return;
    };
    let folder = data_folder();
    let args = ["--epochs", "60", "--lr", "0.01", "--workers", "2"];
    let (own, _) = losses_and_accuracy(folder.path(), &args);
    let mut command = Command::new(torchrun);
    in_job(&mut command, folder.path());
    command.args(["--standalone", "--nproc-per-node=2", "--max-restarts=1"]);
    command.args(["--no-python", "sh", "-c", RUN, MNIST]);
    let mut job = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("it is installed");
    let mut said = BufReader::new(job.stderr.take().expect("a pipe")).lines();
    let underway = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("step 25/")));
    assert!(underway.is_some(), "no step 25");
    let victim = fs::read_to_string(folder.path().join("process-1-0")).expect("a process");
    let victim = Pid::from_raw(victim.trim().parse().expect("a number"));
    kill_process(victim.expect("not 0"), Signal::KILL).expect("it is ours");
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert!(job.wait().expect("it ends").success(), "{rest:?}");
    let (steps, last) = logged(&folder.path().join("attempt-1.json"));
    assert_eq!(last["workers"], 2);
    let first = steps[0]["step"].as_u64().expect("a number");
    assert!(first > 1, "the second attempt begins anew: {rest:?}");
    let behind = usize::try_from(first - 1).expect("a step");
    assert_eq!(losses(&steps), own[behind..]);
}

/// A launcher whose workers have a job secret and no list.
fn in_job(launcher: &mut Command, folder: &Path) {
    let secret = JobSecret::generate().expect("random bytes");
    let file = folder.join(SECRET);
    let mut options = fs::OpenOptions::new();
    let file = options.create_new(true).write(true).mode(0o600).open(file);
    let written = file.and_then(|mut file| file.write_all(secret.to_hex().as_bytes()));
    written.expect("a new file");
    launcher
        .current_dir(folder)
        .env(JobSecret::ENV, secret.to_hex().as_str())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env_remove("TF_CONFIG");
}
