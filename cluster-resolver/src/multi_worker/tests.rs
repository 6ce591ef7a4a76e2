//! Ranks of chief and workers, and clusters that cannot train.

use super::*;
use crate::address::AddressProblem;
use crate::error::TaskPart;
use crate::simple::SimpleResolver;
use crate::spec::Tasks;
use crate::tf_config::TfConfigResolver;

fn cluster(jobs: &[(&str, &[&str])]) -> ClusterSpec {
    let jobs = jobs
        .iter()
        .map(|&(job, addresses)| (job, Tasks::list(addresses.iter().copied())));
    ClusterSpec::new(jobs).unwrap()
}

#[track_caller]
fn check(spec: &ClusterSpec, job: &str, index: u32, rank: u32, addresses: &[&str]) {
    let placement = WorkerPlacement::new(spec, job, index).unwrap();
    assert_eq!(placement.rank(), rank);
    assert_eq!(placement.world(), u32::try_from(addresses.len()).unwrap());
    assert_eq!(placement.is_chief(), rank == 0);
    assert_eq!(placement.addresses(), addresses);
}

#[track_caller]
fn check_refused(spec: &ClusterSpec, job: &str, index: u32, expected: Error) {
    assert_eq!(WorkerPlacement::new(spec, job, index), Err(expected));
}

#[test]
fn without_a_chief_job_worker_0_is_the_chief() {
    let spec = cluster(&[("worker", &["a:1", "b:1", "c:1"])]);
    for index in 0..3 {
        check(&spec, "worker", index, index, &["a:1", "b:1", "c:1"]);
    }
}

#[test]
fn the_chief_is_rank_0_wherever_the_cluster_names_it() {
    let spec = cluster(&[
        ("worker", &["a:1", "b:1"]),
        ("ps", &["p:1"]),
        ("chief", &["c:1"]),
    ]);
    check(&spec, "chief", 0, 0, &["c:1", "a:1", "b:1"]);
    check(&spec, "worker", 0, 1, &["c:1", "a:1", "b:1"]);
    check(&spec, "worker", 1, 2, &["c:1", "a:1", "b:1"]);
}

#[test]
fn a_chief_may_train_alone() {
    check(&cluster(&[("chief", &["c:1"])]), "chief", 0, 0, &["c:1"]);
}

#[test]
fn a_chief_job_without_tasks_counts_as_no_chief() {
    let spec = cluster(&[("chief", &[]), ("worker", &["a:1", "b:1"])]);
    check(&spec, "worker", 0, 0, &["a:1", "b:1"]);
    let indices = vec![];
    check_refused(
        &spec,
        "chief",
        0,
        Error::UnknownTask {
            task: Task::new("chief", 0),
            indices,
        },
    );
}

#[test]
fn a_task_outside_the_cluster_is_refused() {
    let spec = cluster(&[("worker", &["a:1", "b:1"])]);
    check_refused(
        &spec,
        "worker",
        2,
        Error::UnknownTask {
            task: Task::new("worker", 2),
            indices: vec![0, 1],
        },
    );
    let known = vec!["worker".to_owned()];
    check_refused(
        &spec,
        "chief",
        0,
        Error::UnknownJob {
            job: "chief".into(),
            known,
        },
    );
    let known = vec![];
    check_refused(
        &ClusterSpec::default(),
        "worker",
        0,
        Error::UnknownJob {
            job: "worker".into(),
            known,
        },
    );
}

#[test]
fn tasks_that_do_not_train_have_no_rank() {
    let spec = cluster(&[
        ("worker", &["a:1"]),
        ("ps", &["p:1"]),
        ("evaluator", &["e:1"]),
    ]);
    for job in ["ps", "evaluator"] {
        check_refused(
            &spec,
            job,
            0,
            Error::NotTraining {
                task: Task::new(job, 0),
            },
        );
    }
}

#[test]
fn a_cluster_with_a_strange_job_is_refused_for_every_task() {
    let spec = cluster(&[("master", &["m:1"]), ("worker", &["a:1"])]);
    check_refused(
        &spec,
        "worker",
        0,
        Error::UnknownRole {
            job: "master".into(),
        },
    );
}

#[test]
fn two_chiefs_or_two_evaluators_are_refused() {
    for job in ["chief", "evaluator"] {
        let spec = cluster(&[("worker", &["a:1"]), (job, &["x:1", "y:1"])]);
        check_refused(&spec, "worker", 0, Error::TooManyTasks { job, count: 2 });
    }
}

#[test]
fn a_hole_between_indices_is_refused_by_its_first_missing_task() {
    let sparse = |indices: &[u32]| {
        let tasks = indices.iter().map(|&index| (index, format!("h{index}:1")));
        ClusterSpec::new([("worker", Tasks::map(tasks))]).unwrap()
    };
    let missing = |missing, last| Error::MissingTask {
        missing: Task::new("worker", missing),
        last: Task::new("worker", last),
    };
    check_refused(&sparse(&[1, 5]), "worker", 5, missing(0, 5));
    check_refused(&sparse(&[0, 1, 3]), "worker", 0, missing(2, 3));
    check(&sparse(&[0, 1]), "worker", 1, 1, &["h0:1", "h1:1"]);
}

#[test]
fn one_address_for_two_tasks_is_refused_however_it_is_written() {
    for (first, second) in [("a:1", "a:1"), ("a:1", "A:01"), ("[::1]:7", "[0::1]:7")] {
        check_refused(
            &cluster(&[("worker", &["x:1", second]), ("chief", &[first])]),
            "worker",
            0,
            Error::DuplicateAddress {
                first: Task::new("chief", 0),
                second: Task::new("worker", 1),
                address: second.into(),
            },
        );
    }
}

#[test]
fn only_addresses_of_tasks_that_train_are_judged() {
    let spec = cluster(&[("worker", &["a:1", "b"]), ("ps", &["a:1", "nonsense"])]);
    check_refused(
        &spec,
        "worker",
        0,
        Error::Address {
            task: Task::new("worker", 1),
            address: "b".into(),
            problem: AddressProblem::NoPort,
        },
    );
    let spec = cluster(&[("worker", &["a:1"]), ("ps", &["a:1", "nonsense"])]);
    check(&spec, "worker", 0, 0, &["a:1"]);
}

#[test]
fn a_resolver_that_does_not_know_its_task_has_no_placement() {
    let resolver = SimpleResolver::new(cluster(&[("worker", &["a:1"])]));
    let unknown = |part| Err(Error::TaskUnknown { part });
    assert_eq!(WorkerPlacement::resolve(&resolver), unknown(TaskPart::Type));
    let resolver = resolver.with_task_type("worker");
    assert_eq!(WorkerPlacement::resolve(&resolver), unknown(TaskPart::Id));
    let resolver = resolver.with_task_id(0);
    assert_eq!(WorkerPlacement::resolve(&resolver).unwrap().world(), 1);
    let broken = TfConfigResolver::from_json("{");
    assert!(matches!(
        WorkerPlacement::resolve(&broken),
        Err(Error::Json { .. })
    ));
}

#[test]
fn all_processes_of_a_cluster_agree_and_fill_every_rank() {
    for workers in 0..6_u32 {
        for chiefs in 0..2_u32 {
            let addresses = |job: &str, count| (0..count).map(|i| format!("{job}{i}:1")).collect();
            let jobs: [(_, Vec<String>); 2] = [
                ("worker", addresses("w", workers)),
                ("chief", addresses("c", chiefs)),
            ];
            let spec = ClusterSpec::new(jobs.map(|(job, list)| (job, Tasks::list(list)))).unwrap();
            let tasks = (0..chiefs)
                .map(|i| ("chief", i))
                .chain((0..workers).map(|i| ("worker", i)));
            for ((job, index), rank) in tasks.zip(0..) {
                let placement = WorkerPlacement::new(&spec, job, index).unwrap();
                assert_eq!(
                    (placement.rank(), placement.world()),
                    (rank, chiefs + workers)
                );
                let own = &placement.addresses()[usize::try_from(rank).unwrap()];
                assert_eq!(own, spec.task_address(job, index).unwrap());
            }
        }
    }
}
