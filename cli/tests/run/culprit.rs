//! Who makes the others wait in a job that runs: named with its cause, and nobody else.

use std::env;
use std::fs;
use std::process::{Child, Command, Stdio};

use meshwork_testing::Need;
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};

use crate::harness::{look_until, meshwork};
use crate::trainer::{DEADLINE, ELEMENTS, Job};

/// What `meshwork top` and `meshwork doctor --live` name.
fn named(job: &Job, args: &[&str]) -> Value {
    let output = meshwork(args).arg(job.folder()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    found["culprit"].clone()
}

const ASKING: [&[&str]; 2] = [
    &["top", "--once", "--json"],
    &["doctor", "--live", "--json"],
];

/// Looks until somebody is named, who must be as expected.
#[track_caller]
fn assert_found(job: &Job, expected: impl Fn(&Value) -> bool) {
    for args in ASKING {
        let Ok(found) = look_until(DEADLINE, || named(job, args), |found| !found.is_null()) else {
            panic!("nobody is named by {args:?}")
        };
        assert!(expected(&found), "{found}");
    }
}

#[track_caller]
fn assert_named(job: &Job, rank: u32, cause: &str) {
    assert_found(job, |found| {
        found["rank"] == rank && found["cause"] == cause && found["peer"].is_null()
    });
}

#[test]
fn a_rank_whose_data_come_late_and_one_that_is_stopped_are_named() {
    let job = Job::start();
    let processes = job.processes();
    job.order(processes[1], "sleep");
    assert_named(&job, 1, "late");
    job.order(processes[2], "nothing");
    kill_process(processes[0], Signal::STOP).unwrap();
    assert_named(&job, 0, "stopped");
    kill_process(processes[0], Signal::CONT).unwrap();
}

/// Programs that keep a process from the only core that it may use.
struct Crowd(Vec<Child>);

impl Crowd {
    fn around(process: Pid) -> Self {
        let own = sched_getaffinity(None).unwrap();
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| own.is_set(*core));
        let mut core = CpuSet::new();
        core.set(cores.next().unwrap());
        let threads = format!("/proc/{}/task", process.as_raw_nonzero());
        for thread in fs::read_dir(threads).unwrap() {
            let thread = thread.unwrap().file_name().into_string().unwrap();
            let thread = Pid::from_raw(thread.parse().unwrap());
            // One that has ended meanwhile needs no core.
            let _ = sched_setaffinity(thread, &core);
            // On a machine that is busy anyway the scheduler moves others away from this core.
            let _ = setpriority_process(thread, LATER);
        }
        let programs = (0..CROWD).map(|_| {
            let mut shell = Command::new("sh");
            let program = shell.args(["-c", "while :; do :; done"]).spawn().unwrap();
            sched_setaffinity(Some(Pid::from_child(&program)), &core).unwrap();
            program
        });
        Self(programs.collect())
    }
}

/// Programs around a process, and how far it stands behind them: each has six times its share.
const CROWD: usize = 4;
const LATER: i32 = 8;

impl Drop for Crowd {
    fn drop(&mut self) {
        for program in &mut self.0 {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

#[test]
fn a_rank_that_other_programs_keep_from_its_core_is_named() {
    // Ranks that wait in shared memory look again and again: on a machine that is busy anyway all
    // lack a core.
    let job = Job::start_with(&[("MESHWORK_TRANSPORT", "quic")]);
    let _crowd = Crowd::around(job.processes()[1]);
    assert_named(&job, 1, "starved");
}

/// Tells this program that it is in a network of its own, in which it may do anything.
const INSIDE: &str = "MESHWORK_TEST_NETWORK";

/// A second way over the loopback interface, on which packets wait and some are lost.
const SLOW_WAY: &str = "
    ip link set lo up
    tc qdisc add dev lo root handle 1: htb default 1
    tc class add dev lo parent 1: classid 1:1 htb rate 10gbit quantum 60000
    tc class add dev lo parent 1: classid 1:2 htb rate 10gbit quantum 60000
    tc qdisc add dev lo parent 1:2 tbf rate 8mbit burst 16kb latency 20ms
    tc filter add dev lo parent 1: protocol ip u32 match ip dport 1 0xffff flowid 1:2";

fn script(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-euc", text]).stdin(Stdio::null());
    command
}

#[track_caller]
fn done(mut command: Command) {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}

/// Sends what goes from one of these ports to another the slow way; `None` is any port.
fn throttle(ports: [Option<u16>; 2]) {
    let matching = |[from, to]: [Option<u16>; 2]| {
        let port = |side, port: Option<u16>| match port {
            Some(port) => format!("match ip {side} {port} 0xffff"),
            None => String::new(),
        };
        let (from, to) = (port("sport", from), port("dport", to));
        format!("tc filter add dev lo parent 1: protocol ip u32 {from} {to} flowid 1:2")
    };
    let [one, other] = ports;
    let both = [[one, other], [other, one]].map(matching);
    done(script(&both.join("\n")));
}

#[test]
fn throttled_links_are_named() {
    if env::var_os(INSIDE).is_some() {
        return throttled_links();
    }
    let within = |command: &Command| {
        let mut within = Command::new("unshare");
        within.args(["--user", "--map-root-user", "--net"]);
        within.arg(command.get_program()).args(command.get_args());
        within
    };
    let possible = within(&script(SLOW_WAY)).output();
    let possible = possible.map_err(|error| format!("unshare does not start: {error}"));
    let possible = possible.and_then(|tried| match tried.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&tried.stderr).into_owned()),
    });
    if Need::Namespaces.or_skip(possible).is_none() {
        return;
    }
    let mut itself = Command::new(env::current_exe().unwrap());
    itself.args([
        "culprit::throttled_links_are_named",
        "--exact",
        "--nocapture",
    ]);
    let output = within(&itself).env(INSIDE, "1").output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&told)
    );
}

fn throttled_links() {
    done(script(SLOW_WAY));
    let job = Job::start_with(&[("MESHWORK_TRANSPORT", "quic"), (ELEMENTS, "16384")]);
    let ports: Vec<u16> = job
        .ranks()
        .iter()
        .map(|(_, rank)| rank.address.rsplit_once(':').unwrap().1.parse().unwrap())
        .collect();
    throttle([Some(ports[1]), None]);
    assert_named(&job, 1, "link");
    done(script("tc filter del dev lo parent 1:"));
    let look = || named(&job, ASKING[0]);
    look_until(DEADLINE, look, Value::is_null).expect("the links are no better");
    throttle([Some(ports[0]), Some(ports[2])]);
    assert_found(&job, |found| {
        let mut ends = [found["rank"].clone(), found["peer"].clone()];
        ends.sort_by_key(Value::as_u64);
        ends == [json!(0), json!(2)] && found["cause"] == "link"
    });
}
