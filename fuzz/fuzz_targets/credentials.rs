//! Certificates and keys of a file can be shown, or are refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::credentials(bytes));
