//! Plans as JSON.

use meshwork_layout::{DimPart, MeshPlacement, Plan, PlanStep};
use serde_json::{Value, json};

/// The whole plan: sizes in bytes, times in seconds.
///
/// A layout is an object with `axes`, the list of mesh dimensions for each tensor dimension, and
/// `partial`; a part of a mesh dimension is written as [`DimPart`] shows it.
pub(crate) fn to_json(plan: &Plan) -> Value {
    json!({
        "shape": plan.shape(),
        "element_size": plan.element_size(),
        "bytes": plan.bytes(),
        "collectives": plan.collectives(),
        "peak_bytes": plan.peak_bytes(),
        "seconds": plan.time().as_secs_f64(),
        "steps": plan.steps().iter().map(step).collect::<Vec<_>>(),
    })
}

fn step(step: &PlanStep) -> Value {
    json!({
        "collective": step.kind().to_string(),
        "over": parts(step.over()),
        "before": placement(step.before()),
        "after": placement(step.after()),
        "bytes": step.bytes(),
        "peak_bytes": step.peak_bytes(),
        "seconds": step.time().as_secs_f64(),
    })
}

fn placement(placement: &MeshPlacement) -> Value {
    json!({
        "axes": placement.axes().map(parts).collect::<Vec<_>>(),
        "partial": parts(placement.partial()),
        "reduction": placement.reduction().map(|reduction| reduction.to_string()),
    })
}

fn parts(parts: &[DimPart]) -> Vec<String> {
    parts.iter().map(ToString::to_string).collect()
}
