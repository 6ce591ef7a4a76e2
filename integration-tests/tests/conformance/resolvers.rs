//! Cluster specs, and resolvers that need no network, beside what TensorFlow and Slurm made of
//! them.

#[path = "resolvers/environments.rs"]
mod environments;
#[path = "resolvers/given.rs"]
mod given;
#[path = "resolvers/host_lists.rs"]
mod host_lists;
#[path = "resolvers/naive.rs"]
mod naive;
#[path = "resolvers/probe.rs"]
pub(crate) mod probe;
#[path = "resolvers/slurm.rs"]
mod slurm;
#[path = "resolvers/spec.rs"]
mod spec;
#[path = "resolvers/variables.rs"]
mod variables;

use crate::harness::Topic;

pub(crate) const TOPICS: &[Topic] = &[
    Topic::lines("cluster_spec", "cluster/cluster_spec.jsonl", spec::judge),
    Topic::lines(
        "simple_resolver",
        "cluster/simple_resolver.jsonl",
        given::judge_simple,
    ),
    Topic::lines(
        "union_resolver",
        "cluster/union_resolver.jsonl",
        given::judge_union,
    ),
    Topic::lines(
        "tfconfig_resolver",
        "cluster/tfconfig_resolver.jsonl",
        variables::judge_tf_config,
    ),
    Topic::lines(
        "sagemaker_resolver",
        "cluster/sagemaker_resolver.jsonl",
        variables::judge_sagemaker,
    ),
    Topic::lines(
        "slurm_resolver",
        "cluster/slurm_resolver.jsonl",
        slurm::judge,
    ),
    Topic::own_lines("hostlist", "slurm/hostlist.jsonl", host_lists::judge),
    Topic {
        name: "slurm_environments",
        file: "slurm/environments.json",
        cases: environments::cases,
        judge: environments::judge,
    },
];
