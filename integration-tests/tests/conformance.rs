//! What other systems answered when they were run, held against this project.
//!
//! Every file of recorded cases under `vectors/` (or under the folder that `MESHWORK_VECTORS`
//! names) is a topic. A topic is claimed by a function that judges one case; the outcome is one
//! line a topic, `topic: P passed, F failed, D deviations, N not askable`, and the test fails on
//! any failure. A case that cannot be read or asked fails by itself, and all others are judged.
//!
//! Of the project's own files each has a topic and each topic a file, every rule has a case there
//! or in `conformance/written` that it fits, and the lines are those of `conformance/counts.txt`.
//! Another folder may have less.
//!
//! Where the recorded system crashes, is wrong, or accepts what nobody can mean, this project
//! deviates by a rule of `deviations.rs`, never by a case's number.

#[path = "conformance/cluster_http.rs"]
mod cluster_http;
#[path = "conformance/deviations.rs"]
mod deviations;
#[path = "conformance/devices.rs"]
mod devices;
#[path = "conformance/dtensor.rs"]
mod dtensor;
#[path = "conformance/harness.rs"]
mod harness;
#[path = "conformance/layout.rs"]
mod layout;
#[path = "conformance/lists.rs"]
mod lists;
#[path = "conformance/mesh.rs"]
mod mesh;
#[path = "conformance/not_askable.rs"]
mod not_askable;
#[path = "conformance/ops.rs"]
mod ops;
#[path = "conformance/overridden.rs"]
mod overridden;
#[path = "conformance/processes.rs"]
mod processes;
#[path = "conformance/report.rs"]
mod report;
#[path = "conformance/reshard.rs"]
mod reshard;
#[path = "conformance/resolvers.rs"]
mod resolvers;
#[path = "conformance/strategy.rs"]
mod strategy;
#[path = "conformance/written.rs"]
mod written;

use harness::{Topic, Vectors, judge_all};

/// Every topic that code answers for.
fn topics() -> Vec<Topic> {
    let claimed: [&[Topic]; _] = [
        cluster_http::TOPICS,
        dtensor::TOPICS,
        mesh::TOPICS,
        layout::TOPICS,
        ops::TOPICS,
        reshard::TOPICS,
        resolvers::TOPICS,
        strategy::TOPICS,
    ];
    claimed.concat()
}

#[test]
fn recorded_answers_are_met_or_deviated_from_by_rule() {
    let vectors = Vectors::of_environment();
    let report = judge_all(vectors.folder(), &topics());
    println!("\n{report}");
    let written = judge_all(&written::folder(), &topics());
    let problems = report.problems(&vectors, &written);
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
}
