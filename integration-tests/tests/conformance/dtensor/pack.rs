//! `{"kind", ..}`: blocks packed (`pack_global` cuts a whole value into them, `pack_raw` lists
//! them), and what may go wrong with that.

use meshwork_core::{CreateMesh, DeviceSpec};
use meshwork_dtensor::{Context, DTensor, Error, Scalar};
use meshwork_layout::{Layout, MATCH};
use ndarray::ArrayD;
use serde_json::{Value, json};

use super::values::{
    array, context, differs, layout, list, mesh, numbered, recorded_blocks, sizes,
};
use crate::deviations::dtensor::{GATHERED, OPEN_PACK};
use crate::harness::Verdict;
use crate::mesh::answers::text;
use crate::not_askable::{ONE_PROCESS, TEXTS, TRACING, TYPES, UNTOLD};

pub(super) fn judge(case: &Value) -> Verdict {
    judge_in(case, &context())
}

/// Judges what one of several clients holds, or the only one.
pub(super) fn judge_in(case: &Value, context: &Context) -> Verdict {
    let input = &case["input"];
    match text(&input["kind"]) {
        "pack_global" => settle(case, &global(input, context)),
        "pack_raw" => raw(case, context),
        "check_layout" => settle(case, &checked(context)),
        // The devices that it names are those of a process that is alone.
        "pack_missing_cpu" if !context.is_alone() => Verdict::NotAskable(ONE_PROCESS),
        "pack_missing_cpu" => settle(case, &ninth_of_eight(context)),
        "numpy_on_sharded" => gathered(context),
        "pack_in_function" => Verdict::NotAskable(TRACING),
        // Where an error is recorded, these are arguments of other types, among them the layout of
        // a single device, which nothing packs.
        _ if case.get("expect_error").is_some() => Verdict::NotAskable(TYPES),
        // Whatever was packed is on the devices as it was.
        kind if kind.starts_with("pack") && case["expect"].get("shards").is_some() => {
            packed_again(case, context)
        }
        _ => Verdict::NotAskable(UNTOLD),
    }
}

fn settle<T: Scalar>(case: &Value, result: &Result<DTensor<T>, Error>) -> Verdict {
    let problem = match (result, case.get("expect")) {
        (Ok(tensor), Some(expected)) => differs(tensor, expected),
        (Err(error), None) => misfit(error, &case["expect_error"]),
        (Ok(tensor), None) => Some(format!("{tensor:?} instead of {}", case["expect_error"])),
        (Err(error), Some(_)) => Some(error.to_string()),
    };
    problem.map_or(Verdict::Passed, Verdict::Failed)
}

/// How an error is not of the recorded category.
fn misfit(error: &Error, recorded: &Value) -> Option<String> {
    let fits = match recorded["category"].as_str() {
        Some("rank_mismatch") => matches!(error, Error::ComponentRank { .. }),
        Some("wrong_component_count") => matches!(error, Error::ComponentCount { .. }),
        Some("component_shape_mismatch") => matches!(error, Error::ComponentShape { .. }),
        Some("unknown_mesh_dim" | "repeated_mesh_dim") => matches!(error, Error::Layout(_)),
        Some("unknown_device") => matches!(error, Error::UnknownDevice { .. }),
        // Not sorted, or TensorFlow died.
        Some("other") | None => true,
        Some(_) => false,
    };
    (!fits).then(|| format!("{error:?} instead of {recorded}"))
}

/// A value cut into the blocks of its layout, and packed.
fn global(input: &Value, context: &Context) -> Result<DTensor<i32>, Error> {
    let mesh = mesh(context, &input["mesh"])?;
    let layout = layout(&input["layout"], &mesh)?;
    let whole = numbered::<i32>(&sizes(&input["value"]["shape"]));
    let cut = context.copy_to_mesh(whole, &layout)?;
    let blocks = cut.unpack()?.iter().map(|block| block.to_owned());
    context.pack(blocks, &layout)
}

fn raw(case: &Value, context: &Context) -> Verdict {
    let Some(components) = case["input"]["components"].as_array() else {
        return Verdict::unsayable(case, TYPES);
    };
    let names = list(&case["input"]["layout"]);
    if names.iter().any(|name| name == MATCH) && case.get("expect").is_some() {
        return match packed::<f32>(&case["input"], components, context) {
            Err(Error::Layout(_)) => Verdict::by(OPEN_PACK),
            other => Verdict::Failed(format!("{other:?} by an open layout")),
        };
    }
    if components.iter().any(|c| any(c, Value::is_string)) {
        return Verdict::NotAskable(TEXTS);
    }
    // A component of another type than the others is no argument here.
    if case["expect_error"]["category"] == "component_dtype_mismatch" {
        return Verdict::NotAskable(TYPES);
    }
    // A client knows the shapes of its own components only: who uses the tensor finds out.
    if case["expect_error"]["category"] == "component_shape_mismatch" && !context.is_alone() {
        return Verdict::NotAskable(ONE_PROCESS);
    }
    of_type(case, &case["input"], components, context)
}

/// What the devices are recorded to hold, packed.
fn packed_again(case: &Value, context: &Context) -> Verdict {
    let expect = &case["expect"];
    let mesh = case["input"].get("mesh").cloned();
    let again = json!({
        "mesh": mesh.unwrap_or_else(|| json!([["x", 2], ["y", 4]])),
        "layout": expect["layout"],
    });
    let held = recorded_blocks(&expect["shards"]).into_iter().cloned();
    let held: Vec<Value> = held.collect();
    if held.iter().any(|block| any(block, Value::is_string)) {
        return Verdict::NotAskable(TEXTS);
    }
    of_type(case, &again, &held, context)
}

fn of_type(case: &Value, input: &Value, components: &[Value], context: &Context) -> Verdict {
    let has = |kind: fn(&Value) -> bool| components.iter().any(|c| any(c, kind));
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    match case["expect"]["dtype"].as_str() {
        Some("float64") => settle(case, &packed::<f64>(input, components, context)),
        Some("int64") => settle(case, &packed::<i64>(input, components, context)),
        _ if has(Value::is_boolean) => settle(case, &packed::<bool>(input, components, context)),
        Some("float32") => settle(case, &packed::<f32>(input, components, context)),
        _ if has(Value::is_f64) || has(is_empty) => {
            settle(case, &packed::<f32>(input, components, context))
        }
        _ => settle(case, &packed::<i32>(input, components, context)),
    }
}

fn any(value: &Value, kind: fn(&Value) -> bool) -> bool {
    kind(value) || list(value).iter().any(|inner| any(inner, kind))
}

/// The components of this client's devices, packed; all that there are where that is another number
/// than the mesh has devices.
fn packed<T: Scalar>(input: &Value, all: &[Value], context: &Context) -> Result<DTensor<T>, Error> {
    let mesh = mesh(context, &input["mesh"])?;
    let own: Vec<&Value> = match all.len() == mesh.size() {
        true => mesh.local_ranks().map(|rank| &all[rank.index()]).collect(),
        false => all.iter().collect(),
    };
    let components: Option<Vec<ArrayD<T>>> = own.into_iter().map(array::<T>).collect();
    context.pack(
        components.expect("numbers of one type"),
        &layout(&input["layout"], &mesh)?,
    )
}

/// A vector that is cut, and held against being whole.
fn checked(context: &Context) -> Result<DTensor<i32>, Error> {
    let tensor = sharded(context)?;
    tensor.check_layout(tensor.layout())?;
    tensor.check_layout(&Layout::replicated(tensor.layout().mesh(), 1))?;
    Ok(tensor)
}

fn sharded(context: &Context) -> Result<DTensor<i32>, Error> {
    let mesh = mesh(context, &json!([["x", 2], ["y", 4]]))?;
    let layout = Layout::from_names(["x"], &mesh)?;
    context.copy_to_mesh(numbered::<i32>(&[2]), &layout)
}

/// TensorFlow refuses to bring a tensor that is cut to the host.
fn gathered(context: &Context) -> Verdict {
    match sharded(context).and_then(|tensor| tensor.to_host()) {
        Ok(whole) if whole == numbered::<i32>(&[2]) => Verdict::by(GATHERED),
        other => Verdict::Failed(format!("{other:?}")),
    }
}

/// Nine devices where there are eight.
fn ninth_of_eight(context: &Context) -> Result<DTensor<i32>, Error> {
    let devices = (0..9).map(|index| DeviceSpec::parse(&format!("CPU:{index}")));
    let devices = devices.collect::<Result<Vec<_>, _>>()?;
    let mesh = context.create_mesh(CreateMesh::new().along("x").devices(devices))?;
    let layout = Layout::from_names(["x"], &mesh)?;
    context.pack((0..9).map(|_| numbered::<i32>(&[1])), &layout)
}
