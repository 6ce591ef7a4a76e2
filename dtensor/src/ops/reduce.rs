//! Elements along axes made one.

use meshwork_accel::{ElementType, Pairwise, ReduceOp};
use meshwork_layout::ops::{Op, ReducedAxes, Reducer};

use super::kernel::{Monoid, is_nan};
use super::local::Local;
use super::{Call, place};
use crate::record::Primitive;
use crate::{DTensor, Error, Number, Scalar};

/// Along which axes, and what becomes of them.
#[derive(Clone, Debug)]
pub struct ReduceAxes {
    axes: Vec<isize>,
    reduced: ReducedAxes,
}

impl ReduceAxes {
    /// These axes, negative ones counted from the end, which go away.
    pub fn axes(axes: impl IntoIterator<Item = isize>) -> Self {
        Self {
            axes: axes.into_iter().collect(),
            reduced: ReducedAxes::Removed,
        }
    }

    pub(crate) fn of(axes: &[isize], reduced: ReducedAxes) -> Self {
        let axes = axes.to_vec();
        Self { axes, reduced }
    }

    /// The same axes, which stay with size 1.
    #[must_use]
    #[doc(alias = "keepdims")]
    pub fn keep_dims(self) -> Self {
        Self {
            reduced: ReducedAxes::Kept,
            ..self
        }
    }
}

impl<T: Number> DTensor<T> {
    /// The sum along axes.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there or given twice, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "reduce_sum")]
    pub fn sum(&self, along: &ReduceAxes) -> Result<Self, Error> {
        self.reduced(Reducer::Sum, along, &Monoid::sum())
    }

    /// The sum of all elements.
    ///
    /// # Errors
    /// Those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn sum_all(&self) -> Result<Self, Error> {
        self.sum(&ReduceAxes::axes((0..self.rank()).map(usize::cast_signed)))
    }

    /// The mean of all elements.
    ///
    /// # Errors
    /// Those of [`mean`](Self::mean).
    #[track_caller]
    pub fn mean_all(&self) -> Result<Self, Error> {
        self.mean(&ReduceAxes::axes((0..self.rank()).map(usize::cast_signed)))
    }

    /// The mean along axes; of whole numbers, towards zero.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum).
    #[track_caller]
    #[doc(alias = "reduce_mean")]
    pub fn mean(&self, along: &ReduceAxes) -> Result<Self, Error> {
        // A sum may be beyond 65,504, where the mean is not.
        if T::TYPE == ElementType::F16 {
            return self.cast::<f32>()?.mean(along)?.cast();
        }
        // So may that of whole numbers, and their count, be beyond what these types hold.
        if is_narrow_integer(T::TYPE) {
            return self.cast::<i64>()?.mean(along)?.cast();
        }
        let sums = self.sum(along)?;
        let size = |axis: &isize| self.shape()[place(*axis, self.rank())];
        let count = along.axes.iter().map(size).product();
        sums.divided(count)
    }

    /// Each element by a count.
    #[track_caller]
    pub(super) fn divided(&self, count: usize) -> Result<Self, Error> {
        // A count may be beyond 65,504 too.
        if T::TYPE == ElementType::F16 {
            return self.cast::<f32>()?.divided(count)?.cast();
        }
        self.by_number(Pairwise::Divide, T::over, T::from_index(count))
    }

    /// The product along axes.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum).
    #[track_caller]
    #[doc(alias = "reduce_prod")]
    pub fn product(&self, along: &ReduceAxes) -> Result<Self, Error> {
        let product = Monoid {
            identity: T::neutral(Reducer::Product.reduction()),
            combine: T::times,
        };
        self.reduced(Reducer::Product, along, &product)
    }

    /// The smallest along axes; NaN where one is NaN.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum).
    #[track_caller]
    #[doc(alias = "reduce_min")]
    pub fn min(&self, along: &ReduceAxes) -> Result<Self, Error> {
        let smallest = Monoid {
            identity: T::neutral(Reducer::Min.reduction()),
            combine: |a, b| if b < a || is_nan(b) { b } else { a },
        };
        self.reduced(Reducer::Min, along, &smallest)
    }

    /// The largest along axes; NaN where one is NaN.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum).
    #[track_caller]
    #[doc(alias = "reduce_max")]
    pub fn max(&self, along: &ReduceAxes) -> Result<Self, Error> {
        let largest = Monoid {
            identity: T::neutral(Reducer::Max.reduction()),
            combine: |a, b| if b > a || is_nan(b) { b } else { a },
        };
        self.reduced(Reducer::Max, along, &largest)
    }

    /// The index of the first of the largest elements along an axis.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis without elements where the result has some, and those of
    /// [`sum`](Self::sum).
    #[track_caller]
    pub fn argmax(&self, axis: isize) -> Result<DTensor<i64>, Error> {
        let largest = Primitive::Op(Op::ArgReduce { axis });
        self.arg(axis, largest, ReduceOp::Max, |a, b| a > b)
    }

    /// The index of the first of the smallest elements along an axis.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis without elements where the result has some, and those of
    /// [`sum`](Self::sum).
    #[track_caller]
    pub fn argmin(&self, axis: isize) -> Result<DTensor<i64>, Error> {
        let smallest = Primitive::ArgMin { axis };
        self.arg(axis, smallest, ReduceOp::Min, |a, b| a < b)
    }

    #[track_caller]
    fn arg(
        &self,
        axis: isize,
        primitive: Primitive,
        by: ReduceOp,
        is_better: impl Fn(T, T) -> bool,
    ) -> Result<DTensor<i64>, Error> {
        let along = place(axis, self.rank());
        let call = Call::of(&Op::ArgReduce { axis }, self.context(), &[self.placement()])?;
        let call = call.named(primitive);
        let operand = call.operand(0, self)?;
        let found = Local::of(&operand).arg(by, along, &call.sizes(0)?, is_better)?;
        call.finish(0, found)
    }
}

impl DTensor<bool> {
    /// Whether one element along the axes holds.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum).
    #[track_caller]
    #[doc(alias = "reduce_any")]
    pub fn any(&self, along: &ReduceAxes) -> Result<Self, Error> {
        let any = Monoid {
            identity: false,
            combine: |a, b| a || b,
        };
        self.reduced(Reducer::Any, along, &any)
    }

    /// Whether all elements along the axes hold.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum).
    #[track_caller]
    #[doc(alias = "reduce_all")]
    pub fn all(&self, along: &ReduceAxes) -> Result<Self, Error> {
        let all = Monoid {
            identity: true,
            combine: |a, b| a && b,
        };
        self.reduced(Reducer::All, along, &all)
    }
}

impl<T: Scalar> DTensor<T> {
    #[track_caller]
    fn reduced(
        &self,
        reducer: Reducer,
        along: &ReduceAxes,
        monoid: &Monoid<T, impl Fn(T, T) -> T>,
    ) -> Result<Self, Error> {
        let op = Op::Reduce {
            reducer,
            axes: along.axes.clone(),
            reduced: along.reduced,
        };
        let axes: Vec<usize> = along
            .axes
            .iter()
            .map(|&axis| place(axis, self.rank()))
            .collect();
        let by = operation(reducer);
        self.by_local(&op, |local, sizes| local.fold(by, &axes, sizes, monoid))
    }
}

/// The backend's reduce op. A mean is a sum until it is divided.
fn operation(reducer: Reducer) -> ReduceOp {
    match reducer {
        Reducer::Sum | Reducer::Mean => ReduceOp::Sum,
        Reducer::Product => ReduceOp::Product,
        Reducer::Min | Reducer::All => ReduceOp::Min,
        Reducer::Max | Reducer::Any => ReduceOp::Max,
    }
}

fn is_narrow_integer(element: ElementType) -> bool {
    matches!(
        element,
        ElementType::I8
            | ElementType::I16
            | ElementType::I32
            | ElementType::U8
            | ElementType::U16
            | ElementType::U32
    )
}
