//! What a mesh says, in the recorded form, and how recorded answers are read.

use std::fmt::Debug;

use meshwork_core::{AnyMesh, Error, Mesh, MeshRank};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use crate::harness::Verdict;

/// Holds every recorded field against `answer`, which knows all of them.
pub(crate) fn compare(expect: &Value, mut answer: impl FnMut(&str) -> Option<Value>) -> Verdict {
    let fields = expect.as_object().expect("recorded answers are objects");
    for (field, expected) in fields {
        match answer(field) {
            None => return Verdict::Failed(format!("the field {field} is not known")),
            Some(found) if !same(expected, &found) => {
                return Verdict::Failed(format!("{field} is {found}, recorded is {expected}"));
            }
            Some(_) => {}
        }
    }
    Verdict::Passed
}

/// Whether an answer is the recorded one, which may be abbreviated.
pub(super) fn same(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(short), Value::String(text)) if short.contains_key("sha256") => {
            same_digest(short, text.as_bytes())
        }
        (Value::Object(short), Value::Array(list)) if short.contains_key("first") => {
            let ends = (short["first"].as_array(), short["last"].as_array());
            let (Some(first), Some(last)) = ends else {
                return false;
            };
            short["len"] == json!(list.len()) && list.starts_with(first) && list.ends_with(last)
        }
        (Value::Object(error), Value::Object(_)) if error.contains_key("error") => {
            found.get("error").is_some()
        }
        _ => expected == found,
    }
}

/// Whether `{"len", "sha256"}` stands for these bytes.
pub(super) fn same_digest(short: &Map<String, Value>, bytes: &[u8]) -> bool {
    short["len"] == json!(bytes.len()) && short["sha256"] == json!(hex(digest(&SHA256, bytes)))
}

pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("recorded as hex");
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// Passes an error of the recorded category.
pub(super) fn judge_error<T: Debug>(case: &Value, result: &Result<T, Error>) -> Verdict {
    Verdict::refused_as(case, result, fits)
}

/// Whether an error is of a recorded category. `other` stands for those that were not sorted, and
/// where the process died there is none.
fn fits(category: Option<&str>, error: &Error) -> bool {
    match category {
        Some("duplicate" | "repeated_mesh_dim") => matches!(
            error,
            Error::DuplicateDim { .. } | Error::DuplicateDevice { .. } | Error::DuplicateId { .. }
        ),
        Some("reserved_name") => matches!(error, Error::ReservedDimName { .. }),
        Some("unsupported") => matches!(
            error,
            Error::SpmdNeedsTpu { .. } | Error::MixedDeviceTypes { .. } | Error::TpuWithoutTopology
        ),
        Some("not_divisible") => matches!(error, Error::UnevenLocalDevices { .. }),
        Some("parse_error") => matches!(
            error,
            Error::TextParts { .. }
                | Error::TextNumber { .. }
                | Error::TextDim { .. }
                | Error::SingleDeviceText { .. }
                | Error::DevicePart { .. }
                | Error::DeviceNumber { .. }
                | Error::DeviceWord { .. }
                | Error::TwoDevices { .. }
        ),
        Some("size_mismatch") => matches!(
            error,
            Error::DeviceCount { .. }
                | Error::IdCount { .. }
                | Error::LocalDeviceCount { .. }
                | Error::NoSuchDevices { .. }
                | Error::TextLocalCount { .. }
        ),
        Some("other") | None => true,
        Some(_) => false,
    }
}

/// A field of what TensorFlow calls a mesh.
pub(super) fn any_answer(any: &AnyMesh, field: &str) -> Option<Value> {
    Some(match (field, any) {
        ("to_string", _) => json!(any.to_string()),
        ("is_single_device", _) => json!(any.is_single_device()),
        ("single_device", _) => json!(any.single_device().map(ToString::to_string)),
        ("device_type", _) => json!(any.device_type().unwrap_or_default()),
        ("empty", _) => json!(*any == AnyMesh::Empty),
        ("proto_hex" | "reserialized_hex", _) => json!(hex(any.encode())),
        (_, AnyMesh::Mesh(mesh)) => return mesh_answer(mesh, field),
        ("name", _) => json!(""),
        ("local_devices" | "global_devices" | "local_device_ids", _) => json!([]),
        ("use_xla_spmd", AnyMesh::Empty) => json!(false),
        _ => return None,
    })
}

/// A field of devices arranged along dimensions.
pub(crate) fn mesh_answer(mesh: &Mesh, field: &str) -> Option<Value> {
    let sizes = || {
        mesh.dims()
            .iter()
            .map(|dim| (dim.name().to_string(), dim.size()))
    };
    Some(match field {
        "name" => json!(mesh.name()),
        "size" => json!(mesh.size()),
        "shape" => json!(Vec::from_iter(mesh.shape())),
        "strides" => json!(mesh.strides()),
        "dims" => json!(Vec::from_iter(sizes())),
        "dim_names" => json!(Vec::from_iter(mesh.dim_names().map(ToString::to_string))),
        "dim_sizes" => sizes().map(|(name, size)| (name, json!(size))).collect(),
        "num_local_devices" => json!(mesh.num_local_devices()),
        "local_device_ids" => json!(Vec::from_iter(mesh.local_device_ids().iter())),
        "global_device_ids" => json!(Vec::from_iter(mesh.global_device_ids().iter())),
        "is_single_device" => json!(false),
        "device_type" => json!(mesh.device_type().unwrap_or_default()),
        "to_string" => json!(mesh.to_string()),
        "min_global_device_id" => json!(mesh.min_global_device_id()),
        "local_devices" => json!(Vec::from_iter(mesh.local_devices().texts())),
        "global_devices" => json!(Vec::from_iter(mesh.global_devices().texts())),
        "local_device_locations" => mesh
            .local_ranks()
            .map(|rank| location(mesh, rank))
            .collect(),
        "is_remote" => json!(mesh.is_remote()),
        "use_xla_spmd" => json!(mesh.use_xla_spmd()),
        "string_roundtrip_equal" | "equal" => match mesh.to_string().parse::<Mesh>() {
            Ok(read) => json!(read == *mesh),
            Err(error) => json!({"error": error.to_string()}),
        },
        "string_roundtrip_to_string_same" | "same_string" => {
            let read = mesh.to_string().parse::<Mesh>();
            json!(read.is_ok_and(|read| read.to_string() == mesh.to_string()))
        }
        "proto_roundtrip_equal" | "roundtrip_equal" => {
            let any = AnyMesh::from(mesh.clone());
            json!(AnyMesh::decode(&any.encode()) == Ok(any))
        }
        _ => return None,
    })
}

/// The coordinates of a rank, as `{"x": 0}`.
pub(super) fn location(mesh: &Mesh, rank: MeshRank) -> Value {
    let coords = mesh.named_coords(rank).expect("the mesh has the rank");
    let named = coords.map(|(name, coord)| (name.to_string(), json!(coord)));
    named.collect()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().expect("recorded as text")
}

/// A list of texts, or `{"pattern", "from", "to"}`.
pub(super) fn texts(value: &Value) -> Vec<String> {
    let Some(pattern) = value.get("pattern") else {
        let list = value.as_array().into_iter().flatten();
        return list.map(|item| text(item).to_owned()).collect();
    };
    let numbers = integer(&value["from"])..integer(&value["to"]);
    numbers
        .map(|i| text(pattern).replace("{i}", &i.to_string()))
        .collect()
}

/// A list of whole numbers, or `{"range": [from, to]}`.
pub(super) fn integers(value: &Value) -> Vec<i64> {
    match value.get("range") {
        Some(range) => (integer(&range[0])..integer(&range[1])).collect(),
        None => value
            .as_array()
            .into_iter()
            .flatten()
            .map(integer)
            .collect(),
    }
}

pub(crate) fn integer(value: &Value) -> i64 {
    value.as_i64().expect("recorded as a whole number")
}
