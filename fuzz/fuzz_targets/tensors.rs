//! What stands in files of tensors is read or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_checkpoint::tensors::decode(bytes));
