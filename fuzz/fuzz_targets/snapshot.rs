//! A snapshot that is read is written so that it reads the same.
#![no_main]

#[path = "../checks/snapshot.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::snapshot(bytes));
