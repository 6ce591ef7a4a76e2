//! Real processes that train together, and what they do when one dies, disagrees or is misled.
//!
//! `MESHWORK_SOAK=N` kills N processes at random moments instead of a few.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

#[path = "processes/bad_input.rs"]
mod bad_input;
#[path = "processes/death.rs"]
mod death;
#[path = "processes/devices.rs"]
mod devices;
#[path = "processes/diagnosis.rs"]
mod diagnosis;
#[path = "processes/diloco.rs"]
mod diloco;
#[path = "processes/elastic.rs"]
mod elastic;
#[path = "processes/equivalence.rs"]
mod equivalence;
#[path = "processes/growth.rs"]
mod growth;
#[path = "processes/hosts.rs"]
mod hosts;
#[path = "../src/bin/soak/namespaces.rs"]
mod namespaces;
#[path = "processes/outage.rs"]
mod outage;
#[path = "processes/relay.rs"]
mod relay;
#[path = "processes/replicas.rs"]
mod replicas;
#[path = "processes/roaming.rs"]
mod roaming;
#[path = "processes/simulate.rs"]
mod simulate;
#[path = "processes/soak.rs"]
mod soak;
#[path = "processes/strangers.rs"]
mod strangers;
#[path = "processes/training.rs"]
mod training;
#[path = "processes/uneven.rs"]
mod uneven;
#[path = "processes/worker.rs"]
mod worker;
