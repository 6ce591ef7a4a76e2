//! A device is shown so that it reads the same again.
#![no_main]

#[path = "../checks/mesh.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::device_spec(bytes));
