//! Text that reads as a layout is written as text that reads as the same layout.
#![no_main]

#[path = "../checks/layout.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::layout_string(bytes));
