//! Recorded cases by four processes with two devices each, beside one process with eight.
//!
//! The test starts its own program four times, and each of them runs every case as one client: what its
//! two devices hold has to be what ranks hold that are told nothing of processes.

use std::net::UdpSocket;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use meshwork_collectives::{JobSecret, Timeouts};
use meshwork_core::{CreateMesh, Mesh};
use meshwork_dtensor::{CLIENT_ID, Context, DeviceCounts, Environment, Initialize, JOBS, System};
use serde_json::Value;

use crate::harness::{Verdict, cases};
use crate::{dtensor, ops, reshard};

/// How many processes, and how many devices each has.
const CLIENTS: usize = 4;
const DEVICES: NonZeroU32 = NonZeroU32::new(2).expect("two is not zero");
const DEVICES_OF_ALL: u64 = 8;
/// Names the folder where all processes find their checkpoints.
const FOLDER: &str = "MESHWORK_TEST_FOLDER";

#[test]
fn four_processes_with_two_devices_each_hold_what_one_with_eight_does() {
    if std::env::var_os(CLIENT_ID).is_some() {
        return be_a_client();
    }
    let jobs = free_addresses();
    let folder = tempfile::tempdir().expect("a folder");
    let name = "processes::four_processes_with_two_devices_each_hold_what_one_with_eight_does";
    let ended = run_clients(
        name,
        [&jobs; CLIENTS].map(|jobs| jobs.join(",")),
        |command| command.env(FOLDER, folder.path()),
    );
    for (client, ended) in ended.iter().enumerate() {
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "client {client}: {told}");
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(told.contains("cases agree"), "client {client}: {told}");
    }
}

#[test]
fn processes_with_different_lists_of_jobs_are_all_told_so() {
    if std::env::var_os(CLIENT_ID).is_some() {
        return be_refused();
    }
    let jobs = free_addresses();
    let lists = [jobs[..2].join(","), jobs[..3].join(",")];
    let name = "processes::processes_with_different_lists_of_jobs_are_all_told_so";
    let ended = run_clients(name, lists, |command| command.env(Timeouts::JOIN_ENV, "3"));
    for (client, ended) in ended.iter().enumerate() {
        let told = String::from_utf8_lossy(&ended.stdout);
        let ways = [["for 2 ranks", "for 3"], ["for 3 ranks", "for 2"]];
        let tells = |way: &[&str; 2]| way.iter().all(|word| told.contains(word));
        assert!(ways.iter().any(tells), "client {client}: {told}");
    }
}

/// Runs a test of this program in a process for each list of jobs.
fn run_clients(
    test: &str,
    lists: impl IntoIterator<Item = String>,
    prepared: impl Fn(&mut Command) -> &mut Command,
) -> Vec<Output> {
    let secret = JobSecret::generate().expect("a secret");
    let start = |(client, jobs): (usize, String)| -> Child {
        let program = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(program);
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(JOBS, jobs)
            .env(CLIENT_ID, client.to_string())
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = prepared(&mut command).spawn();
        started.expect("another of this program")
    };
    let started: Vec<Child> = lists.into_iter().enumerate().map(start).collect();
    let ended = started.into_iter();
    ended
        .map(|child| child.wait_with_output().expect("its output"))
        .collect()
}

/// Meets clients that were given another list, and says what comes of it.
#[expect(clippy::print_stdout, reason = "the one who started this reads it")]
fn be_refused() {
    let mut system = System::new(DeviceCounts::cpus(1));
    let refused = system.initialize(&Environment::of_process(), Initialize::new());
    println!("{}", refused.expect_err("clients that cannot meet"));
}

/// Runs every case with the other clients; all do the same in the same order.
#[expect(clippy::print_stdout, reason = "the one who started this reads it")]
fn be_a_client() {
    let mut system = System::new(DeviceCounts::cpus(1));
    let asked = Initialize::new().logical_cpu_devices(DEVICES);
    let environment = Environment::of_process();
    system
        .initialize(&environment, asked)
        .expect("the other clients");
    let context = system.initialized().expect("an initialised context");
    let mut agreed = 0;
    for topic in ops::TOPICS {
        for case in cases(topic.file) {
            agreed += judged(&context, &case, ops::among_clients);
        }
    }
    for case in cases("mesh/relayout.jsonl") {
        agreed += judged(&context, &case, reshard::relayout_among_clients);
    }
    for (file, judge) in dtensor::AMONG_CLIENTS {
        for case in cases(file) {
            agreed += judged_values(&context, &case, *judge);
        }
    }
    system.shutdown().expect("all clients together");
    println!("{agreed} cases agree");
}

/// Judges a case on a mesh of all devices; meshes of fewer are for one process.
fn judged(
    context: &Context,
    case: &Value,
    judge: fn(&Value, &Context, &Mesh) -> Result<(), String>,
) -> usize {
    let dims = case["input"]["mesh"].as_array().expect("mesh dimensions");
    let size = |dim: &Value| usize::try_from(dim[1].as_u64()?).ok();
    let dims = dims.iter().map(|dim| Some((dim[0].as_str()?, size(dim)?)));
    let dims: Vec<_> = dims.collect::<Option<_>>().expect("recorded dimensions");
    let devices: usize = dims.iter().map(|(_, size)| size).product();
    if devices as u64 != DEVICES_OF_ALL {
        return 0;
    }
    let mesh = context.create_distributed_mesh(CreateMesh::new().dims(dims));
    let mesh = mesh.unwrap_or_else(|error| panic!("{}: {error}", case["case"]));
    if let Err(how) = judge(&case["input"], context, &mesh) {
        panic!("{}: {how}", case["case"]);
    }
    1
}

/// Judges a case that says itself which mesh it needs, with a folder of its own for checkpoints.
fn judged_values(context: &Context, case: &Value, judge: dtensor::AmongClients) -> usize {
    let dims = case["input"]["mesh"].as_array();
    let sizes = dims.map(|dims| dims.iter().filter_map(|dim| dim[1].as_u64()));
    if sizes.is_some_and(|sizes| sizes.product::<u64>() != DEVICES_OF_ALL) {
        return 0;
    }
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder for all"));
    let folder = folder.join(case["case"].as_str().unwrap_or_default());
    std::fs::create_dir_all(&folder).expect("a folder for one case");
    if let Verdict::Failed(how) = judge(case, context, &folder) {
        panic!("{}: {how}", case["case"]);
    }
    1
}

/// Addresses that were free a moment ago.
fn free_addresses() -> Vec<String> {
    let bound = |_| UdpSocket::bind("127.0.0.1:0").expect("a free port");
    // All are held until there are enough, or the system would offer the same ones again.
    let held: Vec<UdpSocket> = (0..CLIENTS).map(bound).collect();
    let address = |socket: &UdpSocket| socket.local_addr().expect("its address").to_string();
    held.iter().map(address).collect()
}
