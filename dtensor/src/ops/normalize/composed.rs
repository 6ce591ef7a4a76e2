//! What is made of other normalisations: their gradient for tapes and programs, which know what it
//! is made of, and that of batches of 16-bit floats.

use meshwork_layout::ops::{Moments, Normalization};

use super::BatchNormOutput;
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

    /// A [`batch_norm`](Self::batch_norm) in 32 bits: a variance may be beyond 65,504, where what
    /// it scales is not.
    #[track_caller]
    pub(super) fn batch_norm_wide(
        &self,
        [scale, offset]: [&Self; 2],
        epsilon: f64,
    ) -> Result<BatchNormOutput<T>, Error> {
        let [wide, scale, offset] = [self.cast::<f32>()?, scale.cast()?, offset.cast()?];
        let made = wide.batch_norm(&scale, &offset, epsilon)?;
        Ok(BatchNormOutput {
            output: made.output.cast()?,
            mean: made.mean.cast()?,
            variance: made.variance.cast()?,
        })
    }
}
