//! Optimizers: how variables follow their gradients. Each works element by element, so in any
//! layout, and what it remembers of a variable lies as the variable does.

use crate::checkpoint::Saved;
use crate::{DTensor, DVariable, Error, Float, Save};

mod adam;
mod momentum;

pub use adam::AdamW;
pub(crate) use adam::Averages;
pub use momentum::Momentum;

/// Stochastic gradient descent, which remembers nothing.
#[derive(Clone, Debug)]
pub struct Sgd<T: Float> {
    rate: T,
}

impl<T: Float> Sgd<T> {
    /// With this learning rate.
    pub fn new(rate: T) -> Self {
        Self { rate }
    }

    /// Moves variables, each against its gradient, which is brought into the variable's layout.
    ///
    /// # Errors
    /// Those of [`DVariable::assign_sub`]; variables before the failing one have been moved.
    #[track_caller]
    pub fn step<'a>(
        &mut self,
        updates: impl IntoIterator<Item = (&'a mut DVariable<T>, &'a DTensor<T>)>,
    ) -> Result<(), Error> {
        for (variable, gradient) in updates {
            let gradient = arriving(variable, gradient)?;
            variable.assign_sub(&gradient.scale(self.rate)?)?;
        }
        Ok(())
    }
}

/// A variable, and the gradient by which it is to be moved.
type Update<'a, T> = (&'a mut DVariable<T>, &'a DTensor<T>);

/// A gradient by a variable, in its layout.
#[track_caller]
fn arriving<T: Float>(variable: &DVariable<T>, gradient: &DTensor<T>) -> Result<DTensor<T>, Error> {
    if gradient.shape() != variable.shape() {
        return Err(Error::AssignedShape {
            found: gradient.shape().to_vec(),
            expected: variable.shape().to_vec(),
        });
    }
    gradient.stop_gradient().into_layout(variable.layout())
}

/// One tensor of zeros for each variable, in its layout.
fn zeros<T: Float>(variables: &[&DVariable<T>]) -> Result<Vec<DVariable<T>>, Error> {
    let zeros = variables.iter().map(|variable| {
        let zeros = variable.value().zeros_like()?;
        Ok(DVariable::new(zeros))
    });
    zeros.collect()
}

/// The updates of a step, of which there has to be one for each variable that an optimizer knows.
fn checked<'a, T: Float>(
    updates: impl IntoIterator<Item = Update<'a, T>>,
    expected: usize,
) -> Result<Vec<Update<'a, T>>, Error> {
    let updates: Vec<_> = updates.into_iter().collect();
    match updates.len() == expected {
        true => Ok(updates),
        false => Err(Error::UpdateCount {
            found: updates.len(),
            expected,
        }),
    }
}

/// What an optimizer remembers, under the names that a checkpoint has for it.
fn named<'a, T: Float>(
    prefix: &str,
    of: &str,
    remembered: &'a [DVariable<T>],
) -> Vec<(String, &'a dyn Save)> {
    let places = remembered.iter().enumerate();
    let named = places.map(|(place, tensor)| {
        let tensor: &dyn Save = tensor;
        (format!("{prefix}/{of}/{place}"), tensor)
    });
    named.collect()
}

/// Reads what was saved under those names.
#[track_caller]
fn restored<T: Float>(
    saved: &Saved,
    prefix: &str,
    of: &str,
    remembered: &[DVariable<T>],
) -> Result<Vec<DVariable<T>>, Error> {
    let mut read = Vec::with_capacity(remembered.len());
    for (place, tensor) in remembered.iter().enumerate() {
        let value = saved.restore(&format!("{prefix}/{of}/{place}"), tensor.layout())?;
        let mut variable = tensor.clone();
        variable.assign(&value)?;
        read.push(variable);
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
