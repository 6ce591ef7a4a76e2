//! The layers of the workspace, and the rules that every file keeps.
//!
//! [`LAYERS`] is the one place that says which package may depend on which; manifests and the table
//! of ARCHITECTURE.md are held against it. The other tests read the source of all members.

#[path = "edges/book.rs"]
mod book;
#[path = "edges/container.rs"]
mod container;
#[path = "edges/documents.rs"]
mod documents;
#[path = "edges/errors.rs"]
mod errors;
#[path = "edges/fallbacks.rs"]
mod fallbacks;
#[path = "edges/first_pages.rs"]
mod first_pages;
#[path = "edges/guides.rs"]
mod guides;
#[path = "edges/language.rs"]
mod language;
#[path = "edges/layers.rs"]
mod layers;
#[path = "edges/limits.rs"]
mod limits;
#[path = "edges/modules.rs"]
mod modules;
#[path = "edges/pages.rs"]
mod pages;
#[path = "edges/source.rs"]
mod source;
#[path = "edges/tidy.rs"]
mod tidy;
#[path = "edges/tree.rs"]
mod tree;
#[path = "edges/twins.rs"]
mod twins;
#[path = "edges/unused.rs"]
mod unused;
#[path = "edges/workspace.rs"]
mod workspace;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use layers::{Layer, MayUse};
use meshwork_testing::{Browser, Need};
use modules::Cycle;
use pages::Pages;
use source::Source;
use twins::Shared;
use workspace::Workspace;

/// Every member of the workspace, by folder, and the folders it may depend on.
const LAYERS: &[Layer] = &[
    Layer::new("mesh-core", MayUse::Only(&[])),
    Layer::new("layout", MayUse::Only(&["mesh-core"])),
    Layer::new("cluster-resolver", MayUse::Only(&[])),
    Layer::new("accel", MayUse::Only(&[])),
    Layer::new("accel-cpu", MayUse::Only(&["accel"])),
    Layer::new("accel-cuda", MayUse::Only(&["accel"])),
    Layer::new("accel-tpu", MayUse::Only(&["mesh-core", "accel"])),
    Layer::new("schedule", MayUse::Only(&["accel"])),
    Layer::new("collectives", MayUse::Only(&["accel", "schedule"])),
    Layer::new("checkpoint", MayUse::Only(&[])),
    Layer::new("status", MayUse::Only(&["collectives"])),
    Layer::new(
        "strategy",
        MayUse::Only(&[
            "cluster-resolver",
            "collectives",
            "checkpoint",
            "accel",
            "mesh-core",
            "status",
        ]),
    ),
    Layer::new(
        "dtensor",
        MayUse::Only(&[
            "mesh-core",
            "layout",
            "collectives",
            "checkpoint",
            "accel",
            "accel-cpu",
            "accel-cuda",
            "accel-tpu",
        ]),
    ),
    Layer::new("adapters/burn", MayUse::Only(&["strategy", "accel-cuda"])),
    Layer::new("adapters/candle", MayUse::Only(&["strategy", "accel-cuda"])),
    Layer::new("adapters/candle-ops", MayUse::Only(&[])),
    Layer::new("launcher", MayUse::Only(&["collectives"])),
    Layer::new("cli", MayUse::All),
    Layer::new("testing", MayUse::Only(&[])),
    Layer::new("examples/burn-mnist", MayUse::All),
    Layer::new("examples/mnist", MayUse::All),
    Layer::new("examples/tensor-parallel", MayUse::All),
    Layer::new("examples/text", MayUse::All),
    Layer::new("integration-tests", MayUse::All),
    Layer::new("benches", MayUse::AllAnd("examples/text")),
];

/// Names of types that several crates have.
const SHARED: &[Shared] = &[
    Shared {
        name: "Error",
        why: "each crate has one, as `std::io` and `std::fmt` do",
    },
    Shared {
        name: "Distributed",
        why: "a program has one of the adapters",
    },
];

/// Where code neither waits, nor asks the time, nor sees the outside: all files that begin so.
const PURE: &[&str] = &[
    "accel-cuda/src/gemm",
    "accel-cuda/src/kernels",
    "accel-cuda/src/libraries/search",
    "accel-cuda/src/staging",
    "accel-cuda/src/target",
    "accel-tpu/src/compile.rs",
    "accel-tpu/src/hlo.rs",
    "accel-tpu/src/stablehlo",
    "accel-tpu/src/tpu/",
    "mesh-core/src/",
    "layout/src/",
    "cluster-resolver/src/cluster.rs",
    "cluster-resolver/src/cluster/",
    "cluster-resolver/src/difference",
    "cluster-resolver/src/error",
    "cluster-resolver/src/etcd/form",
    "cluster-resolver/src/explanation",
    "cluster-resolver/src/gce/group",
    "cluster-resolver/src/kubernetes/pods",
    "cluster-resolver/src/multi_worker",
    "cluster-resolver/src/proto",
    "cluster-resolver/src/resolver/overridden",
    "cluster-resolver/src/schedulers/lists",
    "cluster-resolver/src/service/answer",
    "cluster-resolver/src/service/order",
    "cluster-resolver/src/service/retry",
    "cluster-resolver/src/service/secret",
    "cluster-resolver/src/slurm/counts",
    "cluster-resolver/src/slurm/gpus",
    "cluster-resolver/src/slurm/hostlist",
    "cluster-resolver/src/slurm/layout",
    "cluster-resolver/src/slurm/placement",
    "cluster-resolver/src/slurm/step",
    "cluster-resolver/src/spec",
    "cluster-resolver/src/task",
    "cluster-resolver/src/text",
    "cluster-resolver/src/tf_config.rs",
    "cluster-resolver/src/tf_config/syntax.rs",
    "cluster-resolver/src/tpu/accelerators",
    "cluster-resolver/src/tpu/node",
    "cluster-resolver/src/tpu/target",
    "cluster-resolver/src/tpu/wait",
    "cluster-resolver/src/union",
    "checkpoint/src/error",
    "checkpoint/src/generation",
    "checkpoint/src/index",
    "collectives/src/agreement",
    "schedule/src/",
    "collectives/src/compression",
    "collectives/src/idle/budget",
    "collectives/src/idle/closing",
    "collectives/src/measured_links",
    "collectives/src/membership",
    "collectives/src/relay/datagram",
    "collectives/src/relay/table",
    "collectives/src/wire",
    "collectives/src/contract.rs",
    "collectives/src/core_sharing.rs",
    "collectives/src/group/device/route",
    "collectives/src/diagnosis",
    "collectives/src/wait_for_graph",
    "status/src/culprit",
    "status/src/gather/scope",
    "status/src/job",
    "status/src/json",
    "status/src/look",
    "status/src/metrics",
    "status/src/operations",
    "status/src/report",
    "status/src/snapshot",
    "strategy/src/snapshot",
    "dtensor/src/config",
    "dtensor/src/dataset",
    "dtensor/src/device_type",
    "dtensor/src/ops",
    "dtensor/src/random",
    "dtensor/src/transfer_plan",
    "dtensor/src/scalar",
    "dtensor/src/variable",
    "strategy/src/dataset",
    "strategy/src/gradients/power_sgd/",
    "strategy/src/low_communication/clock",
    "strategy/src/low_communication/fragments",
    "strategy/src/low_communication/package",
    "strategy/src/low_communication/quorum/common",
    "strategy/src/low_communication/quorum/follower",
    "strategy/src/low_communication/rounds",
    "strategy/src/low_communication/standing",
    "strategy/src/sharded/cut",
    "strategy/src/sharded/relayout/plan",
    "strategy/src/state_transfer/manifest",
    "strategy/src/state_transfer/parts",
    "strategy/src/state_transfer/plan",
    "strategy/src/strategy/elastic/",
    "strategy/src/flat_gradients",
    "strategy/src/input/context",
    "strategy/src/cursor",
    "strategy/src/input/replica_shards",
    "strategy/src/rows",
    "strategy/src/bucketing",
    "strategy/src/sum",
    "strategy/src/value",
    "strategy/src/variable",
];

/// Files that a program wrote, and which: nobody splits them.
const GENERATED: &[(&str, &str)] = &[(
    "accel-tpu/src/sys/pjrt.rs",
    "bindgen, by generate.sh beside it",
)];

/// Files that may say `unsafe`, and why each has to.
const UNSAFE: &[(&str, &str)] = &[
    (
        "adapters/burn/src/cuda/lend.rs",
        "who works on memory of burn, and until when it is there, no type says",
    ),
    (
        "adapters/candle/src/cuda/lend.rs",
        "who works on memory of candle, and until when it is there, no type says",
    ),
    (
        "adapters/candle-ops/src/product.rs",
        "the crate that multiplies matrices takes pointers",
    ),
    (
        "benches/peers/nexar/src/main.rs",
        "nexar takes the addresses of buffers as numbers",
    ),
    (
        "accel-tpu/src/sys/pjrt.rs",
        "functions of a C interface are declared as what they are",
    ),
    (
        "accel-tpu/src/sys/args.rs",
        "which struct goes to which function only the C header says",
    ),
    (
        "accel-tpu/src/sys/api.rs",
        "plugins are C libraries: to load one and to call it is to trust it",
    ),
    (
        "accel-tpu/src/sys/handle.rs",
        "objects of a plugin are addresses that it gave out",
    ),
    (
        "accel-tpu/src/sys/read.rs",
        "what a plugin points to can only be read by address",
    ),
    (
        "accel-tpu/src/sys/event.rs",
        "the end of work comes as a call from C",
    ),
    (
        "accel-tpu/src/sys/device.rs",
        "descriptions are read from the plugin's memory",
    ),
    (
        "accel-tpu/src/sys/client.rs",
        "calls into the plugin, with memory that it reads",
    ),
    (
        "accel-tpu/src/sys/buffer.rs",
        "calls into the plugin, with memory that it reads and writes",
    ),
    (
        "accel-tpu/src/sys/executable.rs",
        "calls into the plugin, with lists that it reads and fills",
    ),
    (
        "accel-tpu/src/sys/program.rs",
        "calls into the plugin, with memory that it fills",
    ),
    (
        "accel-tpu/src/sys/topology.rs",
        "calls into the plugin, with memory that it reads",
    ),
    (
        "accel-cpu/src/product.rs",
        "the library that multiplies takes matrices by address",
    ),
    (
        "accel/src/kernel/f16c.rs",
        "instructions that only some processors have are called once the processor was asked",
    ),
    (
        "accel/src/pinned_buffer.rs",
        "a device writes to memory by address, so its owner promises that it stays there",
    ),
    (
        "accel-cuda/src/sys/pinned.rs",
        "a GPU reads and writes memory of the program by address",
    ),
    (
        "accel-cuda/src/sys/shared_library.rs",
        "loading a library, and saying what type a function has, is believing what was found",
    ),
    (
        "accel-cuda/src/sys/driver.rs",
        "the driver's functions are of another language",
    ),
    (
        "accel-cuda/src/sys/gpu.rs",
        "the driver's functions are of another language",
    ),
    (
        "accel-cuda/src/sys/stream.rs",
        "the driver's functions are of another language",
    ),
    (
        "accel-cuda/src/sys/pool.rs",
        "the driver's functions are of another language",
    ),
    (
        "accel-cuda/src/sys/memory.rs",
        "the driver's functions are of another language",
    ),
    (
        "accel-cuda/src/sys/module.rs",
        "kernels take addresses that no compiler checks",
    ),
    (
        "accel-cuda/src/sys/slot.rs",
        "a GPU reads and writes pinned memory by address",
    ),
    (
        "accel-cuda/src/sys/compiler.rs",
        "the compiler's functions are of another language",
    ),
    (
        "accel-cuda/src/sys/blas.rs",
        "cuBLAS' functions are of another language",
    ),
    (
        "accel-cuda/src/sys/collectives.rs",
        "NCCL's functions are of another language",
    ),
    (
        "accel-cuda/src/sys/collectives/operations.rs",
        "NCCL's functions are of another language",
    ),
    (
        "accel-cuda/src/sys/external.rs",
        "memory of another library has an address and a stream, which its owner vouches for",
    ),
    (
        "accel-cuda/src/sys/foreign.rs",
        "what a function takes is believed to be what cudarc declares",
    ),
    (
        "accel-cuda/tests/support/other.rs",
        "the functions of that stand-in are called as another library calls them",
    ),
    (
        "accel-cuda/tests/support/fake.rs",
        "a library that stands in for the driver is asked what it has counted",
    ),
    (
        "collectives/src/host.rs",
        "tokio registers a file descriptor by an unsafe function only",
    ),
    (
        "collectives/src/flight_recorder/clock.rs",
        "the processor's counter is read by an unsafe function only",
    ),
    (
        "collectives/src/flight_recorder/journal.rs",
        "a reference that another thread reads meanwhile is kept as a pointer",
    ),
    (
        "collectives/src/shm/mapping.rs",
        "memory that other ranks reach is allocated and mapped here, and nowhere else",
    ),
    (
        "collectives/src/shm/control_block.rs",
        "the head of a board lies in memory that other ranks have mapped too",
    ),
    (
        "collectives/src/shm/span.rs",
        "what other ranks share with this one can only be reached by address",
    ),
    (
        "collectives/src/shm/kernel.rs",
        "sources and destinations overlap, and other ranks own some of them",
    ),
    (
        "collectives/src/shm/prefetch.rs",
        "the instruction that fetches a line for writing is no function of Rust's library",
    ),
    (
        "collectives/src/shm/streaming_copy.rs",
        "streaming stores are instructions of some processors only",
    ),
    (
        "collectives/src/shm/fetch.rs",
        "mapped and fetched sources are folded together, and flags order who touches them",
    ),
    (
        "collectives/src/shm/reduce.rs",
        "the buffers of other ranks are reached by address; flags order who touches them",
    ),
    (
        "collectives/src/shm/transfer.rs",
        "the buffers of other ranks are reached by address; flags order who touches them",
    ),
    (
        "collectives/src/shm/peer_channel.rs",
        "the slots of other ranks are reached by address; flags order who touches them",
    ),
    (
        "collectives/src/shm/tests/interleavings.rs",
        "whether this is sound is what the checker finds out",
    ),
    (
        "collectives/src/shm/tests/closing.rs",
        "a rank that was stopped writes when it goes on, to see where that ends up",
    ),
    (
        "collectives/src/group/registered.rs",
        "registered memory is given out as a slice",
    ),
];

/// Files that prove the product and are no part of it: all that begin so.
const PROOFS: &[&str] = &[
    "accel/src/conformance",
    "benches/",
    "checkpoint/src/testing.rs",
    "collectives/src/sim",
    "integration-tests/",
    "layout/src/ops/naive",
    "testing/",
];

/// Files of more than 100 lines that do not say what is in them, by first folder: fewer is better.
const SILENT: &[(&str, usize)] = &[];

/// Functions with tuple patterns in their parameters, by first folder: fewer is better.
const TUPLES: &[(&str, usize)] = &[];

/// Modules of one crate that use each other, and why they may.
const CYCLES: &[Cycle] = &[
    Cycle::new(
        "mesh-core",
        &["device", "error", "name"],
        "an error has the value that it is about, and to make one is what fails with it",
    ),
    Cycle::new(
        "layout",
        &["error", "spec"],
        "an error has the value that it is about, and to make one is what fails with it",
    ),
    Cycle::new(
        "dtensor",
        &["device_type", "error"],
        "an error has the value that it is about, and to make one is what fails with it",
    ),
    Cycle::new(
        "dtensor",
        &["record", "tensor"],
        "a tensor says who records it, and a record is of tensors",
    ),
    Cycle::new(
        "strategy",
        &["error", "variable"],
        "an error has the value that it is about, and to make one is what fails with it",
    ),
    Cycle::new(
        "collectives",
        &[
            "flight_recorder",
            "links",
            "local",
            "medium",
            "operation",
            "quic",
            "session",
            "shm",
        ],
        "session–medium–links: a hierarchy has sessions of its own",
    ),
];

/// Dependencies that no file of the package mentions, and why they are there.
const UNMENTIONED: &[(&str, &str, &str)] = &[
    (
        "adapters/candle",
        "meshwork-core",
        "a program of a guide that its doctests run has a mesh",
    ),
    (
        "cluster-resolver",
        "k8s-openapi",
        "kube-client does not build unless somebody chooses its version",
    ),
    (
        "integration-tests",
        "meshwork-cli",
        "the services that the command asks are tested wherever the whole workspace is",
    ),
    (
        "strategy",
        "tracing-subscriber",
        "programs in its documentation have a subscriber",
    ),
    (
        "integration-tests",
        "libloading",
        "the stand-in for CUDA's driver, which is a file of accel-cuda's tests",
    ),
    (
        "integration-tests",
        "twox-hash",
        "what compiles that stand-in, as above",
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
fn the_book_has_the_limits_of_the_source() {
    let document = workspace().document(limits::DOCUMENT);
    report(limits::problems(
        &workspace(),
        &document.unwrap_or_default(),
    ));
}

#[test]
fn decisions_have_one_form_and_are_in_the_index() {
    report(documents::decision_problems(&documents()));
}

#[test]
fn links_in_documents_lead_somewhere() {
    let workspace = workspace();
    let is_there = |path: &str| workspace.has(path);
    report(documents::dead_links(&documents(), &is_there));
}

#[test]
fn the_book_is_whole_and_its_programs_are_compiled() {
    report(book::problems(&documents(), sources()));
}

/// Where both programs are installed.
#[test]
fn the_book_reads_in_a_browser_without_a_network() {
    let built = Pages::build();
    let Some(pages) = Need::Mdbook.or_skip(built) else {
        return;
    };
    let Some(browser) = Need::Chromium.or_skip(Browser::start()) else {
        return;
    };
    report(pages.problems(&browser));
    pages.search(&browser);
}

#[test]
fn the_book_has_every_variable_that_is_read() {
    let settings = workspace().document(book::SETTINGS).unwrap_or_default();
    report(book::unknown_variables(&settings, sources()));
}

#[test]
fn the_book_has_every_feature() {
    let workspace = workspace();
    let chapter = workspace.document(book::CRATES).unwrap_or_default();
    report(book::feature_problems(&chapter, &workspace.members));
}

#[test]
fn first_pages_have_one_order() {
    let workspace = workspace();
    let page = |path: &str| workspace.document(path);
    report(first_pages::problems(&workspace.members, &page));
}

#[test]
fn boards_and_alerts_name_metrics_that_are_served() {
    let (workspace, sources) = (workspace(), sources());
    report(book::MONITORING.into_iter().flat_map(|path| {
        let text = workspace.document(path).unwrap_or_default();
        book::unknown_metrics(path, &text, sources)
    }));
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
    report(tidy::impure(sources(), PURE));
}

#[test]
fn unsafe_code_is_where_it_is_expected_and_says_why_it_is_sound() {
    report(tidy::unexpected_unsafe(sources(), UNSAFE));
}

#[test]
fn nothing_stands_in_for_a_missing_value_without_a_reason() {
    let is_product =
        |source: &&Source| !PROOFS.iter().any(|start| source.path().starts_with(start));
    report(fallbacks::problems(
        sources().iter().filter(is_product),
        include_str!("edges/fallbacks.txt"),
    ));
}

#[test]
fn nothing_is_left_to_do_and_no_test_is_ignored() {
    report(tidy::unfinished(sources()));
}

#[test]
fn identifiers_and_files_have_the_words_of_the_glossary() {
    let words = include_str!("edges/words.md");
    report(language::old_words(sources(), &language::forbidden(words)));
}

#[test]
fn no_two_crates_have_types_of_one_name() {
    report(twins::twins(sources(), SHARED));
}

#[test]
fn comments_are_no_wider_than_a_page() {
    report(language::wide_comments(sources()));
}

#[test]
fn long_files_say_what_is_in_them() {
    report(language::silent_files(sources(), SILENT));
}

#[test]
fn parameters_have_names() {
    report(language::tuple_parameters(sources(), TUPLES));
}

#[test]
fn the_book_explains_every_error() {
    report(errors::problems(sources(), &documents()));
}

#[test]
fn an_error_has_one_cause() {
    report(language::two_causes(sources()));
}

#[test]
fn modules_of_a_crate_are_layers_too() {
    report(modules::problems(sources(), CYCLES));
}

#[test]
fn a_test_that_skips_is_heard() {
    report(tidy::private_skips(sources()));
}

#[test]
fn files_are_short_and_named_after_their_module() {
    report(tidy::misshapen(sources(), GENERATED));
}

#[test]
fn every_dependency_is_used() {
    report(unused::dependencies(
        &workspace().members,
        sources(),
        UNMENTIONED,
    ));
}

#[test]
fn the_image_has_what_it_names_and_what_its_manifest_starts() {
    report(container::problems(&workspace()));
}

#[test]
fn guides_name_what_there_is() {
    let (documents, sources) = (documents(), sources());
    let chapters = documents.iter();
    let chapters = chapters.filter(|(path, _)| path.starts_with("docs/book/src/"));
    report(chapters.flat_map(|(path, chapter)| guides::unknown_names(sources, path, chapter)));
}

fn workspace() -> Workspace {
    Workspace::read().unwrap_or_else(|error| panic!("reading the workspace: {error}"))
}

fn documents() -> BTreeMap<String, String> {
    let documents = workspace().documents();
    documents.unwrap_or_else(|error| panic!("reading the documents: {error}"))
}

/// All files, parsed once for all tests.
fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let sources = workspace().sources();
        sources.unwrap_or_else(|error| panic!("reading the source: {error}"))
    });
    &SOURCES
}

#[track_caller]
fn report(problems: impl IntoIterator<Item = String>) {
    let problems: Vec<_> = problems.into_iter().collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
