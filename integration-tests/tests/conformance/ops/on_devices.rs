//! The same functions, carried out by tensors on the devices of a mesh: as a program writes them,
//! so that a backend does what it has an op for.

#[path = "../../accelerated/counting.rs"]
mod counting;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwork_accel::{Accelerator, Arrange, Elementwise, Fold, Matmul, NativeCollectives};
use meshwork_accel_cpu::CpuAccelerator;
use meshwork_core::{Client, CreateMesh, MeshRank};
use meshwork_dtensor::{Backend, Context, DTensor, DeviceType, Error, Tape};
use meshwork_layout::Layout;
use meshwork_layout::ops::{Labels, Op, OpError};
use ndarray::{ArrayD, IxDyn};
use serde_json::Value;

use super::carry_out::{Answer, Computed};
use super::case::{Case, size, text};
use super::translate::{Call, calls};
use crate::harness::cases;
use counting::Counting;

/// One result of a function.
#[derive(Debug)]
pub(super) enum Found {
    Tensor(Box<DTensor<f64>>),
    /// What the tensor says of itself.
    Number(usize),
}

/// How results differ from those that were found otherwise, if they do.
pub(super) fn compare(case: &Case, answers: &[Answer]) -> Option<String> {
    compare_results(results(case), answers)
}

/// The same for blocks on the devices of a backend, the CPU's.
pub(super) fn compare_there(input: &Value, answers: &[Answer]) -> Option<String> {
    compare_results(
        on_cpus(input).and_then(|(case, context)| results_in(&case, &context)),
        answers,
    )
}

/// The case on as many devices of the CPU's backend.
pub(super) fn on_cpus(input: &Value) -> Result<(Case, Context), Error> {
    let cpus = CpuAccelerator::with_logical_devices(devices_of(input));
    there(input, &Arc::new(cpus))
}

/// A client that has the devices of any mesh whose devices have no names.
pub(super) fn here() -> Result<Context, Error> {
    Ok(Context::alone(Client::new("localhost", 0, 1)?))
}

pub(super) fn compare_results(
    results: Result<Vec<Found>, Error>,
    answers: &[Answer],
) -> Option<String> {
    let results = match results {
        Ok(results) => results,
        Err(error) => return Some(format!("on devices: {error}")),
    };
    if results.len() != answers.len() {
        return Some(format!("{} results on devices", results.len()));
    }
    let mut both = results.iter().zip(answers);
    both.find_map(|(found, answer)| compare_one(found, answer))
}

fn compare_one(found: &Found, answer: &Answer) -> Option<String> {
    let same = match (found, answer) {
        (Found::Number(found), Answer::Number(expected)) => found == expected,
        (Found::Tensor(found), Answer::Tensor(expected)) => is_alike(found, expected),
        (Found::Number(_), Answer::Tensor(_)) | (Found::Tensor(_), Answer::Number(_)) => false,
    };
    (!same).then(|| format!("on devices: {found:?} instead of {answer:?}"))
}

/// Whether a tensor lies like this, and its local ranks hold the same.
fn is_alike(found: &DTensor<f64>, expected: &Computed) -> bool {
    // Meshes with devices are others than those without, but for their dimensions.
    let names = |layout: &Layout| Vec::from_iter(layout.specs().cloned());
    let blocks = found.unpack().expect("blocks are fetched");
    let mut ranks = found.local_ranks().iter().zip(blocks);
    let close = |(rank, block): (&MeshRank, &_)| is_close(block, &expected.shards[rank.index()]);
    names(found.layout()) == names(expected.placement.layout()) && ranks.all(close)
}

/// Whether the function is refused on devices too.
pub(super) fn is_refused(case: &Case) -> bool {
    results(case).is_err()
}

/// How what the devices of one of several clients hold differs from what ranks hold that are told
/// nothing of clients.
pub(super) fn among_clients(
    case: &Case,
    answers: &Result<Option<Vec<Answer>>, OpError>,
    context: &Context,
) -> Result<(), String> {
    match (results_in(case, context), answers) {
        (found @ Ok(_), Ok(Some(answers))) => compare_results(found, answers).map_or(Ok(()), Err),
        (Err(_), Err(_)) => Ok(()),
        (found, answers) => Err(format!("{found:?} instead of {answers:?}")),
    }
}

fn results(case: &Case) -> Result<Vec<Found>, Error> {
    results_in(case, &here()?)
}

/// How many devices the mesh of a case has.
fn devices_of(input: &Value) -> NonZeroUsize {
    let dims = input["mesh"].as_array().into_iter().flatten();
    let count = dims.map(|dim| size(&dim[1])).product();
    NonZeroUsize::new(count).expect("a mesh has devices")
}

/// A case on a mesh of as many devices, for all of which this backend computes.
fn there<A>(input: &Value, accelerator: &Arc<A>) -> Result<(Case, Context), Error>
where
    A: Accelerator<Buffer: Sync> + Elementwise + Matmul + Arrange + Fold + NativeCollectives,
    A: 'static,
{
    let dims = input["mesh"].as_array().into_iter().flatten();
    let dims: Vec<(&str, usize)> = dims.map(|dim| (text(&dim[0]), size(&dim[1]))).collect();
    let named = u32::try_from(devices_of(input).get()).unwrap_or(u32::MAX);
    let context = Context::alone(Client::new("localhost", 0, 1)?.with_devices("TPU", named)?);
    let backend = Backend::of(accelerator).arithmetic().arrangement();
    context.compute_on(DeviceType::Tpu, backend.collectives())?;
    let mesh = CreateMesh::new().device_type("TPU").dims(dims);
    let mesh = context.create_mesh(mesh)?;
    Ok((Case::on(input, mesh), context))
}

fn results_in(case: &Case, context: &Context) -> Result<Vec<Found>, Error> {
    carried_out(case, operands(case, context)?)
}

/// The operands; where a backend has the mesh, on its devices only.
pub(super) fn operands(case: &Case, context: &Context) -> Result<Vec<DTensor<f64>>, Error> {
    let placed = case.operands.iter().zip(&case.tensors);
    let placed = placed.map(|(placement, whole)| {
        let array = ArrayD::from_shape_vec(IxDyn(whole.shape()), whole.values().to_vec());
        let array = array.expect("as many elements as the shape says");
        let tensor = context.copy_to_mesh(array, placement.layout())?;
        tensor.into_devices()
    });
    placed.collect()
}

pub(super) fn carried_out(
    case: &Case,
    mut tensors: Vec<DTensor<f64>>,
) -> Result<Vec<Found>, Error> {
    match case.op.as_str() {
        "rank" => return Ok(vec![Found::Number(tensors[0].rank())]),
        "size" => return Ok(vec![Found::Number(tensors[0].size())]),
        _ => {}
    }
    let tape = Tape::new();
    let is_gradient = case.op.starts_with("grad_");
    if is_gradient {
        tensors = tensors.iter().map(|tensor| tape.watch(tensor)).collect();
    }
    let sources = tensors.clone();
    for call in calls(case)?.unwrap_or_default() {
        tensors = apply(&case.op, &call, &tensors)?;
    }
    if is_gradient {
        let sources: Vec<&DTensor<f64>> = sources.iter().collect();
        let gradients = tape.gradients(&tensors[0], &sources)?;
        tensors = gradients.into_iter().flatten().collect();
    }
    let tensors = tensors.into_iter().map(Box::new);
    Ok(tensors.map(Found::Tensor).collect())
}

fn apply(
    function: &str,
    call: &Call,
    tensors: &[DTensor<f64>],
) -> Result<Vec<DTensor<f64>>, Error> {
    if let (Op::Elementwise, Some(made)) = (&call.op, elementwise(function, tensors)) {
        return Ok(vec![made?]);
    }
    match (&call.op, tensors) {
        // Labels and classes that are floats are left to the host.
        (Op::CrossEntropy(Labels::Sparse), [logits, labels]) => {
            let (losses, slopes) = logits.sparse_cross_entropy(&labels.cast::<i64>()?)?;
            return Ok(vec![losses, slopes]);
        }
        (Op::OneHot { depth }, [classes]) => {
            return Ok(vec![classes.cast::<i64>()?.one_hot(*depth)?]);
        }
        _ => {}
    }
    let tensors: Vec<&DTensor<f64>> = tensors.iter().collect();
    DTensor::apply(&call.op, &tensors, &call.function)
}

/// The element-wise part of a function, as a program writes it; none of one that only a closure
/// states.
fn elementwise(function: &str, tensors: &[DTensor<f64>]) -> Option<Result<DTensor<f64>, Error>> {
    Some(match (function, tensors) {
        ("add", [left, right]) => left.add(right),
        ("mul", [left, right]) => left.mul(right),
        ("neg", [one]) => one.neg(),
        ("relu", [one]) => one.relu(),
        ("add_python_scalar", [one]) => one.add_scalar(5.0),
        ("cast_float", [one]) => as_whole_numbers(one),
        ("zeros_like", [one]) => one.zeros_like(),
        ("log_softmax", [one]) => one.ln(),
        ("l2_loss", [one]) => one.mul(one).and_then(|square| square.scale(0.5)),
        ("grad_relayout_square", [one]) => one.mul(one),
        _ => return None,
    })
}

/// The elements were whole numbers of 32 bits where they were recorded, and became floats of as
/// many.
fn as_whole_numbers(tensor: &DTensor<f64>) -> Result<DTensor<f64>, Error> {
    tensor.cast::<i32>()?.cast::<f32>()?.cast()
}

fn is_close(
    block: &meshwork_dtensor::Block<f64>,
    shard: &meshwork_layout::ops::naive::Tensor,
) -> bool {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    block.shape() == shard.shape() && block.iter().zip(shard.values()).all(close)
}

/// Recorded functions of which the host does a part, or all, and how often they were recorded.
/// Numbers and shapes are known without an element. A gather looks at its indices, which are floats
/// here, so that the host makes whole numbers of them.
const BY_THE_HOST: [(&str, usize); 4] = [("gather", 24), ("rank", 6), ("shape", 7), ("size", 4)];
/// How many cases of all other functions the devices carry out.
const ON_DEVICES: usize = 925;

#[test]
fn all_recorded_functions_but_those_that_are_named_are_carried_out_by_the_devices() {
    if std::env::var_os("MESHWORK_VECTORS").is_some() {
        // The functions are counted that are recorded here.
        return;
    }
    let (mut here, mut there) = (BTreeMap::new(), 0);
    for topic in super::TOPICS {
        // What cannot be read fails where answers are judged.
        let given = cases(topic.file).into_iter().flatten();
        for case in given.filter(|case| case.get("expect_error").is_none()) {
            let function = text(&case["input"]["op"]).to_owned();
            match stays_on_devices(&case["input"]) {
                true => there += 1,
                false => *here.entry(function).or_insert(0) += 1,
            }
        }
    }
    let known = BY_THE_HOST.map(|(function, count)| (function.to_owned(), count));
    let known = BTreeMap::from(known);
    assert_eq!((here, there), (known, ON_DEVICES));
}

/// Whether nothing comes from the devices until the results do, and these are on devices only.
fn stays_on_devices(input: &Value) -> bool {
    let devices = devices_of(input);
    let cpus = CpuAccelerator::with_logical_devices(devices);
    let counting = Arc::new(Counting::new(cpus));
    let (case, context) = there(input, &counting).expect("a case of the same mesh");
    let operands = operands(&case, &context).expect("operands are carried to devices");
    let (_, before) = counting.crossings();
    let calls_before = counting.calls();
    let results = carried_out(&case, operands).expect("a case that was not refused");
    let (_, during) = counting.crossings();
    let calls = counting.calls() - calls_before;
    let tensors: Vec<&DTensor<f64>> = results
        .iter()
        .filter_map(|found| match found {
            Found::Tensor(tensor) => Some(&**tensor),
            Found::Number(_) => None,
        })
        .collect();
    for tensor in &tensors {
        tensor.unpack().expect("blocks are fetched");
    }
    let (_, after) = counting.crossings();
    let stays = before == during && after - during == tensors.len() * devices.get();
    let least = least_calls(&case.op) * devices.get();
    assert!(!stays || calls >= least, "{}: {calls} calls", case.op);
    stays && !tensors.is_empty()
}

/// How many ops of the backend an element-wise function is at least, on each device.
fn least_calls(function: &str) -> usize {
    match function {
        "add" | "mul" | "neg" | "relu" | "add_python_scalar" => 1,
        "l2_loss" => 2,
        "cast_float" => 3,
        _ => 0,
    }
}
