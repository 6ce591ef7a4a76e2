//! One op of a program, on tensors whose elements are of types known at run time.

use std::sync::Arc;

use meshwork_accel::{ElementType, Pairwise, Pointwise};
use meshwork_layout::ops::{Labels, Op};

use crate::ops::place;
use crate::record::{AnyTensor, Primitive, like, with_float, with_indices, with_scalar};
use crate::{DTensor, Error, Float, Number, Scalar, bf16, f16};

mod whole;

type Results = Result<Vec<AnyTensor>, Error>;

/// Whether a program can have this op, of operands with such elements.
pub(super) fn is_known(primitive: &Primitive, elements: &[ElementType]) -> bool {
    let first = elements.first().copied();
    let is_float = first.is_some_and(ElementType::is_float);
    if whole::is_known(primitive, elements) {
        return true;
    }
    match primitive {
        Primitive::Given | Primitive::Closure(_) => false,
        Primitive::Cast(_) | Primitive::Scan(_) => true,
        Primitive::Pointwise(_)
        | Primitive::ByNumber(..)
        | Primitive::LogSoftmax { .. }
        | Primitive::ArgMin { .. }
        | Primitive::Op(Op::CrossEntropy(Labels::Sparse) | Op::ArgReduce { .. } | Op::Embedding) => {
            is_float
        }
        Primitive::RowsAdded(_) => elements.get(1).is_some_and(|rows| rows.is_float()),
        Primitive::Pairwise(_) => is_float && elements.iter().all(|other| Some(*other) == first),
        Primitive::Op(op) => {
            is_of_any(op) || is_float && elements.iter().all(|other| Some(*other) == first)
        }
    }
}

/// Whether the op does not look at elements, or at indices and conditions only.
fn is_of_any(op: &Op) -> bool {
    matches!(
        op,
        Op::Select
            | Op::Gather { .. }
            | Op::OneHot { .. }
            | Op::ShapeOf
            | Op::Relayout(_)
            | Op::Transpose { .. }
            | Op::Reshape { .. }
            | Op::ExpandDims { .. }
            | Op::Squeeze { .. }
            | Op::Slice { .. }
    )
}

/// Carries out an op of which a program [can have](is_known) such elements.
#[track_caller]
pub(super) fn perform(
    primitive: &Primitive,
    operands: &[AnyTensor],
    made: &[ElementType],
) -> Results {
    let first = operands.first().ok_or(Error::NotKept)?;
    if !first.element().is_float() {
        let elements: Vec<ElementType> = operands.iter().map(|own| own.element()).collect();
        if whole::is_known(primitive, &elements) {
            return whole::perform(primitive, operands);
        }
    }
    let done = match primitive {
        Primitive::Scan(scan) => return scan.apply(operands),
        Primitive::Op(op) if is_of_any(op) => return of_any(op, operands, made),
        Primitive::Op(op) => with_float!(&**first, |first| of_floats(op, first, operands)?),
        Primitive::Pointwise(by) => with_float!(&**first, |first| one(pointwise(*by, first)?)),
        Primitive::Pairwise(by) => {
            with_float!(&**first, |first| one(pairwise(*by, first, operands)?))
        }
        Primitive::ByNumber(by, number) => {
            with_float!(&**first, |first| one(by_number(*by, first, number.get())?))
        }
        Primitive::LogSoftmax { axis } => {
            with_float!(&**first, |first| one(first.log_softmax(*axis)?))
        }
        Primitive::ArgMin { axis } => with_float!(&**first, |first| one(first.argmin(*axis)?)),
        Primitive::RowsAdded(table) => {
            let rows = operands.get(1).ok_or(Error::NotKept)?;
            let indices = first.to_indices_below(0, table.shape()[0])?;
            with_float!(&**rows, |rows| one(rows.added_to_rows(table, &indices)?))
        }
        Primitive::Cast(to) => with_scalar!(&**first, |first| cast(first, *to)?),
        Primitive::Given | Primitive::Closure(_) => None,
    };
    done.ok_or(Error::NotKept)
}

fn one<T: Scalar>(made: DTensor<T>) -> Vec<AnyTensor> {
    vec![Arc::new(made)]
}

#[track_caller]
fn of_any(op: &Op, operands: &[AnyTensor], made: &[ElementType]) -> Results {
    let operand = |number: usize| operands.get(number).ok_or(Error::NotKept);
    let first = operand(0)?;
    let done = match op {
        Op::Select => {
            let condition = first.to_truths()?;
            let (yes, no) = (operand(1)?, operand(2)?);
            with_scalar!(&**yes, |yes| one(condition.select(yes, like(yes, no)?)?))
        }
        Op::Gather { axis } => {
            let shape = first.placement().shape();
            let along = place(*axis, shape.len());
            let indices = operand(1)?.to_indices_below(along, shape[along])?;
            with_scalar!(&**first, |first| one(first.gather(&indices, *axis)?))
        }
        Op::OneHot { depth } => {
            let classes = with_indices!(first, |classes| classes.one_hot::<bool>(*depth)?);
            Some(cast(&classes, *made.first().ok_or(Error::NotKept)?)?)
        }
        op => with_scalar!(&**first, |first| moved(op, first)?),
    };
    done.ok_or(Error::NotKept)
}

#[track_caller]
fn moved<T: Scalar>(op: &Op, tensor: &DTensor<T>) -> Results {
    Ok(one(match op {
        Op::Relayout(layout) => tensor.relayout(layout)?,
        Op::Transpose { perm } => tensor.transpose(perm)?,
        Op::Reshape { shape } => tensor.reshape(shape)?,
        Op::ExpandDims { axis } => tensor.expand_dims(*axis)?,
        Op::Squeeze { axes } => tensor.squeeze(axes)?,
        Op::Slice { begin, size } => tensor.slice(begin, size)?,
        Op::ShapeOf => return Ok(one(tensor.shape_of()?)),
        op => return Err(Error::UnknownOp { op: op.name() }),
    }))
}

#[track_caller]
fn of_floats<T: Float>(op: &Op, first: &DTensor<T>, operands: &[AnyTensor]) -> Results {
    let operand = |number: usize| operands.get(number).ok_or(Error::NotKept);
    match op {
        Op::ArgReduce { axis } => return Ok(one(first.argmax(*axis)?)),
        Op::Embedding => {
            let indices = operand(1)?.to_indices_below(0, first.shape()[0])?;
            return Ok(one(first.embedding(&indices)?));
        }
        Op::CrossEntropy(Labels::Sparse) => {
            let (loss, slope) =
                with_indices!(operand(1)?, |labels| first.sparse_cross_entropy(labels)?);
            return Ok(vec![Arc::new(loss), Arc::new(slope)]);
        }
        _ => {}
    }
    let typed = operands.iter().map(|operand| like(first, operand));
    let typed: Vec<&DTensor<T>> = typed.collect::<Result<_, _>>()?;
    let made = DTensor::apply(op, &typed, &|_| T::default())?;
    Ok(made
        .into_iter()
        .map(|made| Arc::new(made) as AnyTensor)
        .collect())
}

#[track_caller]
fn pointwise<T: Float>(by: Pointwise, of: &DTensor<T>) -> Result<DTensor<T>, Error> {
    match by {
        Pointwise::Negate => of.neg(),
        Pointwise::Relu => of.relu(),
        Pointwise::Exp => of.exp(),
        Pointwise::Ln => of.ln(),
    }
}

#[track_caller]
fn pairwise<T: Float>(
    by: Pairwise,
    left: &DTensor<T>,
    operands: &[AnyTensor],
) -> Result<DTensor<T>, Error> {
    let right = like(left, operands.get(1).ok_or(Error::NotKept)?)?;
    match by {
        Pairwise::Add => left.add(right),
        Pairwise::Subtract => left.sub(right),
        Pairwise::Multiply => left.mul(right),
        Pairwise::Divide => left.div(right),
    }
}

#[track_caller]
fn by_number<T: Number>(by: Pairwise, of: &DTensor<T>, number: f64) -> Result<DTensor<T>, Error> {
    let number = T::from_f64(number);
    match by {
        Pairwise::Add => of.by_number(by, T::plus, number),
        Pairwise::Subtract => of.by_number(by, T::minus, number),
        Pairwise::Multiply => of.by_number(by, T::times, number),
        Pairwise::Divide => of.by_number(by, T::over, number),
    }
}

#[track_caller]
fn cast<T: Scalar>(of: &DTensor<T>, to: ElementType) -> Results {
    Ok(match to {
        ElementType::F16 => one(of.cast::<f16>()?),
        ElementType::Bf16 => one(of.cast::<bf16>()?),
        ElementType::F32 => one(of.cast::<f32>()?),
        ElementType::F64 => one(of.cast::<f64>()?),
        ElementType::Bool => one(of.cast::<bool>()?),
        ElementType::I8 => one(of.cast::<i8>()?),
        ElementType::I16 => one(of.cast::<i16>()?),
        ElementType::I32 => one(of.cast::<i32>()?),
        ElementType::I64 => one(of.cast::<i64>()?),
        ElementType::U8 => one(of.cast::<u8>()?),
        ElementType::U16 => one(of.cast::<u16>()?),
        ElementType::U32 => one(of.cast::<u32>()?),
        ElementType::U64 => one(of.cast::<u64>()?),
        _ => return Err(Error::UnknownOp { op: "cast" }),
    })
}

#[cfg(test)]
mod tests;
