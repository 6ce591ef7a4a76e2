//! Ops as data: carried out, and their gradients.

use meshwork_layout::ops::{GradientInput, Labels, Op, Reducer, TensorLayout, gradients};
use ndarray::ArrayD;

use super::{Call, ReduceAxes, kernel, place, views};
use crate::record::Primitive;
use crate::{DTensor, Error, Float, Scalar};

/// The function of an element-wise op: of the elements at one index, one of each operand.
pub type Function<'a, T> = &'a dyn Fn(&[T]) -> T;

impl<T: Scalar> DTensor<T> {
    /// The elements of several tensors at the same index by a function; shapes are broadcast.
    ///
    /// # Errors
    /// [`Error::Op`] for no tensors, shapes that do not fit or another mesh,
    /// [`Error::OtherContext`], and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn elementwise(tensors: &[&Self], function: Function<'_, T>) -> Result<Self, Error> {
        let op = Op::Elementwise;
        let first = *tensors.first().ok_or_else(|| no_operands(&op))?;
        let placements: Vec<&TensorLayout> = tensors.iter().map(|t| t.placement()).collect();
        let call = Call::of(&op, first.context(), &placements)?;
        let call = call.named(Primitive::Closure("elementwise"));
        let mut operands = Vec::new();
        for (number, tensor) in tensors.iter().enumerate() {
            operands.push(call.operand(number, tensor)?);
        }
        call.result(0, |place, sizes| {
            let blocks = views(&operands, place)?;
            let views: Vec<_> = blocks
                .iter()
                .map(|block| kernel::spread(block, sizes))
                .collect();
            let mut elements = Vec::with_capacity(views.len());
            Ok(ArrayD::from_shape_fn(sizes, |index| {
                elements.clear();
                elements.extend(views.iter().map(|view| view[&index]));
                function(&elements)
            }))
        })
    }
}

impl<T: Float> DTensor<T> {
    /// The results of an op; `function` is what an element-wise one does. Truth values are 0 and
    /// what is not 0, indices are whole numbers.
    ///
    /// ```
    /// use meshwork_core::{Client, Mesh};
    /// use meshwork_dtensor::{Context, DTensor, Error};
    /// use meshwork_layout::{Layout, ops::Op};
    ///
    /// let context = Context::alone(Client::new("localhost", 0, 1)?);
    /// let mesh = Mesh::new([("x", 2)])?;
    /// let logits = context.zeros::<f32>(&[4, 2], &Layout::inner_sharded(&mesh, "x", 2)?)?;
    /// let softmax = DTensor::apply(&Op::Softmax { axis: -1 }, &[&logits], &|_| 0.0)?;
    /// assert!(softmax[0].to_host()?.iter().all(|p| *p == 0.5));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] where the op does not fit the tensors, [`Error::OtherContext`], and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn apply(
        op: &Op,
        tensors: &[&Self],
        function: Function<'_, T>,
    ) -> Result<Vec<Self>, Error> {
        let first = *tensors.first().ok_or_else(|| no_operands(op))?;
        let expected = op.operand_count().unwrap_or(tensors.len());
        if tensors.len() != expected {
            return Err(meshwork_layout::ops::OpError::OperandCount {
                op: op.name(),
                found: tensors.len(),
                expected,
            }
            .into());
        }
        Ok(match (op, tensors) {
            (Op::Elementwise, _) => vec![Self::elementwise(tensors, function)?],
            (Op::Concat { axis }, _) => vec![Self::concat(*axis, tensors)?],
            (Op::Stack { axis }, _) => vec![Self::stack(*axis, tensors)?],
            (Op::Einsum(equation), [_, others @ ..]) => vec![first.einsum(equation, others)?],
            (Op::Select, [_, yes, no]) => vec![first.select(yes, no)?],
            (Op::BiasAdd, [_, bias]) => vec![first.bias_add(bias)?],
            (Op::MatMul { lhs, rhs }, [_, other]) => {
                vec![first.matmul_stored(other, [*lhs, *rhs])?]
            }
            (Op::Gather { axis }, [_, indices]) => vec![first.gather(indices, *axis)?],
            (Op::CrossEntropy(form), [_, labels]) => {
                let (loss, gradient) = match form {
                    Labels::Dense => first.cross_entropy(labels)?,
                    Labels::Sparse => first.sparse_cross_entropy(labels)?,
                };
                vec![loss, gradient]
            }
            (Op::Split { axis, parts }, _) => first.split(*axis, parts)?,
            (Op::Unstack { axis }, _) => first.unstack(*axis)?,
            _ => match Self::apply_network(op, tensors)? {
                Some(result) => vec![result],
                None => vec![first.apply_alone(op)?],
            },
        })
    }

    /// The result of an op with one operand and one result.
    #[track_caller]
    fn apply_alone(&self, op: &Op) -> Result<Self, Error> {
        match op {
            Op::Reduce {
                reducer,
                axes,
                reduced,
            } => self.apply_reducer(*reducer, &ReduceAxes::of(axes, *reduced)),
            Op::ArgReduce { axis } => self.argmax(*axis)?.cast(),
            Op::Scan { axis } => self.cumsum(*axis),
            Op::Softmax { axis } => self.softmax(*axis),
            Op::Transpose { perm } => self.transpose(perm),
            Op::Reshape { shape } => self.reshape(shape),
            Op::ExpandDims { axis } => self.expand_dims(*axis),
            Op::Squeeze { axes } => self.squeeze(axes),
            Op::BroadcastTo { shape } => self.broadcast_to(shape),
            Op::Tile { multiples } => self.tile(multiples),
            Op::Pad { paddings } => self.pad(paddings),
            Op::OneHot { depth } => self.one_hot(*depth),
            Op::ShapeOf => self.shape_of()?.cast(),
            Op::Slice { begin, size } => self.slice(begin, size),
            Op::StridedSlice(indices) => self.strided_slice(indices),
            Op::Relayout(layout) => self.relayout(layout),
            _ => Err(Error::UnknownOp { op: op.name() }),
        }
    }

    #[track_caller]
    fn apply_reducer(&self, reducer: Reducer, along: &ReduceAxes) -> Result<Self, Error> {
        match reducer {
            Reducer::Sum => self.sum(along),
            Reducer::Mean => self.mean(along),
            Reducer::Product => self.product(along),
            Reducer::Min => self.min(along),
            Reducer::Max => self.max(along),
            Reducer::Any => self.cast::<bool>()?.any(along)?.cast(),
            Reducer::All => self.cast::<bool>()?.all(along)?.cast(),
        }
    }

    /// The gradients by all operands of an op, from that by its result. `derivative` is what an
    /// element-wise op's gradient by each operand makes of the upstream element and those of all
    /// operands; of other ops it is not asked.
    ///
    /// Their layouts are those of [`gradients`], which may differ from those of the operands.
    /// Besides the ops that it knows there are those of networks (convolution, pool, normalize,
    /// standardize, embedding, attention, activation, rotary), and of softmax, gather (by the
    /// tensor that is gathered from), select, concat, slice, pad, bias and broadcast; of split, it
    /// is a [`concat`](Self::concat).
    ///
    /// # Errors
    /// [`Error::Op`] for an op without a gradient, or an upstream of another shape than the result;
    /// and those of [`apply`](Self::apply).
    #[track_caller]
    pub fn gradients(
        op: &Op,
        operands: &[&Self],
        upstream: &Self,
        derivative: &dyn Fn(usize, &[T]) -> T,
    ) -> Result<Vec<Self>, Error> {
        if let Some(composed) = Self::composed(op, operands, upstream)? {
            return Ok(composed);
        }
        let placements: Vec<TensorLayout> =
            operands.iter().map(|o| o.placement().clone()).collect();
        let count = averaged(op, operands);
        let mut found = Vec::new();
        for (number, gradient) in gradients(op, &placements, upstream.placement())?
            .iter()
            .enumerate()
        {
            let mut previous = upstream.clone();
            for step in gradient.steps() {
                let input = |input: &GradientInput| match *input {
                    GradientInput::Upstream => upstream,
                    GradientInput::Operand(operand) => operands[operand],
                    GradientInput::Previous => &previous,
                };
                let inputs: Vec<&Self> = step.inputs().iter().map(input).collect();
                previous = match (step.op(), count) {
                    (Op::Elementwise, Some(count)) => inputs[0].divided(count)?,
                    (op, _) => {
                        let derivative = |elements: &[T]| derivative(number, elements);
                        Self::apply(op, &inputs, &derivative)?.swap_remove(0)
                    }
                };
            }
            found.push(previous);
        }
        Ok(found)
    }
}

/// Of how many elements a mean is one.
fn averaged<T: Float>(op: &Op, operands: &[&DTensor<T>]) -> Option<usize> {
    let Op::Reduce {
        reducer: Reducer::Mean,
        axes,
        ..
    } = op
    else {
        return None;
    };
    let shape = operands.first()?.shape();
    let sizes = axes.iter().map(|axis| shape[place(*axis, shape.len())]);
    Some(sizes.product())
}

fn no_operands(op: &Op) -> Error {
    meshwork_layout::ops::OpError::NoOperands { op: op.name() }.into()
}
