//! Bytes that read as a layout are written as bytes that read as the same layout.
#![no_main]

#[path = "../checks/layout.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::layout_proto(bytes));
