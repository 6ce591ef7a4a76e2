//! Buffers of accelerators in groups: the same bits as on host memory, between threads, processes
//! of one host and links.

use std::process::Command;

use meshwork_collectives::{JobSecret, Transport};

use crate::worker::{Ended, Job, Worker, outside_jobs};

fn buffers(args: &[&str]) -> Command {
    let mut command = outside_jobs(env!("CARGO_BIN_EXE_buffers"));
    command.args(args).env_remove(Transport::ENV);
    command
}

#[track_caller]
fn all_the_same(ended: &Ended, ranks: usize) {
    assert!(ended.status.success(), "{ended:?}");
    let [line] = ended.lines.as_slice() else {
        panic!("one line, not {ended:?}");
    };
    let compared: usize = line.split(' ').next().unwrap().parse().unwrap();
    // 8 integer types with 8 ops, 4 floats with 5 and bool with 5: 89 pairs. Each is reduced,
    // reduced to a root and reduced and scattered, of which both sides are looked at, in 5 lengths.
    assert_eq!(compared, ranks * 5 * (89 * 4 + 13 * 2), "{line}");
}

#[test]
fn threads_have_the_same_bits_by_a_device_as_by_host_memory() {
    for world in [1, 2, 3, 4] {
        let ended = Worker::start(buffers(&["--threads", &world.to_string()])).end();
        all_the_same(&ended, world);
    }
}

#[test]
fn processes_have_the_same_bits_by_a_device_as_by_host_memory() {
    for (workers, transport) in [(2, "auto"), (3, "auto"), (2, "quic"), (3, "quic")] {
        let job = Job::new(workers);
        let members = job.addresses.join(",");
        let start = |rank: usize| {
            let mut command = buffers(&["--members", &members, "--rank", &rank.to_string()]);
            command
                .env(Transport::ENV, transport)
                .env(JobSecret::ENV, job.secret.to_hex().as_str());
            Worker::start(command)
        };
        let started: Vec<Worker> = (0..workers).map(start).collect();
        for worker in started {
            all_the_same(&worker.end(), 1);
        }
    }
}
