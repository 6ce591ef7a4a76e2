//! What users read when a cluster is described wrongly.

use meshwork_cluster_resolver::{
    ClusterResolver, ClusterSpec, SlurmResolver, TfConfigResolver, Variables, WorkerPlacement,
};

#[track_caller]
fn check(text: &str, message: &str) {
    let error = WorkerPlacement::resolve(&TfConfigResolver::from_json(text)).expect_err(text);
    assert_eq!(error.to_string(), message);
}

#[test]
fn a_wrong_text_says_where_and_what_to_do() {
    check(
        "",
        "TF_CONFIG is not valid JSON at line 1, column 0: it is empty, so write a JSON object, \
         or unset the variable to run alone",
    );
    check(
        "{'cluster': {}}",
        "TF_CONFIG is not valid JSON at line 1, column 2, near `{'cluster': {}}`: JSON has no single quotes, \
         so write double quotes",
    );
    check(
        r#"{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": one}}"#,
        "TF_CONFIG is not valid JSON at line 1, column 77, near `…rker\", \"index\": one}}`: this is no JSON, \
         so check quotes, commas and brackets there",
    );
    check(
        r#"{"cluster": {"worker": ["a:1""#,
        "TF_CONFIG is not valid JSON at line 1, column 29, near `…{\"worker\": [\"a:1\"`: it ends too early, \
         so add the closing quote, bracket or brace",
    );
}

#[test]
fn a_wrong_field_says_its_path_its_value_and_what_belongs_there() {
    check(
        "[]",
        r#"TF_CONFIG is []: make it an object with the keys "cluster" and "task""#,
    );
    check(
        r#"{"cluster": {"worker": "a:1"}}"#,
        "cluster.worker in TF_CONFIG is \"a:1\": make it a list of addresses such as [\"host:2222\"] \
         or an object such as {\"0\": \"host:2222\"}",
    );
    check(
        r#"{"cluster": {"worker": ["a:1", 7]}}"#,
        r#"cluster.worker[1] in TF_CONFIG is 7: make it a text such as "host:2222""#,
    );
    check(
        r#"{"cluster": {"worker": {"zero": "a:1"}}}"#,
        "cluster.worker in TF_CONFIG has the key \"zero\": make each key a task index from \"0\" to \
         \"2147483647\"",
    );
    check(
        r#"{"task": {"type": null, "index": 0}}"#,
        "task.type in TF_CONFIG is null: make it a text in double quotes",
    );
    check(
        r#"{"task": {"type": "worker", "index": 1.9}}"#,
        "task.index in TF_CONFIG is 1.9: make it a whole number from 0 to 2147483647",
    );
}

#[test]
fn a_wrong_cluster_says_which_task_is_meant_and_what_to_change() {
    let with_task = |cluster: &str| {
        format!(r#"{{"cluster": {cluster}, "task": {{"type": "worker", "index": 7}}}}"#)
    };
    check(
        &with_task(r#"{"worker": ["a:1", "b:1", "c:1", "d:1"]}"#),
        "task worker:7 is outside the cluster, which has 4 workers (0..=3): use an index it has, \
         or add the address of worker:7",
    );
    check(
        &with_task(r#"{"worker": {"0": "a:1", "7": "h:1"}}"#),
        "task worker:1 is missing from the cluster, which goes up to worker:7: add the address of worker:1, \
         or number the worker tasks from 0 without holes",
    );
    check(
        &with_task(r#"{"boss": ["a:1"]}"#),
        "job \"boss\" has no part in training: name it chief, worker, ps or evaluator, or remove it",
    );
    check(
        &with_task(r#"{"chief": ["a:1", "b:1"]}"#),
        "the cluster has 2 chief tasks, but a training job has at most one: keep one address",
    );
    check(
        &with_task(r#"{"ps": ["p:1"]}"#),
        "job \"worker\" is not in the cluster, which has the job ps: ask for a job it has, or add this one",
    );
    check(
        r#"{"cluster": {"worker": ["a:1"]}}"#,
        "the task type of this process is unknown: set it in TF_CONFIG as task.type, or give it to the resolver",
    );
}

#[test]
fn a_wrong_address_says_whose_it_is_and_how_to_write_it() {
    let check = |addresses: [&str; 2], message: &str| {
        let spec = ClusterSpec::from_addresses(addresses).unwrap();
        assert_eq!(
            WorkerPlacement::new(&spec, "worker", 0)
                .unwrap_err()
                .to_string(),
            message
        );
    };
    check(
        ["a:1", "b"],
        "address \"b\" of task worker:1 has no port: write host:port, such as 10.0.0.1:2222",
    );
    check(
        ["a:99999", "b:1"],
        "address \"a:99999\" of task worker:0 has the port \"99999\": use a number from 1 to 65535",
    );
    check(
        ["::1:2222", "b:1"],
        "address \"::1:2222\" of task worker:0 has several colons: put an IPv6 host in brackets, \
         such as [::1]:2222",
    );
    check(
        ["a\n:1", "b:1"],
        "address \"a\\n:1\" of task worker:0 has '\\n' in its host: remove it",
    );
    check(
        ["a:1", "a:1"],
        "tasks worker:0 and worker:1 have the same address \"a:1\": give each its own host or port",
    );
}

/// What Slurm told a task, with these changes; `None` takes a variable out.
#[track_caller]
fn check_slurm(changes: &[(&str, Option<&str>)], message: &str) {
    let mut variables = vec![
        ("SLURM_JOB_ID", Some("7")),
        ("SLURM_STEP_ID", Some("0")),
        ("SLURM_PROCID", Some("1")),
        ("SLURM_STEP_NUM_TASKS", Some("3")),
        ("SLURM_STEP_NODELIST", Some("n[1-2]")),
        ("SLURM_STEP_TASKS_PER_NODE", Some("2,1")),
    ];
    for change in changes {
        variables.retain(|(name, _)| *name != change.0);
        variables.push(*change);
    }
    let set = variables.into_iter();
    let set = set.filter_map(|(name, value)| Some((name, value?)));
    let resolver = SlurmResolver::from_variables(Variables::fixed(set)).without_scontrol();
    let error = resolver.cluster_spec().expect_err(message);
    assert_eq!(error.to_string(), message);
}

#[test]
fn a_wrong_slurm_variable_says_its_value_and_what_belongs_there() {
    check_slurm(
        &[("SLURM_PROCID", Some("one"))],
        "SLURM_PROCID is \"one\": set it to a whole number from 0 up",
    );
    check_slurm(
        &[("SLURM_STEP_NODELIST", Some("n[1-2"))],
        "SLURM_STEP_NODELIST is \"n[1-2\", where a bracket is not closed: add the ]",
    );
    check_slurm(
        &[("SLURM_STEP_NODELIST", Some("n[2-1]"))],
        "SLURM_STEP_NODELIST is \"n[2-1]\", where \"2-1\" is no range: write numbers such as 3 or 08-12",
    );
    check_slurm(
        &[("SLURM_STEP_TASKS_PER_NODE", Some("2,1(y2)"))],
        "SLURM_STEP_TASKS_PER_NODE is \"2,1(y2)\", where \"1(y2)\" is no count: write counts such as \
         3,1(x2)",
    );
    check_slurm(
        &[("SLURM_DISTRIBUTION", Some("moon"))],
        "tasks are distributed as \"moon\", which does not say their nodes: use block, cyclic, plane \
         or arbitrary",
    );
}

#[test]
fn slurm_variables_that_do_not_fit_each_other_say_both_numbers() {
    check_slurm(
        &[("SLURM_STEP_NODELIST", Some("n[1-3]"))],
        "the step has 3 nodes, but the tasks of 2: make SLURM_STEP_NODELIST and \
         SLURM_STEP_TASKS_PER_NODE those of one step",
    );
    check_slurm(
        &[("SLURM_STEP_NUM_TASKS", Some("4"))],
        "the nodes have 3 tasks in all, but the step has 4: make them agree",
    );
    check_slurm(
        &[("SLURM_PROCID", Some("3"))],
        "SLURM_PROCID is 3, but the step has 3 tasks: unset it and start by srun",
    );
    check_slurm(
        &[
            ("SLURM_DISTRIBUTION", Some("block")),
            ("SLURM_GTIDS", Some("1")),
        ],
        "SLURM_GTIDS of rank 1 is \"1\", but the step's distribution makes it \"0,1\": start this \
         process by srun, with the distribution that srun is given",
    );
}

#[test]
fn what_slurm_leaves_open_is_refused_with_the_reason() {
    check_slurm(
        &[("SLURM_STEP_NODELIST", None)],
        "SLURM_STEP_NODELIST is not set, though job 7 runs here: start this process as a task, by srun",
    );
    check_slurm(
        &[("SLURM_DISTRIBUTION", Some("arbitrary"))],
        "tasks are distributed arbitrarily, and SLURM_HOSTFILE does not say how: give srun a host \
         file, or distribute in block or cyclic order",
    );
    check_slurm(
        &[("SLURM_GTIDS", Some("1,2"))],
        "only scontrol can tell where the tasks of step 7.0 run, and it is not asked: allow it, or \
         use one task per node",
    );
}
