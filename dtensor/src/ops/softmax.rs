//! Ops that need all of an axis for each element: clients exchange its largest element and its sum.

use std::ops::Range;

use meshwork_accel::{ElementType, Pairwise, Pointwise, ReduceOp};
use meshwork_layout::Shape;
use meshwork_layout::ops::{Labels, Op, TensorLayout};

use super::kernel::Monoid;
use super::local::Local;
use super::{Call, place};
use crate::record::Primitive;
use crate::{DTensor, Error, Float, Scalar};

impl<T: Float> DTensor<T> {
    /// The softmax along an axis, negative counted from the end. It may be cut.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there, and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Result<Self, Error> {
        // A sum of exponentials may be beyond 65,504, where what it divides is not.
        if T::TYPE == ElementType::F16 {
            return self.cast::<f32>()?.softmax(axis)?.cast();
        }
        let softmax = Primitive::Op(Op::Softmax { axis });
        self.normalized(axis, softmax, |Shifted { powers, sums, .. }| {
            powers.pairwise(Pairwise::Divide, T::over, sums, powers.sizes())
        })
    }

    /// The logarithm of the softmax, which is exact where the softmax rounds to 0.
    ///
    /// # Errors
    /// Those of [`softmax`](Self::softmax).
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Result<Self, Error> {
        if T::TYPE == ElementType::F16 {
            return self.cast::<f32>()?.log_softmax(axis)?.cast();
        }
        let logarithm = Primitive::LogSoftmax { axis };
        self.normalized(axis, logarithm, |Shifted { below, sums, .. }| {
            let sums = sums.pointwise(Pointwise::Ln, T::ln)?;
            below.pairwise(Pairwise::Subtract, T::minus, &sums, below.sizes())
        })
    }

    /// The cross-entropy of the softmax along the last axis with the probability of each class, and
    /// its gradient by this tensor. A class that has none costs nothing, even at a logit of −∞.
    ///
    /// # Shapes
    /// Labels have this shape; the loss has it without the last axis.
    ///
    /// # Errors
    /// [`Error::Op`] for labels of another shape, and those of [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "softmax_cross_entropy_with_logits")]
    pub fn cross_entropy(&self, labels: &Self) -> Result<(Self, Self), Error> {
        if T::TYPE == ElementType::F16 {
            let labels = labels.cast::<f32>()?;
            let (loss, gradient) = self.cast::<f32>()?.cross_entropy(&labels)?;
            return Ok((loss.cast()?, gradient.cast()?));
        }
        self.entropy(Labels::Dense, labels, |_, labels, _| Ok(labels.clone()))
    }

    /// The cross-entropy of the softmax along the last axis with the number of the right class, and
    /// its gradient by this tensor. A number that no class has, such as −1 for padding, leaves all
    /// probabilities 0: loss and gradient are 0.
    ///
    /// # Shapes
    /// Labels and the loss have this shape without the last axis.
    ///
    /// # Errors
    /// Those of [`cross_entropy`](Self::cross_entropy).
    #[track_caller]
    #[doc(alias("sparse_softmax_cross_entropy_with_logits", "ignore_index"))]
    pub fn sparse_cross_entropy<I: Scalar>(
        &self,
        labels: &DTensor<I>,
    ) -> Result<(Self, Self), Error> {
        if T::TYPE == ElementType::F16 {
            let (loss, gradient) = self.cast::<f32>()?.sparse_cross_entropy(labels)?;
            return Ok((loss.cast()?, gradient.cast()?));
        }
        self.entropy(Labels::Sparse, labels, |classes, labels, sizes| {
            labels.one_hot::<T>(|place| classes[place].clone(), sizes)
        })
    }

    /// The result of what clients know of an axis of theirs.
    #[track_caller]
    fn normalized(
        &self,
        axis: isize,
        primitive: Primitive,
        make: impl Fn(&Shifted<T>) -> Result<Local<T>, Error>,
    ) -> Result<Self, Error> {
        let call = Call::of(&Op::Softmax { axis }, self.context(), &[self.placement()])?;
        let call = call.named(primitive);
        let logits = call.operand(0, self)?;
        let shifted = logits.shifted(&call, place(axis, self.rank()))?;
        call.finish(0, make(&shifted)?)
    }

    /// By what makes the probabilities of classes, of which each place has a range, of the labels.
    #[track_caller]
    fn entropy<I: Scalar>(
        &self,
        form: Labels,
        labels: &DTensor<I>,
        probabilities: impl Fn(&[Range<usize>], &Local<I>, &[Shape]) -> Result<Local<T>, Error>,
    ) -> Result<(Self, Self), Error> {
        let placements: [&TensorLayout; 2] = [self.placement(), labels.placement()];
        let call = Call::of(&Op::CrossEntropy(form), self.context(), &placements)?;
        let (logits, labels) = (call.operand(0, self)?, call.operand(1, labels)?);
        // An axis of classes is there, or the op would have been refused.
        let axis = self.rank() - 1;
        let Shifted {
            below,
            powers,
            sums,
        } = logits.shifted(&call, axis)?;
        let mut classes = Vec::new();
        for rank in logits.local_ranks() {
            let held = logits.layout().shard(*rank, self.shape())?;
            classes.push(held[axis].start..held[axis].end);
        }
        let sizes = below.sizes();
        let right = probabilities(&classes, &Local::of(&labels), sizes)?;
        let logarithms = sums.pointwise(Pointwise::Ln, T::ln)?;
        let costs = logarithms.pairwise(Pairwise::Subtract, T::minus, &below, sizes)?;
        let costs = costs.weighed(&right)?;
        let mut one = sizes.to_vec();
        one.iter_mut().for_each(|sizes| sizes[axis] = 1);
        let losses = costs.fold(ReduceOp::Sum, &[axis], &one, &Monoid::sum())?;
        let losses = logits.joined(&[axis], losses, call.within(2))?;
        let loss = call.finish(0, losses.reshaped(&call.sizes(0)?)?)?;
        let softmax = powers.pairwise(Pairwise::Divide, T::over, &sums, sizes)?;
        let softmax = match form {
            Labels::Dense => softmax,
            // What no class has costs nothing, and moves nothing: all of its row is 0 in `right`.
            // The softmax may be no number there, which a product would keep.
            Labels::Sparse => {
                let has = right.fold(ReduceOp::Sum, &[axis], &one, &Monoid::sum())?;
                let has = logits.joined(&[axis], has, call.within(3))?;
                has.select([&softmax, &right], sizes)?
            }
        };
        let gradient = softmax.pairwise(Pairwise::Subtract, T::minus, &right, sizes)?;
        Ok((loss, call.finish(1, gradient)?))
    }

    /// The axis shifted by its maximum, its exponentials and their sums, over all clients.
    #[track_caller]
    fn shifted(&self, call: &Call, axis: usize) -> Result<Shifted<T>, Error> {
        let max = Monoid {
            identity: T::neutral(meshwork_layout::PartialReduction::Max),
            combine: |a: T, b: T| if b > a { b } else { a },
        };
        let blocks = Local::of(self);
        let sizes = blocks.sizes();
        let mut one = sizes.to_vec();
        one.iter_mut().for_each(|sizes| sizes[axis] = 1);
        let largest = blocks.fold(ReduceOp::Max, &[axis], &one, &max)?;
        let largest = self.joined(&[axis], largest, call.within(0))?;
        let below = blocks.pairwise(Pairwise::Subtract, T::minus, &largest, sizes)?;
        let powers = below.pointwise(Pointwise::Exp, T::exp)?;
        let sums = powers.fold(ReduceOp::Sum, &[axis], &one, &Monoid::sum())?;
        let sums = self.joined(&[axis], sums, call.within(1))?;
        Ok(Shifted {
            below,
            powers,
            sums,
        })
    }
}

impl<T: Float> Local<T> {
    /// Costs times probabilities of the same sizes. What has none costs nothing: its cost may be
    /// infinite, and 0 times that is no number.
    fn weighed(&self, probabilities: &Self) -> Result<Self, Error> {
        let times = |cost: T, probability: T| match probability == T::default() {
            true => probability,
            false => cost.times(probability),
        };
        let sizes = self.sizes();
        let products = self.pairwise(Pairwise::Multiply, times, probabilities, sizes)?;
        match products.computing() {
            // Devices multiply all.
            Some(_) => probabilities.select([&products, &products.zeros()?], sizes),
            None => Ok(products),
        }
    }
}

/// For each place how far elements are below the largest, their exponentials, and the sums of
/// those.
struct Shifted<T: Scalar> {
    below: Local<T>,
    powers: Local<T>,
    sums: Local<T>,
}
