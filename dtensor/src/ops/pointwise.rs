//! Ops on elements at the same index.

use meshwork_accel::{Pairwise, Pointwise};
use meshwork_layout::ops::{Op, TensorLayout};

use super::local::Local;
use super::{Call, kernel};
use crate::record::{Primitive, Record};
use crate::{DTensor, Error, Float, Number, Scalar};

impl<T: Scalar> DTensor<T> {
    /// The elements of two tensors at the same index by a function; shapes are broadcast: aligned
    /// at the last axis, an axis of size 1 fits any.
    ///
    /// # Errors
    /// [`Error::Op`] for shapes that do not fit or another mesh, [`Error::OtherContext`], and those
    /// of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn zip_with<U: Scalar, R: Scalar>(
        &self,
        other: &DTensor<U>,
        function: impl Fn(T, U) -> R,
    ) -> Result<DTensor<R>, Error> {
        let placements = [self.placement(), other.placement()];
        let call = Call::of(&Op::Elementwise, self.context(), &placements)?;
        let call = call.named(Primitive::Closure("zip_with"));
        let (left, right) = (call.operand(0, self)?, call.operand(1, other)?);
        call.result(0, |place, sizes| {
            let (left, right) = (&left.unpack()?[place], &right.unpack()?[place]);
            Ok(kernel::zip(left.view(), right.view(), sizes, &function))
        })
    }

    /// The elements as another type, as [`convert_slice`](meshwork_accel::convert_slice) has them:
    /// the nearest, of whole types towards zero and stopped at their ends.
    ///
    /// # Errors
    /// Those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn cast<U: Scalar>(&self) -> Result<DTensor<U>, Error> {
        let reduced = self.reduce_partial()?;
        let made = Local::of(&reduced)
            .converted::<U>()?
            .tensor(reduced.placement().clone())?;
        Record::of(Primitive::Cast(U::TYPE))
            .with(&reduced)
            .result(0, made)
    }

    /// Zeros in its shape and layout, where its blocks are. Of a partial tensor nothing is reduced.
    ///
    /// # Errors
    /// [`Error::Element`] where an accelerator fails, or has no memory.
    pub fn zeros_like(&self) -> Result<Self, Error> {
        let shape = self.shape().iter().copied();
        let placement = TensorLayout::new(shape, self.whole_layout()?)?;
        Local::of(self).zeros()?.tensor(placement)
    }

    /// Elements of `yes` where this holds, and of `no` elsewhere; shapes are broadcast.
    ///
    /// # Errors
    /// Those of [`zip_with`](Self::zip_with).
    #[track_caller]
    #[doc(alias = "where")]
    pub fn select<U: Scalar>(
        &self,
        yes: &DTensor<U>,
        no: &DTensor<U>,
    ) -> Result<DTensor<U>, Error> {
        let placements = [self.placement(), yes.placement(), no.placement()];
        let call = Call::of(&Op::Select, self.context(), &placements)?;
        let condition = Local::of(&call.operand(0, self)?);
        let yes = Local::of(&call.operand(1, yes)?);
        let no = Local::of(&call.operand(2, no)?);
        call.finish(0, condition.select([&yes, &no], &call.sizes(0)?)?)
    }
}

impl<T: Number> DTensor<T> {
    /// Addition, element by element, see [`zip_with`](Self::zip_with).
    ///
    /// # Errors
    /// Those of [`zip_with`](Self::zip_with).
    #[track_caller]
    pub fn add(&self, other: &Self) -> Result<Self, Error> {
        self.combined(&Op::Elementwise, Pairwise::Add, T::plus, other)
    }

    /// Subtraction, element by element.
    ///
    /// # Errors
    /// Those of [`zip_with`](Self::zip_with).
    #[track_caller]
    pub fn sub(&self, other: &Self) -> Result<Self, Error> {
        self.combined(&Op::Elementwise, Pairwise::Subtract, T::minus, other)
    }

    /// Multiplication, element by element.
    ///
    /// # Errors
    /// Those of [`zip_with`](Self::zip_with).
    #[track_caller]
    pub fn mul(&self, other: &Self) -> Result<Self, Error> {
        self.combined(&Op::Elementwise, Pairwise::Multiply, T::times, other)
    }

    /// Division, element by element; of whole numbers towards zero, and 0 by 0.
    ///
    /// # Errors
    /// Those of [`zip_with`](Self::zip_with).
    #[track_caller]
    pub fn div(&self, other: &Self) -> Result<Self, Error> {
        self.combined(&Op::Elementwise, Pairwise::Divide, T::over, other)
    }

    /// The negative of each element; whole numbers wrap around.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    pub fn neg(&self) -> Result<Self, Error> {
        // Of 0 the negative is -0, which 0 - 0 is not.
        self.alone(Pointwise::Negate, |element| {
            T::from_f64(-0.0).minus(element)
        })
    }

    /// Each element, and 0 in place of those below.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    pub fn relu(&self) -> Result<Self, Error> {
        // What is not a number is not below: it stays.
        self.alone(Pointwise::Relu, |element| match element <= T::default() {
            true => T::default(),
            false => element,
        })
    }

    /// Each element times a number.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    pub fn scale(&self, factor: T) -> Result<Self, Error> {
        self.by_number(Pairwise::Multiply, T::times, factor)
    }

    /// A number added to each element: a scalar is the same on every device.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    pub fn add_scalar(&self, term: T) -> Result<Self, Error> {
        self.by_number(Pairwise::Add, T::plus, term)
    }

    /// A vector added along the last axis. Unlike with [`add`](Self::add) the result has this
    /// layout.
    ///
    /// # Errors
    /// Those of [`zip_with`](Self::zip_with).
    #[track_caller]
    pub fn bias_add(&self, bias: &Self) -> Result<Self, Error> {
        self.combined(&Op::BiasAdd, Pairwise::Add, T::plus, bias)
    }

    /// The sum of each element with those before it along an axis, negative counted from the end.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there, and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Result<Self, Error> {
        let along = super::place(axis, self.rank());
        self.by_local(&Op::Scan { axis }, |local, _| local.scanned(along))
    }
}

impl<T: Float> DTensor<T> {
    /// The exponential of each element.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    pub fn exp(&self) -> Result<Self, Error> {
        self.alone(Pointwise::Exp, T::exp)
    }

    /// The natural logarithm of each element.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    #[doc(alias = "log")]
    pub fn ln(&self) -> Result<Self, Error> {
        self.alone(Pointwise::Ln, T::ln)
    }
}
