//! Ops that need all of an axis for each element: clients exchange its largest element and its sum.

use meshwork_accel::{Pairwise, Pointwise, ReduceOp};
use meshwork_layout::ops::{Labels, Op, Placement};
use ndarray::{ArrayD, ArrayViewD, Dimension, Zip};

use super::local::Local;
use super::{Call, kernel, place};
use crate::{DTensor, Error, Float, Scalar};

impl<T: Float> DTensor<T> {
    /// The softmax along an axis, negative counted from the end. It may be cut.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there, and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Result<Self, Error> {
        self.normalized(axis, |Shifted { powers, sums, .. }| {
            powers.pairwise((Pairwise::Divide, T::over), sums, powers.sizes())
        })
    }

    /// The logarithm of the softmax, which is exact where the softmax rounds to 0.
    ///
    /// # Errors
    /// Those of [`softmax`](Self::softmax).
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Result<Self, Error> {
        self.normalized(axis, |Shifted { below, sums, .. }| {
            let sums = sums.pointwise(Pointwise::Ln, T::ln)?;
            below.pairwise((Pairwise::Subtract, T::minus), &sums, below.sizes())
        })
    }

    /// The cross-entropy of the softmax along the last axis with the probability of each class, and
    /// its gradient by this tensor.
    ///
    /// # Shapes
    /// Labels have this shape; the loss has it without the last axis.
    ///
    /// # Errors
    /// [`Error::Op`] for labels of another shape, and those of [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "softmax_cross_entropy_with_logits")]
    pub fn cross_entropy(&self, labels: &Self) -> Result<(Self, Self), Error> {
        self.entropy((Labels::Dense, labels), |_, labels, _| labels.to_owned())
    }

    /// The cross-entropy of the softmax along the last axis with the number of the right class, and
    /// its gradient by this tensor. A number that no class has leaves all probabilities 0.
    ///
    /// # Shapes
    /// Labels and the loss have this shape without the last axis.
    ///
    /// # Errors
    /// Those of [`cross_entropy`](Self::cross_entropy).
    #[track_caller]
    #[doc(alias = "sparse_softmax_cross_entropy_with_logits")]
    pub fn sparse_cross_entropy<I: Scalar>(
        &self,
        labels: &DTensor<I>,
    ) -> Result<(Self, Self), Error> {
        self.entropy((Labels::Sparse, labels), |first, labels, sizes| {
            ArrayD::from_shape_fn(sizes, |index| {
                let (class, row) = (index[sizes.len() - 1], &index.slice()[..sizes.len() - 1]);
                let is_right = labels[row].to_index() == Some(first + class);
                T::from_f64(f64::from(u8::from(is_right)))
            })
        })
    }

    /// The result of what clients know of an axis of theirs.
    #[track_caller]
    fn normalized(
        &self,
        axis: isize,
        make: impl Fn(&Shifted<T>) -> Result<Local<T>, Error>,
    ) -> Result<Self, Error> {
        let call = Call::of(&Op::Softmax { axis }, self.context(), &[self.placement()])?;
        let logits = call.operand(0, self)?;
        let shifted = logits.shifted(&call, place(axis, self.rank()))?;
        call.finish(0, make(&shifted)?)
    }

    #[track_caller]
    fn entropy<I: Scalar>(
        &self,
        (form, labels): (Labels, &DTensor<I>),
        probabilities: impl Fn(usize, ArrayViewD<'_, I>, &[usize]) -> ArrayD<T>,
    ) -> Result<(Self, Self), Error> {
        let placements: [&Placement; 2] = [self.placement(), labels.placement()];
        let call = Call::of(&Op::CrossEntropy(form), self.context(), &placements)?;
        let (logits, labels) = (call.operand(0, self)?, call.operand(1, labels)?);
        // An axis of classes is there, or the op would have been refused.
        let axis = self.rank() - 1;
        let known = logits.shifted(&call, axis)?;
        let (below, powers, sums) = (
            known.below.views()?,
            known.powers.views()?,
            known.sums.views()?,
        );
        let mut right = Vec::new();
        for (place, rank) in logits.local_ranks().iter().enumerate() {
            let held = logits.layout().shard(*rank, self.shape())?;
            let block = labels.unpack()?[place].view();
            let sizes = below[place].shape();
            right.push(probabilities(held[axis].start, block, sizes));
        }
        let losses = (0..right.len()).map(|place| {
            let sums = kernel::spread(&sums[place], below[place].shape());
            let mut terms = below[place].to_owned();
            Zip::from(&mut terms)
                .and(&sums)
                .and(&right[place])
                .for_each(|term, sum, right| {
                    *term = sum.ln().minus(*term).times(*right);
                });
            kept(&terms.view(), axis, (T::default(), T::plus))
        });
        let losses = Local::on(self.context(), logits.layout().mesh(), losses.collect());
        let losses = logits.joined(axis, losses, call.within(2))?;
        let losses = losses.views()?;
        let loss = call.result(0, |place, sizes| {
            Ok(kernel::reshaped(&losses[place], sizes))
        })?;
        let gradient = call.result(1, |place, sizes| {
            let blocks = (powers[place].view(), sums[place].view());
            let softmax = kernel::zip(blocks, sizes, &T::over);
            Ok(kernel::zip(
                (softmax.view(), right[place].view()),
                sizes,
                &T::minus,
            ))
        })?;
        Ok((loss, gradient))
    }

    /// What is known of an axis once all clients have told what they have of it.
    #[track_caller]
    fn shifted(&self, call: &Call, axis: usize) -> Result<Shifted<T>, Error> {
        let larger = |a: T, b: T| if b > a { b } else { a };
        let lowest = T::neutral(meshwork_layout::Reduction::Max);
        let blocks = Local::of(self);
        let sizes = blocks.sizes();
        let mut one = sizes.to_vec();
        one.iter_mut().for_each(|sizes| sizes[axis] = 1);
        let largest = blocks.fold(ReduceOp::Max, &[axis], &one, (lowest, larger))?;
        let largest = self.joined(axis, largest, call.within(0))?;
        let below = blocks.pairwise((Pairwise::Subtract, T::minus), &largest, sizes)?;
        let powers = below.pointwise(Pointwise::Exp, T::exp)?;
        let sums = powers.fold(ReduceOp::Sum, &[axis], &one, (T::default(), T::plus))?;
        let sums = self.joined(axis, sums, call.within(1))?;
        Ok(Shifted {
            below,
            powers,
            sums,
        })
    }
}

/// For each place how far elements are below the largest, their exponentials, and the sums of those.
struct Shifted<T: Scalar> {
    below: Local<T>,
    powers: Local<T>,
    sums: Local<T>,
}

/// The elements along an axis made one; the axis stays with size 1.
fn kept<T: Scalar>(
    block: &ArrayViewD<'_, T>,
    axis: usize,
    fold: (T, impl Fn(T, T) -> T),
) -> ArrayD<T> {
    let mut sizes = block.shape().to_vec();
    sizes[axis] = 1;
    kernel::fold(block, &[axis], &sizes, fold)
}
