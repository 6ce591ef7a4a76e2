//! The equation of an einsum is shown so that it reads the same again.
#![no_main]

#[path = "../checks/layout.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::equation(bytes));
