//! `VariableSet`: which variables a model has, for those who read and assign to all of them.

use std::sync::Arc;

use super::Erased;
use super::tensors::{Fixed, Length};
use crate::optimizer::Averages;
use crate::record::AnyTensor;
use crate::{AdamW, DVariable, Error, Float, Momentum, Scalar, Sgd};

/// What a compiled function reads and assigns to.
///
/// A model of several variables shows each of them:
///
/// ```
/// use meshwork_dtensor::{AdamW, DVariable, Variable, VariableSet};
///
/// struct Model {
///     weights: DVariable<f32>,
///     bias: DVariable<f32>,
///     adam: AdamW<f32>,
/// }
///
/// impl VariableSet for Model {
///     fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
///         (&mut self.weights, &mut self.bias, &mut self.adam).visit(visit);
///     }
/// }
/// ```
pub trait VariableSet {
    /// Shows each variable, in the same order each time. Lists are shown as vectors: a step whose
    /// lists have other lengths is another program.
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable));
}

/// A variable of any elements.
pub trait Variable: sealed::Hold {}

mod sealed {
    use super::{Erased, Shown};

    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait Hold {
        /// Adds the value of a variable, or the length of a list.
        #[doc(hidden)]
        fn show(&self, shown: &mut Shown);

        /// Takes the next value, as a variable; whether that has its elements.
        #[doc(hidden)]
        fn hold(&mut self, by: &mut dyn Iterator<Item = Erased>) -> bool;
    }
}

/// What variables hold, in their order, and how long the lists of them are.
#[expect(unnameable_types, reason = "as of the trait that adds to it")]
#[derive(Debug, Default)]
pub struct Shown {
    pub(super) values: Vec<Erased>,
    pub(super) lengths: Vec<Arc<dyn Fixed>>,
}

impl<T: Scalar> sealed::Hold for DVariable<T> {
    fn show(&self, shown: &mut Shown) {
        shown.values.push(Erased(Arc::new(self.value().clone())));
    }

    fn hold(&mut self, by: &mut dyn Iterator<Item = Erased>) -> bool {
        let value = by.next().and_then(|value| value.0.typed().cloned());
        value.is_some_and(|value| {
            self.hold(value);
            true
        })
    }
}

impl<T: Scalar> Variable for DVariable<T> {}

impl<T: Scalar> VariableSet for DVariable<T> {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        visit(self);
    }
}

impl sealed::Hold for Length {
    fn show(&self, shown: &mut Shown) {
        shown.lengths.push(Arc::new(*self));
    }

    fn hold(&mut self, _: &mut dyn Iterator<Item = Erased>) -> bool {
        true
    }
}

impl Variable for Length {}

impl<V: VariableSet> VariableSet for Vec<V> {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        visit(&mut Length(self.len()));
        self.iter_mut().for_each(|own| own.visit(visit));
    }
}

impl<V: VariableSet + ?Sized> VariableSet for &mut V {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        (**self).visit(visit);
    }
}

impl<T: Float> VariableSet for Sgd<T> {
    fn visit(&mut self, _: &mut dyn FnMut(&mut dyn Variable)) {}
}

impl<T: Float> VariableSet for Momentum<T> {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.velocities_mut().visit(visit);
    }
}

impl<T: Float> VariableSet for Averages<T> {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        match self {
            Self::Own(own) => (&mut own.means, &mut own.squares).visit(visit),
            Self::Wide(wide) => (&mut wide.means, &mut wide.squares).visit(visit),
        }
    }
}

impl<T: Float> VariableSet for AdamW<T> {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.remembered_mut().visit(visit);
    }
}

macro_rules! tuples {
    ($(($($name:ident)*);)+) => {$(
        impl<$($name: VariableSet),*> VariableSet for ($($name,)*) {
            #[allow(non_snake_case, unused_variables, reason = "each is called as its type")]
            fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
                let ($($name,)*) = self;
                $($name.visit(visit);)*
            }
        }
    )+};
}

tuples! {
    ();
    (A);
    (A B);
    (A B C);
    (A B C D);
    (A B C D E);
    (A B C D E G);
}

/// What all variables hold.
pub(super) fn shown<V: VariableSet>(variables: &mut V) -> Shown {
    let mut shown = Shown::default();
    variables.visit(&mut |variable| variable.show(&mut shown));
    shown
}

/// The values of all variables, in their order.
pub(super) fn values<V: VariableSet>(variables: &mut V) -> Vec<AnyTensor> {
    let values = shown(variables).values.into_iter();
    values.map(|value| value.0).collect()
}

/// Other values for all variables, from the same place of their order.
pub(super) fn replace<V: VariableSet>(
    variables: &mut V,
    by: &mut dyn Iterator<Item = AnyTensor>,
) -> Result<(), Error> {
    let (mut fit, mut by) = (true, by.map(Erased));
    variables.visit(&mut |variable| fit &= variable.hold(&mut by));
    match fit {
        true => Ok(()),
        false => Err(Error::VariablesChanged),
    }
}
