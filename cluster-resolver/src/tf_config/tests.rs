//! Texts that are clusters, and texts that are none.

use proptest::prelude::*;

use super::*;
use crate::error::{JsonProblem, TaskPart};
use crate::resolver::ClusterResolver;
use crate::task::Task;
use crate::variables::Variables;

const TWO_WORKERS: &str =
    r#"{"cluster": {"worker": ["w0:1", "w1:1"]}, "task": {"type": "worker", "index": 1}}"#;

#[track_caller]
fn check_index(value: &str, expected: Option<u32>) {
    let parsed = TfConfig::parse(&format!(r#"{{"task": {{"index": {value}}}}}"#));
    match expected {
        Some(index) => assert_eq!(parsed.unwrap().task_index(), Some(index), "{value}"),
        None => assert_eq!(
            parsed,
            Err(Error::Field {
                path: "task.index".into(),
                found: value.into(),
                expected: Expected::Index,
            })
        ),
    }
}

#[track_caller]
fn check_field(text: &str, path: &str, found: &str, expected: Expected) {
    let (path, found) = (path.to_owned(), found.to_owned());
    assert_eq!(
        TfConfig::parse(text),
        Err(Error::Field {
            path,
            found,
            expected
        }),
        "{text}"
    );
}

#[track_caller]
fn check_json(text: &str, line: usize, column: usize, snippet: &str, problem: JsonProblem) {
    let snippet = snippet.to_owned();
    let expected = Error::Json {
        line,
        column,
        snippet,
        problem,
    };
    assert_eq!(TfConfig::parse(text), Err(expected), "{text}");
}

#[track_caller]
fn check_master(text: &str, call: (Option<&str>, Option<u32>, Option<&str>), expected: &str) {
    let resolver = TfConfigResolver::from_json(text);
    assert_eq!(
        resolver.master(call.0, call.1, call.2).as_deref(),
        Ok(expected),
        "{text}"
    );
}

#[test]
fn an_empty_object_is_an_empty_cluster_and_no_task() {
    assert_eq!(TfConfig::parse("{}"), Ok(TfConfig::default()));
    assert_eq!(TfConfig::parse(r#" {"task": {}}"#), Ok(TfConfig::default()));
}

#[test]
fn keys_that_mean_nothing_are_listed() {
    let text = r#"{"environment": "cloud", "task": {"trial": "1", "type": "ps"}, "job": {}}"#;
    let config = TfConfig::parse(text).unwrap();
    assert_eq!(config.unread(), ["environment", "job", "task.trial"]);
}

#[test]
fn the_explanation_names_fields_and_what_overrules_them() {
    let text = r#"{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}, "job": 7}"#;
    let variables = Variables::fixed([("TF_CONFIG", text)]);
    let resolver = TfConfigResolver::from_variables(variables).with_task_id(0);
    assert_eq!(
        resolver.explain().to_string(),
        "cluster: worker 2
    cluster in variable TF_CONFIG: worker 2
    not job in variable TF_CONFIG: a value (no key that is read here)
task: worker:0
    task.type in variable TF_CONFIG: worker
    not task.index in variable TF_CONFIG: 1 (the program says otherwise)
    task id in the program: 0
master: a:1
    nothing in session_master in variable TF_CONFIG
rpc layer:
    nothing in rpc_layer in variable TF_CONFIG
accelerators: not known
"
    );
}

#[test]
fn an_unset_variable_and_a_wrong_one_are_explained() {
    let unset = TfConfigResolver::from_variables(Variables::fixed([("PATH", "/")]));
    let shown = unset.explain().to_string();
    assert!(
        shown.starts_with("cluster: no jobs\n    nothing in variable TF_CONFIG\n"),
        "{shown}"
    );
    let wrong = TfConfigResolver::from_json("[]").explain().to_string();
    assert!(
        wrong.starts_with("cluster: unknown, because TF_CONFIG is []"),
        "{wrong}"
    );
}

#[test]
fn jobs_come_in_the_order_of_the_text() {
    let text = r#"{"cluster": {"worker": ["w:1"], "chief": ["c:1"], "ps": {"3": "p:1"}}}"#;
    let config = TfConfig::parse(text).unwrap();
    assert_eq!(
        config.cluster().jobs().collect::<Vec<_>>(),
        ["worker", "chief", "ps"]
    );
    assert_eq!(config.cluster().task_address("ps", 3), Ok("p:1"));
}

#[test]
fn an_index_is_a_whole_number_or_a_text_that_holds_one() {
    for (value, index) in [
        ("0", 0),
        ("2147483647", 2_147_483_647),
        ("3.0", 3),
        ("\" 07 \"", 7),
    ] {
        check_index(value, Some(index));
    }
    for value in [
        "-1",
        "1.9",
        "2147483648",
        "1e+20",
        "true",
        "null",
        "\"x\"",
        "\"\"",
        "[0]",
    ] {
        check_index(value, None);
    }
}

#[test]
fn a_field_of_the_wrong_kind_is_named() {
    check_field("[]", "", "[]", Expected::Config);
    check_field("null", "", "null", Expected::Config);
    check_field("\"cluster\"", "", "\"cluster\"", Expected::Config);
    check_field(r#"{"cluster": null}"#, "cluster", "null", Expected::Jobs);
    check_field(
        r#"{"cluster": "a:1"}"#,
        "cluster",
        "\"a:1\"",
        Expected::Jobs,
    );
    check_field(
        r#"{"cluster": {"worker": "a:1"}}"#,
        "cluster.worker",
        "\"a:1\"",
        Expected::Tasks,
    );
    check_field(
        r#"{"cluster": {"a b": 3}}"#,
        "cluster[\"a b\"]",
        "3",
        Expected::Tasks,
    );
    check_field(
        r#"{"cluster": {"w": ["a:1", 7]}}"#,
        "cluster.w[1]",
        "7",
        Expected::Address,
    );
    check_field(
        r#"{"cluster": {"w": {"4": null}}}"#,
        "cluster.w[4]",
        "null",
        Expected::Address,
    );
    check_field(r#"{"task": null}"#, "task", "null", Expected::Task);
    check_field(
        r#"{"task": {"type": null}}"#,
        "task.type",
        "null",
        Expected::Text,
    );
    check_field(r#"{"task": {"type": 7}}"#, "task.type", "7", Expected::Text);
    check_field(r#"{"rpc_layer": 1}"#, "rpc_layer", "1", Expected::Text);
    check_field(
        r#"{"session_master": 3}"#,
        "session_master",
        "3",
        Expected::Text,
    );
}

#[test]
fn keys_of_a_task_map_are_distinct_indices() {
    let path = || "cluster.worker".to_owned();
    for key in ["x", "1.5", "-1", "", "2147483648"] {
        let text = format!(r#"{{"cluster": {{"worker": {{"{key}": "a:1"}}}}}}"#);
        let key = key.to_owned();
        assert_eq!(
            TfConfig::parse(&text),
            Err(Error::IndexKey { path: path(), key })
        );
    }
    let twice = r#"{"cluster": {"worker": {"1": "a:1", "01": "b:1"}}}"#;
    assert_eq!(
        TfConfig::parse(twice),
        Err(Error::IndexTwice {
            path: path(),
            index: 1
        })
    );
}

#[test]
fn text_that_is_not_json_is_shown_where_it_breaks() {
    check_json("", 1, 0, "", JsonProblem::Empty);
    check_json(" \n", 2, 0, "", JsonProblem::Empty);
    check_json("{bad", 1, 2, "{bad", JsonProblem::Malformed);
    check_json("{} x", 1, 4, "{} x", JsonProblem::Malformed);
    check_json("\u{feff}{}", 1, 1, "\u{feff}{}", JsonProblem::Malformed);
    check_json(
        "{'task': {}}",
        1,
        2,
        "{'task': {}}",
        JsonProblem::SingleQuotes,
    );
    check_json(
        "{\"task\":\n {\"type\": NaN}}",
        2,
        11,
        " {\"type\": NaN}}",
        JsonProblem::Malformed,
    );
    check_json(
        "{\"task\": {",
        1,
        10,
        "{\"task\": {",
        JsonProblem::Truncated,
    );
    check_json(
        r#"{"cluster": {"worker": ["höst-0.example:2222", "höst-1.example:2222",]}}"#,
        1,
        72,
        "…1.example:2222\",]}}",
        JsonProblem::Malformed,
    );
}

#[test]
fn nesting_without_end_is_an_error() {
    assert!(matches!(
        TfConfig::parse(&"[".repeat(1 << 20)),
        Err(Error::Json { .. })
    ));
}

#[test]
fn the_session_master_answers_for_every_task() {
    let text = r#"{"cluster": {"worker": ["w0:1", "w1:1"]}, "session_master": "sm://x"}"#;
    check_master(text, (None, None, None), "sm://x");
    check_master(text, (Some("ps"), Some(7), Some("grpc")), "sm://x");
    let null = r#"{"cluster": {"worker": ["w0:1", "w1:1"]}, "session_master": null}"#;
    check_master(null, (Some("worker"), Some(1), None), "w1:1");
}

#[test]
fn a_process_without_company_has_an_empty_master() {
    check_master("{}", (Some("worker"), Some(0), Some("grpc")), "");
    check_master(
        r#"{"cluster": {"worker": ["w0:1"]}}"#,
        (None, None, None),
        "",
    );
    let sparse =
        r#"{"cluster": {"worker": {"3": "w3:1"}}, "task": {"type": "worker", "index": 3}}"#;
    check_master(sparse, (None, None, None), "w3:1");
}

#[test]
fn the_own_task_and_layer_fill_in_what_a_call_leaves_out() {
    let text = r#"{"cluster": {"chief": ["c:1"], "ps": ["p0:1", "p1:1"]},
        "task": {"type": "ps", "index": 1}, "rpc_layer": "grpc"}"#;
    check_master(text, (None, None, None), "grpc://p1:1");
    check_master(text, (None, Some(0), None), "grpc://p0:1");
    check_master(text, (Some("chief"), Some(0), Some("xx")), "xx://c:1");
    check_master(text, (None, None, Some("")), "p1:1");
    let resolver = TfConfigResolver::from_json(text)
        .with_task_id(0)
        .with_rpc_layer("");
    assert_eq!(resolver.master(None, None, None).as_deref(), Ok("p0:1"));
    assert_eq!(resolver.task_type().unwrap().as_deref(), Some("ps"));
    assert_eq!(resolver.task_id(), Ok(Some(0)));
    assert_eq!(resolver.rpc_layer().unwrap().as_deref(), Some(""));
}

#[test]
fn a_task_outside_the_cluster_fails_only_when_its_address_is_asked_for() {
    let resolver = TfConfigResolver::from_json(TWO_WORKERS).with_task_id(5);
    assert_eq!(resolver.task_id(), Ok(Some(5)));
    let task = Task::new("worker", 5);
    let indices = vec![0, 1];
    assert_eq!(
        resolver.master(None, None, None),
        Err(Error::UnknownTask { task, indices })
    );
}

#[test]
fn an_address_without_a_task_names_the_missing_half() {
    let text = r#"{"cluster": {"worker": ["w0:1", "w1:1"]}}"#;
    let resolver = TfConfigResolver::from_json(text);
    let unknown = |part| Err(Error::TaskUnknown { part });
    assert_eq!(
        resolver.master(None, Some(1), None),
        unknown(TaskPart::Type)
    );
    assert_eq!(
        resolver.master(Some("worker"), None, None),
        unknown(TaskPart::Id)
    );
}

#[test]
fn a_repeated_key_keeps_its_last_value() {
    let text = r#"{"cluster": {"worker": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}}"#;
    check_master(text, (Some("worker"), Some(0), None), "c:1");
}

#[test]
fn the_environment_is_what_the_caller_said_and_not_a_key() {
    let resolver = TfConfigResolver::from_json(r#"{"environment": "cloud"}"#);
    assert_eq!(resolver.environment(), Ok(None));
    assert_eq!(
        resolver.with_environment("google").environment(),
        Ok(Some("google".to_owned()))
    );
}

/// JSON of any shape whose keys and texts are often those that the parser looks for.
fn any_json() -> impl Strategy<Value = Value> {
    let word = || {
        prop_oneof![
            "cluster|task|type|index|worker|rpc_layer|session_master|0|01| 1",
            "\\PC{0,6}",
        ]
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((word(), inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn check_one_line(error: &Error) -> Result<(), TestCaseError> {
    let message = error.to_string();
    prop_assert!(!message.contains(char::is_control), "{message:?}");
    prop_assert!(message.chars().count() < 400, "{message:?}");
    Ok(())
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in "(?s).{0,80}") {
        if let Err(error) = TfConfig::parse(&text) {
            check_one_line(&error)?;
        }
    }

    #[test]
    fn any_json_is_read_or_refused_in_one_line(value in any_json()) {
        if let Err(error) = TfConfig::parse(&value.to_string()) {
            check_one_line(&error)?;
        }
    }

    #[test]
    fn a_damaged_text_is_read_or_refused_in_one_line(at in 0..TWO_WORKERS.len(), with in ".?") {
        let text = format!("{}{with}{}", &TWO_WORKERS[..at], &TWO_WORKERS[at + 1..]);
        if let Err(error) = TfConfig::parse(&text) {
            check_one_line(&error)?;
        }
    }

    #[test]
    fn a_cluster_written_as_json_reads_back(
        jobs in proptest::collection::vec(("[a-z ]{1,3}", proptest::collection::btree_map(0_u32..9, "\\PC{0,4}", 0..4)), 0..4),
    ) {
        let mut document = Map::new();
        for (job, tasks) in &jobs {
            let tasks = tasks.iter().map(|(index, address)| (index.to_string(), Value::from(address.as_str())));
            document.insert(job.clone(), Value::Object(tasks.collect()));
        }
        let text = serde_json::json!({ "cluster": document }).to_string();
        let config = TfConfig::parse(&text)?;
        // Later entries of a repeated name win in the JSON object, as they do in this map.
        let expected: BTreeMap<_, _> = jobs.into_iter().collect();
        let expected = expected.into_iter().map(|(job, tasks)| (job, Tasks::Map(tasks)));
        prop_assert_eq!(config.cluster(), &ClusterSpec::new(expected)?);
    }
}
