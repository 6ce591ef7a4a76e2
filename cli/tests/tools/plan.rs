//! `meshwork plan` from outside.

use serde_json::{Value, json};

use super::says;

fn plan(args: &[&str]) -> (String, String, Option<i32>) {
    says("plan", args)
}

const ROWS_TO_COLUMNS: [&str; 8] = [
    "--mesh",
    "x=2,y=4",
    "--shape",
    "8,8",
    "--from",
    "y,unsharded",
    "--to",
    "unsharded,y",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&ROWS_TO_COLUMNS, more].concat()
}

#[test]
fn a_plan_is_told_in_sentences() {
    let (stdout, stderr, status) = plan(&ROWS_TO_COLUMNS);
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], "8×8, 4 B an element: from [y, -] to [-, y]");
    assert!(lines[1].starts_with("  1. all-to-all over y: "), "{stdout}");
    assert!(lines[3].starts_with("in all 48 B received"), "{stdout}");
    assert_eq!(lines.len(), 4);
}

#[test]
fn a_plan_comes_as_json_where_asked() {
    let (stdout, stderr, status) = plan(&with(&["--format", "json", "--latency", "0"]));
    assert_eq!((stderr.as_str(), status), ("", Some(0)));
    let found: Value = serde_json::from_str(&stdout).unwrap();
    let layout = |axes| json!({"axes": axes, "partial": [], "reduction": null});
    let step = json!({
        "collective": "all-to-all",
        "over": ["y"],
        "before": layout(json!([["y"], []])),
        "after": layout(json!([[], ["y"]])),
        "bytes": 48,
        "peak_bytes": 128,
        "seconds": 0.0,
    });
    let whole = json!({
        "shape": [8, 8],
        "element_size": 4,
        "bytes": 48,
        "collectives": 1,
        "peak_bytes": 128,
        "seconds": 0.0,
        "steps": [step],
    });
    assert_eq!(found, whole);
}

#[test]
fn another_mesh_element_size_and_link_change_the_plan() {
    let more = ["--to-mesh", "z=2,y=4", "--element-size", "8"];
    let (stdout, stderr, _) = plan(&with(&more));
    assert!(stdout.contains("in all 96 B received"), "{stdout}{stderr}");
    let more = ["--bandwidth", "48", "--latency", "0.5", "--format", "json"];
    let found: Value = serde_json::from_str(&plan(&with(&more)).0).unwrap();
    assert_eq!(found["seconds"], json!(1.5));
}

#[test]
fn what_cannot_be_planned_is_refused_with_the_reason() {
    let (stdout, stderr, status) = plan(&with(&["--memory", "90"]));
    assert_eq!((stdout.as_str(), status), ("", Some(1)));
    assert!(
        stderr.contains("no plan keeps within 90 bytes on each device: it takes 96 bytes"),
        "{stderr}"
    );
    let (_, stderr, status) = plan(&with(&["--to-mesh", "y=16"]));
    assert_eq!(status, Some(1));
    assert!(stderr.contains("of 8 and of 16 ranks"), "{stderr}");
    for (argument, value, why) in [
        ("--latency", "soon", "it takes a number of seconds"),
        ("--latency", "-1", "it takes a number of seconds from 0 up"),
        ("--element-size", "0", "invalid value '0'"),
        ("--format", "yaml", "possible values: text, json"),
    ] {
        let (stdout, stderr, status) = plan(&with(&[argument, value]));
        assert_eq!((stdout.as_str(), status), ("", Some(2)));
        assert!(stderr.contains(why), "{stderr}");
    }
}
