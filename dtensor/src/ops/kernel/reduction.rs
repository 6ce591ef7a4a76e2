use ndarray::{ArrayD, ArrayViewD, Axis};

use crate::{Number, Scalar};

/// The elements along some axes made one, from a first value on; kept axes have size 1 in `sizes`.
pub(in crate::ops) fn fold<T: Scalar>(
    block: &ArrayViewD<'_, T>,
    axes: &[usize],
    sizes: &[usize],
    (first, function): (T, impl Fn(T, T) -> T),
) -> ArrayD<T> {
    let mut order = axes.to_vec();
    order.sort_unstable();
    let mut folded = block.to_owned();
    for axis in order.into_iter().rev() {
        folded = folded.fold_axis(Axis(axis), first, |sum, element| function(*sum, *element));
    }
    super::reshaped(&folded.view(), sizes)
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
