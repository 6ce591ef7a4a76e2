//! What is known of a tensor without its elements.

use std::fmt::{self, Display};

use meshwork_accel::ElementType;
use meshwork_layout::ops::TensorLayout;

use super::AnyTensor;

/// What is known of a value before it is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Described {
    pub(crate) placement: TensorLayout,
    pub(crate) element: ElementType,
}

impl Described {
    pub(crate) fn of(tensor: &AnyTensor) -> Self {
        Self {
            placement: tensor.placement().clone(),
            element: tensor.element(),
        }
    }
}

impl Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let specs = self.placement.layout().specs().map(ToString::to_string);
        let specs: Vec<String> = specs.collect();
        let shape = self.placement.shape();
        write!(f, "{shape:?} {} [{}]", self.element, specs.join(", "))
    }
}
