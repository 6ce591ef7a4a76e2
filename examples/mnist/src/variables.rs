//! The variables of a network as one run of numbers, in an order that every worker agrees on.

use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use candle_nn::VarMap;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::Error;

/// Named variables in alphabetical order, each row-major.
#[derive(Debug)]
pub(crate) struct Variables {
    named: Vec<(String, Var)>,
}

impl Variables {
    /// Takes over the variables of `map` and sets each to values that depend on the seed, its name and its shape only.
    pub(crate) fn seeded(map: &VarMap, seed: u64) -> Result<Self, Error> {
        let data = map
            .data()
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut named: Vec<_> = data
            .iter()
            .map(|(name, var)| (name.clone(), var.clone()))
            .collect();
        named.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (name, var) in &named {
            let values = initial_values(name, var.dims(), seed);
            var.set(&Tensor::from_vec(values, var.dims(), &Device::Cpu)?)?;
        }
        Ok(Self { named })
    }

    /// Number of elements of all variables together.
    pub(crate) fn element_count(&self) -> usize {
        self.named.iter().map(|(_, var)| var.elem_count()).sum()
    }

    /// Copies all elements out, variable after variable. The inverse of [`set`](Self::set).
    pub(crate) fn to_vec(&self) -> Result<Vec<f32>, Error> {
        let mut values = Vec::with_capacity(self.element_count());
        for (_, var) in &self.named {
            values.extend(elements(var)?);
        }
        Ok(values)
    }

    /// Replaces all elements, variable after variable. The inverse of [`to_vec`](Self::to_vec).
    ///
    /// # Panics
    ///
    /// If there are not [`element_count`](Self::element_count) values.
    pub(crate) fn set(&self, values: &[f32]) -> Result<(), Error> {
        let mut rest = values;
        for (_, var) in &self.named {
            let (head, tail) = rest.split_at(var.elem_count());
            var.set(&Tensor::from_slice(head, var.dims(), &Device::Cpu)?)?;
            rest = tail;
        }
        Ok(())
    }

    /// Copies all gradients out, in the order of the elements; those of a variable without influence are 0.
    ///
    /// # Panics
    ///
    /// If `out` has not [`element_count`](Self::element_count) elements.
    pub(crate) fn gradients(&self, grads: &GradStore, out: &mut [f32]) -> Result<(), Error> {
        let mut rest = out;
        for (_, var) in &self.named {
            let (head, tail) = rest.split_at_mut(var.elem_count());
            match grads.get(var) {
                Some(gradient) => head.copy_from_slice(&elements(gradient)?),
                None => head.fill(0.0),
            }
            rest = tail;
        }
        Ok(())
    }
}

fn elements(tensor: &Tensor) -> Result<Vec<f32>, Error> {
    Ok(tensor.flatten_all()?.to_vec1()?)
}

/// Biases start at 0, weights uniformly with variance 1 / inputs of a neuron (LeCun et al., Efficient BackProp, 1998).
fn initial_values(name: &str, dims: &[usize], seed: u64) -> Vec<f32> {
    let &[neurons, _, ..] = dims else {
        return vec![0.0; dims.iter().product()];
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

/// Fowler, Noll and Vo's hash, which unlike the standard library's is the same everywhere and always.
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

    /// A map with these variables, created in this order.
    fn map(names: &[(&str, &[usize])]) -> VarMap {
        let map = VarMap::new();
        for &(name, dims) in names {
            map.get(dims, name, Init::Const(0.5), DType::F32, &Device::Cpu)
                .unwrap();
        }
        map
    }

    #[test]
    fn elements_lie_in_alphabetical_order_of_names() {
        let variables =
            Variables::seeded(&map(&[("b", &[2]), ("a", &[1]), ("c", &[3])]), 0).unwrap();
        variables.set(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(variables.named[0].1.to_vec1::<f32>().unwrap(), [1.0]);
        assert_eq!(variables.named[1].1.to_vec1::<f32>().unwrap(), [2.0, 3.0]);
        assert_eq!(variables.to_vec().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(variables.element_count(), 6);
    }

    #[test]
    fn initial_values_depend_on_seed_and_name_but_not_on_the_other_variables() {
        let weight = |others: &[(&str, &[usize])], name: &str, seed| {
            let names: Vec<_> = others
                .iter()
                .copied()
                .chain([(name, &[4, 6][..])])
                .collect();
            let variables = Variables::seeded(&map(&names), seed).unwrap();
            let (_, var) = variables
                .named
                .iter()
                .find(|(found, _)| found == name)
                .unwrap();
            elements(var).unwrap()
        };
        let alone = weight(&[], "w", 1);
        assert_eq!(alone, weight(&[("a", &[3, 3]), ("z", &[9])], "w", 1));
        assert_ne!(alone, weight(&[], "v", 1));
        assert_ne!(alone, weight(&[], "w", 2));
        assert!(alone.iter().all(|value| value.abs() <= 0.5f32.sqrt()));
    }

    #[test]
    fn biases_start_at_zero() {
        assert_eq!(initial_values("bias", &[3], 9), [0.0; 3]);
    }

    #[test]
    fn a_gradient_lands_at_its_variable_and_is_zero_without_influence() {
        let variables = Variables::seeded(&map(&[("a", &[2]), ("b", &[2])]), 0).unwrap();
        variables.set(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        let loss = variables.named[1].1.sqr().unwrap().sum_all().unwrap();
        let mut out = [9.0; 4];
        variables
            .gradients(&loss.backward().unwrap(), &mut out)
            .unwrap();
        assert_eq!(out, [0.0, 0.0, 6.0, 8.0]);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }
}
