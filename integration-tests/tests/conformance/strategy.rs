//! The strategy, its input and what it stands on, beside what TensorFlow made of them.

#[path = "strategy/collective.rs"]
mod collective;
#[path = "strategy/options.rs"]
mod options;
#[path = "strategy/roles.rs"]
mod roles;
#[path = "strategy/shard.rs"]
mod shard;

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
];
