//! What a layout says, in the recorded form.

use std::fmt::Debug;

use meshwork_core::{AnyMesh, Error as MeshError, Mesh};
use meshwork_layout::{AnyLayout, Error, LayoutPattern, LayoutType, SpecPattern};
use serde_json::{Value, json};

use crate::deviations::layout::NO_DEVICE;
use crate::harness::Verdict;
use crate::mesh::answers::{hex, text};

/// The mesh `[["x", 2], …]` of CPUs that is recorded under the name `m`, or `{"single_device"}`.
pub(super) fn mesh(recorded: &Value) -> Result<AnyMesh, MeshError> {
    if let Some(device) = recorded.get("single_device") {
        return AnyMesh::from_device(text(device));
    }
    let dims = recorded.as_array().expect("a list of dimensions").iter();
    let size = |dim: &Value| dim[1].as_u64().expect("a size");
    let count = dims.clone().map(size).product::<u64>();
    let dims: Vec<_> = dims
        .map(|dim| format!("{}={}", text(&dim[0]), size(dim)))
        .collect();
    let device = |index| format!("/job:localhost/replica:0/task:0/device:CPU:{index}");
    let devices: Vec<_> = (0..count).map(device).collect();
    let ids: Vec<_> = (0..count).map(|id| id.to_string()).collect();
    let ids = ids.join(",");
    AnyMesh::parse(&format!(
        "m|{}|{ids}|{ids}|{}",
        dims.join(","),
        devices.join(",")
    ))
}

/// What is recorded to be constructed: `{"mesh", "specs"}`, parted if it says so.
pub(super) fn construct(input: &Value) -> Result<LayoutPattern, Error> {
    let mesh = Mesh::try_from(mesh(&input["mesh"])?)?;
    let pattern = LayoutPattern::from_names(words(&input["specs"]), &mesh)?;
    Ok(match input["parted"] == true {
        true => pattern.to_parted(),
        false => pattern,
    })
}

pub(super) fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(text).collect()
}

/// A field that every layout has.
pub(super) fn answer(any: &AnyLayout, field: &str) -> Option<Value> {
    Some(match field {
        "type" => json!(match any {
            // What it is called was not recorded.
            AnyLayout::Empty => "???",
            AnyLayout::SingleDevice(_) => "SINGLE_DEVICE",
            AnyLayout::Pattern(pattern) => match pattern.layout_type() {
                LayoutType::Static => "STATIC",
                LayoutType::Parted => "PARTED",
                _ => return None,
            },
        }),
        "rank" => json!(specs(any).len()),
        "sharding_specs" => json!(specs(any)),
        "to_string" => json!(any.to_string()),
        "to_string_head" => json!(head(any)),
        "to_parted_string_head" => match any {
            AnyLayout::Pattern(pattern) => json!(head(&pattern.to_parted().into())),
            _ => return None,
        },
        "head_plus_mesh_is_to_string" => {
            json!(format!("{} mesh:{}", head(any), any.mesh()) == any.to_string())
        }
        "string_roundtrip_equal" => json!(AnyLayout::parse(&any.to_string()).as_ref() == Ok(any)),
        "proto_roundtrip_equal" | "roundtrip_equal" => {
            let read = any.encode().and_then(|bytes| AnyLayout::decode(&bytes));
            json!(read.as_ref() == Ok(any))
        }
        "proto_hex" | "reserialized_hex" => match any.encode() {
            Ok(bytes) => json!(hex(bytes)),
            Err(error) => json!({"error": error.to_string()}),
        },
        _ => return None,
    })
}

fn specs(any: &AnyLayout) -> Vec<String> {
    match any {
        AnyLayout::Pattern(pattern) => pattern.specs().map(|spec| spec.to_string()).collect(),
        AnyLayout::Empty | AnyLayout::SingleDevice(_) => vec![],
    }
}

/// What goes before the mesh.
fn head(any: &AnyLayout) -> String {
    let text = any.to_string();
    let head = text.split(" mesh:").next().unwrap_or_default();
    head.to_owned()
}

/// Whether a pattern leaves any dimension open.
pub(super) fn is_open(pattern: &LayoutPattern) -> bool {
    let mut specs = pattern.specs();
    specs.any(|spec| !matches!(spec, SpecPattern::Exactly(_)))
}

/// Passes an error of the recorded category.
pub(super) fn judge_error<T: Debug>(case: &Value, result: &Result<T, Error>) -> Verdict {
    Verdict::refused_as(case, result, fits)
}

/// Whether an error is of a recorded category. `other` stands for those that were not sorted, and
/// where the process died there is none.
fn fits(category: Option<&str>, error: &Error) -> bool {
    match category {
        Some("repeated_mesh_dim") => {
            matches!(
                error,
                Error::RepeatedDim { .. } | Error::RepeatedMatch { .. }
            )
        }
        Some("unknown_mesh_dim") => is_unknown_dim(error),
        Some("type_mismatch") => matches!(
            error,
            Error::NotOneDevice
                | Error::Untyped
                | Error::SpecsWithoutMesh { .. }
                | Error::Mesh(MeshError::OnlyOneDevice { .. } | MeshError::EmptyMesh)
        ),
        Some("parse_error") => is_unreadable(error),
        Some("unsupported") => matches!(error, Error::UnknownType { .. }),
        // What is wrong with a mesh by itself.
        Some("duplicate" | "reserved_name" | "size_mismatch") => matches!(error, Error::Mesh(_)),
        Some("other") | None => true,
        Some(_) => false,
    }
}

/// One device alone has no dimension at all.
fn is_unknown_dim(error: &Error) -> bool {
    matches!(
        error,
        Error::Mesh(
            MeshError::UnknownDim { .. }
                | MeshError::ReservedDimName { .. }
                | MeshError::EmptyDimName
                | MeshError::DimNameCharacter { .. }
                | MeshError::OnlyOneDevice { .. }
        )
    )
}

fn is_unreadable(error: &Error) -> bool {
    match error {
        Error::LayoutText { .. } | Error::LayoutTypeText { .. } | Error::Decode { .. } => true,
        // A blank before a spec is the beginning of its name.
        Error::Mesh(MeshError::UnknownDim { name, .. }) => name.contains(' '),
        Error::Mesh(mesh) => matches!(
            mesh,
            MeshError::SingleDeviceText { .. }
                | MeshError::TextParts { .. }
                | MeshError::TextDim { .. }
                | MeshError::TextNumber { .. }
                | MeshError::TextGenerator { .. }
                | MeshError::DevicePart { .. }
                | MeshError::DeviceNumber { .. }
        ),
        _ => false,
    }
}

/// Whether a case is the misuse of a type, which the compiler refuses.
pub(super) fn is_misuse_of_types(case: &Value) -> bool {
    case["input"]["python_only"] == true && case.get("expect_error").is_some()
}

/// Judges that something is refused which TensorFlow takes: a text that names no device, by the
/// part of it that is none.
pub(super) fn judge_refusal(device: &Value, error: &Error) -> Verdict {
    let device = device.as_str().unwrap_or_default();
    let names_it = match error {
        Error::Mesh(
            MeshError::DevicePart { spec, .. }
            | MeshError::DeviceNumber { spec, .. }
            | MeshError::TwoDevices { spec, .. },
        ) => spec == device,
        Error::Mesh(MeshError::DeviceWord { word }) => device.contains(word.as_str()),
        Error::Mesh(MeshError::SingleDeviceText { .. } | MeshError::DeviceWithoutType { .. }) => {
            !device.is_empty()
        }
        _ => false,
    };
    match names_it {
        true => Verdict::by(NO_DEVICE),
        false => Verdict::Failed(format!("refused by {error:?}")),
    }
}
