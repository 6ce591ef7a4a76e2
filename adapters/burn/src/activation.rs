//! What goes from one unit of a model to the next: tensors of any number of dimensions.

use burn_core::tensor::{Gradients, Int, Tensor};

/// A tensor on its way through the units of a [`ShardedUnits`](crate::ShardedUnits): of floats, or
/// of integers, such as the tokens that a first unit looks up.
///
/// ```
/// use burn_core::tensor::{Device, Tensor};
/// use meshwork_burn::Activation;
///
/// let tensor = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], &Device::flex());
/// let back: Tensor<2> = Activation::from(tensor).tensor();
/// assert_eq!(back.dims(), [2, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct Activation {
    pub(crate) numbers: Numbers,
    shape: Vec<usize>,
    pub(crate) before: Before,
}

/// One after the other, row-major.
#[derive(Clone, Debug)]
pub(crate) enum Numbers {
    Floats(Tensor<1>),
    Ints(Tensor<1, Int>),
}

/// What is before a unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Before {
    /// Units that are trained: they are given its gradient.
    Trained,
    Nothing,
}

impl<const D: usize> From<Tensor<D>> for Activation {
    fn from(tensor: Tensor<D>) -> Self {
        Self {
            shape: tensor.dims().to_vec(),
            numbers: Numbers::Floats(tensor.reshape([-1])),
            before: Before::Nothing,
        }
    }
}

impl<const D: usize> From<Tensor<D, Int>> for Activation {
    fn from(tensor: Tensor<D, Int>) -> Self {
        Self {
            shape: tensor.dims().to_vec(),
            numbers: Numbers::Ints(tensor.reshape([-1])),
            before: Before::Nothing,
        }
    }
}

impl Activation {
    /// The tensor, if it is of floats and has so many dimensions.
    ///
    /// # Panics
    /// Where it is another: a unit is behind one that it does not fit.
    #[must_use]
    pub fn tensor<const D: usize>(self) -> Tensor<D> {
        let shape = self.dims();
        match self.numbers {
            Numbers::Floats(flat) => flat.reshape(shape),
            Numbers::Ints(_) => panic!("a unit takes floats, and is given integers {shape:?}"),
        }
    }

    /// The tensor, if it is of integers and has so many dimensions.
    ///
    /// # Panics
    /// As [`tensor`](Self::tensor).
    #[must_use]
    pub fn ints<const D: usize>(self) -> Tensor<D, Int> {
        let shape = self.dims();
        match self.numbers {
            Numbers::Ints(flat) => flat.reshape(shape),
            Numbers::Floats(_) => panic!("a unit takes integers, and is given floats {shape:?}"),
        }
    }

    fn dims<const D: usize>(&self) -> [usize; D] {
        self.shape
            .clone()
            .try_into()
            .unwrap_or_else(|shape: Vec<usize>| {
                panic!("a unit takes {D} dimensions, and is given {shape:?}")
            })
    }

    /// Without the tape that it is on.
    pub(crate) fn off_tape(self, before: Before) -> Self {
        let numbers = match self.numbers {
            Numbers::Floats(flat) => Numbers::Floats(flat.without_autodiff()),
            Numbers::Ints(flat) => Numbers::Ints(flat.without_autodiff()),
        };
        Self {
            numbers,
            before,
            ..self
        }
    }

    /// On a device with autodiff, by which layers such as batch normalisation know a training.
    pub(crate) fn in_training(self) -> Self {
        let numbers = match self.numbers {
            Numbers::Floats(flat) => Numbers::Floats(flat.autodiff()),
            Numbers::Ints(flat) => Numbers::Ints(flat.autodiff()),
        };
        Self { numbers, ..self }
    }

    /// As the beginning of a tape, where it has a gradient.
    pub(crate) fn on_tape(self) -> Self {
        let training = self.in_training();
        let numbers = match (training.numbers, training.before) {
            (Numbers::Floats(flat), Before::Trained) => Numbers::Floats(flat.require_grad()),
            (numbers, Before::Trained | Before::Nothing) => numbers,
        };
        Self {
            numbers,
            ..training
        }
    }

    /// Its gradient, where what is before it needs one.
    pub(crate) fn gradient(&self, made: &mut Gradients) -> Option<Self> {
        match (&self.numbers, self.before) {
            (Numbers::Floats(flat), Before::Trained) => match flat.grad_remove(made) {
                Some(gradient) => Some(self.with(gradient)),
                None => self.zeros(),
            },
            (Numbers::Floats(_) | Numbers::Ints(_), _) => None,
        }
    }

    /// That of something on which nothing depends.
    pub(crate) fn zeros(&self) -> Option<Self> {
        match (&self.numbers, self.before) {
            (Numbers::Floats(flat), Before::Trained) => {
                Some(self.with(flat.clone().without_autodiff().zeros_like()))
            }
            (Numbers::Floats(_) | Numbers::Ints(_), _) => None,
        }
    }

    fn with(&self, gradient: Tensor<1>) -> Self {
        Self {
            numbers: Numbers::Floats(gradient),
            shape: self.shape.clone(),
            before: self.before,
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_core::tensor::Device;

    use super::*;

    #[test]
    #[should_panic(expected = "takes 3 dimensions, and is given [2, 1]")]
    fn another_number_of_dimensions_is_refused_with_both() {
        let tensor = Tensor::<2>::from_data([[1.0], [2.0]], &Device::flex());
        let _ = Activation::from(tensor).tensor::<3>();
    }

    #[test]
    #[should_panic(expected = "takes floats, and is given integers [2]")]
    fn integers_are_no_floats() {
        let tensor = Tensor::<1, Int>::from_data([1, 2], &Device::flex());
        let _ = Activation::from(tensor).tensor::<1>();
    }
}
