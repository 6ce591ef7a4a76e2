//! A function carried out, one op after the other.

use meshwork_core::MeshRank;
use meshwork_layout::ops::naive::{Tensor, shards, whole};
use meshwork_layout::ops::{GradientInput, Inferred, Op, OpError, TensorLayout, gradients, infer};

use super::case::Case;
use super::translate::{Call, calls};

/// One result of a function.
#[derive(Debug)]
pub(super) enum Answer {
    /// A tensor.
    Tensor(Box<Computed>),
    /// A number that every rank has without a tensor.
    Number(usize),
}

/// A tensor and how it lies.
#[derive(Clone, Debug)]
pub(super) struct Computed {
    pub(super) placement: TensorLayout,
    pub(super) whole: Tensor,
    /// What each rank holds after doing its part.
    pub(super) shards: Vec<Tensor>,
}

/// What the function of a case gives; none for an unknown function.
pub(super) fn carry_out(case: &Case) -> Result<Option<Vec<Answer>>, OpError> {
    let operand = &case.operands[0];
    match case.op.as_str() {
        "rank" => return Ok(Some(vec![Answer::Number(operand.rank())])),
        "size" => return Ok(Some(vec![Answer::Number(operand.shape().iter().product())])),
        _ => {}
    }
    let Some(calls) = calls(case)? else {
        return Ok(None);
    };
    let placed = case.operands.iter().cloned().zip(&case.tensors);
    let mut tensors: Vec<Computed> = placed.map(|(placed, whole)| given(placed, whole)).collect();
    let mut applied = Vec::new();
    for call in calls {
        let results = apply(&call.op, call.function, &tensors)?;
        applied.push((call, std::mem::replace(&mut tensors, results)));
    }
    if case.op.starts_with("grad_") {
        tensors = differentiate(&applied, tensors)?;
    }
    let tensors = tensors.into_iter().map(Box::new);
    Ok(Some(tensors.map(Answer::Tensor).collect()))
}

/// A tensor that lies so from the start.
fn given(placement: TensorLayout, whole: &Tensor) -> Computed {
    let ranks = placement.layout().mesh().ranks();
    let shard = |rank: MeshRank| whole.shard(placement.layout(), rank);
    Computed {
        shards: ranks.map(shard).collect(),
        whole: whole.clone(),
        placement,
    }
}

fn apply(
    op: &Op,
    function: fn(&[f64]) -> f64,
    operands: &[Computed],
) -> Result<Vec<Computed>, OpError> {
    let placed: Vec<TensorLayout> = operands.iter().map(|o| o.placement.clone()).collect();
    Ok(compute(op, function, operands, &infer(op, &placed)?))
}

fn compute(
    op: &Op,
    function: fn(&[f64]) -> f64,
    operands: &[Computed],
    inferred: &Inferred,
) -> Vec<Computed> {
    let tensors: Vec<Tensor> = operands.iter().map(|o| o.whole.clone()).collect();
    let wholes = whole(op, function, &tensors, inferred);
    let shards = shards(op, function, &tensors, inferred);
    let results = inferred.results().iter().zip(wholes).zip(shards);
    let computed = results.map(|((result, whole), shards)| Computed {
        placement: result.placement().clone(),
        whole,
        shards,
    });
    computed.collect()
}

/// The gradients of the last result, a scalar, by the operands of the first op; later ops have one
/// operand.
fn differentiate(
    applied: &[(Call, Vec<Computed>)],
    result: Vec<Computed>,
) -> Result<Vec<Computed>, OpError> {
    let one = Tensor::new([], [1.0]);
    let mut upstream: Vec<Computed> = result
        .into_iter()
        .map(|result| given(result.placement, &one))
        .collect();
    for (call, operands) in applied.iter().rev() {
        let placed: Vec<TensorLayout> = operands.iter().map(|o| o.placement.clone()).collect();
        let after = upstream.swap_remove(0);
        upstream.clear();
        for gradient in gradients(&call.op, &placed, &after.placement)? {
            let mut previous = after.clone();
            for step in gradient.steps() {
                let input = |input: &GradientInput| match *input {
                    GradientInput::Upstream => after.clone(),
                    GradientInput::Operand(operand) => operands[operand].clone(),
                    GradientInput::Previous => previous.clone(),
                };
                let inputs: Vec<Computed> = step.inputs().iter().map(input).collect();
                previous = compute(step.op(), call.derivative, &inputs, step.inferred()).remove(0);
            }
            upstream.push(previous);
        }
    }
    Ok(upstream)
}
