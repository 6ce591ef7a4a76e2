//! Recorded cases by four processes with two devices each, beside one process with eight.
//!
//! The test starts its own program four times, and each of them runs every case as one client: what
//! its two devices hold has to be what ranks hold that are told nothing of processes.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use meshwork_collectives::{JobSecret, Timeouts};
use meshwork_core::{CreateMesh, Mesh};
use meshwork_dtensor::{CLIENT_ID, Context, DeviceCounts, Environment, Initialize, JOBS, System};
use meshwork_testing::free_addresses;
use serde_json::Value;

use crate::harness::{Vectors, Verdict, cases, failures, id, judge_alone};
use crate::not_askable::OTHER_MESH;
use crate::report::Tally;
use crate::{dtensor, ops, reshard};

/// How many processes, and how many devices each has.
const CLIENTS: usize = 4;
const DEVICES: NonZeroU32 = NonZeroU32::new(2).expect("two is not zero");
const DEVICES_OF_ALL: u64 = 8;
/// What the cases that the project carries come to for each of them.
const OF_OWN: &str = "1326 passed, 0 failed, 8 deviations, 23 not askable";
/// What a client says before the tally of its cases.
const ALL: &str = "of all cases: ";
/// Names the folder where all processes find their checkpoints.
const FOLDER: &str = "MESHWORK_TEST_FOLDER";

#[test]
fn four_processes_with_two_devices_each_hold_what_one_with_eight_does() {
    if std::env::var_os(CLIENT_ID).is_some() {
        return be_a_client();
    }
    let jobs = free_addresses(CLIENTS);
    let folder = tempfile::tempdir().expect("a folder");
    let name = "processes::four_processes_with_two_devices_each_hold_what_one_with_eight_does";
    let ended = run_clients(
        name,
        [&jobs; CLIENTS].map(|jobs| jobs.join(",")),
        |command| command.env(FOLDER, folder.path()),
    );
    let mut all: Vec<String> = Vec::new();
    for (client, ended) in ended.iter().enumerate() {
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "client {client}: {told}");
        let told = String::from_utf8_lossy(&ended.stdout);
        // The name of the test stands before it, in the same line.
        let tally = told.lines().find_map(|line| line.split_once(ALL));
        let (_, tally) = tally.unwrap_or_else(|| panic!("client {client}: {told}"));
        all.push(tally.to_owned());
    }
    let expected: &str = match Vectors::of_environment() {
        Vectors::Own(_) => OF_OWN,
        Vectors::Given(_) => &all[0],
    };
    assert_eq!(all, [expected; CLIENTS]);
}

#[test]
fn processes_with_different_lists_of_jobs_are_all_told_so() {
    if std::env::var_os(CLIENT_ID).is_some() {
        return be_refused();
    }
    let jobs = free_addresses(CLIENTS);
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
    let mut judged = Vec::new();
    let mut add = |file: &str, judge: &dyn Fn(&Value) -> Verdict| {
        let all = cases(file).into_iter();
        judged.extend(all.map(|case| (id(&case), judge_alone(&case, judge))));
    };
    for topic in ops::TOPICS {
        add(topic.file, &|case| {
            on_mesh(&context, case, ops::among_clients)
        });
    }
    add("mesh/relayout.jsonl", &|case| {
        on_mesh(&context, case, reshard::relayout_among_clients)
    });
    for (file, judge) in dtensor::AMONG_CLIENTS {
        add(file, &|case| with_folder(&context, case, *judge));
    }
    let failed = failures(&judged);
    assert!(failed.is_empty(), "{} cases: {failed:#?}", failed.len());
    system.shutdown().expect("all clients together");
    let tally = Tally::of(judged.iter().map(|(_, verdict)| verdict));
    println!("{ALL}{tally}");
}

/// Judges a case on a mesh of all devices; meshes of fewer are for one process.
fn on_mesh(
    context: &Context,
    case: &Value,
    judge: fn(&Value, &Context, &Mesh) -> Verdict,
) -> Verdict {
    let dims = case["input"]["mesh"].as_array().expect("mesh dimensions");
    let size = |dim: &Value| usize::try_from(dim[1].as_u64()?).ok();
    let dims = dims.iter().map(|dim| Some((dim[0].as_str()?, size(dim)?)));
    let dims: Vec<_> = dims.collect::<Option<_>>().expect("recorded dimensions");
    let devices: usize = dims.iter().map(|(_, size)| size).product();
    if devices as u64 != DEVICES_OF_ALL {
        return Verdict::NotAskable(OTHER_MESH);
    }
    match context.create_distributed_mesh(CreateMesh::new().dims(dims)) {
        Ok(mesh) => judge(case, context, &mesh),
        Err(error) => Verdict::Failed(error.to_string()),
    }
}

/// Judges a case that says itself which mesh it needs, with a folder of its own for checkpoints.
fn with_folder(context: &Context, case: &Value, judge: dtensor::AmongClients) -> Verdict {
    let dims = case["input"]["mesh"].as_array();
    let sizes = dims.map(|dims| dims.iter().filter_map(|dim| dim[1].as_u64()));
    if sizes.is_some_and(|sizes| sizes.product::<u64>() != DEVICES_OF_ALL) {
        return Verdict::NotAskable(OTHER_MESH);
    }
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder for all"));
    let folder = folder.join(case["case"].as_str().unwrap_or_default());
    std::fs::create_dir_all(&folder).expect("a folder for one case");
    judge(case, context, &folder)
}
