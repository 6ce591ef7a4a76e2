//! Text that reads as TF_CONFIG describes a cluster that keeps its word.
#![no_main]

#[path = "../checks/cluster.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::tf_config(bytes));
