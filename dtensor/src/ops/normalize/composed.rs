//! The gradient of a normalisation for tapes and programs, which know what it is made of.

use meshwork_layout::ops::{Moments, Normalization};

use crate::ops::ReduceAxes;
use crate::{DTensor, Error, Float};

impl<T: Float> DTensor<T> {
    /// The gradient of a normalisation of this tensor, by ops that have gradients; `upstream` is
    /// that by its result.
    #[track_caller]
    pub(super) fn through_normalize_composed(
        &self,
        by: &Normalization,
        upstream: &Self,
    ) -> Result<Self, Error> {
        let along = ReduceAxes::axes(by.axes.iter().copied()).keep_dims();
        let (distance, slope) = match by.moments {
            Moments::MeanAndVariance => {
                let slope = upstream.sub(&upstream.mean(&along)?)?;
                (self.sub(&self.mean(&along)?)?, slope)
            }
            Moments::MeanSquare => (self.clone(), upstream.clone()),
        };
        let square = distance.mul(&distance)?.mean(&along)?;
        let square = square.add_scalar(T::from_f64(by.epsilon.get()))?;
        let root_inverted = square.ln()?.scale(T::from_f64(-0.5))?.exp()?;
        let normal = distance.mul(&root_inverted)?;
        let share = normal.mul(upstream)?.mean(&along)?;
        slope.sub(&normal.mul(&share)?)?.mul(&root_inverted)
    }
}
