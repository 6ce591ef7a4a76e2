//! The same functions, carried out by tensors on the devices of a mesh.

use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwork_accel_cpu::CpuAccelerator;
use meshwork_core::{Client, CreateMesh, Rank};
use meshwork_dtensor::{Backend, Context, DTensor, DeviceType, Error};
use meshwork_layout::Layout;
use meshwork_layout::ops::{Error as InferError, Op, Placement};
use ndarray::{ArrayD, IxDyn};
use serde_json::Value;

use super::carry_out::Answer;
use super::case::{Case, size, text};
use super::translate::{Call, calls};

/// How results differ from those that were found otherwise, if they do.
pub(super) fn compare(case: &Case, answers: &[Answer]) -> Option<String> {
    compare_results(results(case), answers)
}

/// The same for blocks on the devices of a backend, the CPU's.
pub(super) fn compare_there(input: &Value, answers: &[Answer]) -> Option<String> {
    compare_results(results_there(input), answers)
}

fn compare_results(
    results: Result<Vec<DTensor<f64>>, Error>,
    answers: &[Answer],
) -> Option<String> {
    let results = match results {
        Ok(results) => results,
        Err(error) => return Some(format!("on devices: {error}")),
    };
    let tensors: Vec<_> = answers
        .iter()
        .filter_map(|answer| match answer {
            Answer::Tensor(tensor) => Some(tensor),
            Answer::Number(_) => None,
        })
        .collect();
    if results.len() != tensors.len() {
        return Some(format!("{} results on devices", results.len()));
    }
    results.iter().zip(&tensors).find_map(|(found, expected)| {
        // Meshes with devices are others than those without, but for their dimensions.
        let specs = |placement: &Placement| Vec::from_iter(placement.layout().specs().cloned());
        if specs(found.placement()) != specs(&expected.placement) {
            return Some(format!("on devices: {found:?}"));
        }
        let mut blocks = found
            .unpack()
            .expect("blocks are fetched")
            .iter()
            .zip(&expected.shards);
        let same = blocks.all(|(block, shard)| is_close(block, shard));
        (!same).then(|| format!("on devices: {found:?} instead of {:?}", expected.shards))
    })
}

/// Whether the function is refused on devices too.
pub(super) fn is_refused(case: &Case) -> bool {
    results(case).is_err()
}

/// How what the devices of one of several clients hold differs from what ranks hold that are told
/// nothing of clients.
pub(super) fn among_clients(
    case: &Case,
    answers: &Result<Option<Vec<Answer>>, InferError>,
    context: &Context,
) -> Result<(), String> {
    let (found, answers) = match (results_in(case, context), answers) {
        (Ok(found), Ok(Some(answers))) => (found, answers),
        (Err(_), Err(_)) => return Ok(()),
        (found, answers) => return Err(format!("{found:?} instead of {answers:?}")),
    };
    let tensors = answers.iter().filter_map(|answer| match answer {
        Answer::Tensor(tensor) => Some(tensor),
        Answer::Number(_) => None,
    });
    for (found, expected) in found.iter().zip(tensors) {
        let names = |layout: &Layout| Vec::from_iter(layout.specs().cloned());
        let lies = names(found.layout()) == names(expected.placement.layout());
        let mut ranks = found
            .local_ranks()
            .iter()
            .zip(found.unpack().expect("blocks are fetched"));
        let close = |(rank, block): (&Rank, &_)| is_close(block, &expected.shards[rank.index()]);
        if !lies || !ranks.all(close) {
            return Err(format!("{found:?} instead of {:?}", expected.shards));
        }
    }
    Ok(())
}

fn results(case: &Case) -> Result<Vec<DTensor<f64>>, Error> {
    // The mesh names no devices, so all of them are here.
    results_in(case, &Context::alone(Client::new("localhost", 0, 1)?))
}

fn results_there(input: &Value) -> Result<Vec<DTensor<f64>>, Error> {
    let dims = input["mesh"].as_array().into_iter().flatten();
    let dims: Vec<(&str, usize)> = dims.map(|dim| (text(&dim[0]), size(&dim[1]))).collect();
    let count = dims.iter().map(|(_, size)| size).product();
    let devices = NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
    let cpus = Arc::new(CpuAccelerator::with_logical_devices(devices));
    let named = u32::try_from(count).unwrap_or(u32::MAX);
    let context = Context::alone(Client::new("localhost", 0, 1)?.with_devices("TPU", named)?);
    let backend = Backend::of(&cpus).arithmetic().arrangement().collectives();
    context.compute_on(DeviceType::Tpu, backend)?;
    let mesh = CreateMesh::new().device_type("TPU").dims(dims);
    let mesh = context.create_mesh(mesh)?;
    results_in(&Case::on(input, mesh), &context)
}

fn results_in(case: &Case, context: &Context) -> Result<Vec<DTensor<f64>>, Error> {
    let mut tensors = Vec::new();
    for (placement, whole) in case.operands.iter().zip(&case.tensors) {
        let array = ArrayD::from_shape_vec(IxDyn(whole.shape()), whole.values().to_vec());
        let array = array.expect("as many elements as the shape says");
        let tensor = context.copy_to_mesh(array, placement.layout())?;
        // Where a backend has the mesh, all of the op is its own.
        tensors.push(tensor.into_devices()?);
    }
    if matches!(case.op.as_str(), "rank" | "size") {
        return Ok(Vec::new());
    }
    let mut applied = Vec::new();
    for call in calls(case)?.unwrap_or_default() {
        let results = apply(&call, &tensors)?;
        applied.push((call, std::mem::replace(&mut tensors, results)));
    }
    match case.op.starts_with("grad_") {
        true => differentiated(&applied, tensors),
        false => Ok(tensors),
    }
}

fn apply(call: &Call, tensors: &[DTensor<f64>]) -> Result<Vec<DTensor<f64>>, Error> {
    let tensors: Vec<&DTensor<f64>> = tensors.iter().collect();
    match &call.op {
        // The typed form, which a program would use.
        Op::Elementwise if tensors.len() == 1 => {
            Ok(vec![tensors[0].map(|x| (call.function)(&[x]))?])
        }
        op => DTensor::apply(op, &tensors, &call.function),
    }
}

/// The gradients of the last result, a scalar, by the operands of the first op.
fn differentiated(
    applied: &[(Call, Vec<DTensor<f64>>)],
    result: Vec<DTensor<f64>>,
) -> Result<Vec<DTensor<f64>>, Error> {
    let mut upstream = result.iter().map(|result| result.map(|_| 1.0));
    let mut upstream = upstream.by_ref().collect::<Result<Vec<_>, _>>()?;
    for (call, operands) in applied.iter().rev() {
        let after = upstream.swap_remove(0);
        let operands: Vec<&DTensor<f64>> = operands.iter().collect();
        let derivative = |_, elements: &[f64]| (call.derivative)(elements);
        upstream = DTensor::gradients(&call.op, &operands, &after, &derivative)?;
    }
    Ok(upstream)
}

fn is_close(
    block: &meshwork_dtensor::Block<f64>,
    shard: &meshwork_layout::ops::naive::Tensor,
) -> bool {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    block.shape() == shard.shape() && block.iter().zip(shard.values()).all(close)
}
