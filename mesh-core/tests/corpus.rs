//! The corpus of the fuzz targets for devices and meshes.

#[path = "../../fuzz/checks/mesh.rs"]
mod checks;
#[path = "../../fuzz/checks/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn device_names_are_read_or_refused() {
    replay("device_spec", checks::device_spec);
}

#[test]
fn mesh_texts_are_read_or_refused() {
    replay("mesh_string", checks::mesh_string);
}

#[test]
fn mesh_bytes_are_read_or_refused() {
    replay("mesh_proto", checks::mesh_proto);
}
