//! Adam: of each variable a mean of gradients, one of their squares, and how many there were.

use meshwork_layout::Layout;

use super::{arriving, checked, named, restored, zeros};
use crate::checkpoint::Saved;
use crate::ops::is_short;
use crate::{DTensor, DVariable, Error, Float, Save};

/// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay
/// Regularization", ICLR 2019). Of variables of 16 bits the means have 32, as has the step, whose
/// end is rounded once.
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
/// let saved = context.saved(&prefix)?; // so that all are of one save
/// weights.assign(&saved.restore("weights", &rows)?)?;
/// AdamW::new(0.125, &[&weights])?.restore(&saved, "adam")?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdamW<T: Float> {
    rate: T,
    constants: Constants,
    steps: Vec<DVariable<f32>>,
    averages: Averages<T>,
}

/// Means and squares of all variables. Of short floats they have 32 bits: in 16 the number beside
/// the divisor is 0, squares of small gradients are too, and a share of 0.999 is 1.
#[derive(Clone, Debug)]
pub(crate) enum Averages<T: Float> {
    Own(Moments<T>),
    Wide(Moments<f32>),
}

#[derive(Clone, Debug)]
pub(crate) struct Moments<A: Float> {
    pub(crate) means: Vec<DVariable<A>>,
    pub(crate) squares: Vec<DVariable<A>>,
}

#[derive(Clone, Copy, Debug)]
struct Constants {
    betas: [f64; 2],
    epsilon: f64,
    decay: f64,
}

/// The step of one variable.
#[derive(Clone, Copy)]
struct Step<'a> {
    constants: Constants,
    place: usize,
    /// How many there were, with this one.
    count: &'a DVariable<f32>,
}

/// Numbers of steps, and then means and squares.
type Remembered<'a, T> = (&'a mut Vec<DVariable<f32>>, &'a mut Averages<T>);

impl<T: Float> AdamW<T> {
    /// With a learning rate, for these variables; the other constants are 0.9 and 0.999 for what is
    /// kept of means and squares, 1e-8 beside the divisor, and a decay of 0.01.
    ///
    /// # Errors
    /// Those of [`DTensor::zeros_like`] and [`DTensor::cast`].
    pub fn new(rate: T, variables: &[&DVariable<T>]) -> Result<Self, Error> {
        Ok(Self {
            rate,
            constants: Constants {
                betas: [0.9, 0.999],
                epsilon: 1e-8,
                decay: 0.01,
            },
            steps: steps(variables)?,
            averages: Averages::of(variables)?,
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
        let updates = checked(updates, self.steps.len())?;
        let counted = updates.into_iter().zip(&mut self.steps).enumerate();
        for (place, ((variable, gradient), count)) in counted {
            let gradient = arriving(variable, gradient)?;
            count.assign(&count.value().add_scalar(1.0)?)?;
            let step = Step {
                constants: self.constants,
                place,
                count,
            };
            match &mut self.averages {
                Averages::Own(own) => {
                    let change = own.change(step, variable.value(), &gradient)?;
                    variable.assign_sub(&change.scale(self.rate)?)?;
                }
                Averages::Wide(wide) => {
                    let weights = variable.value().cast::<f32>()?;
                    let change = wide.change(step, &weights, &gradient.cast()?)?;
                    let change = change.scale(narrow(self.rate.to_f64()))?;
                    variable.assign(&weights.sub(&change)?.cast()?)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn remembered_mut(&mut self) -> Remembered<'_, T> {
        (&mut self.steps, &mut self.averages)
    }

    /// What is to be saved, with names that begin with `prefix`: means and squares lie as the
    /// variables do, and a number of steps is beside each.
    #[must_use]
    pub fn state(&self, prefix: &str) -> Vec<(String, &dyn Save)> {
        let mut state = named(prefix, "steps", &self.steps);
        state.extend(match &self.averages {
            Averages::Own(own) => own.state(prefix),
            Averages::Wide(wide) => wide.state(prefix),
        });
        state
    }

    /// Reads what was saved under these names, for the same variables in whatever layouts.
    ///
    /// # Errors
    /// Those of [`Saved::restore`]; nothing is changed then.
    #[track_caller]
    pub fn restore(&mut self, saved: &Saved, prefix: &str) -> Result<(), Error> {
        let steps = restored(saved, prefix, "steps", &self.steps)?;
        let averages = match &self.averages {
            Averages::Own(own) => Averages::Own(own.restored(saved, prefix)?),
            Averages::Wide(wide) => Averages::Wide(wide.restored(saved, prefix)?),
        };
        (self.steps, self.averages) = (steps, averages);
        Ok(())
    }
}

impl<T: Float> Averages<T> {
    fn of(variables: &[&DVariable<T>]) -> Result<Self, Error> {
        Ok(match is_short::<T>() {
            true => Self::Wide(Moments {
                means: wide_zeros(variables)?,
                squares: wide_zeros(variables)?,
            }),
            false => Self::Own(Moments {
                means: zeros(variables)?,
                squares: zeros(variables)?,
            }),
        })
    }
}

impl<A: Float> Moments<A> {
    /// How far weights go by this gradient, but for the rate.
    #[track_caller]
    fn change(
        &mut self,
        step: Step<'_>,
        weights: &DTensor<A>,
        gradient: &DTensor<A>,
    ) -> Result<DTensor<A>, Error> {
        let constants = step.constants;
        let [mean_share, square_share] = constants.betas;
        let mean = &mut self.means[step.place];
        let square = &mut self.squares[step.place];
        follow(mean, mean_share, gradient)?;
        follow(square, square_share, &gradient.mul(gradient)?)?;
        let mean = corrected(mean, mean_share, step.count)?;
        let square = corrected(square, square_share, step.count)?;
        let divisor = root(&square)?.add_scalar(A::from_f64(constants.epsilon))?;
        let decay = weights.scale(A::from_f64(constants.decay))?;
        mean.div(&divisor)?.add(&decay)
    }

    fn state(&self, prefix: &str) -> Vec<(String, &dyn Save)> {
        let mut state = named(prefix, "mean", &self.means);
        state.extend(named(prefix, "square", &self.squares));
        state
    }

    #[track_caller]
    fn restored(&self, saved: &Saved, prefix: &str) -> Result<Self, Error> {
        Ok(Self {
            means: restored(saved, prefix, "mean", &self.means)?,
            squares: restored(saved, prefix, "square", &self.squares)?,
        })
    }
}

/// One tensor of zeros of 32 bits for each variable, in its layout.
fn wide_zeros<T: Float>(variables: &[&DVariable<T>]) -> Result<Vec<DVariable<f32>>, Error> {
    let zeros = zeros(variables)?.into_iter();
    let wide = zeros.map(|zeros| Ok(DVariable::new(zeros.value().cast()?)));
    wide.collect()
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
    let steps = steps.value().cast::<T>()?;
    let power = steps.scale(T::from_f64(share.ln()))?.exp()?;
    let weight = power.neg()?.add_scalar(T::from_f64(1.0))?;
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
