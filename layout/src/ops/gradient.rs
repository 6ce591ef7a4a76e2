//! Gradients of ops as sequences of other ops, with the layouts that TensorFlow infers for them:
//! which op, on which inputs, with which collectives. Nothing is computed here; the dtensor crate
//! does that.

use super::{
    Equation, Inferred, Op, OpError, Orientation, ReducedAxes, Reducer, TensorLayout, infer, rules,
};
use crate::{Layout, Shape};

/// The gradient with respect to one operand of an op, as a sequence of ops.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gradient {
    steps: Vec<GradientStep>,
    placement: TensorLayout,
}

/// One op of a [`Gradient`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GradientStep {
    op: Op,
    inputs: Vec<GradientInput>,
    inferred: Inferred,
}

/// An input of a [`GradientStep`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GradientInput {
    /// The gradient with respect to the result of the op.
    Upstream,
    /// An operand of the op, counted from 0.
    Operand(usize),
    /// The result of the step before; for the first one, the gradient with respect to the result.
    Previous,
}

impl Gradient {
    /// The ops, in order; each has one result.
    #[must_use]
    pub fn steps(&self) -> &[GradientStep] {
        &self.steps
    }

    /// Shape and layout of the gradient. The shape is that of the operand; the layout may differ.
    #[must_use]
    pub fn placement(&self) -> &TensorLayout {
        &self.placement
    }
}

impl GradientStep {
    /// The op of this step.
    #[must_use]
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// The inputs of the op.
    #[must_use]
    pub fn inputs(&self) -> &[GradientInput] {
        &self.inputs
    }

    /// The layouts inferred for the op.
    #[must_use]
    pub fn inferred(&self) -> &Inferred {
        &self.inferred
    }
}

/// The gradients of an op with respect to all its operands, and their layouts as TensorFlow infers
/// them; `upstream` is the placement of the gradient with respect to the result.
///
/// An element-wise op is taken to need all its operands for that.
///
/// ```
/// use meshwork_core::Mesh;
/// use meshwork_layout::Layout;
/// use meshwork_layout::ops::{Op, Orientation, TensorLayout, gradients, infer};
///
/// // Data parallelism: each rank has a part of the batch, and all have the weights.
/// let mesh = Mesh::new([("batch", 4)])?;
/// let inputs = TensorLayout::new([32, 8], Layout::batch_sharded(&mesh, "batch", 2)?)?;
/// let weights = TensorLayout::new([8, 2], Layout::replicated(&mesh, 2))?;
/// let product = Op::MatMul { lhs: Orientation::Plain, rhs: Orientation::Plain };
/// let operands = [inputs, weights.clone()];
/// let outputs = infer(&product, &operands)?.results()[0].placement().clone();
/// let by_weights = gradients(&product, &operands, &outputs)?.remove(1);
/// assert_eq!(by_weights.placement(), &weights);
/// assert_eq!(by_weights.steps()[0].inferred().collectives().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of [`infer`] for the op itself and for the ops of its gradient; [`OpError::UpstreamShape`]
/// for a gradient by the result that has another shape than the result; [`OpError::NoGradient`] for
/// ops other than element-wise ones, matmul, einsum, sum and mean, transpose, reshape, expand,
/// squeeze and relayout, and for an einsum with a diagonal, or with a label that is in one operand
/// only.
pub fn gradients(
    op: &Op,
    operands: &[TensorLayout],
    upstream: &TensorLayout,
) -> Result<Vec<Gradient>, OpError> {
    check_upstream(op, operands, upstream)?;
    (0..operands.len())
        .map(|operand| {
            let mut builder = Builder {
                operands,
                upstream,
                previous: upstream.clone(),
                steps: Vec::new(),
            };
            builder.differentiate(op, operand)?;
            Ok(Gradient {
                steps: builder.steps,
                placement: builder.previous,
            })
        })
        .collect()
}

fn check_upstream(
    op: &Op,
    operands: &[TensorLayout],
    upstream: &TensorLayout,
) -> Result<(), OpError> {
    let inferred = infer(op, operands)?;
    let op = op.name();
    let [result] = inferred.results() else {
        return Err(OpError::NoGradient { op });
    };
    let (found, expected) = (upstream.shape(), result.placement().shape());
    if found == expected {
        return Ok(());
    }
    Err(OpError::UpstreamShape {
        op,
        found: Shape::from(found),
        expected: Shape::from(expected),
    })
}

struct Builder<'a> {
    operands: &'a [TensorLayout],
    upstream: &'a TensorLayout,
    previous: TensorLayout,
    steps: Vec<GradientStep>,
}

impl Builder<'_> {
    fn differentiate(&mut self, op: &Op, operand: usize) -> Result<(), OpError> {
        let shape = self.operands[operand].shape().to_vec();
        match op {
            Op::Elementwise => {
                let others = (0..self.operands.len()).map(GradientInput::Operand);
                let inputs = [GradientInput::Upstream].into_iter().chain(others);
                self.step(Op::Elementwise, inputs)?;
                self.reduce_to(&shape)
            }
            Op::MatMul { lhs, rhs } => {
                self.matmul(operand, [*lhs, *rhs])?;
                self.reduce_to(&shape)
            }
            Op::Einsum(equation) => self.einsum(equation, operand),
            Op::Reduce {
                reducer: reducer @ (Reducer::Sum | Reducer::Mean),
                axes,
                ..
            } => self.spread(*reducer, axes, shape),
            Op::Transpose { perm } => {
                let mut inverse = vec![0; perm.len()];
                for (axis, &from) in perm.iter().enumerate() {
                    inverse[from] = axis;
                }
                self.follow(Op::Transpose { perm: inverse })
            }
            Op::Reshape { .. } | Op::ExpandDims { .. } | Op::Squeeze { .. } => self.reshape(&shape),
            Op::Relayout(_) => {
                // A gradient is no term of a sum, even where its operand is.
                let layout = self.operands[operand].layout();
                let layout = Layout::new(layout.specs().cloned(), layout.mesh())?;
                self.follow(Op::Relayout(Box::new(layout)))
            }
            _ => Err(OpError::NoGradient { op: op.name() }),
        }
    }

    /// One of the two products that a gradient of a product is; each is stored as the operand is.
    fn matmul(&mut self, operand: usize, stored: [Orientation; 2]) -> Result<(), OpError> {
        let other = GradientInput::Operand(1 - operand);
        let upstream = GradientInput::Upstream;
        let (plain, transposed) = (Orientation::Plain, Orientation::Transposed);
        // The gradient by the left is G·Bᵀ, by the right Aᵀ·G: the other operand is turned round
        // unless it is stored so. Where the operand itself is stored turned round, so is the
        // product.
        let turned = match stored[1 - operand] {
            Orientation::Plain => transposed,
            Orientation::Transposed => plain,
        };
        let (lhs, rhs, inputs) = match (operand, stored[operand]) {
            (0, Orientation::Plain) => (plain, turned, [upstream, other]),
            (0, Orientation::Transposed) => (stored[1], transposed, [other, upstream]),
            (_, Orientation::Plain) => (turned, plain, [other, upstream]),
            (_, Orientation::Transposed) => (transposed, stored[0], [upstream, other]),
        };
        self.step(Op::MatMul { lhs, rhs }, inputs)
    }

    /// The einsum in which the operand and the result have changed places.
    fn einsum(&mut self, equation: &Equation, operand: usize) -> Result<(), OpError> {
        let all: Vec<&[char]> = equation.operands().collect();
        let mut operands = vec![equation.result().to_vec()];
        let mut inputs = vec![GradientInput::Upstream];
        for (other, labels) in all
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != operand)
        {
            operands.push(labels.to_vec());
            inputs.push(GradientInput::Operand(other));
        }
        let known = |label: &char| operands.iter().flatten().any(|other| other == label);
        let once = |labels: &&[char]| {
            let mut places = labels.iter().enumerate();
            places.all(|(place, label)| !labels[..place].contains(label))
        };
        if !all[operand].iter().all(known) || !all.iter().all(once) {
            let op = Op::Einsum(equation.clone());
            return Err(OpError::NoGradient { op: op.name() });
        }
        let swapped = Equation::of(operands, all[operand].to_vec());
        self.step(Op::Einsum(swapped), inputs)
    }

    /// The gradient by each element of a sum is that by the sum.
    fn spread(
        &mut self,
        reducer: Reducer,
        axes: &[isize],
        shape: Vec<usize>,
    ) -> Result<(), OpError> {
        let mut kept = shape.clone();
        for &axis in axes {
            let axis = rules::resolve("reduce", axis, shape.len())?;
            kept[axis] = 1;
        }
        self.reshape(&kept)?;
        self.follow(Op::BroadcastTo { shape })?;
        match reducer {
            Reducer::Mean => self.follow(Op::Elementwise),
            Reducer::Sum => Ok(()),
            Reducer::Product | Reducer::Min | Reducer::Max | Reducer::Any | Reducer::All => {
                Err(OpError::NoGradient { op: "reduce" })
            }
        }
    }

    /// Sums over the axes along which an operand of this shape was repeated.
    fn reduce_to(&mut self, shape: &[usize]) -> Result<(), OpError> {
        let wide = self.previous.shape();
        let missing = wide.len() - shape.len();
        let repeated = |&axis: &usize| axis < missing || shape[axis - missing] != wide[axis];
        let axes: Vec<isize> = (0..wide.len())
            .filter(repeated)
            .map(usize::cast_signed)
            .collect();
        if axes.is_empty() {
            return Ok(());
        }
        self.follow(Op::Reduce {
            reducer: Reducer::Sum,
            axes,
            reduced: ReducedAxes::Removed,
        })?;
        self.reshape(shape)
    }

    fn reshape(&mut self, shape: &[usize]) -> Result<(), OpError> {
        if self.previous.shape() == shape {
            return Ok(());
        }
        let shape = shape.iter().copied().map(Some).collect();
        self.follow(Op::Reshape { shape })
    }

    fn follow(&mut self, op: Op) -> Result<(), OpError> {
        self.step(op, [GradientInput::Previous])
    }

    fn step(
        &mut self,
        op: Op,
        inputs: impl IntoIterator<Item = GradientInput>,
    ) -> Result<(), OpError> {
        let inputs: Vec<GradientInput> = inputs.into_iter().collect();
        let placement = |input: &GradientInput| match *input {
            GradientInput::Upstream => self.upstream.clone(),
            GradientInput::Operand(operand) => self.operands[operand].clone(),
            GradientInput::Previous => self.previous.clone(),
        };
        let inferred = infer(&op, &inputs.iter().map(placement).collect::<Vec<_>>())?;
        for result in inferred.results() {
            self.previous = result.placement().clone();
        }
        self.steps.push(GradientStep {
            op,
            inputs,
            inferred,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
