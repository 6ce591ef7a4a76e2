//! Ops that need all of an axis for each element: clients exchange its largest element and its sum.

use meshwork_layout::ops::{Labels, Op, Placement};
use ndarray::{ArrayD, ArrayViewD, Dimension, Zip};

use super::{Call, kernel, place};
use crate::exchange::Block;
use crate::{DTensor, Error, Float, Scalar};

impl<T: Float> DTensor<T> {
    /// The softmax along an axis, negative counted from the end. It may be cut.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there, and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Result<Self, Error> {
        self.normalized(axis, |shifted, sum| shifted.exp().over(sum))
    }

    /// The logarithm of the softmax, which is exact where the softmax rounds to 0.
    ///
    /// # Errors
    /// Those of [`softmax`](Self::softmax).
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Result<Self, Error> {
        self.normalized(axis, |shifted, sum| shifted.minus(sum.ln()))
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

    /// Each element from how far it is below the largest of its axis, and from the sum of the
    /// exponentials of that.
    #[track_caller]
    fn normalized(&self, axis: isize, function: impl Fn(T, T) -> T) -> Result<Self, Error> {
        let call = Call::of(&Op::Softmax { axis }, self.context(), &[self.placement()])?;
        let logits = call.operand(0, self)?;
        let (shifted, sums) = logits.shifted(&call, place(axis, self.rank()))?;
        call.result(0, |place, sizes| {
            let blocks = (shifted[place].view(), sums[place].view());
            Ok(kernel::zip(blocks, sizes, &function))
        })
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
        let (shifted, sums) = logits.shifted(&call, axis)?;
        let mut right = Vec::new();
        for (place, rank) in logits.local_ranks().iter().enumerate() {
            let held = logits.layout().shard(*rank, self.shape())?;
            let block = labels.unpack()?[place].view();
            right.push(probabilities(
                held[axis].start,
                block,
                shifted[place].shape(),
            ));
        }
        let losses = (0..right.len()).map(|place| {
            let sums = sums[place].view();
            let sums = kernel::spread(&sums, shifted[place].shape());
            let mut terms = shifted[place].to_owned();
            Zip::from(&mut terms)
                .and(&sums)
                .and(&right[place])
                .for_each(|term, sum, right| {
                    *term = sum.ln().minus(*term).times(*right);
                });
            kept(&terms.view(), axis, (T::default(), T::plus))
        });
        let losses = logits.joined(axis, losses.collect(), call.within(2))?;
        let loss = call.result(0, |place, sizes| {
            Ok(kernel::reshaped(&losses[place].view(), sizes))
        })?;
        let gradient = call.result(1, |place, sizes| {
            let blocks = (shifted[place].view(), sums[place].view());
            let softmax = kernel::zip(blocks, sizes, &|x, sum| x.exp().over(sum));
            Ok(kernel::zip(
                (softmax.view(), right[place].view()),
                sizes,
                &T::minus,
            ))
        })?;
        Ok((loss, gradient))
    }

    /// How far each element is below the largest of its axis, and the sums of the exponentials.
    #[track_caller]
    fn shifted(&self, call: &Call, axis: usize) -> Result<Shifted<T>, Error> {
        let larger = |a: T, b: T| if b > a { b } else { a };
        let lowest = T::neutral(meshwork_layout::Reduction::Max);
        let blocks = self.unpack()?.iter();
        let largest = blocks.map(|block| kept(&block.view(), axis, (lowest, larger)));
        let largest = self.joined(axis, largest.collect(), call.within(0))?;
        let both = self.unpack()?.iter().zip(&largest);
        let shifted = both.map(|(block, largest)| {
            kernel::zip((block.view(), largest.view()), block.shape(), &T::minus)
        });
        let shifted: Vec<ArrayD<T>> = shifted.collect();
        let sums = shifted.iter().map(|block| {
            let powers = block.map(|x| x.exp());
            kept(&powers.view(), axis, (T::default(), T::plus))
        });
        let sums = self.joined(axis, sums.collect(), call.within(1))?;
        Ok((shifted, sums))
    }
}

/// For each place how far elements are below the largest, and the sums of their exponentials.
type Shifted<T> = (Vec<ArrayD<T>>, Vec<Block<T>>);

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
