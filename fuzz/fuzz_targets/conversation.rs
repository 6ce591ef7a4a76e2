//! Whatever members say, a group ends once and the agreement on the next epoch once.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::conversation(bytes));
