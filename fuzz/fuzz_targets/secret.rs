//! Text that is no job secret is refused without being shown.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| meshwork_collectives::decoders::secret(bytes));
