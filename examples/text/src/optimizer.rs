//! AdamW in one pass over each variable, clipping, and the learning rate of each step.

use std::cell::RefCell;
use std::f64::consts::PI;

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, InplaceOp2, Layout, Result as CandleResult, Tensor, Var};
use candle_nn::VarMap;
use multiversion::multiversion;

use crate::Error;

/// Adam with weight decay apart from the gradient.
#[derive(Debug)]
pub struct AdamW {
    vars: Vec<(Var, Moments)>,
    done: i32,
}

/// The moving means of a gradient and of its square, where the variable is.
#[derive(Debug)]
enum Moments {
    Host { first: Vec<f32>, second: Vec<f32> },
    Device { first: Tensor, second: Tensor },
}

impl Moments {
    fn at_rest(var: &Var) -> Result<Self, Error> {
        if var.device().is_cpu() {
            let zeros = vec![0.0; var.elem_count()];
            return Ok(Self::Host {
                first: zeros.clone(),
                second: zeros,
            });
        }
        Ok(Self::Device {
            first: var.zeros_like()?,
            second: var.zeros_like()?,
        })
    }
}

impl AdamW {
    /// At rest, over all variables of `vars`.
    ///
    /// # Errors
    /// [`Error::Network`] for this and the other methods, if candle refuses an operation.
    pub fn new(vars: &VarMap) -> Result<Self, Error> {
        let at_rest = |var: Var| {
            let moments = Moments::at_rest(&var)?;
            Ok::<_, Error>((var, moments))
        };
        let vars = vars.all_vars().into_iter().map(at_rest);
        Ok(Self {
            vars: vars.collect::<Result<_, _>>()?,
            done: 0,
        })
    }

    /// Moves the variables by `gradients`, each times `scale` (that of [`clip`]).
    ///
    /// # Errors
    /// [`Error::Network`]
    pub fn step(&mut self, gradients: &GradStore, rate: f64, scale: f32) -> Result<(), Error> {
        self.done = self.done.saturating_add(1);
        let [first, second] = BETAS.map(|beta| 1.0 - f64::from(beta).powi(self.done));
        for (var, moments) in &mut self.vars {
            let Some(gradient) = gradients.get(var) else {
                continue;
            };
            #[expect(
                clippy::cast_possible_truncation,
                reason = "variables are of this precision"
            )]
            let update = Update {
                scale,
                kept: (1.0 - rate * DECAY) as f32,
                rate: (rate / first) as f32,
                root: second.sqrt() as f32,
            };
            match moments {
                Moments::Host { first, second } => {
                    let update = InPlace {
                        update,
                        moments: RefCell::new((first, second)),
                    };
                    var.inplace_op2(&gradient.contiguous()?, &update)?;
                }
                Moments::Device { first, second } => {
                    update.by_operations(var, gradient, first, second)?;
                }
            }
        }
        Ok(())
    }
}

/// What one step does to one variable.
#[derive(Clone, Copy, Debug)]
struct Update {
    scale: f32,
    /// What decay leaves of a value.
    kept: f32,
    /// With the correction of the first mean.
    rate: f32,
    /// The correction of the root of the second.
    root: f32,
}

impl Update {
    /// Moves a variable on any device, with its moments, by operations of candle.
    fn by_operations(
        self,
        var: &Var,
        gradient: &Tensor,
        first: &mut Tensor,
        second: &mut Tensor,
    ) -> CandleResult<()> {
        let betas = BETAS.map(f64::from);
        let gradient = (gradient * f64::from(self.scale))?;
        let mean = |of: &Tensor, by: &Tensor, beta: f64| (of * beta)? + (by * (1.0 - beta))?;
        *first = mean(first, &gradient, betas[0])?;
        *second = mean(second, &gradient.sqr()?, betas[1])?;
        let root = ((second.sqrt()? / f64::from(self.root))? + f64::from(EPSILON))?;
        let step = (&*first * f64::from(self.rate))?.div(&root)?;
        var.set(&((var.as_tensor() * f64::from(self.kept))? - step)?)
    }
}

/// It, where a variable and its moments are in host memory.
struct InPlace<'a> {
    update: Update,
    moments: RefCell<(&'a mut [f32], &'a mut [f32])>,
}

impl InplaceOp2 for InPlace<'_> {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu_fwd(
        &self,
        var: &mut CpuStorage,
        var_layout: &Layout,
        gradient: &CpuStorage,
        layout: &Layout,
    ) -> CandleResult<()> {
        let refused = || candle_core::Error::RequiresContiguous { op: "adamw" };
        let (start, end) = var_layout.contiguous_offsets().ok_or_else(refused)?;
        let (from, to) = layout.contiguous_offsets().ok_or_else(refused)?;
        let CpuStorage::F32(values) = var else {
            candle_core::bail!("AdamW moves variables of f32 only");
        };
        let gradient = &gradient.as_slice::<f32>()?[from..to];
        let (first, second) = &mut *self.moments.borrow_mut();
        let values = &mut values[start..end];
        change(self.update, [first, second], values, gradient);
        Ok(())
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn change(update: Update, moments: [&mut [f32]; 2], values: &mut [f32], gradient: &[f32]) {
    let Update {
        scale,
        kept,
        rate,
        root,
    } = update;
    let [first, second] = moments;
    let moments = first.iter_mut().zip(second);
    for ((value, gradient), (first, second)) in values.iter_mut().zip(gradient).zip(moments) {
        let gradient = gradient * scale;
        *first = BETAS[0] * *first + (1.0 - BETAS[0]) * gradient;
        *second = BETAS[1] * *second + (1.0 - BETAS[1]) * gradient * gradient;
        *value = *value * kept - rate * *first / (second.sqrt() / root + EPSILON);
    }
}

/// By what all `gradients` of `vars` are to be multiplied so that their norm, that of one vector of
/// them all, is at most `most`.
///
/// # Errors
/// [`Error::Network`]
pub fn clip(vars: &VarMap, gradients: &GradStore, most: f32) -> Result<f32, Error> {
    // Sorted by name, so that all workers sum in the same order.
    let vars = vars
        .data()
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut named: Vec<_> = vars.iter().collect();
    named.sort_by(|left, right| left.0.cmp(right.0));
    let gradients = named
        .into_iter()
        .filter_map(|(_, var)| gradients.get(var.as_tensor()));
    let square = square_sum(&gradients.collect::<Vec<_>>())?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "gradients are of this precision"
    )]
    let norm = square.sqrt() as f32;
    Ok((most / (norm + 1e-6)).min(1.0))
}

/// The sum of the squares of all elements.
fn square_sum(gradients: &[&Tensor]) -> Result<f64, Error> {
    let in_host_memory = |gradient: &&Tensor| gradient.device().is_cpu();
    if !gradients.iter().all(in_host_memory) {
        return square_sum_by_operations(gradients);
    }
    let mut sum = 0.0;
    for gradient in gradients {
        let values = gradient.flatten_all()?.to_vec1::<f32>()?;
        // Few enough together for a sum in `f32` to lose no digits that matter.
        let parts = values.chunks(4096).map(|part| f64::from(squares(part)));
        sum += parts.sum::<f64>();
    }
    Ok(sum)
}

/// The same by operations of candle, and one number that is waited for.
fn square_sum_by_operations(gradients: &[&Tensor]) -> Result<f64, Error> {
    let sums = gradients.iter().map(|gradient| gradient.sqr()?.sum_all());
    let sums = sums.collect::<CandleResult<Vec<_>>>()?;
    Ok(match sums.is_empty() {
        true => 0.0,
        false => Tensor::stack(&sums, 0)?
            .sum_all()?
            .to_scalar::<f32>()?
            .into(),
    })
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn squares(values: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 16];
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    let rest = rest.iter().map(|value| value * value);
    lanes.into_iter().chain(rest).sum()
}

/// The learning rate of a step, from 0, of `steps`: up to `highest` over the first 50, and down to
/// a tenth along a cosine.
#[must_use]
pub fn rate(step: usize, steps: usize, highest: f64) -> f64 {
    let warm = ((step + 1) as f64 / WARM_UP).min(1.0);
    let cosine = (PI * step as f64 / steps.max(1) as f64).cos();
    highest * warm * (0.1 + 0.9 * 0.5 * (1.0 + cosine))
}

pub(crate) const BETAS: [f32; 2] = [0.9, 0.95];
pub(crate) const DECAY: f64 = 0.1;
pub(crate) const EPSILON: f32 = 1e-8;
const WARM_UP: f64 = 50.0;

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};
    use candle_nn::{Init, Optimizer, ParamsAdamW};

    use super::*;

    fn vars() -> VarMap {
        let vars = VarMap::new();
        for (name, size) in [("a", 5), ("b", 17)] {
            vars.get(size, name, Init::Const(0.7), DType::F32, &Device::Cpu)
                .unwrap();
        }
        vars
    }

    fn gradients(vars: &VarMap, step: usize) -> GradStore {
        let vars = vars.data().lock().unwrap();
        let loss = |name: &str| {
            let var = vars[name].as_tensor();
            let slopes: Vec<f32> = (0..var.elem_count())
                .map(|at| ((at + 7 * step) as f32).sin())
                .collect();
            let slopes = Tensor::new(slopes, &Device::Cpu).unwrap();
            (var * slopes).unwrap().sum_all().unwrap()
        };
        (loss("a") + loss("b")).unwrap().backward().unwrap()
    }

    #[test]
    fn it_is_candles_adamw() {
        let (ours, theirs) = (vars(), vars());
        let mut optimizer = AdamW::new(&ours).unwrap();
        let settings = ParamsAdamW {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
        };
        let mut candle = candle_nn::AdamW::new(theirs.all_vars(), settings).unwrap();
        for step in 0..10 {
            optimizer.step(&gradients(&ours, step), 0.01, 1.0).unwrap();
            candle.step(&gradients(&theirs, step)).unwrap();
        }
        for name in ["a", "b"] {
            let values =
                |vars: &VarMap| vars.data().lock().unwrap()[name].to_vec1::<f32>().unwrap();
            for (one, other) in values(&ours).iter().zip(values(&theirs)) {
                assert!((one - other).abs() < 1e-5 && *one != 0.7, "{one} {other}");
            }
        }
    }

    #[test]
    fn operations_of_any_device_move_variables_as_those_in_place_do() {
        let (ours, theirs) = (vars(), vars());
        let mut in_place = AdamW::new(&ours).unwrap();
        let mut by_operations = AdamW::new(&theirs).unwrap();
        for (var, moments) in &mut by_operations.vars {
            let (first, second) = (var.zeros_like().unwrap(), var.zeros_like().unwrap());
            *moments = Moments::Device { first, second };
        }
        for step in 0..10 {
            in_place.step(&gradients(&ours, step), 0.01, 0.3).unwrap();
            let gradients = gradients(&theirs, step);
            by_operations.step(&gradients, 0.01, 0.3).unwrap();
        }
        for name in ["a", "b"] {
            let values =
                |vars: &VarMap| vars.data().lock().unwrap()[name].to_vec1::<f32>().unwrap();
            for (one, other) in values(&ours).iter().zip(values(&theirs)) {
                assert!((one - other).abs() < 1e-6 && *one != 0.7, "{one} {other}");
            }
        }
    }

    #[test]
    fn gradients_are_clipped_as_one_vector() {
        let vars = vars();
        let gradients = gradients(&vars, 0);
        let squares = |name: &str| {
            let var = &vars.data().lock().unwrap()[name];
            let values = gradients.get(var).unwrap().to_vec1::<f32>().unwrap();
            values.iter().map(|value| value * value).sum::<f32>()
        };
        let norm = (squares("a") + squares("b")).sqrt();
        assert!((clip(&vars, &gradients, 1.0).unwrap() - 1.0 / norm).abs() < 1e-5);
        assert_eq!(clip(&vars, &gradients, 2.0 * norm).unwrap(), 1.0);
        let both = ["a", "b"].map(|name| vars.data().lock().unwrap()[name].clone());
        let both = both.each_ref().map(|var| gradients.get(var).unwrap());
        let sum = square_sum_by_operations(&both).unwrap();
        assert!((sum.sqrt() - f64::from(norm)).abs() < 1e-4);
        assert_eq!(square_sum_by_operations(&[]).unwrap(), 0.0);
    }

    #[test]
    fn the_rate_rises_then_falls_to_a_tenth() {
        assert!((rate(0, 1000, 1.0) - 0.02).abs() < 1e-9);
        assert!((rate(500, 1000, 1.0) - 0.55).abs() < 1e-9);
        assert!((rate(1000, 1000, 1.0) - 0.1).abs() < 1e-9);
        let rates: Vec<f64> = (50..1000).map(|step| rate(step, 1000, 1.0)).collect();
        assert!(rates.is_sorted_by(|a, b| a >= b));
    }
}
