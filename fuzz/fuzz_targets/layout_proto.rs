//! Bytes that read as a layout are written as bytes that read as the same layout.
#![no_main]

use libfuzzer_sys::fuzz_target;
use meshwork_layout::AnyLayout;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(layout) = AnyLayout::decode(bytes) {
        let written = layout.encode().expect("what was sent can be sent");
        assert_eq!(AnyLayout::decode(&written), Ok(layout));
    }
});
