//! Initial values of the variables, which depend on a seed, their names and shapes only: candle's
//! own are drawn from a generator that cannot be seeded on the CPU.

use candle_core::{Device, Tensor};
use candle_nn::VarMap;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Error;

/// Sets each variable: embeddings to a normal distribution, weights and biases of dense layers to
/// an even one up to 1 / √inputs, layer norms to 1 and 0.
pub(crate) fn seed_variables(map: &VarMap, seed: u64) -> Result<(), Error> {
    let vars = map
        .data()
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for (name, var) in vars.iter() {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(fnv1a(name));
        // A bias has no other size than its weight to tell how many inputs there are.
        let weight = name
            .strip_suffix("bias")
            .map(|layer| format!("{layer}weight"));
        let weight = weight.and_then(|weight| vars.get(&weight)).unwrap_or(var);
        let inputs = *weight
            .dims()
            .last()
            .expect("no variable is a single number");
        let count = var.elem_count();
        let values: Vec<f32> = if name.contains("norm") {
            vec![if name.ends_with("weight") { 1.0 } else { 0.0 }; count]
        } else if name.contains("embedding") {
            (0..count).map(|_| normal(&mut random)).collect()
        } else {
            let bound = 1.0 / (inputs as f32).sqrt();
            (0..count)
                .map(|_| random.random_range(-bound..bound))
                .collect()
        };
        var.set(&Tensor::from_vec(values, var.dims(), &Device::Cpu)?)?;
    }
    Ok(())
}

/// A draw of the normal distribution, by Box and Muller.
fn normal(random: &mut ChaCha8Rng) -> f32 {
    let radius = (-2.0 * (1.0 - random.random::<f32>()).ln()).sqrt();
    radius * (std::f32::consts::TAU * random.random::<f32>()).cos()
}

/// Fowler, Noll and Vo's hash, which unlike the standard library's is the same everywhere and
/// always.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
