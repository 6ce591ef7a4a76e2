//! The resolvers that ask services: Compute Engine, Kubernetes, Cloud TPU, and what they send.
//!
//! Each case is played by a server on this machine; the answers of ours are written in the recorded
//! form and compared key by key. Where they differ, a model of the rule says what they have to be.

#[path = "cluster_http/answers.rs"]
mod answers;
#[path = "cluster_http/gce.rs"]
mod gce;
#[path = "cluster_http/kubernetes.rs"]
mod kubernetes;
#[path = "../services/loopback.rs"]
mod loopback;
#[path = "cluster_http/tpu.rs"]
mod tpu;
#[path = "cluster_http/tpu_client.rs"]
mod tpu_client;
#[path = "cluster_http/wire.rs"]
mod wire;

use crate::harness::Topic;

pub(crate) const TOPICS: &[Topic] = &[
    Topic::lines("gce_resolver", "cluster/gce_resolver.jsonl", gce::judge),
    Topic::lines(
        "k8s_resolver",
        "cluster/k8s_resolver.jsonl",
        kubernetes::judge,
    ),
    Topic::lines("tpu_resolver", "cluster/tpu_resolver.jsonl", tpu::judge),
    Topic::lines("wire", "cluster/wire.jsonl", wire::judge),
];
