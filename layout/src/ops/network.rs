//! Parameters of the ops of neural networks: kinds of pooling, moments, masks, activations, and
//! real numbers that can be compared.

use std::fmt::{self, Debug, Display};

use super::{OpError, Windows};

/// A convolution: how its windows move, and what is summed.
///
/// ```
/// use meshwork_layout::ops::{Convolution, Padding, Windows};
///
/// let strided = Convolution::new(Windows::strides([2, 2]).padded(Padding::Same));
/// let depthwise = Convolution { groups: 64, ..strided }; // of 64 channels
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Convolution {
    /// How windows move.
    pub windows: Windows,
    /// Into how many groups channels and outputs are parted, each with sums of its own. A depthwise
    /// convolution has as many as there are channels; its filter is TensorFlow's
    /// `[window.., channels, multiplier]` as `[window.., 1, channels · multiplier]`.
    pub groups: usize,
}

impl Convolution {
    /// A convolution in one group.
    #[must_use]
    pub fn new(windows: Windows) -> Self {
        Self { windows, groups: 1 }
    }
}

/// A pooling.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Pool {
    /// How.
    pub pooling: Pooling,
    /// The sizes of a window.
    pub window: Vec<usize>,
    /// How windows move.
    pub windows: Windows,
}

impl Pool {
    /// Windows of these sizes side by side.
    pub fn new(pooling: Pooling, window: impl IntoIterator<Item = usize>) -> Self {
        let window: Vec<usize> = window.into_iter().collect();
        Self {
            pooling,
            windows: Windows::strides(window.iter().copied()),
            window,
        }
    }
}

/// A normalisation.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Normalization {
    /// The axes along which moments are taken, in any order.
    pub axes: Vec<isize>,
    /// By what is divided.
    pub moments: Moments,
    /// What keeps the root from 0.
    pub epsilon: Real,
}

impl Normalization {
    /// By mean and variance along these axes.
    pub fn new(axes: impl IntoIterator<Item = isize>, epsilon: f64) -> Self {
        Self {
            axes: axes.into_iter().collect(),
            moments: Moments::MeanAndVariance,
            epsilon: epsilon.into(),
        }
    }
}

/// How [`Op::Pool`](super::Op::Pool) makes one element of a window. Padding counts for nothing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Pooling {
    /// The largest; its gradient goes to the first of the largest.
    Max,
    /// The mean of those that are not padding.
    #[doc(alias = "average")]
    Mean,
}

/// By which moments [`Op::Normalize`](super::Op::Normalize) divides.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Moments {
    /// The mean is subtracted, and divided by the square root of the variance.
    MeanAndVariance,
    /// Divided by the root of the mean of the squares.
    #[doc(alias = "rms")]
    MeanSquare,
}

/// Which keys a query of [`Op::Attention`](super::Op::Attention) sees.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AttentionMask {
    /// All.
    Full,
    /// Query i sees the keys 0 to i.
    Causal,
}

/// An element-wise function that makes a network more than a linear one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Activation {
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// x · sigmoid(x).
    #[doc(alias = "swish")]
    Silu,
    /// x · Φ(x), with the normal distribution's Φ.
    Gelu,
    /// x · sigmoid(2u) with u = √(2/π) (x + 0.044715 x³), which is close to [`Gelu`](Self::Gelu).
    GeluTanh,
}

/// Which way [`Op::Rotary`](super::Op::Rotary) turns.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Turn {
    /// By the angle of a position.
    Forward,
    /// Back by it.
    Back,
}

/// A real number as a parameter of an op. Two are equal if their bits are.
///
/// ```
/// use meshwork_layout::ops::Real;
///
/// assert_eq!(Real::from(1e-5).get(), 1e-5);
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Real(u64);

impl Real {
    /// The number.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }

    /// An op's parameter that has to be positive and finite.
    pub(super) fn check_positive(
        self,
        op: &'static str,
        parameter: &'static str,
    ) -> Result<(), OpError> {
        if self.get() > 0.0 && self.get().is_finite() {
            return Ok(());
        }
        Err(OpError::NotPositive {
            op,
            parameter,
            value: self,
        })
    }
}

impl From<f64> for Real {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.get(), f)
    }
}

impl Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.get(), f)
    }
}
