//! The index of a checkpoint that is read is written so that it reads the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_checkpoint::decode_index(bytes));
