//! Recorded meshes and values, and how tensors are held against them.

use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{Context, DTensor, Error, Scalar};
use meshwork_layout::Layout;
use ndarray::{ArrayD, ArrayViewD, Axis};
use serde_json::{Value, json};

use crate::lists;
use crate::mesh::answers::{integer, text};

/// One process with eight CPUs, as TensorFlow was run.
pub(super) fn context() -> Context {
    let client = Client::new("localhost", 0, 1).and_then(|client| client.with_devices("CPU", 8));
    Context::alone(client.expect("a process with eight CPUs"))
}

/// The mesh of `[[dim, size], ..]`, of the first devices of a process that is alone, or of all
/// devices of several.
pub(super) fn mesh(context: &Context, dims: &Value) -> Result<Mesh, Error> {
    let dims = list(dims).iter().map(|dim| (text(&dim[0]), size(&dim[1])));
    let dims: Vec<_> = dims.collect();
    if !context.is_alone() {
        return context.create_distributed_mesh(CreateMesh::new().dims(dims));
    }
    let devices = dims.iter().map(|(_, size)| size).product::<usize>();
    let device = |index: usize| format!("CPU:{index}").parse();
    let devices = (0..devices).map(device).collect::<Result<Vec<_>, _>>()?;
    context.create_mesh(CreateMesh::new().dims(dims).devices(devices))
}

pub(super) fn layout(names: &Value, mesh: &Mesh) -> Result<Layout, Error> {
    Ok(Layout::from_names(list(names).iter().map(text), mesh)?)
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn size(value: &Value) -> usize {
    usize::try_from(integer(value)).expect("a recorded size")
}

pub(super) fn sizes(value: &Value) -> Vec<usize> {
    list(value).iter().map(size).collect()
}

/// The elements 0, 1, 2 and so on.
pub(super) fn numbered<T: Scalar>(shape: &[usize]) -> ArrayD<T> {
    let count: usize = shape.iter().product();
    let elements = (0..count).map(T::from_index).collect();
    ArrayD::from_shape_vec(shape, elements).expect("as many elements as the shape says")
}

/// The array that nested lists are; none if they are no array of numbers.
pub(super) fn array<T: Scalar>(value: &Value) -> Option<ArrayD<T>> {
    let elements = lists::numbers(value)?.into_iter().map(T::from_f64);
    ArrayD::from_shape_vec(lists::shape(value), elements.collect()).ok()
}

/// The nested lists that an array is.
pub(super) fn nested<T: Scalar>(array: &ArrayViewD<'_, T>) -> Value {
    match array.ndim() {
        0 => element(array.iter().next().copied().unwrap_or_default()),
        _ => array.axis_iter(Axis(0)).map(|part| nested(&part)).collect(),
    }
}

fn element<T: Scalar>(element: T) -> Value {
    let value = element.to_f64();
    match T::TYPE {
        meshwork_dtensor::ElementType::Bool => json!(value != 0.0),
        _ => json!(value),
    }
}

/// Whether two values are the same, numbers by their value.
pub(super) fn same(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found
                    .iter()
                    .zip(expected)
                    .all(|(found, expected)| same(found, expected))
        }
        (Value::Number(found), Value::Number(expected)) => {
            match (found.as_f64(), expected.as_f64()) {
                (Some(found), Some(expected)) => {
                    (found - expected).abs() <= 1e-6 * expected.abs().max(1.0)
                }
                _ => false,
            }
        }
        _ => found == expected,
    }
}

/// How a tensor is not the recorded one: its layout, shape, type or what each device holds.
pub(super) fn differs<T: Scalar>(tensor: &DTensor<T>, expected: &Value) -> Option<String> {
    let fields = expected.as_object()?;
    fields.iter().find_map(|(field, expected)| {
        let found = match field.as_str() {
            // A variable's own word on it is that of its value.
            "layout" | "attr_layout" => tensor
                .layout()
                .specs()
                .map(|spec| json!(spec.to_string()))
                .collect(),
            "global_shape" => json!(tensor.shape()),
            "dtype" => json!(type_name(tensor)),
            "shards" | "local_shards" => {
                return devices_differ(tensor, expected);
            }
            _ => return Some(format!("the field {field} is not known")),
        };
        (found != *expected).then(|| format!("{field} is {found} instead of {expected}"))
    })
}

fn devices_differ<T: Scalar>(tensor: &DTensor<T>, expected: &Value) -> Option<String> {
    let recorded = recorded_blocks(expected);
    // Devices of other clients are looked at there; where only those of one are recorded, these are
    // they.
    let is_whole = recorded.len() == tensor.layout().mesh().size();
    let here = tensor.local_ranks().iter().enumerate();
    let here = here.map(|(place, rank)| recorded.get(if is_whole { rank.index() } else { place }));
    let expected: Option<Vec<&Value>> = here.map(Option::<&&Value>::copied).collect();
    let found: Vec<Value> = tensor
        .unpack()
        .expect("blocks are fetched")
        .iter()
        .map(|block| nested(&block.view()))
        .collect();
    let all_same = expected.is_some_and(|expected| {
        let mut both = found.iter().zip(expected);
        (is_whole || recorded.len() == found.len())
            && both.all(|(found, expected)| same(found, expected))
    });
    (!all_same).then(|| format!("devices hold {found:?} instead of {recorded:?}"))
}

/// What is recorded for each device: a list, or numbers into one without repetitions.
pub(super) fn recorded_blocks(shards: &Value) -> Vec<&Value> {
    match shards.get("unique") {
        None => list(shards).iter().collect(),
        Some(unique) => {
            let numbers = list(&shards["device_to_unique"]).iter();
            numbers.map(|number| &unique[size(number)]).collect()
        }
    }
}

/// The element type as TensorFlow calls it.
fn type_name<T: Scalar>(_: &DTensor<T>) -> String {
    use meshwork_dtensor::ElementType as E;
    let name = match T::TYPE {
        E::F32 => "float32",
        E::F64 => "float64",
        E::I32 => "int32",
        E::I64 => "int64",
        other => return other.to_string(),
    };
    name.to_owned()
}
