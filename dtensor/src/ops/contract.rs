//! Sums of products.

use meshwork_layout::ops::{Equation, Op, Orientation, TensorLayout};

use super::einsum::einsum;
use super::local::Local;
use super::{Call, kernel};
use crate::{DTensor, Error, Number};

impl<T: Number> DTensor<T> {
    /// The product of matrices, or of stacks of them, whose axes before the last two are broadcast.
    ///
    /// # Shapes
    /// `[.., m, k]` and `[.., k, n]` give `[.., m, n]`.
    ///
    /// # Errors
    /// [`Error::Op`] for shapes that do not fit, and where the axes along which is summed are cut
    /// by different mesh dimensions; [`Error::OtherContext`], and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn matmul(&self, other: &Self) -> Result<Self, Error> {
        self.matmul_stored(other, [Orientation::Plain; 2])
    }

    /// The product of matrices that may be stored as columns of rows.
    ///
    /// # Errors
    /// Those of [`matmul`](Self::matmul).
    #[track_caller]
    pub fn matmul_stored(&self, other: &Self, stored: [Orientation; 2]) -> Result<Self, Error> {
        let [lhs, rhs] = stored;
        let op = Op::MatMul { lhs, rhs };
        let call = Call::of(&op, self.context(), &[self.placement(), other.placement()])?;
        let (left, right) = (call.operand(0, self)?, call.operand(1, other)?);
        if let Some(product) = call.multiplied([&left, &right], stored)? {
            return Ok(product);
        }
        call.result(0, |place, sizes| {
            let blocks = [left.unpack()?[place].view(), right.unpack()?[place].view()];
            Ok(kernel::matmul(blocks, stored, sizes))
        })
    }

    /// Sums of products along named axes, of this tensor and others.
    ///
    /// # Errors
    /// [`Error::Op`] for an equation that does not fit the shapes, and where an axis is cut by
    /// different mesh dimensions; [`Error::OtherContext`], and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn einsum(&self, equation: &Equation, others: &[&Self]) -> Result<Self, Error> {
        let all: Vec<&Self> = [self].into_iter().chain(others.iter().copied()).collect();
        let placements: Vec<&TensorLayout> =
            all.iter().map(|operand| operand.placement()).collect();
        let call = Call::of(&Op::Einsum(equation.clone()), self.context(), &placements)?;
        let mut operands = Vec::new();
        for ((number, operand), letters) in all.iter().enumerate().zip(equation.operands()) {
            operands.push((letters, Local::of(&call.operand(number, operand)?)));
        }
        call.finish(0, einsum(operands, equation.result())?)
    }
}
