//! Initialisation and what an environment says, beside what TensorFlow made of it.

#[path = "dtensor/config.rs"]
mod config;
#[path = "dtensor/init.rs"]
mod init;

use crate::harness::Topic;

pub(crate) const TOPICS: &[Topic] = &[
    Topic::lines("config", "mesh/config.jsonl", config::judge),
    Topic::lines(
        "accelerator_init",
        "mesh/accelerator_init.jsonl",
        init::judge,
    ),
];
