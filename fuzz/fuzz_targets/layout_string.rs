//! Text that reads as a layout is written as text that reads as the same layout.
#![no_main]

use libfuzzer_sys::fuzz_target;
use meshwork_layout::AnyLayout;

fuzz_target!(|text: &str| {
    let Ok(layout) = AnyLayout::parse(text) else {
        return;
    };
    // `|x=2147483647|*CPU` is short, and what it stands for is not.
    let mesh = layout.mesh();
    if mesh.mesh().is_none_or(|mesh| mesh.size() <= 4096) {
        assert_eq!(AnyLayout::parse(&layout.to_string()), Ok(layout));
    }
});
