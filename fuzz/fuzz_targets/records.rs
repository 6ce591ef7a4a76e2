//! Of what comes over TCP, what the other end has sealed in its order arrives, and nothing else.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::records(bytes));
