//! An operation with a rank whose control block says anything at all ends, and touches what it may
//! touch.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::control_block(bytes));
