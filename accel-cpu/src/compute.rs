//! Arithmetic on the values of tensors, in `f32` and `f64`.

use std::ops::Neg;

use meshwork_accel::{
    DeviceBuffer, ElementType, Elementwise, Error, Matmul, Pairwise, Pointwise, ProductShape,
};
use ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar};

use crate::{CpuAccelerator, CpuBuffer, Factor, product};

impl Elementwise for CpuAccelerator {
    fn computes(&self, element: ElementType) -> bool {
        matches!(element, ElementType::F32 | ElementType::F64)
    }

    fn pointwise(&self, op: Pointwise, values: &mut CpuBuffer) -> Result<(), Error> {
        match values.element_type() {
            ElementType::F32 => pointwise::<f32>(op, values),
            ElementType::F64 => pointwise::<f64>(op, values),
            element => Err(Error::UnsupportedElement { element }),
        }
    }

    fn pairwise(&self, op: Pairwise, into: &mut CpuBuffer, by: &CpuBuffer) -> Result<(), Error> {
        into.check_device(by.device())?;
        into.check_element(by.element_type())?;
        into.check_len(by.len())?;
        match into.element_type() {
            ElementType::F32 => pairwise::<f32>(op, into, by),
            ElementType::F64 => pairwise::<f64>(op, into, by),
            element => Err(Error::UnsupportedElement { element }),
        }
    }

    fn convert(&self, from: &CpuBuffer, to: ElementType) -> Result<CpuBuffer, Error> {
        self.converted(from, to)
    }

    fn select(
        &self,
        condition: &CpuBuffer,
        yes: &CpuBuffer,
        no: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        yes.check_device(no.device())?;
        yes.check_element(no.element_type())?;
        yes.check_device(condition.device())?;
        yes.check_len(no.len())?;
        yes.check_len(condition.len())?;
        self.selected(condition, yes, no)
    }
}

impl Matmul for CpuAccelerator {
    fn matmul(
        &self,
        shape: ProductShape,
        left: &CpuBuffer,
        right: &CpuBuffer,
        into: &mut CpuBuffer,
    ) -> Result<(), Error> {
        into.check_device(left.device())?;
        into.check_element(left.element_type())?;
        into.check_device(right.device())?;
        into.check_element(right.element_type())?;
        left.check_len(shape.left())?;
        right.check_len(shape.right())?;
        into.check_len(shape.product())?;
        match into.element_type() {
            ElementType::F32 => matmul::<f32>(shape, left, right, into),
            ElementType::F64 => matmul::<f64>(shape, left, right, into),
            element => Err(Error::UnsupportedElement { element }),
        }
    }
}

/// The numbers that this module computes with.
trait Real: Factor + LinalgScalar + PartialOrd + Neg<Output = Self> {
    fn exp(self) -> Self;

    fn ln(self) -> Self;
}

macro_rules! real {
    ($($number:ty),+) => {$(
        impl Real for $number {
            fn exp(self) -> Self {
                self.exp()
            }

            fn ln(self) -> Self {
                self.ln()
            }
        }
    )+};
}

real!(f32, f64);

fn pointwise<T: Real>(op: Pointwise, values: &mut CpuBuffer) -> Result<(), Error> {
    let values = values.all_mut::<T>()?;
    match op {
        Pointwise::Negate => each(values, |value| -value),
        // Not `max`, which drops NaN.
        Pointwise::Relu => each(
            values,
            |value| {
                if value <= T::zero() { T::zero() } else { value }
            },
        ),
        Pointwise::Exp => each(values, T::exp),
        Pointwise::Ln => each(values, T::ln),
    }
    Ok(())
}

fn pairwise<T: Real>(op: Pairwise, into: &mut CpuBuffer, by: &CpuBuffer) -> Result<(), Error> {
    let (into, by) = (into.all_mut::<T>()?, by.all::<T>()?);
    match op {
        Pairwise::Add => both(into, by, |left, right| left + right),
        Pairwise::Subtract => both(into, by, |left, right| left - right),
        Pairwise::Multiply => both(into, by, |left, right| left * right),
        Pairwise::Divide => both(into, by, |left, right| left / right),
    }
    Ok(())
}

fn matmul<T: Real>(
    shape: ProductShape,
    left: &CpuBuffer,
    right: &CpuBuffer,
    into: &mut CpuBuffer,
) -> Result<(), Error> {
    let (rows, inner, columns) = (shape.rows(), shape.inner(), shape.columns());
    let (left, right) = (left.all::<T>()?, right.all::<T>()?);
    let into = into.all_mut::<T>()?;
    for place in 0..shape.depth() {
        let of = |len: usize| place * len..(place + 1) * len;
        let left = ArrayView2::from_shape((rows, inner), &left[of(rows * inner)]);
        let right = ArrayView2::from_shape((inner, columns), &right[of(inner * columns)]);
        let into = ArrayViewMut2::from_shape((rows, columns), &mut into[of(rows * columns)]);
        // The lengths were compared with the shape before.
        if let (Ok(left), Ok(right), Ok(into)) = (left, right, into) {
            product(left, right, into)?;
        }
    }
    Ok(())
}

fn each<T: Copy>(values: &mut [T], op: impl Fn(T) -> T) {
    for value in values {
        *value = op(*value);
    }
}

fn both<T: Copy>(into: &mut [T], by: &[T], op: impl Fn(T, T) -> T) {
    for (into, by) in into.iter_mut().zip(by) {
        *into = op(*into, *by);
    }
}
