//! Models that are a list of units: forward through all of them, and back.

use super::model::ShardedModel;
use super::optimizer::ElementWise;
use super::tensors::{Gradients, Parameters};
use super::unit_spec::UnitSpec;
use crate::{Error, ReplicaContext};

/// A unit of a model that is run in order: what it computes from its parameters and its input, and
/// what it computes backwards. A library's tape can be used inside of it.
pub trait Unit {
    /// What goes from one unit to the next, and its gradient.
    type Value;
    /// What a forward pass leaves for the backward pass.
    type Tape;
    /// Why it fails.
    type Error: From<Error>;

    /// Its name and parameters.
    ///
    /// # Errors
    /// Those of [`VariableSpec::new`](crate::VariableSpec::new).
    fn spec(&self) -> Result<UnitSpec, Error>;

    /// Its output, and what its backward pass needs.
    ///
    /// # Errors
    /// Those of the model.
    fn forward(
        &self,
        parameters: Parameters<'_>,
        input: Self::Value,
    ) -> Result<(Self::Value, Self::Tape), Self::Error>;

    /// Writes all of its gradients, by that of its output, and returns that of its input; `None`
    /// where nothing before it is trained.
    ///
    /// # Errors
    /// Those of the model.
    fn backward(
        &self,
        parameters: Parameters<'_>,
        tape: Self::Tape,
        output: Self::Value,
        gradients: &mut Gradients<'_>,
    ) -> Result<Option<Self::Value>, Self::Error>;
}

/// What is kept of a forward pass until the backward pass.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[doc(alias("checkpoint", "activation_checkpointing"))]
pub enum Recompute {
    /// What units leave for it.
    #[default]
    Nothing,
    /// The input of each unit, from which it is computed a second time: to the same output, or its
    /// gradients are not those of the first pass. A unit that draws random numbers, as dropout
    /// does, has to draw the same ones again, and one that takes note of its batches, as running
    /// statistics do, counts them twice.
    Units,
}

impl<O: ElementWise> ShardedModel<O> {
    /// Runs a model that is a list of units forward and back: `loss` takes the output of the last,
    /// and gives what is returned, with the gradient of that output. Its units are those that this
    /// model was made for, in order.
    ///
    /// ```
    /// use meshwork_strategy::sharded::{Gradients, Parameters, Recompute, Stack, Unit, UnitSpec};
    /// use meshwork_strategy::sharded::{Sgd, Shard, ShardedModel, Sharding};
    /// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, VariableSpec};
    ///
    /// /// y = a x
    /// struct Times(&'static str);
    ///
    /// impl Unit for Times {
    ///     type Value = f32;
    ///     type Tape = f32;
    ///     type Error = Error;
    ///
    ///     fn spec(&self) -> Result<UnitSpec, Error> {
    ///         Ok(UnitSpec::new(self.0, [VariableSpec::new(self.0, &[1])?]))
    ///     }
    ///
    ///     fn forward(&self, a: Parameters<'_>, x: f32) -> Result<(f32, f32), Error> {
    ///         Ok((a[0][0] * x, x))
    ///     }
    ///
    ///     fn backward(
    ///         &self,
    ///         a: Parameters<'_>,
    ///         x: f32,
    ///         y: f32,
    ///         gradients: &mut Gradients<'_>,
    ///     ) -> Result<Option<f32>, Error> {
    ///         gradients[0][0] = y * x;
    ///         Ok(Some(y * a[0][0]))
    ///     }
    /// }
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let units = [Times("first"), Times("second")];
    /// let stack = Stack::new(&units).with_recompute(Recompute::Units);
    /// let sharding = Sharding::new(Shard::Parameters);
    /// let ones = |_: &VariableSpec, _, rows: &mut [f32]| rows.fill(1.0);
    /// let mut model = ShardedModel::new(&mut strategy, sharding, &stack.specs()?, Sgd::new(0.05), ones)?;
    /// let mut losses = Vec::new();
    /// for _ in 0..20 {
    ///     strategy.run(|replica| {
    ///         let square = |y: f32| Ok(((y - 4.0).powi(2), 2.0 * (y - 4.0)));
    ///         losses.push(model.run(replica, &stack, 1.0, square)?);
    ///         model.step(replica)
    ///     })?;
    /// }
    /// assert_eq!(losses[0], 9.0);
    /// assert!(losses[19] < 0.01, "{losses:?}");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the units and of `loss`, and of [`forward`](Self::forward) and
    /// [`backward`](Self::backward).
    ///
    /// # Panics
    /// When there are more units than this model has.
    #[track_caller]
    pub fn run<U: Unit, L>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        units: &Stack<'_, U>,
        input: U::Value,
        loss: impl FnOnce(U::Value) -> Result<(L, U::Value), U::Error>,
    ) -> Result<L, U::Error>
    where
        U::Value: Clone,
    {
        let mut value = input;
        let mut kept = Vec::with_capacity(units.units.len());
        for (number, unit) in units.units.iter().enumerate() {
            let input = (units.recompute == Recompute::Units).then(|| value.clone());
            let (output, tape) = self.forward(replica, number, |parameters| {
                unit.forward(parameters, value)
            })??;
            kept.push(match input {
                Some(input) => Kept::Input(input),
                None => Kept::Tape(tape),
            });
            value = output;
        }
        let (loss, mut gradient) = loss(value)?;
        for (number, (unit, kept)) in units.units.iter().zip(kept).enumerate().rev() {
            let before = self.backward(replica, number, |parameters, gradients| {
                let tape = match kept {
                    Kept::Tape(tape) => tape,
                    Kept::Input(input) => unit.forward(parameters, input)?.1,
                };
                unit.backward(parameters, tape, gradient, gradients)
            })??;
            match before {
                Some(before) => gradient = before,
                None => break,
            }
        }
        Ok(loss)
    }
}

/// The units of a model in order, and what is kept of their forward passes.
#[derive(Debug)]
pub struct Stack<'a, U> {
    units: &'a [U],
    recompute: Recompute,
}

impl<'a, U: Unit> Stack<'a, U> {
    /// These units, whose forward passes are computed once.
    #[must_use]
    pub fn new(units: &'a [U]) -> Self {
        let recompute = Recompute::Nothing;
        Self { units, recompute }
    }

    /// Chooses what is kept of a forward pass.
    #[must_use]
    pub fn with_recompute(mut self, recompute: Recompute) -> Self {
        self.recompute = recompute;
        self
    }

    /// The names and parameters of all of them.
    ///
    /// # Errors
    /// Those of [`VariableSpec::new`](crate::VariableSpec::new).
    pub fn specs(&self) -> Result<Vec<UnitSpec>, Error> {
        self.units.iter().map(Unit::spec).collect()
    }
}

enum Kept<T, V> {
    Tape(T),
    Input(V),
}
