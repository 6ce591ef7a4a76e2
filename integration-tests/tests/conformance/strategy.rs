//! The strategy, its input and what it stands on, beside what TensorFlow made of them.

#[path = "strategy/collective.rs"]
mod collective;
#[path = "strategy/input.rs"]
mod input;
#[path = "strategy/judge.rs"]
mod judge;
#[path = "strategy/mirrored.rs"]
mod mirrored;
#[path = "strategy/numbers.rs"]
mod numbers;
#[path = "strategy/options.rs"]
mod options;
#[path = "strategy/processes.rs"]
mod processes;
#[path = "strategy/roles.rs"]
mod roles;
#[path = "strategy/shard.rs"]
mod shard;
#[path = "strategy/variables.rs"]
mod variables;
#[path = "strategy/workers.rs"]
mod workers;

use crate::harness::Topic;

pub(crate) const TOPICS: &[Topic] = &[
    Topic::lines("dataset_shard", "cluster/dataset_shard.jsonl", shard::judge),
    Topic::lines("comm_options", "cluster/comm_options.jsonl", options::judge),
    Topic::lines("collective", "cluster/collective.jsonl", collective::judge),
    Topic::lines(
        "multi_worker_util",
        "cluster/multi_worker_util.jsonl",
        roles::judge,
    ),
    Topic::lines("mirrored", "cluster/mirrored.jsonl", mirrored::judge),
    Topic::lines("mwms", "cluster/mwms.jsonl", workers::judge),
];
