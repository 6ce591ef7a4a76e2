//! A dump, whatever it says, leads to a diagnosis and a trace.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::dump(bytes));
