//! The words of a post that stand for a call are those of that call.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::post(bytes));
