//! Text that reads as a mesh is written as text and bytes that read as the same mesh.
#![no_main]

#[path = "../checks/mesh.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::mesh_string(bytes));
