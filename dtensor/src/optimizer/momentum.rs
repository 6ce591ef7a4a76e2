//! `Momentum`: gradient descent that keeps a part of the step before.

use super::{arriving, checked, named, restored, zeros};
use crate::checkpoint::Saved;
use crate::{DTensor, DVariable, Error, Float, Save};

/// Gradient descent with momentum: v ← μ·v + g, w ← w − η·v.
///
/// ```
/// use meshwork_core::{Client, Mesh};
/// use meshwork_dtensor::{Context, DVariable, Error, Momentum};
/// use meshwork_layout::Layout;
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?);
/// let rows = Layout::batch_sharded(&Mesh::new([("x", 2)])?, "x", 1)?;
/// let mut weights = DVariable::new(context.zeros::<f32>(&[3], &rows)?);
/// let slope = context.full(&[3], &rows, 1.0)?;
/// let mut momentum = Momentum::new(0.5, 0.5, &[&weights])?;
/// momentum.step([(&mut weights, &slope)])?;
/// momentum.step([(&mut weights, &slope)])?;
/// assert!(weights.value().to_host()?.iter().all(|weight| *weight == -1.25));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Momentum<T: Float> {
    rate: T,
    factor: T,
    velocities: Vec<DVariable<T>>,
}

impl<T: Float> Momentum<T> {
    /// With a learning rate η and a factor μ of what is kept of the step before, for these
    /// variables.
    ///
    /// # Errors
    /// Those of [`DTensor::zeros_like`].
    pub fn new(rate: T, factor: T, variables: &[&DVariable<T>]) -> Result<Self, Error> {
        Ok(Self {
            rate,
            factor,
            velocities: zeros(variables)?,
        })
    }

    /// Moves the variables, all of them and in the same order as they were named, each by its
    /// gradient, which is brought into the variable's layout.
    ///
    /// # Errors
    /// [`Error::UpdateCount`], and those of [`Sgd::step`](super::Sgd::step).
    #[track_caller]
    pub fn step<'a>(
        &mut self,
        updates: impl IntoIterator<Item = (&'a mut DVariable<T>, &'a DTensor<T>)>,
    ) -> Result<(), Error> {
        self.moved(None, updates)
    }

    /// The same with a learning rate of η times `factor`, a tensor of one element and no axis: as
    /// an input of a [compiled](crate::compile) function it may be another one in each call.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    #[track_caller]
    pub fn step_by<'a>(
        &mut self,
        factor: &DTensor<T>,
        updates: impl IntoIterator<Item = (&'a mut DVariable<T>, &'a DTensor<T>)>,
    ) -> Result<(), Error> {
        self.moved(Some(factor), updates)
    }

    #[track_caller]
    fn moved<'a>(
        &mut self,
        factor: Option<&DTensor<T>>,
        updates: impl IntoIterator<Item = (&'a mut DVariable<T>, &'a DTensor<T>)>,
    ) -> Result<(), Error> {
        let updates = checked(updates, self.velocities.len())?;
        for ((variable, gradient), velocity) in updates.into_iter().zip(&mut self.velocities) {
            let gradient = arriving(variable, gradient)?;
            velocity.assign(&velocity.value().scale(self.factor)?.add(&gradient)?)?;
            let step = velocity.value().scale(self.rate)?;
            match factor {
                Some(factor) => variable.assign_sub(&step.mul(factor)?)?,
                None => variable.assign_sub(&step)?,
            }
        }
        Ok(())
    }

    pub(crate) fn velocities_mut(&mut self) -> &mut Vec<DVariable<T>> {
        &mut self.velocities
    }

    /// What is to be saved, with names that begin with `prefix`; see [`AdamW::state`].
    ///
    /// [`AdamW::state`]: super::AdamW::state
    #[must_use]
    pub fn state(&self, prefix: &str) -> Vec<(String, &dyn Save)> {
        named(prefix, "velocity", &self.velocities)
    }

    /// Reads what was saved under these names, for the same variables in whatever layouts.
    ///
    /// # Errors
    /// Those of [`Saved::restore`]; nothing is changed then.
    #[track_caller]
    pub fn restore(&mut self, saved: &Saved, prefix: &str) -> Result<(), Error> {
        self.velocities = restored(saved, prefix, "velocity", &self.velocities)?;
        Ok(())
    }
}
