//! What holds for layouts, whatever is read: shared by the fuzz targets and by the test that
//! replays their corpus. A check panics when it does not hold.
#![allow(dead_code, reason = "a fuzz target has one of them")]

use meshwork_layout::AnyLayout;
use meshwork_layout::ops::Equation;

/// A layout that is read from text is written so that it reads the same again.
pub(crate) fn layout_string(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(layout) = AnyLayout::parse(&text) {
        let mesh = layout.mesh();
        // A few characters can ask for all devices of a large host, which take hours to write.
        if mesh.mesh().is_none_or(|mesh| mesh.size() <= LARGEST) {
            assert_eq!(AnyLayout::parse(&layout.to_string()), Ok(layout), "{text}");
        }
    }
}

/// A layout that is read from bytes is written so that it reads the same again.
pub(crate) fn layout_proto(bytes: &[u8]) {
    if let Ok(layout) = AnyLayout::decode(bytes) {
        let written = layout.encode().expect("what was sent can be sent");
        assert_eq!(AnyLayout::decode(&written).as_ref(), Ok(&layout));
        assert!(!layout.to_string().is_empty());
    }
}

/// The equation of an einsum is shown so that it reads the same again.
pub(crate) fn equation(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(equation) = text.parse::<Equation>() {
        assert_eq!(equation.to_string().parse(), Ok(equation), "{text}");
    }
}

const LARGEST: usize = 4096;
