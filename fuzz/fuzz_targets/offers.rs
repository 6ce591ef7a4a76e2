//! Whatever ranks offer, a way of joining their devices or a reason against it is found.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::offers(bytes));
