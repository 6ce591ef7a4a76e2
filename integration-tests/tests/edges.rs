//! The layers of the workspace, and the rules that every file keeps.
//!
//! [`LAYERS`] is the one place that says which package may depend on which; manifests and the table
//! of ARCHITECTURE.md are held against it. The other tests read the source of all members.

#[path = "edges/layers.rs"]
mod layers;
#[path = "edges/source.rs"]
mod source;
#[path = "edges/tidy.rs"]
mod tidy;
#[path = "edges/tree.rs"]
mod tree;
#[path = "edges/workspace.rs"]
mod workspace;

use layers::{Layer, MayUse};
use source::Source;
use workspace::Workspace;

/// Every member of the workspace, by folder, and the folders it may depend on.
const LAYERS: &[Layer] = &[
    Layer::new("mesh-core", MayUse::Only(&[])),
    Layer::new("layout", MayUse::Only(&["mesh-core"])),
    Layer::new("cluster-resolver", MayUse::Only(&[])),
    Layer::new("accel", MayUse::Only(&[])),
    Layer::new("accel-cpu", MayUse::Only(&["accel"])),
    Layer::new("collectives", MayUse::Only(&["accel"])),
    Layer::new(
        "strategy",
        MayUse::Only(&["cluster-resolver", "collectives", "accel", "mesh-core"]),
    ),
    Layer::new(
        "dtensor",
        MayUse::Only(&["mesh-core", "layout", "collectives", "accel"]),
    ),
    Layer::new("adapters/candle", MayUse::Only(&["strategy"])),
    Layer::new("cli", MayUse::All),
    Layer::new("examples/mnist", MayUse::All),
    Layer::new("examples/tensor-parallel", MayUse::All),
    Layer::new("integration-tests", MayUse::All),
    Layer::new("benches", MayUse::All),
];

/// Where code neither waits, nor asks the time, nor sees the outside: all files that begin so.
const PURE: &[&str] = &[
    "mesh-core/src/",
    "layout/src/",
    "cluster-resolver/src/difference",
    "cluster-resolver/src/error",
    "cluster-resolver/src/explanation",
    "cluster-resolver/src/gce/group",
    "cluster-resolver/src/kubernetes/pods",
    "cluster-resolver/src/multi_worker.rs",
    "cluster-resolver/src/proto",
    "cluster-resolver/src/service/answer",
    "cluster-resolver/src/service/error",
    "cluster-resolver/src/service/order",
    "cluster-resolver/src/service/patience",
    "cluster-resolver/src/service/secret",
    "cluster-resolver/src/slurm/counts",
    "cluster-resolver/src/slurm/error",
    "cluster-resolver/src/slurm/gpus",
    "cluster-resolver/src/slurm/hostlist",
    "cluster-resolver/src/slurm/layout",
    "cluster-resolver/src/slurm/placement",
    "cluster-resolver/src/slurm/step",
    "cluster-resolver/src/spec",
    "cluster-resolver/src/tf_config.rs",
    "cluster-resolver/src/tf_config/syntax.rs",
    "cluster-resolver/src/tpu/accelerators",
    "cluster-resolver/src/tpu/node",
    "cluster-resolver/src/tpu/target",
    "cluster-resolver/src/tpu/wait",
    "cluster-resolver/src/union",
    "collectives/src/agreement",
    "collectives/src/schedule",
    "collectives/src/membership",
    "collectives/src/wire",
    "collectives/src/contract.rs",
    "collectives/src/diagnosis",
    "collectives/src/waits",
    "strategy/src/checkpoint/snapshot",
    "dtensor/src/config",
    "dtensor/src/dataset",
    "dtensor/src/device_type",
    "dtensor/src/ops",
    "dtensor/src/random",
    "dtensor/src/route",
    "dtensor/src/scalar",
    "dtensor/src/variable",
    "strategy/src/dataset",
    "strategy/src/flat",
    "strategy/src/input/context",
    "strategy/src/input/cursor",
    "strategy/src/input/pieces",
    "strategy/src/input/rows",
    "strategy/src/packing",
    "strategy/src/sum",
    "strategy/src/value",
    "strategy/src/variable",
];

/// Files that may say `unsafe`, and why each has to.
const UNSAFE: &[(&str, &str)] = &[
    (
        "collectives/src/host.rs",
        "tokio registers a file descriptor by an unsafe function only",
    ),
    (
        "collectives/src/memory/mapping.rs",
        "memory that other ranks reach is allocated and mapped here, and nowhere else",
    ),
    (
        "collectives/src/memory/board.rs",
        "the head of a board lies in memory that other ranks have mapped too",
    ),
    (
        "collectives/src/memory/span.rs",
        "what other ranks share with this one can only be reached by address",
    ),
    (
        "collectives/src/memory/kernel.rs",
        "sources and destinations overlap, and other ranks own some of them",
    ),
    (
        "collectives/src/memory/far.rs",
        "streaming stores are instructions of some processors only",
    ),
    (
        "collectives/src/memory/reduce.rs",
        "the buffers of other ranks are reached by address; flags order who touches them",
    ),
    (
        "collectives/src/memory/pull.rs",
        "the buffers of other ranks are reached by address; flags order who touches them",
    ),
    (
        "collectives/src/memory/mail.rs",
        "the slots of other ranks are reached by address; flags order who touches them",
    ),
    (
        "collectives/src/memory/tests.rs",
        "whether this is sound is what the checker finds out",
    ),
    (
        "collectives/src/group/registered.rs",
        "registered memory is given out as a slice",
    ),
];

#[test]
fn packages_depend_only_on_what_their_layer_may() {
    report(layers::edge_problems(LAYERS, &workspace().members));
}

#[test]
fn packages_are_named_by_folder_and_inherit_from_the_workspace() {
    report(layers::manifest_problems(&workspace().members));
}

#[test]
fn the_architecture_document_has_the_same_table() {
    let document = workspace().document("ARCHITECTURE.md");
    report(layers::document_problem(LAYERS, document.as_deref()));
}

#[test]
fn resolvers_speak_neither_http_nor_tls_unless_asked_for() {
    let none: [&str; 0] = [];
    assert_eq!(tree::network_packages("meshwork-cluster-resolver"), none);
    // What is looked for would be found.
    let found = tree::network_packages("meshwork-collectives");
    assert!(found.contains(&"rustls".to_owned()), "{found:?}");
}

#[test]
fn pure_modules_know_no_time_threads_network_or_environment() {
    report(tidy::impure(&sources(), PURE));
}

#[test]
fn unsafe_code_is_where_it_is_expected_and_says_why_it_is_sound() {
    report(tidy::unexpected_unsafe(&sources(), UNSAFE));
}

#[test]
fn nothing_is_left_to_do_and_no_test_is_ignored() {
    report(tidy::unfinished(&sources()));
}

#[test]
fn files_are_short_and_named_after_their_module() {
    report(tidy::misshapen(&sources()));
}

fn workspace() -> Workspace {
    Workspace::read().unwrap_or_else(|error| panic!("reading the workspace: {error}"))
}

fn sources() -> Vec<Source> {
    let sources = workspace().sources();
    sources.unwrap_or_else(|error| panic!("reading the source: {error}"))
}

#[track_caller]
fn report(problems: impl IntoIterator<Item = String>) {
    let problems: Vec<_> = problems.into_iter().collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
