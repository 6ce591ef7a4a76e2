//! Bytes that read as a cluster are written as bytes that read as the same cluster.
#![no_main]

#[path = "../checks/cluster.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::cluster_def(bytes));
