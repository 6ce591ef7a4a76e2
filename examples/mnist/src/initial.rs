//! Initial values of a network's variables.

use candle_core::{Device, Tensor};
use candle_nn::VarMap;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::Error;

/// Sets each variable to values that depend on the seed, its name and its shape only: candle's own
/// are drawn from a generator that cannot be seeded on the CPU.
pub(crate) fn seed_variables(map: &VarMap, seed: u64) -> Result<(), Error> {
    let variables = map
        .data()
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for (name, var) in variables.iter() {
        let values = initial_values(name, var.dims(), seed);
        var.set(&Tensor::from_vec(values, var.dims(), &Device::Cpu)?)?;
    }
    Ok(())
}

/// Biases start at 0, what normal values are multiplied by at 1, weights uniformly with variance 1
/// / inputs of a neuron (LeCun et al., Efficient BackProp, 1998).
pub(crate) fn initial_values(name: &str, dims: &[usize], seed: u64) -> Vec<f32> {
    let &[neurons, _, ..] = dims else {
        let scales = name.ends_with("weight");
        return vec![f32::from(u8::from(scales)); dims.iter().product()];
    };
    let count: usize = dims.iter().product();
    let inputs = count / neurons;
    let bound = (3.0 / inputs as f32).sqrt();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(fnv1a(name));
    (0..count)
        .map(|_| random.random_range(-bound..bound))
        .collect()
}

/// Fowler, Noll and Vo's hash, which unlike the standard library's is the same everywhere and
/// always.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use candle_core::DType;
    use candle_nn::Init;

    use super::*;

    /// The values of the variable `name` of shape `[4, 6]` beside others.
    fn weight(others: &[&str], name: &str, seed: u64) -> Vec<f32> {
        let map = VarMap::new();
        for name in others.iter().chain([&name]) {
            map.get((4, 6), name, Init::Const(0.5), DType::F32, &Device::Cpu)
                .unwrap();
        }
        seed_variables(&map, seed).unwrap();
        let variables = map.data().lock().unwrap();
        variables[name].flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn initial_values_depend_on_seed_and_name_but_not_on_the_other_variables() {
        let alone = weight(&[], "w", 1);
        assert_eq!(alone, weight(&["a", "z"], "w", 1));
        assert_ne!(alone, weight(&[], "v", 1));
        assert_ne!(alone, weight(&[], "w", 2));
        assert!(alone.iter().all(|value| value.abs() <= 0.5_f32.sqrt()));
    }

    #[test]
    fn biases_start_at_zero_and_scales_at_one() {
        assert_eq!(initial_values("bias", &[3], 9), [0.0; 3]);
        assert_eq!(initial_values("norm.weight", &[3], 9), [1.0; 3]);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }
}
