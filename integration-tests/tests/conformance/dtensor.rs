//! Initialisation, values on meshes, variables and data sets, beside what TensorFlow made of them.

#[path = "dtensor/clients.rs"]
mod clients;
#[path = "dtensor/config.rs"]
mod config;
#[path = "dtensor/dataset.rs"]
mod dataset;
#[path = "dtensor/init.rs"]
mod init;
#[path = "dtensor/pack.rs"]
mod pack;
#[path = "dtensor/values.rs"]
mod values;
#[path = "dtensor/variable.rs"]
mod variable;

use std::path::Path;

use meshwork_dtensor::Context;
use serde_json::Value;

use crate::harness::{Topic, Verdict};

pub(crate) const TOPICS: &[Topic] = &[
    Topic::lines("config", "mesh/config.jsonl", config::judge),
    Topic::lines(
        "accelerator_init",
        "mesh/accelerator_init.jsonl",
        init::judge,
    ),
    Topic::lines("multi_client", "mesh/multi_client.jsonl", clients::judge),
    Topic::lines("pack", "mesh/pack.jsonl", pack::judge),
    Topic::lines("variable", "mesh/variable.jsonl", variable::judge),
    Topic::lines("dataset", "mesh/dataset.jsonl", dataset::judge),
];

/// Judges a case of a file by what one of several clients holds.
pub(crate) type AmongClients = fn(&Value, &Context, &Path) -> Verdict;

/// The files whose cases have values that several clients can hold together.
pub(crate) const AMONG_CLIENTS: &[(&str, AmongClients)] = &[
    ("mesh/pack.jsonl", |case, context, _| {
        pack::judge_in(case, context)
    }),
    ("mesh/variable.jsonl", variable::judge_in),
    ("mesh/dataset.jsonl", |case, context, _| {
        dataset::judge_in(case, context)
    }),
];
