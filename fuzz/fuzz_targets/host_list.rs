//! Text that reads as a host list means hosts that read as themselves.
#![no_main]

#[path = "../checks/cluster.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::host_list(bytes));
