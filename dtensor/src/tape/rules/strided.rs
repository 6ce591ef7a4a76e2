//! The gradient of a strided slice: what was taken goes back to its indices, with zeros between.
//!
//! ```text
//!     x[7:1:-2]     g: 0 1 2      turned round   2 1 0
//!                                 spread         2 0 1 0 0 0
//!                                 at index 3     0 0 0 2 0 1 0 0      of size 8
//! ```

use meshwork_accel::StridedRange;
use meshwork_layout::ops::Index;
use std::num::NonZeroIsize;

use super::Rule;
use crate::ops::{all, strides};
use crate::{DTensor, Error, Float};

impl Rule<'_> {
    #[track_caller]
    pub(super) fn strided_slice<T: Float>(
        &self,
        indices: &[Index],
        upstream: &DTensor<T>,
    ) -> Result<DTensor<T>, Error> {
        let whole = self.shape(0)?;
        let along = strides(indices, whole, upstream.shape());
        let counts: Vec<usize> = along.iter().map(|range| range.count).collect();
        let mut gradient = upstream.reshape(&all(&counts))?;
        gradient = gradient.whole_along(|axis| along[axis] != StridedRange::all(whole[axis]))?;
        for (axis, range) in along.iter().enumerate() {
            if *range != StridedRange::all(whole[axis]) && range.count > 0 {
                gradient = spread(&gradient, axis, *range, whole[axis])?;
            }
        }
        if gradient.shape() == whole {
            return Ok(gradient);
        }
        // Along an axis nothing was taken, so nothing goes back.
        gradient.context().zeros(whole, gradient.layout())
    }
}

/// The elements along a whole axis at the indices of the range, zeros at all others.
#[track_caller]
fn spread<T: Float>(
    gradient: &DTensor<T>,
    axis: usize,
    range: StridedRange,
    size: usize,
) -> Result<DTensor<T>, Error> {
    // One element takes no steps, which may be longer than any memory.
    let step = match range.count {
        1 => 1,
        _ => range.step.get().unsigned_abs(),
    };
    let forward = match range.step.get() > 0 {
        true => gradient.clone(),
        false => turned(gradient, axis)?,
    };
    let lowest = match range.step.get() > 0 {
        true => range.first,
        false => range.first - (range.count - 1) * step,
    };
    let mut sizes = forward.shape().to_vec();
    let mut apart = sizes.clone();
    apart.insert(axis + 1, 1);
    let mut paddings = vec![(0, 0); apart.len()];
    paddings[axis + 1] = (0, step - 1);
    let apart = forward.reshape(&all(&apart))?.pad(&paddings)?;
    sizes[axis] = range.count * step;
    let together = apart.reshape(&all(&sizes))?;
    // Behind the last one there may be fewer places than a step has.
    let length = sizes[axis].min(size - lowest);
    sizes[axis] = length;
    let part = together.slice(&vec![0; sizes.len()], &all(&sizes))?;
    let mut paddings = vec![(0, 0); sizes.len()];
    paddings[axis] = (lowest, size - lowest - length);
    part.pad(&paddings)
}

/// The elements in the other order along a whole axis.
#[track_caller]
pub(super) fn turned<T: Float>(gradient: &DTensor<T>, axis: usize) -> Result<DTensor<T>, Error> {
    let mut indices = vec![Index::FULL; gradient.rank()];
    indices[axis] = Index::Range {
        begin: None,
        end: None,
        step: NonZeroIsize::new(-1).expect("-1 is not 0"),
    };
    gradient.strided_slice(&indices)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroIsize;

    use meshwork_layout::ops::Index;
    use ndarray::array;

    use crate::Tape;
    use crate::testing::{context, layouts};

    #[test]
    fn a_step_over_all_of_an_axis_takes_no_memory() {
        for (begin, step, expected) in [(None, 1_isize, 0_usize), (Some(2), 1, 2), (None, -1, 3)] {
            let x = context().full(&[4], &layouts(1)[0], 1.0_f32).unwrap();
            let tape = Tape::new();
            let x = tape.watch(&x);
            let far = Index::Range {
                begin,
                end: None,
                step: NonZeroIsize::new(step << 60).unwrap(),
            };
            let one = x.strided_slice(&[far]).unwrap();
            let [slopes] = tape.gradient(&one, [&x]).unwrap();
            let mut right = array![0.0, 0.0, 0.0, 0.0];
            right[expected] = 1.0;
            assert_eq!(slopes.to_host().unwrap(), right.into_dyn());
        }
    }
}
