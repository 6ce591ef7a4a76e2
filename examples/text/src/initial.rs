//! Initial values of the variables, which depend on a seed, their names and shapes only: candle's
//! own are drawn from a generator that cannot be seeded on the CPU.

use std::ops::Range;

use candle_core::Tensor;
use candle_nn::VarMap;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Error;

/// Sets each variable to its initial values.
pub(crate) fn seed_variables(map: &VarMap, seed: u64) -> Result<(), Error> {
    let vars = map
        .data()
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for (name, var) in vars.iter() {
        // A bias has no other size than its weight to tell how many inputs there are.
        let weight = weight_of(name).and_then(|weight| vars.get(&weight));
        let inputs = weight.unwrap_or(var).dims().last();
        let inputs = *inputs.expect("no variable is a single number");
        let mut values = vec![0.0; var.elem_count()];
        write(name, inputs, seed, 0..var.elem_count(), &mut values);
        var.set(&Tensor::from_vec(values, var.dims(), var.device())?)?;
    }
    Ok(())
}

/// The weight that a bias belongs to.
pub(crate) fn weight_of(name: &str) -> Option<String> {
    let layer = name.strip_suffix("bias")?;
    Some(format!("{layer}weight"))
}

/// Writes some of the initial values of a variable: of embeddings a normal distribution, of weights
/// and biases of dense layers an even one up to 1 / √inputs, of layer norms 1 and 0.
pub(crate) fn write(
    name: &str,
    inputs: usize,
    seed: u64,
    elements: Range<usize>,
    into: &mut [f32],
) {
    if name.contains("norm") {
        return into.fill(if name.ends_with("weight") { 1.0 } else { 0.0 });
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(fnv1a(name.bytes().map(u32::from)));
    let bound = 1.0 / (inputs as f32).sqrt();
    let mut draw = || match name.contains("embedding") {
        true => normal(&mut random),
        false => random.random_range(-bound..bound),
    };
    // An even draw may take several numbers, so those before cannot be passed over.
    (0..elements.start).for_each(|_| {
        draw();
    });
    into.iter_mut().for_each(|value| *value = draw());
}

/// A draw of the normal distribution, by Box and Muller.
fn normal(random: &mut ChaCha8Rng) -> f32 {
    let radius = (-2.0 * (1.0 - random.random::<f32>()).ln()).sqrt();
    radius * (std::f32::consts::TAU * random.random::<f32>()).cos()
}

/// Fowler, Noll and Vo's hash, of numbers in the place of bytes. Unlike the standard library's it
/// is the same everywhere and always.
pub(crate) fn fnv1a(numbers: impl IntoIterator<Item = u32>) -> u64 {
    let numbers = numbers.into_iter();
    numbers.fold(0xcbf2_9ce4_8422_2325, |hash, number| {
        (hash ^ u64::from(number)).wrapping_mul(0x0100_0000_01b3)
    })
}
