//! What users read when a cluster is described wrongly.

use meshwork_cluster_resolver::{ClusterSpec, TfConfigResolver, WorkerPlacement};

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
