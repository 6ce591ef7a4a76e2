//! Folds along axes, and the place of what is best along one.

use meshwork_accel::{ElementType, ReduceOp};
use meshwork_accel_cpu::FOLD_BLOCK as BLOCK;
use ndarray::{ArrayD, ArrayViewD, Axis};

use crate::{Number, Scalar};

/// An associative function of two elements, and the element that it leaves the other with.
pub(in crate::ops) struct Monoid<T, F> {
    pub(in crate::ops) identity: T,
    pub(in crate::ops) combine: F,
}

impl<T: Number> Monoid<T, fn(T, T) -> T> {
    /// Addition.
    pub(in crate::ops) fn sum() -> Self {
        Self {
            identity: T::default(),
            combine: T::plus,
        }
    }
}

/// The elements along some axes made one, those of a long axis in blocks; kept axes have size 1 in
/// `sizes`.
pub(in crate::ops) fn fold<T: Scalar>(
    block: &ArrayViewD<'_, T>,
    axes: &[usize],
    sizes: &[usize],
    monoid: &Monoid<T, impl Fn(T, T) -> T>,
) -> ArrayD<T> {
    let mut order = axes.to_vec();
    order.sort_unstable();
    let mut folded = block.to_owned();
    for axis in order.into_iter().rev() {
        folded = fold_axis(folded.view(), Axis(axis), monoid);
    }
    super::reshaped(&folded.view(), sizes)
}

/// Of blocks in halves, whose results are combined.
fn fold_axis<T: Scalar>(
    block: ArrayViewD<'_, T>,
    axis: Axis,
    monoid: &Monoid<T, impl Fn(T, T) -> T>,
) -> ArrayD<T> {
    let blocks = block.len_of(axis).div_ceil(BLOCK);
    if blocks <= 1 {
        return block.fold_axis(axis, monoid.identity, |sum, element| {
            (monoid.combine)(*sum, *element)
        });
    }
    let (left, right) = block.split_at(axis, blocks / 2 * BLOCK);
    let mut folded = fold_axis(left, axis, monoid);
    folded.zip_mut_with(&fold_axis(right, axis, monoid), |into, other| {
        *into = (monoid.combine)(*into, *other);
    });
    folded
}

/// The same of 16-bit floats, of which sums and products are made in 32 bits and rounded once; none
/// of other elements and ops.
pub(in crate::ops) fn fold_wider<T: Scalar>(
    op: ReduceOp,
    block: &ArrayViewD<'_, T>,
    axes: &[usize],
    sizes: &[usize],
) -> Option<ArrayD<T>> {
    let monoid = wider::<T>(op)?;
    let wide = block.mapv(|element| f32::from_f64(element.to_f64()));
    let folded = fold(&wide.view(), axes, sizes, &monoid);
    Some(folded.mapv(|element| T::from_f64(element.into())))
}

/// One of 32-bit floats.
type WideMonoid = Monoid<f32, fn(f32, f32) -> f32>;

/// What makes sums and products of 16-bit floats in 32 bits; none of other elements and ops.
pub(in crate::ops) fn wider<T: Scalar>(op: ReduceOp) -> Option<WideMonoid> {
    let (identity, combine): (_, fn(f32, f32) -> f32) = match (T::TYPE, op) {
        (ElementType::F16 | ElementType::Bf16, ReduceOp::Sum) => (0.0, |a, b| a + b),
        (ElementType::F16 | ElementType::Bf16, ReduceOp::Product) => (1.0, |a, b| a * b),
        _ => return None,
    };
    Some(Monoid { identity, combine })
}

/// The index along an axis of the first element that no other is better than.
pub(in crate::ops) fn arg<T: Number>(
    block: &ArrayViewD<'_, T>,
    axis: usize,
    is_better: impl Fn(T, T) -> bool,
) -> ArrayD<i64> {
    block.map_axis(Axis(axis), |lane| {
        let mut best = 0;
        for (index, element) in lane.iter().enumerate() {
            if is_better(*element, lane[best]) {
                best = index;
            }
        }
        i64::try_from(best).unwrap_or(i64::MAX)
    })
}
