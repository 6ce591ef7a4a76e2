//! A step of gradient descent with momentum, in place.

use candle_core::{CpuStorage, Error, InplaceOp2, Layout, Result, Tensor, Var};
use multiversion::multiversion;
use rayon::prelude::*;

use crate::elementwise::PART;
use crate::spread;
use crate::storage::{is_ours, values, values_mut};

/// A step of stochastic gradient descent with momentum: `velocity ← momentum · velocity +
/// gradient`, then `var ← var − rate · velocity`, as torch's `SGD` has it.
///
/// The bits are those of candle's operations in this order; here they are written where the values
/// are. A variable without a gradient coasts.
///
/// ```
/// use candle_core::{Device, Var};
/// use meshwork_candle_ops::sgd_step;
///
/// let weights = Var::new(&[1.0_f32, -1.0], &Device::Cpu)?;
/// let velocity = Var::new(&[1.0_f32, 0.0], &Device::Cpu)?;
/// let gradient = (weights.as_tensor() * 4.0)?;
/// sgd_step(&weights, &velocity, Some(&gradient), 0.5, 0.25)?;
/// assert_eq!(velocity.to_vec1::<f32>()?, [4.5, -4.0]);
/// assert_eq!(weights.to_vec1::<f32>()?, [-0.125, 0.0]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Shapes
/// All have the shape of `var`.
///
/// # Errors
/// [`Error::ShapeMismatchBinaryOp`] where they have not, before anything moves; others of candle.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what multiplies f32 is rounded to it, as by candle"
)]
pub fn sgd_step(
    var: &Var,
    velocity: &Var,
    gradient: Option<&Tensor>,
    momentum: f64,
    rate: f64,
) -> Result<()> {
    for other in [Some(velocity.as_tensor()), gradient].into_iter().flatten() {
        equally_shaped(var, other)?;
    }
    if ![Some(var.as_tensor()), Some(velocity), gradient]
        .into_iter()
        .flatten()
        .all(is_ours)
    {
        return step_by_candle(var, velocity, gradient, momentum, rate);
    }
    match gradient {
        Some(gradient) => {
            let add = InPlace(add_to_scaled, momentum as f32);
            velocity.inplace_op2(&gradient.contiguous()?, &add)?;
        }
        None => velocity.set(&(velocity.as_tensor() * momentum)?)?,
    }
    var.inplace_op2(velocity, &InPlace(subtract_scaled, rate as f32))
}

fn equally_shaped(var: &Var, other: &Tensor) -> Result<()> {
    if var.shape() == other.shape() {
        return Ok(());
    }
    Err(Error::ShapeMismatchBinaryOp {
        lhs: var.shape().clone(),
        rhs: other.shape().clone(),
        op: "sgd_step",
    })
}

fn step_by_candle(
    var: &Var,
    velocity: &Var,
    gradient: Option<&Tensor>,
    momentum: f64,
    rate: f64,
) -> Result<()> {
    let mut next = (velocity.as_tensor() * momentum)?;
    if let Some(gradient) = gradient {
        next = (next + gradient)?;
    }
    velocity.set(&next)?;
    var.set(&(var.as_tensor() - (next * rate)?)?)
}

/// What is done to some elements, given as many others and a number.
struct InPlace(fn(&mut [f32], &[f32], f32), f32);

impl InplaceOp2 for InPlace {
    fn name(&self) -> &'static str {
        "sgd_step"
    }

    fn cpu_fwd(
        &self,
        into: &mut CpuStorage,
        into_layout: &Layout,
        from: &CpuStorage,
        from_layout: &Layout,
    ) -> Result<()> {
        let Self(run, by) = *self;
        let from = values(from, from_layout)?;
        let into = values_mut(into, into_layout)?;
        let parts = into.par_chunks_mut(PART).zip(from.par_chunks(PART));
        spread::each(parts, |(into, from)| run(into, from, by));
        Ok(())
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn add_to_scaled(into: &mut [f32], from: &[f32], scale: f32) {
    for (into, from) in into.iter_mut().zip(from) {
        *into = *into * scale + from;
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn subtract_scaled(into: &mut [f32], from: &[f32], scale: f32) {
    for (into, from) in into.iter_mut().zip(from) {
        *into -= from * scale;
    }
}
