//! What other systems answered when they were run, held against this project.
//!
//! Every file of recorded cases under `vectors/` (or under the folder that `MESHWORK_VECTORS`
//! names) is a topic. A topic is claimed by a function that judges one case; the outcome is one
//! line a topic, `topic: P passed, F failed, D deviations`, and the test fails on any failure.
//! Topics that nothing claims are listed as unclaimed, files that are not there are skipped.
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
#[path = "conformance/mesh.rs"]
mod mesh;
#[path = "conformance/ops.rs"]
mod ops;
#[path = "conformance/processes.rs"]
mod processes;
#[path = "conformance/reshard.rs"]
mod reshard;
#[path = "conformance/resolvers.rs"]
mod resolvers;
#[path = "conformance/strategy.rs"]
mod strategy;

use harness::Topic;

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
    harness::run(&topics());
}
