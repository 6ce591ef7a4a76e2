//! What ops give: layouts, and what each rank holds, by the naive rules and by tensors on devices.
//!
//! Element types are not compared: a layout does not know them.

#[path = "ops/carry_out.rs"]
mod carry_out;
#[path = "ops/case.rs"]
mod case;
#[path = "ops/compiled.rs"]
mod compiled;
#[path = "ops/on_devices.rs"]
mod on_devices;
#[path = "ops/translate.rs"]
mod translate;

use std::sync::Mutex;

use meshwork_core::Mesh;
use meshwork_dtensor::Context;
use meshwork_layout::ops::OpError;
use meshwork_layout::ops::naive::Tensor;
use serde_json::Value;

use crate::harness::{Topic, Verdict};

use carry_out::{Answer, Computed, carry_out};
use case::Case;
pub(crate) use compiled::Programs;

pub(crate) const TOPICS: &[Topic] = &[
    Topic::lines("ops_elementwise", "mesh/ops_elementwise.jsonl", judge),
    Topic::lines("ops_matmul", "mesh/ops_matmul.jsonl", judge),
    Topic::lines("ops_einsum", "mesh/ops_einsum.jsonl", judge),
    Topic::lines("ops_reduce", "mesh/ops_reduce.jsonl", judge),
    Topic::lines("ops_nn", "mesh/ops_nn.jsonl", judge),
    Topic::lines("ops_shape", "mesh/ops_shape.jsonl", judge),
    Topic::lines("ops_slice", "mesh/ops_slice.jsonl", judge),
    Topic::lines("ops_grad", "mesh/ops_grad.jsonl", judge),
];

fn judge(recorded: &Value) -> Verdict {
    let case = Case::read(&recorded["input"]);
    let problem = match (carry_out(&case), recorded.get("expect_error")) {
        (Ok(Some(answers)), None) => compare(&case, &answers, &recorded["expect"])
            .or_else(|| on_devices::compare(&case, &answers))
            .or_else(|| on_devices::compare_there(&recorded["input"], &answers))
            .or_else(|| compare_compiled(&recorded["input"], &answers)),
        (Ok(Some(answers)), Some(expected)) => Some(format!("{answers:?} instead of {expected}")),
        (Ok(None), _) => Some(format!("the function {} is not known", case.op)),
        (Err(_), Some(_)) if !on_devices::is_refused(&case) => {
            Some("not refused on devices".to_owned())
        }
        (Err(error), Some(expected)) => compare_error(&error, expected),
        (Err(error), None) => Some(format!("error: {error}")),
    };
    problem.map_or(Verdict::Passed, Verdict::Failed)
}

/// Judges what one of several clients holds in the end, whose mesh has devices of all.
pub(crate) fn among_clients(case: &Value, context: &Context, mesh: &Mesh) -> Verdict {
    let input = &case["input"];
    let answers = carry_out(&Case::read(input));
    let held = on_devices::among_clients(&Case::on(input, mesh.clone()), &answers, context);
    Verdict::of(held.err())
}

/// Judges a case in a compiled program, on a mesh of the devices of one client.
pub(crate) fn in_programs(
    case: &Value,
    context: &Context,
    mesh: &Mesh,
    programs: &Mutex<Programs>,
) -> Verdict {
    let input = &case["input"];
    let on_mesh = Case::on(input, mesh.clone());
    let problem = match carry_out(&Case::read(input)) {
        Ok(Some(answers)) => compiled::compare(&on_mesh, context, &answers, programs),
        Ok(None) => Some(format!("the function {} is not known", on_mesh.op)),
        Err(_) => match compiled::results(&on_mesh, context, programs) {
            Ok(found) => Some(format!("{found:?} instead of an error")),
            Err(_) => None,
        },
    };
    Verdict::of(problem)
}

/// How programs differ, on the host and on the CPU's backend.
fn compare_compiled(input: &Value, answers: &[Answer]) -> Option<String> {
    let programs = Mutex::default();
    let places = [
        on_devices::here().map(|context| (Case::read(input), context)),
        on_devices::on_cpus(input),
    ];
    places.into_iter().find_map(|place| match place {
        Ok((case, context)) => compiled::compare(&case, &context, answers, &programs),
        Err(error) => Some(error.to_string()),
    })
}

fn compare(case: &Case, answers: &[Answer], expected: &Value) -> Option<String> {
    let outputs = expected["outputs"].as_array().expect("a list of outputs");
    // TensorFlow's functions keep the gradient that cross-entropies come with to themselves.
    let given = if case.op.ends_with("xent") {
        1
    } else {
        answers.len()
    };
    if outputs.len() != given {
        return Some(format!(
            "{} results instead of {}",
            answers.len(),
            outputs.len()
        ));
    }
    let mut results = outputs.iter().zip(answers).enumerate();
    results.find_map(|(number, (output, answer))| match answer {
        Answer::Number(number) => {
            let same = output["not_a_dtensor"] == true && output["value"] == *number;
            (!same).then(|| format!("{number} instead of {output}"))
        }
        Answer::Tensor(computed) => {
            // Where TensorFlow's elements are wrong, those of one device are recorded beside them.
            let right = (expected["TF_WRONG_VALUE"] == true)
                .then(|| case::tensor(&expected["single_device_value"][number]));
            compare_placement(case, computed, output)
                .or_else(|| compare_elements(computed, output, right.as_ref()))
        }
    })
}

fn compare_placement(case: &Case, computed: &Computed, expected: &Value) -> Option<String> {
    let mut fields = expected.as_object().into_iter().flatten();
    if let Some((field, _)) = fields.find(|(field, _)| !FIELDS.contains(&field.as_str())) {
        return Some(format!("the field {field} is not known"));
    }
    let (expected_shape, expected_layout) = (&expected["global_shape"], &expected["layout"]);
    let (shape, layout) = (computed.placement.shape(), computed.placement.layout());
    let same = shape == case::sizes(expected_shape) && *layout == case.layout(expected_layout);
    (!same).then(|| format!("{shape:?} {layout} instead of {expected_shape} {expected_layout}"))
}

/// What may be recorded of a result; of its type nothing is known here.
const FIELDS: &[&str] = &["global_shape", "layout", "shards", "dtype"];

fn compare_elements(
    computed: &Computed,
    expected: &Value,
    right: Option<&Tensor>,
) -> Option<String> {
    let layout = computed.placement.layout();
    let recorded = |rank: usize| {
        let unique = case::size(&expected["shards"]["device_to_unique"][rank]);
        case::tensor(&expected["shards"]["unique"][unique])
    };
    let mut ranks = layout.mesh().ranks().zip(&computed.shards);
    ranks.find_map(|(rank, found)| {
        let expected = match right {
            Some(whole) => whole.shard(layout, rank),
            None => recorded(rank.index()),
        };
        let own = computed.whole.shard(layout, rank);
        let same = is_close(found, &expected) && is_close(&own, &expected);
        (!same).then(|| format!("{rank} holds {found:?} instead of {expected:?}"))
    })
}

/// Recorded elements have 32 bits, of which 7 digits were written down.
fn is_close(found: &Tensor, expected: &Tensor) -> bool {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
    found.shape() == expected.shape() && found.values().iter().zip(expected.values()).all(close)
}

fn compare_error(error: &OpError, expected: &Value) -> Option<String> {
    let category = expected["category"].as_str().unwrap_or_default();
    let allowed: &[&str] = match error {
        OpError::SpecsDiffer { op: "matmul", .. } => &["contracting_dim_conflict"],
        OpError::SpecsDiffer { .. } => &["mesh_dim_conflict"],
        OpError::EinsumEllipsis { .. } => &["unsupported"],
        OpError::StepAcrossShards { .. } => &["not_divisible"],
        // TensorFlow notices a padded shard by the shape that it does not have.
        OpError::AxisCut { op: "pad", .. } => &["not_divisible", "output_inconsistent_with_layout"],
        OpError::AxisCut { .. } => &["unsupported", "not_divisible"],
        _ => &[],
    };
    (!allowed.contains(&category)).then(|| format!("{error} instead of {expected}"))
}
