//! Recorded cases by four processes with two devices each, beside one process with eight.
//!
//! The test starts its own program four times, and each of them runs every case as one client: what its
//! two devices hold has to be what ranks hold that are told nothing of processes.

use std::net::UdpSocket;
use std::num::NonZeroU32;
use std::process::{Child, Command, Stdio};

use meshwork_collectives::JobSecret;
use meshwork_core::{CreateMesh, Mesh};
use meshwork_dtensor::{CLIENT_ID, Context, DeviceCounts, Environment, Initialize, JOBS, System};
use serde_json::Value;

use crate::harness::cases;
use crate::{ops, reshard};

/// How many processes, and how many devices each has.
const CLIENTS: usize = 4;
const DEVICES: NonZeroU32 = NonZeroU32::new(2).expect("two is not zero");

#[test]
fn four_processes_with_two_devices_each_hold_what_one_with_eight_does() {
    if std::env::var_os(CLIENT_ID).is_some() {
        return be_a_client();
    }
    let jobs = free_addresses();
    let secret = JobSecret::generate().expect("a secret");
    let start = |client: usize| -> Child {
        let program = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(program);
        command
            .args([
                "--exact",
                "processes::four_processes_with_two_devices_each_hold_what_one_with_eight_does",
            ])
            .args(["--nocapture", "--test-threads=1"])
            .env(JOBS, &jobs)
            .env(CLIENT_ID, client.to_string())
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("another of this program")
    };
    let started: Vec<Child> = (0..CLIENTS).map(start).collect();
    let ended: Vec<_> = started
        .into_iter()
        .map(|child| child.wait_with_output().expect("its output"))
        .collect();
    for (client, ended) in ended.iter().enumerate() {
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "client {client}: {told}");
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(told.contains("cases agree"), "client {client}: {told}");
    }
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
    if devices != CLIENTS * DEVICES.get() as usize {
        return 0;
    }
    let mesh = context.create_distributed_mesh(CreateMesh::new().dims(dims));
    let mesh = mesh.unwrap_or_else(|error| panic!("{}: {error}", case["case"]));
    if let Err(how) = judge(&case["input"], context, &mesh) {
        panic!("{}: {how}", case["case"]);
    }
    1
}

/// Addresses that were free a moment ago.
fn free_addresses() -> String {
    let bound = |_| UdpSocket::bind("127.0.0.1:0").expect("a free port");
    // All are held until there are enough, or the system would offer the same ones again.
    let held: Vec<UdpSocket> = (0..CLIENTS).map(bound).collect();
    let address = |socket: &UdpSocket| socket.local_addr().expect("its address").to_string();
    held.iter().map(address).collect::<Vec<_>>().join(",")
}
