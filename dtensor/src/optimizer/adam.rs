//! Adam: of each variable a mean of gradients, one of their squares, and how many there were.

use std::path::Path;

use meshwork_layout::Layout;

use super::{Saved, arriving, checked, named, restored, zeros};
use crate::{Context, DTensor, DVariable, Error, Float, Save};

/// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay
/// Regularization", ICLR 2019).
///
/// ```
/// use meshwork_core::{Client, Mesh};
/// use meshwork_dtensor::{AdamW, Context, DVariable, Error, Save};
/// use meshwork_layout::Layout;
///
/// let context = Context::alone(Client::new("localhost", 0, 1)?);
/// let rows = Layout::batch_sharded(&Mesh::new([("x", 2)])?, "x", 1)?;
/// let mut weights = DVariable::new(context.zeros::<f32>(&[3], &rows)?);
/// let slope = context.full(&[3], &rows, 2.0)?;
/// let mut adam = AdamW::new(0.125, &[&weights])?;
/// adam.step([(&mut weights, &slope)])?; // the first step goes as far as the rate
/// assert!(weights.value().to_host()?.iter().all(|weight| (weight + 0.125).abs() < 1e-6));
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let prefix = folder.path().join("step-1");
/// let state = adam.state("adam");
/// let mut saved: Vec<(&str, &dyn Save)> = vec![("weights", &weights)];
/// saved.extend(state.iter().map(|(name, tensor)| (name.as_str(), *tensor)));
/// context.save(&prefix, &saved)?;
/// AdamW::new(0.125, &[&weights])?.restore(&context, &prefix, "adam")?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdamW<T: Float> {
    rate: T,
    constants: Constants,
    steps: Vec<DVariable<f32>>,
    means: Vec<DVariable<T>>,
    squares: Vec<DVariable<T>>,
}

#[derive(Clone, Copy, Debug)]
struct Constants {
    betas: [f64; 2],
    epsilon: f64,
    decay: f64,
}

/// Numbers of steps, means and squares.
type Remembered<'a, T> = (
    &'a mut Vec<DVariable<f32>>,
    &'a mut Vec<DVariable<T>>,
    &'a mut Vec<DVariable<T>>,
);

impl<T: Float> AdamW<T> {
    /// With a learning rate, for these variables; the other constants are 0.9 and 0.999 for what is
    /// kept of means and squares, 1e-8 beside the divisor, and a decay of 0.01.
    ///
    /// # Errors
    /// Those of [`DTensor::zeros_like`].
    pub fn new(rate: T, variables: &[&DVariable<T>]) -> Result<Self, Error> {
        Ok(Self {
            rate,
            constants: Constants {
                betas: [0.9, 0.999],
                epsilon: 1e-8,
                decay: 0.01,
            },
            steps: steps(variables)?,
            means: zeros(variables)?,
            squares: zeros(variables)?,
        })
    }

    /// With other shares of means and of squares that are kept from step to step.
    #[must_use]
    pub fn betas(self, betas: [f64; 2]) -> Self {
        let constants = Constants {
            betas,
            ..self.constants
        };
        Self { constants, ..self }
    }

    /// With another number beside the divisor.
    #[must_use]
    pub fn epsilon(self, epsilon: f64) -> Self {
        let constants = Constants {
            epsilon,
            ..self.constants
        };
        Self { constants, ..self }
    }

    /// With another share by which weights decay, of each step times the rate.
    #[must_use]
    pub fn weight_decay(self, decay: f64) -> Self {
        let constants = Constants {
            decay,
            ..self.constants
        };
        Self { constants, ..self }
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
        let updates = checked(updates, self.means.len())?;
        let constants = self.constants;
        let [mean_share, square_share] = constants.betas;
        let states = self.steps.iter_mut().zip(&mut self.means);
        let states = states.zip(&mut self.squares);
        for ((variable, gradient), ((steps, mean), square)) in updates.into_iter().zip(states) {
            let gradient = arriving(variable, gradient)?;
            steps.assign(&steps.value().add_scalar(1.0)?)?;
            follow(mean, mean_share, &gradient)?;
            follow(square, square_share, &gradient.mul(&gradient)?)?;
            let mean = corrected(mean, mean_share, steps)?;
            let square = corrected(square, square_share, steps)?;
            let divisor = root(&square)?.add_scalar(T::from_f64(constants.epsilon))?;
            let decay = variable.value().scale(T::from_f64(constants.decay))?;
            let change = mean.div(&divisor)?.add(&decay)?;
            variable.assign_sub(&change.scale(self.rate)?)?;
        }
        Ok(())
    }

    pub(crate) fn remembered_mut(&mut self) -> Remembered<'_, T> {
        (&mut self.steps, &mut self.means, &mut self.squares)
    }

    /// What is to be saved, with names that begin with `prefix`: means and squares lie as the
    /// variables do, and a number of steps is beside each.
    #[must_use]
    pub fn state(&self, prefix: &str) -> Vec<(String, &dyn Save)> {
        let mut state = named(prefix, "steps", &self.steps);
        state.extend(named(prefix, "mean", &self.means));
        state.extend(named(prefix, "square", &self.squares));
        state
    }

    /// Reads what was saved under these names, for the same variables in whatever layouts.
    ///
    /// # Errors
    /// Those of [`Context::restore`]; nothing is changed then.
    #[track_caller]
    pub fn restore(&mut self, context: &Context, path: &Path, prefix: &str) -> Result<(), Error> {
        let from = Saved {
            context,
            path,
            prefix,
        };
        let steps = restored(from, "steps", &self.steps)?;
        let means = restored(from, "mean", &self.means)?;
        let squares = restored(from, "square", &self.squares)?;
        (self.steps, self.means, self.squares) = (steps, means, squares);
        Ok(())
    }
}

/// A number of steps for each variable, which all of its devices have.
fn steps<T: Float>(variables: &[&DVariable<T>]) -> Result<Vec<DVariable<f32>>, Error> {
    let steps = variables.iter().map(|variable| {
        let none = Layout::replicated(variable.layout().mesh(), 0);
        let none = variable.value().context().zeros(&[], &none)?;
        Ok(DVariable::new(none))
    });
    steps.collect()
}

/// Keeps a share of the average, and gives the rest to what has come.
#[track_caller]
fn follow<T: Float>(
    average: &mut DVariable<T>,
    share: f64,
    come: &DTensor<T>,
) -> Result<(), Error> {
    let kept = average.value().scale(T::from_f64(share))?;
    average.assign(&kept.add(&come.scale(T::from_f64(1.0 - share))?)?)
}

/// An average that began with 0, as if it had not: divided by 1 − share^steps.
#[track_caller]
fn corrected<T: Float>(
    average: &DVariable<T>,
    share: f64,
    steps: &DVariable<f32>,
) -> Result<DTensor<T>, Error> {
    let power = steps.value().scale(narrow(share.ln()))?.exp()?;
    let weight = power.neg()?.add_scalar(1.0)?.cast::<T>()?;
    average.value().div(&weight)
}

/// The square root of numbers from 0: ops of devices make it by a logarithm, whose rounding leaves
/// six digits of it in 32 bits.
#[track_caller]
fn root<T: Float>(squares: &DTensor<T>) -> Result<DTensor<T>, Error> {
    squares.ln()?.scale(T::from_f64(0.5))?.exp()
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
fn narrow(value: f64) -> f32 {
    value as f32
}
