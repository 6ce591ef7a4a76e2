//! A real Slurm of four nodes on this machine: every task that it starts runs `meshwork resolve`,
//! and their answers must agree with each other, with where they ran, and with `scontrol`.

#![cfg(target_os = "linux")]

#[path = "slurm/step.rs"]
mod step;

use std::fs;
use std::process::Command;

use meshwork_cluster_resolver::slurm::hosts;
use meshwork_testing::Slurm;
use serde_json::json;
use step::{Step, meshwork};

/// What `srun` is asked for, and how many tasks come of it.
const ORDINARY: &[(&str, &str, usize)] = &[
    ("by default", "-N3 -n5", 5),
    ("block", "-N3 -n6 -m block", 6),
    ("block over cyclic cores", "-N2 -n5 -m block:cyclic", 5),
    ("cyclic", "-N3 -n7 -m cyclic", 7),
    ("cyclic, more tasks than cores", "-N3 -n26 -O -m cyclic", 26),
    ("plane", "-N3 -n9 -m plane=2", 9),
    ("one task on each node", "-N4 -n4 -m cyclic", 4),
    ("nodes out of order", "-N2 -n3 -w n3,n1", 3),
    ("one task", "-n1", 1),
];

/// Parts of a heterogeneous step, in which ranks do not follow the order of the nodes.
const HETEROGENEOUS: &[(&str, &str, usize)] = &[
    (
        "a part before earlier nodes",
        "-n1 -w n3 : -N2 -n3 -w n1,n2",
        4,
    ),
    (
        "cyclic, then block",
        "-N2 -n4 -w n3,n4 -m cyclic : -N2 -n4 -w n1,n2 -m block",
        8,
    ),
    (
        "block, then cyclic",
        "-N2 -n4 -w n3,n4 -m block : -N2 -n4 -w n1,n2 -m cyclic",
        8,
    ),
];

/// Steps in an allocation of more than they use.
const IN_ALLOCATIONS: &[(&str, &str, usize)] = &[
    ("all of it", "-N4 -n7 srun", 7),
    ("two named nodes", "-N4 -n8 srun -N2 -n2 -w n2,n4", 2),
    ("from the third node on", "-N4 -n8 srun -N2 -n2 -r2", 2),
    (
        "a plane in a wide allocation",
        "-N3 --ntasks-per-node=4 srun -n10 -m plane=3",
        10,
    ),
    (
        "one part of two",
        "-n1 -w n3 : -N2 -n3 -w n1,n2 srun --het-group=1",
        3,
    ),
    (
        "fewer tasks than both parts have",
        "-n2 -w n3 : -N2 -n4 -w n1,n2 srun --het-group=0 -n1 : --het-group=1 -n3 -N2",
        4,
    ),
];

/// Steps with GPUs, and how many each task has of them, from rank 0 on.
const WITH_GPUS: &[(&str, &str, &[u32])] = &[
    (
        "shared by the tasks of a node",
        "-N2 -n4 --ntasks-per-node=2 --gres=gpu:4",
        &[2, 2, 2, 2],
    ),
    (
        "bound to each task",
        "-N2 -n4 --ntasks-per-node=2 --gpus-per-task=1",
        &[1, 1, 1, 1],
    ),
    ("some of a node", "-N2 -n2 --gpus-per-node=3", &[3, 3]),
];

#[test]
fn tasks_of_a_real_slurm_agree_on_where_all_of_them_run() {
    let Some(slurm) = Slurm::or_skip() else {
        return;
    };
    let answers = tempfile::tempdir().expect("a temporary folder");
    let step = |name: &str| Step::new(&slurm, answers.path(), name);
    for &(name, words, tasks) in ORDINARY.iter().chain(HETEROGENEOUS) {
        step(name).run("srun", words).check(tasks);
    }
    for &(name, words, tasks) in IN_ALLOCATIONS {
        step(name).run("salloc", words).check(tasks);
    }
    for &(name, words, gpus) in WITH_GPUS {
        let tasks = step(name).run("srun", words);
        tasks.check(gpus.len());
        tasks.check_gpus(gpus);
    }
}

#[test]
fn an_arbitrary_distribution_is_read_from_its_file_or_refused_by_every_task() {
    let Some(slurm) = Slurm::or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("hosts");
    fs::write(&file, "n3\nn1\nn1\nn2\nn1\n").expect("a writable folder");
    let path = file.to_str().expect("a path that is text");
    let step = |name: &str| Step::new(&slurm, folder.path(), name).with("SLURM_HOSTFILE", path);
    let tasks = step("arbitrary").run("srun", "-n5 -m arbitrary");
    tasks.check(5);
    assert_eq!(tasks.nodes(), ["n3", "n1", "n1", "n2", "n1"]);

    // The tasks remove their file before they ask.
    let gone = step("without the file")
        .removing(&file)
        .run("srun", "-n5 -m arbitrary");
    gone.check_refused(5, "cannot be read (entity not found)");
}

#[test]
fn steps_that_run_at_once_each_know_their_own_tasks() {
    let Some(slurm) = Slurm::or_skip() else {
        return;
    };
    let answers = tempfile::tempdir().expect("a temporary folder");
    let step = |name: &str| Step::new(&slurm, answers.path(), name);
    let (one, other) = (step("one of two"), step("two of two"));
    let script = format!(
        "srun --exact -n3 -N2 -w n1,n3 {} & srun --exact -n2 -N2 -w n1,n2 {} & wait",
        one.command_line(),
        other.command_line()
    );
    slurm.run("salloc", &["-N3", "-n9", "sh", "-c", &script], &[]);
    one.answers().check(3);
    other.answers().check(2);
}

#[test]
fn a_batch_script_is_no_task_of_a_step() {
    let Some(slurm) = Slurm::or_skip() else {
        return;
    };
    let output = slurm.run("salloc", &["-n1", &meshwork(), "resolve", "--json"], &[]);
    let answers: serde_json::Value = serde_json::from_str(&output).expect("one JSON object");
    assert_eq!(answers["source"], json!("slurm"));
    let message = answers["errors"]["cluster"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("start this process as a task, by srun"),
        "{answers}"
    );
}

/// Host lists as they are put together at random, judged by the `scontrol` that is installed.
#[test]
fn host_lists_mean_what_scontrol_makes_of_them() {
    let Some(slurm) = Slurm::or_skip() else {
        return;
    };
    for list in [
        "a[3,1-2]b[2,1]c[5,4]",
        "r[08-11,7]n[1-2],login",
        "x[1-2,5]y[01,1] z",
        "a[0-1][0-1][0-1][0-1]",
        "n[1-2]x",
        "n[3-1]",
        "n[1,]",
        "10.0.[0-1].[1-2]",
    ] {
        let output = Command::new("scontrol")
            .args(["show", "hostnames", list])
            .env("SLURM_CONF", slurm.configuration())
            .output()
            .expect("scontrol runs");
        let shown = String::from_utf8_lossy(&output.stdout);
        let expected: Vec<&str> = shown.lines().collect();
        match hosts(list) {
            Ok(hosts) => assert_eq!(hosts, expected, "{list}"),
            Err(problem) => assert!(!output.stderr.is_empty(), "{list}: {problem}"),
        }
    }
}
