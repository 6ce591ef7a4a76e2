//! Bytes that read as a mesh are written as bytes that read as the same mesh.
#![no_main]

#[path = "../checks/mesh.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::mesh_proto(bytes));
