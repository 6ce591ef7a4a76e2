//! The resolvers against the services that they ask: stand-ins on this machine, and the real ones
//! where they are installed. A test that lacks what it needs says so by name and ends.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

#[path = "services/etcd.rs"]
mod etcd;
#[path = "services/google.rs"]
mod google;
#[path = "services/kubeflow.rs"]
mod kubeflow;
#[path = "services/kubernetes.rs"]
mod kubernetes;
#[path = "services/loopback.rs"]
mod loopback;
#[path = "services/secrets.rs"]
mod secrets;
#[path = "services/spans.rs"]
mod spans;
#[path = "services/start.rs"]
mod start;
