//! `{"kind", ..}`: blocks packed (`pack_global` cuts a whole value into them, `pack_raw` lists them),
//! and what may go wrong with that.

use meshwork_core::{CreateMesh, DeviceSpec};
use meshwork_dtensor::{DTensor, Error, Scalar};
use meshwork_layout::{Layout, MATCH};
use ndarray::ArrayD;
use serde_json::Value;

use super::values::{array, context, differs, layout, list, mesh, numbered, sizes};
use crate::deviations::dtensor::{GATHERED, NO_TEXTS, NO_TRACING, OPEN_PACK};
use crate::harness::Verdict;
use crate::mesh::answers::text;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    match text(&input["kind"]) {
        "pack_global" => settle(case, &global(input)),
        "pack_raw" => raw(case),
        "check_layout" => settle(case, &checked()),
        "pack_missing_cpu" => settle(case, &ninth_of_eight()),
        "numpy_on_sharded" => gathered(),
        "pack_in_function" => Verdict::Deviates(NO_TRACING),
        // A layout of a single device is a type of its own, which nothing packs.
        "pack_single_device" => inexpressible(case),
        _ => inexpressible(case),
    }
}

/// What no program can ask for here, TensorFlow refuses when it runs.
fn inexpressible(case: &Value) -> Verdict {
    match case.get("expect_error") {
        Some(_) => Verdict::Passed,
        None => Verdict::Failed(format!("cannot be asked for: {}", case["expect"])),
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
fn global(input: &Value) -> Result<DTensor<i32>, Error> {
    let context = context();
    let mesh = mesh(&context, &input["mesh"])?;
    let layout = layout(&input["layout"], &mesh)?;
    let whole = numbered::<i32>(&sizes(&input["value"]["shape"]));
    let cut = context.copy_to_mesh(whole, &layout)?;
    let blocks = cut.unpack().iter().map(|block| block.to_owned());
    context.pack(blocks, &layout)
}

fn raw(case: &Value) -> Verdict {
    let components = list(&case["input"]["components"]);
    let has = |kind: fn(&Value) -> bool| components.iter().any(|c| any(c, kind));
    if list(&case["input"]["layout"])
        .iter()
        .any(|name| name == MATCH)
        && case.get("expect").is_some()
    {
        return Verdict::Deviates(OPEN_PACK);
    }
    if has(Value::is_string) {
        return Verdict::Deviates(NO_TEXTS);
    }
    // A component of another type than the others is no argument here.
    if case["expect_error"]["category"] == "component_dtype_mismatch" {
        return inexpressible(case);
    }
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    match () {
        () if has(Value::is_boolean) => settle(case, &packed::<bool>(case)),
        () if has(Value::is_f64) || has(is_empty) => settle(case, &packed::<f32>(case)),
        () => settle(case, &packed::<i32>(case)),
    }
}

fn any(value: &Value, kind: fn(&Value) -> bool) -> bool {
    kind(value) || list(value).iter().any(|inner| any(inner, kind))
}

fn packed<T: Scalar>(case: &Value) -> Result<DTensor<T>, Error> {
    let input = &case["input"];
    let context = context();
    let mesh = mesh(&context, &input["mesh"])?;
    let components = list(&input["components"]).iter().map(array::<T>);
    let components: Option<Vec<ArrayD<T>>> = components.collect();
    context.pack(
        components.expect("numbers of one type"),
        &layout(&input["layout"], &mesh)?,
    )
}

/// A vector that is cut, and held against being whole.
fn checked() -> Result<DTensor<i32>, Error> {
    let tensor = sharded()?;
    tensor.check_layout(tensor.layout())?;
    tensor.check_layout(&Layout::replicated(tensor.layout().mesh(), 1))?;
    Ok(tensor)
}

fn sharded() -> Result<DTensor<i32>, Error> {
    let context = context();
    let mesh = context.create_mesh(CreateMesh::new().dims([("x", 2), ("y", 4)]))?;
    let layout = Layout::from_names(["x"], &mesh)?;
    context.copy_to_mesh(numbered::<i32>(&[2]), &layout)
}

/// TensorFlow refuses to bring a tensor that is cut to the host.
fn gathered() -> Verdict {
    match sharded().and_then(|tensor| tensor.to_host()) {
        Ok(whole) if whole == numbered::<i32>(&[2]) => Verdict::Deviates(GATHERED),
        other => Verdict::Failed(format!("{other:?}")),
    }
}

/// Nine devices where there are eight.
fn ninth_of_eight() -> Result<DTensor<i32>, Error> {
    let context = context();
    let devices = (0..9).map(|index| DeviceSpec::parse(&format!("CPU:{index}")));
    let devices = devices.collect::<Result<Vec<_>, _>>()?;
    let mesh = context.create_mesh(CreateMesh::new().along("x").devices(devices))?;
    let layout = Layout::from_names(["x"], &mesh)?;
    context.pack((0..9).map(|_| numbered::<i32>(&[1])), &layout)
}
