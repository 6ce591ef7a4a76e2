//! Ops of whole numbers and of truth values in programs. Devices leave them to the host, but for
//! those that only move elements.

use std::sync::Arc;

use meshwork_accel::{ElementType, Pairwise, Pointwise};
use meshwork_layout::ops::{Op, Reducer};

use super::{Results, like, one};
use crate::ops::ReduceAxes;
use crate::record::{AnyTensor, Primitive, with_scalar};
use crate::{DTensor, Error, Number, Scalar};

/// Whether a program can have this op of such elements, which are no floats and all alike.
pub(super) fn is_known(primitive: &Primitive, elements: &[ElementType]) -> bool {
    let Some(first) = elements.first().filter(|first| !first.is_float()) else {
        return false;
    };
    let is_truth = *first == ElementType::Bool;
    let has = match primitive {
        Primitive::Op(Op::Reduce { reducer, .. }) => match reducer {
            Reducer::Any | Reducer::All => is_truth,
            // A mean is a sum and a division.
            Reducer::Mean => false,
            Reducer::Sum | Reducer::Product | Reducer::Min | Reducer::Max => !is_truth,
        },
        Primitive::Op(op) => moves(op) || (!is_truth && computes(op)),
        Primitive::ByNumber(_, number) => !is_truth && number.get().abs() < EXACT,
        Primitive::Pairwise(_)
        | Primitive::Pointwise(Pointwise::Negate | Pointwise::Relu)
        | Primitive::ArgMin { .. } => !is_truth,
        Primitive::Pointwise(Pointwise::Exp | Pointwise::Ln)
        | Primitive::LogSoftmax { .. }
        | Primitive::RowsAdded(_)
        | Primitive::Given
        | Primitive::Cast(_)
        | Primitive::Scan(_)
        | Primitive::Closure(_) => false,
    };
    has && elements.iter().all(|other| other == first)
}

/// Whether the op takes elements of any type from one place to another.
fn moves(op: &Op) -> bool {
    matches!(
        op,
        Op::Concat { .. }
            | Op::Stack { .. }
            | Op::Split { .. }
            | Op::Unstack { .. }
            | Op::BroadcastTo { .. }
            | Op::Tile { .. }
            | Op::Pad { .. }
            | Op::StridedSlice(_)
    )
}

/// Whether the op computes with numbers, of floats or not.
fn computes(op: &Op) -> bool {
    matches!(
        op,
        Op::ArgReduce { .. } | Op::BiasAdd | Op::Einsum(_) | Op::MatMul { .. } | Op::Scan { .. }
    )
}

/// Carries out an op that is [known](is_known).
#[track_caller]
pub(super) fn perform(primitive: &Primitive, operands: &[AnyTensor]) -> Results {
    let first = operands.first().ok_or(Error::NotKept)?;
    let done = match (primitive, first.typed::<bool>()) {
        (Primitive::Op(op), _) if moves(op) => {
            with_scalar!(&**first, |first| moved(op, first, operands)?)
        }
        (_, Some(truths)) => Some(one(reduced_truths(primitive, truths)?)),
        (_, None) => with_scalar!(
            &**first, |first| computed(primitive, first, operands)?,
            i64 i32 u8 u32 u64 i8 i16 u16
        ),
    };
    done.ok_or(Error::NotKept)
}

#[track_caller]
fn moved<T: Scalar>(op: &Op, first: &DTensor<T>, operands: &[AnyTensor]) -> Results {
    let all = operands.iter().map(|operand| like(first, operand));
    let all: Vec<&DTensor<T>> = all.collect::<Result<_, _>>()?;
    let several = |made: Vec<DTensor<T>>| {
        let made = made.into_iter().map(|made| Arc::new(made) as AnyTensor);
        Ok(made.collect())
    };
    match op {
        Op::Split { axis, parts } => several(first.split(*axis, parts)?),
        Op::Unstack { axis } => several(first.unstack(*axis)?),
        Op::Concat { axis } => Ok(one(DTensor::concat(*axis, &all)?)),
        Op::Stack { axis } => Ok(one(DTensor::stack(*axis, &all)?)),
        Op::BroadcastTo { shape } => Ok(one(first.broadcast_to(shape)?)),
        Op::Tile { multiples } => Ok(one(first.tile(multiples)?)),
        Op::Pad { paddings } => Ok(one(first.pad(paddings)?)),
        Op::StridedSlice(indices) => Ok(one(first.strided_slice(indices)?)),
        other => Err(Error::UnknownOp { op: other.name() }),
    }
}

#[track_caller]
fn reduced_truths(primitive: &Primitive, truths: &DTensor<bool>) -> Result<DTensor<bool>, Error> {
    if let Primitive::Op(Op::Reduce {
        reducer,
        axes,
        reduced,
    }) = primitive
    {
        let along = ReduceAxes::of(axes, *reduced);
        match reducer {
            Reducer::Any => return truths.any(&along),
            Reducer::All => return truths.all(&along),
            Reducer::Sum | Reducer::Mean | Reducer::Product | Reducer::Min | Reducer::Max => {}
        }
    }
    let op = primitive.name();
    Err(Error::UnknownOp { op })
}

#[track_caller]
fn computed<T: Number>(
    primitive: &Primitive,
    first: &DTensor<T>,
    operands: &[AnyTensor],
) -> Results {
    let second = || like(first, operands.get(1).ok_or(Error::NotKept)?);
    let made = match primitive {
        Primitive::Pointwise(Pointwise::Negate) => first.neg(),
        Primitive::Pointwise(Pointwise::Relu) => first.relu(),
        Primitive::Pairwise(Pairwise::Add) => first.add(second()?),
        Primitive::Pairwise(Pairwise::Subtract) => first.sub(second()?),
        Primitive::Pairwise(Pairwise::Multiply) => first.mul(second()?),
        Primitive::Pairwise(Pairwise::Divide) => first.div(second()?),
        Primitive::ByNumber(by, number) => super::by_number(*by, first, number.get()),
        Primitive::ArgMin { axis } => return Ok(one(first.argmin(*axis)?)),
        Primitive::Op(Op::ArgReduce { axis }) => return Ok(one(first.argmax(*axis)?)),
        Primitive::Op(Op::BiasAdd) => first.bias_add(second()?),
        Primitive::Op(Op::MatMul { lhs, rhs }) => first.matmul_stored(second()?, [*lhs, *rhs]),
        Primitive::Op(Op::Scan { axis }) => first.cumsum(*axis),
        Primitive::Op(Op::Einsum(equation)) => {
            let others = operands.iter().skip(1).map(|other| like(first, other));
            let others: Vec<&DTensor<T>> = others.collect::<Result<_, _>>()?;
            first.einsum(equation, &others)
        }
        Primitive::Op(Op::Reduce {
            reducer,
            axes,
            reduced,
        }) => {
            let along = ReduceAxes::of(axes, *reduced);
            match reducer {
                Reducer::Sum => first.sum(&along),
                Reducer::Product => first.product(&along),
                Reducer::Min => first.min(&along),
                Reducer::Max => first.max(&along),
                Reducer::Mean | Reducer::Any | Reducer::All => {
                    let op = primitive.name();
                    Err(Error::UnknownOp { op })
                }
            }
        }
        other => Err(Error::UnknownOp { op: other.name() }),
    };
    Ok(one(made?))
}

/// From here on not every whole number is a float, which numbers of ops are written down as.
const EXACT: f64 = (1_u64 << 53) as f64;
