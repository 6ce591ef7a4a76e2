//! Activations with their derivatives: on the host in one pass, on devices by the ops that those
//! have.
//!
//! All but the exact GELU are made of s = sigmoid(z), where z' is the derivative of z:
//!
//! ```text
//!            z                               function     derivative
//!   sigmoid  x                               s            s (1 - s)
//!   tanh     2x                              2s - 1       4 s (1 - s)
//!   silu     x                               x s          s + x s (1 - s)
//!   gelu     2 √(2/π) (x + 0.044715 x³)      x s          s + x s (1 - s) z'
//! ```
//!
//! Near 0, where s is near 1/2 and 2s - 1 has lost most digits, tanh is its series. Of 16-bit
//! floats all are made in 32 bits and rounded once.

use meshwork_accel::ElementType;
use meshwork_layout::ops::{Activation, Op};

use super::Call;
use super::convolution::is_short;
use super::local::computes;
use crate::{DTensor, Error, Float};

/// √(2/π), twice.
const SLOPE: f64 = 1.595_769_121_605_731;
const CUBIC: f64 = 0.044_715;
/// 1 / √(2π).
const DENSITY: f64 = 0.398_942_280_401_432_7;
/// Up to which square of x tanh is its series.
const NEAR: f64 = 1.0 / 64.0;
/// The series of tanh(x) / x by powers of x². Near 0, what is left out is below 10⁻¹⁵.
const SERIES: [f64; 7] = [
    1.0,
    -1.0 / 3.0,
    2.0 / 15.0,
    -17.0 / 315.0,
    62.0 / 2_835.0,
    -1_382.0 / 155_925.0,
    21_844.0 / 6_081_075.0,
];
/// How many terms are enough for 32 bits.
const SHORT_SERIES: usize = 4;

impl<T: Float> DTensor<T> {
    /// An activation of each element.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    pub fn activation(&self, by: Activation) -> Result<Self, Error> {
        let call = Call::of(&Op::Activation(by), self.context(), &[self.placement()])?;
        let operand = call.operand(0, self)?;
        call.composed(0, &operand.activated(by)?)
    }

    fn activated(&self, by: Activation) -> Result<Self, Error> {
        if by == Activation::Gelu || !computes(self) {
            return self.map(|x| T::from_f64(value(by, x.to_f64())));
        }
        if is_short::<T>() {
            return self.cast::<f32>()?.activated(by)?.cast();
        }
        let s = sigmoid_of_negated(&self.argument(by)?.neg()?)?;
        match by {
            Activation::Tanh => {
                let far = s.scale(T::from_f64(2.0))?.add_scalar(T::from_f64(-1.0))?;
                let square = self.mul(self)?;
                // Not 0 for what is no number either, which stays.
                let is_far = square.add_scalar(T::from_f64(-NEAR))?.relu()?;
                is_far.select(&far, &self.mul(&tanh_over(&square)?)?)
            }
            Activation::Silu | Activation::GeluTanh | Activation::Gelu => s.mul(self),
            Activation::Sigmoid => Ok(s),
        }
    }

    /// The gradient of an [`activation`](Self::activation) of these elements; `upstream` is that by
    /// its result.
    ///
    /// # Errors
    /// Those of [`zip_with`](Self::zip_with).
    #[track_caller]
    pub fn activation_gradient(&self, upstream: &Self, by: Activation) -> Result<Self, Error> {
        let reduced = self.reduce_partial()?;
        // What is recorded is made of ops that are known to tapes and programs.
        let is_recorded = self.trace().is_recorded() || upstream.trace().is_recorded();
        if by == Activation::Gelu || !(is_recorded || computes(self)) {
            return reduced.zip_with(upstream, |x, slope| {
                T::from_f64(slope.to_f64() * derivative(by, x.to_f64()))
            });
        }
        // The square of an element may be beyond 65,504, and 0 times that is no number.
        if is_short::<T>() {
            let wide = reduced.cast::<f32>()?;
            return wide.activation_gradient(&upstream.cast()?, by)?.cast();
        }
        let z = reduced.argument(by)?;
        let s = sigmoid_of_negated(&z.neg()?)?;
        let one = T::from_f64(1.0);
        // 1 - s would have lost its digits as s nears 1.
        let by_z = s.mul(&sigmoid_of_negated(&z)?)?;
        let slope = match by {
            Activation::Tanh => by_z.scale(T::from_f64(4.0))?,
            Activation::Silu => s.add(&by_z.mul(&reduced)?)?,
            Activation::GeluTanh | Activation::Gelu => {
                let square = reduced.mul(&reduced)?;
                let by_x = square.scale(T::from_f64(3.0 * CUBIC))?.add_scalar(one)?;
                let by_x = by_x.scale(T::from_f64(SLOPE))?;
                s.add(&by_z.mul(&reduced)?.mul(&by_x)?)?
            }
            Activation::Sigmoid => by_z,
        };
        slope.mul(upstream)
    }

    /// x · Φ(x), where Φ is the normal distribution's.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    pub fn gelu(&self) -> Result<Self, Error> {
        self.activation(Activation::Gelu)
    }

    /// x · sigmoid(x).
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    #[doc(alias = "swish")]
    pub fn silu(&self) -> Result<Self, Error> {
        self.activation(Activation::Silu)
    }

    /// 1 / (1 + exp(-x)).
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    pub fn sigmoid(&self) -> Result<Self, Error> {
        self.activation(Activation::Sigmoid)
    }

    /// The hyperbolic tangent.
    ///
    /// # Errors
    /// Those of [`map`](Self::map).
    #[track_caller]
    pub fn tanh(&self) -> Result<Self, Error> {
        self.activation(Activation::Tanh)
    }

    /// The z of whose sigmoid an activation is made.
    fn argument(&self, by: Activation) -> Result<Self, Error> {
        match by {
            Activation::Tanh => self.scale(T::from_f64(2.0)),
            Activation::GeluTanh | Activation::Gelu => {
                let one = T::from_f64(1.0);
                let cubic = self.mul(self)?.scale(T::from_f64(CUBIC))?.add_scalar(one)?;
                self.mul(&cubic)?.scale(T::from_f64(SLOPE))
            }
            Activation::Sigmoid | Activation::Silu => Ok(self.clone()),
        }
    }
}

/// The sigmoid of what these are the negatives of: 1 / (1 + exp(x)).
fn sigmoid_of_negated<T: Float>(negated: &DTensor<T>) -> Result<DTensor<T>, Error> {
    let one = T::from_f64(1.0);
    let powers = negated.exp()?.add_scalar(one)?;
    powers.zeros_like()?.add_scalar(one)?.div(&powers)
}

/// tanh(x) / x near 0, of the squares.
fn tanh_over<T: Float>(square: &DTensor<T>) -> Result<DTensor<T>, Error> {
    let terms = match T::TYPE {
        ElementType::F64 => &SERIES[..],
        _ => &SERIES[..SHORT_SERIES],
    };
    let mut sum = square.zeros_like()?;
    for (place, term) in terms.iter().enumerate().rev() {
        sum = sum.add_scalar(T::from_f64(*term))?;
        if place > 0 {
            sum = sum.mul(square)?;
        }
    }
    Ok(sum)
}

fn value(by: Activation, x: f64) -> f64 {
    match by {
        Activation::Tanh => x.tanh(),
        Activation::Gelu => x * normal(x),
        Activation::Silu => x * sigmoid(x),
        Activation::GeluTanh => x * sigmoid(SLOPE * (x + CUBIC * x * x * x)),
        Activation::Sigmoid => sigmoid(x),
    }
}

fn derivative(by: Activation, x: f64) -> f64 {
    let s = |z: f64| (sigmoid(z), sigmoid(z) * sigmoid(-z));
    match by {
        Activation::Sigmoid => s(x).1,
        Activation::Tanh => 1.0 - x.tanh().powi(2),
        Activation::Silu => s(x).0 + x * s(x).1,
        Activation::Gelu => normal(x) + x * (-0.5 * x * x).exp() * DENSITY,
        Activation::GeluTanh => {
            let (value, slope) = s(SLOPE * (x + CUBIC * x * x * x));
            value + x * slope * SLOPE * (1.0 + 3.0 * CUBIC * x * x)
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The normal distribution up to x.
fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}
