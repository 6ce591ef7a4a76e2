//! The corpus of the fuzz targets for layouts.

#[path = "../../fuzz/checks/layout.rs"]
mod checks;
#[path = "../../fuzz/checks/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn layout_texts_are_read_or_refused() {
    replay("layout_string", checks::layout_string);
}

#[test]
fn layout_bytes_are_read_or_refused() {
    replay("layout_proto", checks::layout_proto);
}

#[test]
fn equations_are_read_or_refused() {
    replay("equation", checks::equation);
}
