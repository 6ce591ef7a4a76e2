//! What a unit of a model is made of.

use crate::VariableSpec;

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
            parameters,
        }
    }

    /// Adds parameters, behind the others, that are not trained: they have no gradients, and
    /// nothing is remembered of them.
    #[must_use]
    #[doc(alias = "requires_grad")]
    pub fn with_frozen(mut self, parameters: impl IntoIterator<Item = VariableSpec>) -> Self {
        self.parameters.extend(parameters);
        self
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
}
