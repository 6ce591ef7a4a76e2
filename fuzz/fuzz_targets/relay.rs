//! A datagram between a rank and a relay is written so that it reads the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::relay(bytes));
