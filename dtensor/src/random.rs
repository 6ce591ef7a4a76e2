//! Random numbers that do not depend on how a tensor lies: element i of the whole tensor is a
//! function of the seed and of i.
//!
//! The function is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
//! as 1, 2, 3", SC 2011): ten rounds of multiplications scramble a counter under a key.

use meshwork_accel::ElementType;
use meshwork_layout::Layout;

use crate::{Context, DTensor, Error, Float};

impl Context {
    /// Numbers spread evenly over 0 up to 1, which is left out.
    ///
    /// The same seed gives the same tensor under any layout, on any mesh and any number of clients.
    ///
    /// ```
    /// use meshwork_core::{Client, Mesh};
    /// use meshwork_dtensor::{Context, Error};
    /// use meshwork_layout::Layout;
    ///
    /// let context = Context::alone(Client::new("localhost", 0, 1)?);
    /// let mesh = Mesh::new([("x", 2)])?;
    /// let rows = context.random_uniform::<f32>(7, &[3, 2], &Layout::batch_sharded(&mesh, "x", 2)?)?;
    /// let whole = context.random_uniform::<f32>(7, &[3, 2], &Layout::replicated(&mesh, 2))?;
    /// assert_eq!(rows.to_host()?, whole.to_host()?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`copy_to_mesh`](Self::copy_to_mesh).
    #[track_caller]
    #[doc(alias = "stateless_random_uniform")]
    pub fn random_uniform<T: Float>(
        &self,
        seed: u64,
        shape: &[usize],
        layout: &Layout,
    ) -> Result<DTensor<T>, Error> {
        self.from_fn(shape, layout, |index| {
            let words = philox(number(index, shape), seed);
            T::from_f64(unit(words[0], bits::<T>()))
        })
    }

    /// Numbers of the normal distribution with mean 0 and deviation 1, by the same rule as
    /// [`random_uniform`](Self::random_uniform).
    ///
    /// # Errors
    /// Those of [`copy_to_mesh`](Self::copy_to_mesh).
    #[track_caller]
    #[doc(alias = "stateless_random_normal")]
    pub fn random_normal<T: Float>(
        &self,
        seed: u64,
        shape: &[usize],
        layout: &Layout,
    ) -> Result<DTensor<T>, Error> {
        self.from_fn(shape, layout, |index| {
            let words = philox(number(index, shape), seed);
            // Box and Muller's method; a logarithm of 0 is kept out.
            let radius = (-2.0 * (1.0 - unit(words[0], DRAWN)).ln()).sqrt();
            T::from_f64(radius * (std::f64::consts::TAU * unit(words[1], DRAWN)).cos())
        })
    }
}

/// The number of an element of the whole tensor, row-major.
fn number(index: &[usize], shape: &[usize]) -> u64 {
    index.iter().zip(shape).fold(0, |number: u64, (i, size)| {
        number.wrapping_mul(*size as u64).wrapping_add(*i as u64)
    })
}

/// The upper bits as a number from 0 up to 1, which a float with as many holds exactly: rounding to
/// fewer is the only way to reach 1.
fn unit(word: u32, bits: u32) -> f64 {
    f64::from(word >> (32 - bits)) / f64::from(1_u32 << bits)
}

/// Those that a float has, up to 24: of the others all that are drawn.
fn bits<T: Float>() -> u32 {
    let short = [(ElementType::Bf16, 8), (ElementType::F16, 11)];
    let of_type = short.iter().find(|(element, _)| *element == T::TYPE);
    of_type.map_or(DRAWN, |(_, bits)| *bits)
}

/// Every float of 32 bits or more has as many.
const DRAWN: u32 = 24;

/// Four words for a counter and a key.
fn philox(counter: u64, key: u64) -> [u32; 4] {
    rounds([low(counter), high(counter), 0, 0], [low(key), high(key)])
}

fn rounds(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let first = u64::from(counter[0]) * MULTIPLIERS[0];
        let second = u64::from(counter[2]) * MULTIPLIERS[1];
        counter = [
            high(second) ^ counter[1] ^ key[0],
            low(second),
            high(first) ^ counter[3] ^ key[1],
            low(first),
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

fn high(word: u64) -> u32 {
    low(word >> 32)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is what is asked for"
)]
fn low(word: u64) -> u32 {
    word as u32
}

const MULTIPLIERS: [u64; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

#[cfg(test)]
mod tests {
    use meshwork_core::{Client, Mesh};

    use super::*;

    /// The known answers that the authors publish with their code.
    #[test]
    fn words_are_those_of_the_paper() {
        let ones = u32::MAX;
        assert_eq!(
            rounds([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            rounds([ones; 4], [ones; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            rounds(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn one_is_left_out_of_short_floats_too() {
        fn largest<T: Float>() -> f64 {
            let context = Context::alone(Client::new("localhost", 0, 1).unwrap());
            let layout = Layout::replicated(&Mesh::new([("x", 1)]).unwrap(), 1);
            let drawn = context.random_uniform::<T>(7, &[1 << 16], &layout).unwrap();
            let drawn = drawn.to_host().unwrap();
            drawn.iter().map(|one| one.to_f64()).fold(0.0, f64::max)
        }
        assert_eq!(largest::<crate::bf16>(), 1.0 - 1.0 / 256.0);
        assert_eq!(largest::<crate::f16>(), 1.0 - 1.0 / 2048.0);
    }

    #[test]
    fn numbers_do_not_depend_on_the_layout() {
        let context = Context::alone(Client::new("localhost", 0, 1).unwrap());
        let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
        let made = |names: [&str; 2]| {
            let layout = Layout::from_names(names, &mesh).unwrap();
            let uniform = context.random_uniform::<f32>(3, &[5, 3], &layout).unwrap();
            let normal = context.random_normal::<f32>(3, &[5, 3], &layout).unwrap();
            [uniform.to_host().unwrap(), normal.to_host().unwrap()]
        };
        let whole = made(["unsharded", "unsharded"]);
        for names in [["x", "y"], ["unsharded", "x"], ["y", "unsharded"]] {
            assert_eq!(made(names), whole);
        }
    }

    #[test]
    fn numbers_have_the_distributions_that_they_should() {
        let context = Context::alone(Client::new("localhost", 0, 1).unwrap());
        let layout = Layout::replicated(&Mesh::new([("x", 1)]).unwrap(), 1);
        let count = 20_000;
        let moments = |numbers: Vec<f64>| {
            let mean = |of: fn(f64) -> f64| numbers.iter().map(|x| of(*x)).sum::<f64>() / 20_000.0;
            (mean(|x| x), mean(|x| x * x))
        };
        let uniform = context.random_uniform::<f64>(1, &[count], &layout).unwrap();
        let (mean, square) = moments(uniform.to_host().unwrap().into_iter().collect());
        assert!((mean - 0.5).abs() < 0.01 && (square - 1.0 / 3.0).abs() < 0.01);
        let normal = context.random_normal::<f64>(2, &[count], &layout).unwrap();
        let (mean, square) = moments(normal.to_host().unwrap().into_iter().collect());
        assert!(
            mean.abs() < 0.03 && (square - 1.0).abs() < 0.03,
            "{mean} {square}"
        );
    }
}
