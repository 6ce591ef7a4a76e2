//! What a cluster spec keeps, refuses and shows.

use proptest::prelude::*;

use super::*;

fn sample() -> ClusterSpec {
    ClusterSpec::new([
        ("worker", Tasks::map([(0, "a:1"), (2, "c:1")])),
        ("ps", Tasks::list(["p:1"])),
        ("evaluator", Tasks::list([""; 0])),
    ])
    .unwrap()
}

#[test]
fn jobs_keep_the_order_they_were_given_in() {
    assert_eq!(
        sample().jobs().collect::<Vec<_>>(),
        ["worker", "ps", "evaluator"]
    );
}

#[test]
fn a_dense_job_reads_as_a_list_and_a_sparse_or_empty_one_as_a_map() {
    let spec = ClusterSpec::new([
        ("dense", Tasks::map([(1, "b:1"), (0, "a:1")])),
        ("sparse", Tasks::map([(1, "b:1")])),
        ("empty", Tasks::list([""; 0])),
    ])
    .unwrap();
    let expected = [
        ("dense", Tasks::list(["a:1", "b:1"])),
        ("sparse", Tasks::map([(1, "b:1")])),
        ("empty", Tasks::map([(0, ""); 0])),
    ];
    assert_eq!(spec.as_dict(), expected);
}

#[test]
fn job_tasks_shows_holes_up_to_the_largest_index() {
    let spec = sample();
    let slots: Vec<_> = spec.job_tasks("worker").unwrap().collect();
    assert_eq!(slots, [Some("a:1"), None, Some("c:1")]);
    assert_eq!(spec.job_tasks("evaluator").unwrap().count(), 0);
}

#[test]
fn the_largest_index_costs_no_memory() {
    let spec = ClusterSpec::new([("worker", Tasks::map([(MAX_TASK_INDEX, "z:9")]))]).unwrap();
    assert_eq!(
        spec.task_indices("worker").unwrap().collect::<Vec<_>>(),
        [MAX_TASK_INDEX]
    );
    assert_eq!(spec.job_tasks("worker").unwrap().next(), Some(None));
}

#[test]
fn an_index_that_does_not_fit_in_31_bits_is_refused() {
    let index = MAX_TASK_INDEX + 1;
    let task = Task::new("worker", index);
    assert_eq!(
        ClusterSpec::new([("worker", Tasks::map([(index, "z:9")]))]),
        Err(Error::TaskIndexTooLarge { task })
    );
}

#[test]
fn a_job_given_twice_is_refused() {
    let jobs = [("w", Tasks::list(["a:1"])), ("w", Tasks::list(["b:1"]))];
    assert_eq!(
        ClusterSpec::new(jobs),
        Err(Error::DuplicateJob { job: "w".into() })
    );
}

#[test]
fn questions_about_what_is_not_there_name_what_is() {
    let spec = sample();
    let unknown_job = Error::UnknownJob {
        job: "chief".into(),
        known: vec!["worker".into(), "ps".into(), "evaluator".into()],
    };
    assert_eq!(spec.num_tasks("chief"), Err(unknown_job.clone()));
    assert_eq!(spec.task_indices("chief").err(), Some(unknown_job.clone()));
    assert_eq!(spec.job_tasks("chief").err(), Some(unknown_job.clone()));
    assert_eq!(spec.task_address("chief", 0), Err(unknown_job));
    assert_eq!(
        spec.task_address("worker", 1),
        Err(Error::UnknownTask {
            task: Task::new("worker", 1),
            indices: vec![0, 2],
        })
    );
}

#[test]
fn equality_ignores_the_order_of_jobs_but_not_an_empty_job() {
    let a = || ("a", Tasks::list(["x:1"]));
    let b = || ("b", Tasks::list(["y:1"]));
    let none = || ("b", Tasks::list([""; 0]));
    let spec = |jobs: Vec<(&str, Tasks)>| ClusterSpec::new(jobs).unwrap();
    assert_eq!(spec(vec![a(), b()]), spec(vec![b(), a()]));
    assert_ne!(spec(vec![a(), none()]), spec(vec![a()]));
    assert_ne!(spec(vec![a()]), spec(vec![("a", Tasks::list(["x:2"]))]));
}

#[test]
fn no_jobs_is_the_empty_cluster_and_no_addresses_is_a_job_without_tasks() {
    assert!(ClusterSpec::default().is_empty());
    let spec = ClusterSpec::from_addresses([""; 0]).unwrap();
    assert!(!spec.is_empty());
    assert_eq!(spec.num_tasks("worker"), Ok(0));
}

/// Distinct jobs with few tasks at small indices, in any order.
fn any_jobs() -> impl Strategy<Value = Vec<(String, BTreeMap<u32, String>)>> {
    let tasks = proptest::collection::btree_map(0_u32..5, ".{0,4}", 0..5);
    proptest::collection::btree_map(".{0,3}", tasks, 0..4)
        .prop_map(|jobs| jobs.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

proptest! {
    #[test]
    fn what_as_dict_shows_builds_an_equal_spec(jobs in any_jobs()) {
        let spec = ClusterSpec::new(jobs.into_iter().map(|(job, tasks)| (job, Tasks::Map(tasks))))?;
        prop_assert_eq!(ClusterSpec::new(spec.as_dict())?, spec);
    }

    #[test]
    fn every_view_agrees_with_the_maps_it_was_built_from(jobs in any_jobs()) {
        let given = jobs.clone().into_iter().map(|(job, tasks)| (job, Tasks::Map(tasks)));
        let spec = ClusterSpec::new(given)?;
        prop_assert!(spec.jobs().eq(jobs.iter().map(|(job, _)| job)));
        for (job, tasks) in &jobs {
            prop_assert_eq!(spec.num_tasks(job)?, tasks.len());
            prop_assert!(spec.task_indices(job)?.eq(tasks.keys().copied()));
            let slots: Vec<_> = spec.job_tasks(job)?.collect();
            for index in 0..6 {
                let address = tasks.get(&index).map(String::as_str);
                prop_assert_eq!(spec.task_address(job, index).ok(), address);
                let slot = usize::try_from(index).ok().and_then(|slot| slots.get(slot).copied());
                prop_assert_eq!(slot.flatten(), address);
            }
        }
    }
}

#[test]
fn a_cluster_reads_as_its_jobs_and_counts() {
    let tasks = [("chief", 1), ("worker", 2), ("ps", 0)]
        .map(|(job, count)| (job, Tasks::list(vec!["a:1"; count])));
    let spec = ClusterSpec::new(tasks).unwrap();
    assert_eq!(Counts(&spec).to_string(), "chief 1, worker 2, ps 0");
    assert_eq!(Counts(&ClusterSpec::default()).to_string(), "no jobs");
}
