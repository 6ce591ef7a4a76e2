//! What holds for devices and meshes, whatever is read: shared by the fuzz targets and by the test
//! that replays their corpus. A check panics when it does not hold.
#![allow(dead_code, reason = "a fuzz target has one of them")]

use meshwork_core::{AnyMesh, DeviceSpec};

/// A device is shown so that it reads the same again.
pub(crate) fn device_spec(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(spec) = DeviceSpec::parse(&text) {
        assert_eq!(DeviceSpec::parse(&spec.to_string()), Ok(spec), "{text}");
    }
}

/// A mesh that is read from text is written so that it reads the same again, in both forms.
pub(crate) fn mesh_string(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(mesh) = AnyMesh::parse(&text) {
        // A few characters can ask for all devices of a large host, which take hours to write.
        if mesh.mesh().is_none_or(|mesh| mesh.size() <= LARGEST) {
            assert_eq!(
                AnyMesh::parse(&mesh.to_string()).as_ref(),
                Ok(&mesh),
                "{text}"
            );
            assert_eq!(AnyMesh::decode(&mesh.encode()), Ok(mesh), "{text}");
        }
    }
}

/// A mesh that is read from bytes is written so that it reads the same again, and writing any of
/// its devices and ids ends.
pub(crate) fn mesh_proto(bytes: &[u8]) {
    if let Ok(mesh) = AnyMesh::decode(bytes) {
        assert_eq!(AnyMesh::decode(&mesh.encode()).as_ref(), Ok(&mesh));
        assert!(!mesh.to_string().is_empty());
        // Refused where a device does not say where it is, which is no panic.
        let _ = mesh.host_mesh();
    }
}

const LARGEST: usize = 4096;
