//! What a unit of a model is made of.

use std::fmt::Write;
use std::ops::Range;

use super::cut::Cut;
use crate::{Error, ShardGroupError, VariableSpec};

/// The name of a unit and its parameters: what is gathered, reduced and freed together.
///
/// A block of a transformer, or a dense layer, is a good unit: large enough to be worth a message,
/// small enough for one to fit beside the shards.
///
/// ```
/// use meshwork_strategy::{VariableSpec, sharded::UnitSpec};
///
/// let weight = VariableSpec::new("head.weight", &[64, 10])?;
/// let table = VariableSpec::new("head.table", &[1000, 64])?;
/// let unit = UnitSpec::new("head", [weight]).with_frozen([table]);
/// assert_eq!(unit.parameters()[1].name(), "head.table");
/// assert_eq!(unit.trainable().len(), 1);
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias("FlatParameter", "FSDPModule"))]
pub struct UnitSpec {
    name: String,
    parameters: Vec<VariableSpec>,
    trainable: usize,
    /// For each parameter, how it is cut.
    cuts: Vec<Option<Cut>>,
}

impl UnitSpec {
    /// A unit with these parameters, all of which are trained.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        parameters: impl IntoIterator<Item = VariableSpec>,
    ) -> Self {
        let parameters: Vec<_> = parameters.into_iter().collect();
        Self {
            name: name.into(),
            trainable: parameters.len(),
            cuts: vec![None; parameters.len()],
            parameters,
        }
    }

    /// Adds parameters, behind the others, that are not trained: they have no gradients, and
    /// nothing is remembered of them.
    #[must_use]
    #[doc(alias = "requires_grad")]
    pub fn with_frozen(mut self, parameters: impl IntoIterator<Item = VariableSpec>) -> Self {
        self.parameters.extend(parameters);
        self.cuts.resize(self.parameters.len(), None);
        self
    }

    /// Cuts a parameter along an axis, where workers compute one replica together
    /// ([`split_along`]): each has a part of it, as equal as can be, the first ones the longer.
    /// A unit computes with the part, and its worker is given the gradient of that; parameters that
    /// are not cut have one gradient on all of them. Files and initial values have the whole.
    /// Elsewhere nothing is cut.
    ///
    /// ```
    /// use meshwork_strategy::{Error, VariableSpec, sharded::UnitSpec};
    ///
    /// // Columns of the first weight, with their bias, and rows of the second.
    /// let spec = |name: &str, shape: &[usize]| VariableSpec::new(name, shape);
    /// let parameters = [spec("up", &[64, 256])?, spec("bias", &[256])?, spec("down", &[256, 64])?];
    /// let unit = UnitSpec::new("mlp", parameters);
    /// let unit = unit.with_cut("up", 1)?.with_cut("bias", 0)?.with_cut("down", 0)?;
    /// assert!(unit.with_cut("bias", 1).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ShardGroup`] where it has no such parameter, or that no such axis.
    ///
    /// [`split_along`]: crate::MultiWorkerMirroredStrategy::split_along
    #[doc(alias("ColwiseParallel", "RowwiseParallel", "tensor parallelism"))]
    pub fn with_cut(mut self, parameter: &str, axis: usize) -> Result<Self, Error> {
        let is_it = |spec: &VariableSpec| spec.name() == parameter && axis < spec.shape().len();
        let Some(number) = self.parameters.iter().position(is_it) else {
            let (unit, parameter) = (self.name, parameter.to_owned());
            let error = ShardGroupError::NotCut {
                unit,
                parameter,
                axis,
            };
            return Err(error.into());
        };
        self.cuts[number] = Some(Cut::none(&self.parameters[number], axis));
        Ok(self)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters, those that are trained first.
    #[must_use]
    pub fn parameters(&self) -> &[VariableSpec] {
        &self.parameters
    }

    /// Its parameters that are trained.
    #[must_use]
    pub fn trainable(&self) -> &[VariableSpec] {
        &self.parameters[..self.trainable]
    }

    /// What the worker in this place of so many computes with.
    pub(super) fn part(&self, place: usize, workers: usize) -> Self {
        let mut part = self.clone();
        for (spec, cut) in part.parameters.iter_mut().zip(&mut part.cuts) {
            if let Some(cut) = cut {
                (*cut, *spec) = cut.part(place, workers);
            }
        }
        part
    }

    pub(super) fn is_cut(&self, parameter: usize) -> bool {
        self.cuts[parameter].is_some()
    }

    /// A parameter, whole.
    pub(super) fn whole(&self, parameter: usize) -> &VariableSpec {
        match &self.cuts[parameter] {
            Some(cut) => &cut.whole,
            None => &self.parameters[parameter],
        }
    }

    /// Where in the whole elements of a parameter are, in their order.
    pub(super) fn runs(&self, parameter: usize, elements: Range<usize>) -> Vec<Range<usize>> {
        match &self.cuts[parameter] {
            Some(cut) => cut.runs(elements),
            None => vec![elements],
        }
    }

    /// Where in the whole rows of a parameter are; a scalar has one.
    pub(super) fn region(&self, parameter: usize, rows: Range<usize>) -> Vec<Range<usize>> {
        let shape = self.parameters[parameter].shape();
        let mut region: Vec<_> = shape.iter().map(|size| 0..*size).collect();
        if let Some(first) = region.first_mut() {
            *first = rows;
        }
        if let Some(cut) = &self.cuts[parameter] {
            cut.shift(&mut region);
        }
        region
    }

    /// Its parameters, whole, and how they are cut: the same text on all workers.
    pub(super) fn described(&self) -> String {
        let mut text = String::new();
        for (number, cut) in self.cuts.iter().enumerate() {
            let axis = cut.as_ref().map(|cut| cut.axis);
            let whole = self.whole(number);
            let written = writeln!(text, "{} {:?} {axis:?}", whole.name(), whole.shape());
            written.expect("a text takes what is written to it");
        }
        text
    }
}
