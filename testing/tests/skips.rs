//! What a test says and does that lacks what it needs, in a process of its own.

use std::env;
use std::process::Output;

use meshwork_testing::{Need, child, passed};

/// Set in the processes that these tests start.
const LACKS: &str = "MESHWORK_TEST_LACKS";

/// How the test below ends, with its output captured as usual, where these are required.
fn lacking(required: &str) -> Output {
    let mut child = child("lacks_what_it_needs");
    child.env(LACKS, "").env(Need::REQUIRE, required);
    child.output().expect("a test can run itself again")
}

#[track_caller]
fn check_fails(required: &str, complaint: &str) {
    let ended = lacking(required);
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains(complaint), "{said}");
}

/// Passes by itself; the tests below start it where it has nothing.
#[test]
fn lacks_what_it_needs() {
    let found = env::var_os(LACKS).map_or(Ok(7), |_| Err("slurmd is\nnot there"));
    let Some(found) = Need::Slurm.or_skip(found) else {
        return;
    };
    assert_eq!(found, 7);
}

#[test]
fn a_skip_is_one_line_past_the_capture_of_output() {
    for required in ["", "gpu"] {
        let ended = lacking(required);
        let said = passed(&ended);
        assert_eq!(
            String::from_utf8_lossy(&ended.stderr),
            "skipped: slurm: lacks_what_it_needs: slurmd is not there; as root, install slurm-wlm, \
             slurm-client and munge, as Debian calls them\n"
        );
        assert!(!said.contains("skipped"), "{said}");
    }
}

#[test]
fn a_skip_of_what_is_required_is_a_failure_that_says_what_is_missing_and_how_it_is_had() {
    for required in ["slurm", "gpu,slurm", "all"] {
        let complaint = "MESHWORK_REQUIRE asks for slurm, which is missing: slurmd is not there; \
                         as root, install slurm-wlm";
        check_fails(required, complaint);
    }
}

#[test]
fn an_unknown_name_fails_also_where_nothing_is_missing() {
    let mut child = child("lacks_what_it_needs");
    let ended = child.env(Need::REQUIRE, "slrum").output().unwrap();
    assert!(!ended.status.success());
    check_fails(
        "slrum",
        "no test needs `slrum`: write `all`, or some of chromium,",
    );
}

#[test]
#[should_panic(expected = "the child has not run exactly one test")]
fn a_test_that_is_not_there_has_not_passed() {
    drop(passed(&child("is_not_there").output().unwrap()));
}
