//! Variables in which a scheduler describes a cluster mean one whose tasks all have a master.
#![no_main]

#[path = "../checks/cluster.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::environment(bytes));
