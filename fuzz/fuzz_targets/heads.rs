//! What stands first on a stream or connection between ranks is written so that it reads the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::heads(bytes));
