//! Arithmetic over XLA's CPU plugin: what every backend is held to, the bits of the host where they
//! are promised, and programs that are compiled once.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

#[path = "support/devices.rs"]
mod devices;
#[path = "support/plugins.rs"]
mod plugins;

use std::fmt::Debug;

use meshwork_accel::{
    Element, Elementwise, Error, Matmul, Pairwise, Pointwise, ProductShape, bf16, conformance, f16,
};
use meshwork_accel_tpu::PjrtAccelerator;

use devices::{read, with};
use plugins::accelerator;

#[test]
fn four_devices_compute_as_every_backend_and_nothing_is_left_behind() {
    let Some(file) = plugins::cpu_file() else {
        return;
    };
    let checks = [
        conformance::check_compute,
        conformance::check_arrangement,
        conformance::check_choices,
        conformance::check_conversions,
    ];
    devices::hold(&file, 4, &checks);
}

/// A float, and what the host makes of it: 16-bit ones by way of `f32`.
trait Float: Element + PartialOrd + Debug {
    /// Half the distance from 1 to the next number: what rounding may change of a number of that
    /// size.
    const ROUNDING: f64;

    fn of(number: f64) -> Self;

    fn wide(self) -> f64;

    /// The bits; all NaN have the same.
    fn bits(self) -> u64 {
        match self.wide().is_nan() {
            true => u64::MAX,
            false => self.wide().to_bits(),
        }
    }

    fn pairwise(op: Pairwise, left: Self, right: Self) -> Self;
}

fn of_wide(op: Pairwise, left: f64, right: f64) -> f64 {
    match op {
        Pairwise::Add => left + right,
        Pairwise::Subtract => left - right,
        Pairwise::Multiply => left * right,
        Pairwise::Divide => left / right,
    }
}

macro_rules! float {
    ($($number:ty, $digits:expr, $of:expr, $wide:expr);+) => {$(
        impl Float for $number {
            const ROUNDING: f64 = 0.5 / (1_u64 << ($digits - 1)) as f64;

            fn of(number: f64) -> Self {
                $of(number)
            }

            fn wide(self) -> f64 {
                $wide(self)
            }

            // f64 has more than twice the digits of the others, so that rounding twice is rounding
            // once (Figueroa, 1995).
            fn pairwise(op: Pairwise, left: Self, right: Self) -> Self {
                Self::of(of_wide(op, left.wide(), right.wide()))
            }
        }
    )+};
}

float!(
    f16, 11, f16::from_f64, f16::to_f64;
    bf16, 8, bf16::from_f64, bf16::to_f64;
    f32, 24, rounded, f64::from;
    f64, 53, |number| number, |number| number
);

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding is what is asked for"
)]
fn rounded(number: f64) -> f32 {
    number as f32
}

/// Numbers of many sizes, and those that are none; no result of two is too small to be normal.
const ODD: [f64; 14] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    -0.3,
    1.0 / 3.0,
    3.0,
    -7.7,
    100.25,
    -200.7,
];

fn odd<T: Float>() -> Vec<T> {
    ODD.map(T::of).to_vec()
}

fn bits<T: Float>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.bits()).collect()
}

/// Sums, differences, products and quotients of all pairs of numbers, and what has no rounding.
fn has_the_bits_of_the_host<T: Float>(one: &PjrtAccelerator) {
    let pairs = || {
        odd::<T>()
            .into_iter()
            .flat_map(|left| odd::<T>().into_iter().map(move |right| (left, right)))
    };
    let (left, right): (Vec<T>, Vec<T>) = pairs().unzip();
    for op in Pairwise::ALL {
        let (mut into, by) = (with(one, 0, &left), with(one, 0, &right));
        one.pairwise(op, &mut into, &by).unwrap();
        let expected: Vec<T> = pairs().map(|(a, b)| T::pairwise(op, a, b)).collect();
        let found = read::<T>(one, &into);
        assert_eq!(
            bits(&found),
            bits(&expected),
            "{op} of {}: {found:?}",
            T::TYPE
        );
        assert_eq!(
            bits(&read::<T>(one, &by)),
            bits(&right),
            "{op} leaves its second"
        );
    }
    let mut negated = with(one, 0, &odd::<T>());
    one.pointwise(Pointwise::Negate, &mut negated).unwrap();
    let expected = ODD.map(|value| T::of(-T::of(value).wide()));
    assert_eq!(bits(&read::<T>(one, &negated)), bits(&expected));
    let mut cut = with(one, 0, &odd::<T>());
    one.pointwise(Pointwise::Relu, &mut cut).unwrap();
    let expected = ODD.map(|value| T::of(if value <= 0.0 { 0.0 } else { value }));
    assert_eq!(bits(&read::<T>(one, &cut)), bits(&expected));
}

#[test]
fn exact_arithmetic_of_every_float_has_the_bits_of_the_host() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let one = accelerator(&plugin, 1);
    has_the_bits_of_the_host::<f16>(&one);
    has_the_bits_of_the_host::<bf16>(&one);
    has_the_bits_of_the_host::<f32>(&one);
    has_the_bits_of_the_host::<f64>(&one);
}

/// Exponentials, logarithms and products within so many roundings of what they are.
fn is_near<T: Float>(one: &PjrtAccelerator, roundings: f64) {
    let near = |what: &str, found: Vec<T>, expected: Vec<f64>| {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let apart = (found.wide() - expected).abs();
            let most = expected.abs().max(1e-3) * T::ROUNDING * roundings;
            assert!(
                apart <= most,
                "{what} of {}: {found:?}, not {expected}",
                T::TYPE
            );
        }
    };
    let numbers: Vec<T> = (1..200).map(|at| T::of(f64::from(at) * 0.05)).collect();
    for (op, exact) in [
        (Pointwise::Exp, f64::exp as fn(f64) -> f64),
        (Pointwise::Ln, f64::ln),
    ] {
        let mut values = with(one, 0, &numbers);
        one.pointwise(op, &mut values).unwrap();
        let expected = numbers.iter().map(|number| exact(number.wide())).collect();
        near(&op.to_string(), read(one, &values), expected);
    }
    let shape = ProductShape::new(5, 40, 3).unwrap();
    let matrix = |len, seed| -> Vec<T> {
        let number = |at| f64::from(u32::try_from((at * 7 + seed) % 31).unwrap()) * 0.125;
        (0..len).map(|at| T::of(number(at))).collect()
    };
    let (left, right) = (matrix(shape.left(), 1), matrix(shape.right(), 5));
    let (a, b) = (with(one, 0, &left), with(one, 0, &right));
    let mut into = with(one, 0, &vec![T::default(); shape.product()]);
    one.matmul(shape, &a, &b, &mut into).unwrap();
    let mut expected = vec![0.0; shape.product()];
    for (at, sum) in expected.iter_mut().enumerate() {
        let (row, column) = (at / 3, at % 3);
        let terms = (0..40).map(|k| left[row * 40 + k].wide() * right[k * 3 + column].wide());
        *sum = terms.sum::<f64>();
    }
    near("product", read(one, &into), expected);
}

#[test]
fn other_arithmetic_of_every_float_is_right_but_for_the_last_places() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let one = accelerator(&plugin, 1);
    // Short floats are computed in f32: all that is lost is the last rounding, and a little.
    is_near::<f16>(&one, 1.01);
    is_near::<bf16>(&one, 1.01);
    is_near::<f32>(&one, 4.0);
    is_near::<f64>(&one, 4.0);
}

#[test]
fn a_program_is_compiled_once_for_each_op_type_and_shape() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let two = accelerator(&plugin, 2);
    let compiled = || plugin.live().executables;
    let [mut a, b] = [with(&two, 0, &[1.0_f32; 6]), with(&two, 0, &[2.0_f32; 6])];
    let [mut far, far_by] = [with(&two, 1, &[1.0_f32; 6]), with(&two, 1, &[2.0_f32; 6])];
    let [mut wide, wide_by] = [with(&two, 0, &[1.0_f64; 6]), with(&two, 0, &[2.0_f64; 6])];
    let [mut long, long_by] = [with(&two, 0, &[1.0_f32; 9]), with(&two, 0, &[2.0_f32; 9])];
    let shape = ProductShape::new(2, 3, 3).unwrap();
    let before = compiled();
    for _ in 0..3 {
        two.pairwise(Pairwise::Add, &mut a, &b).unwrap();
        two.pairwise(Pairwise::Add, &mut far, &far_by).unwrap();
    }
    assert_eq!(compiled() - before, 1, "one op, on whichever device");
    two.pairwise(Pairwise::Divide, &mut a, &b).unwrap();
    two.pairwise(Pairwise::Add, &mut wide, &wide_by).unwrap();
    two.pairwise(Pairwise::Add, &mut long, &long_by).unwrap();
    assert_eq!(compiled() - before, 4, "another op, type and length");
    for _ in 0..2 {
        two.matmul(shape, &b, &long, &mut a).unwrap();
    }
    assert_eq!(compiled() - before, 5, "a shape of a product");
    assert_eq!(read::<f32>(&two, &a), [18.0; 6]);
    assert_eq!(read::<f32>(&two, &far), [7.0; 6]);
}

#[test]
fn a_buffer_may_be_combined_with_its_own_copy() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let one = accelerator(&plugin, 1);
    let (mut a, mut b) = (with(&one, 0, &[3.0_f32, 5.0]), with(&one, 0, &[0.0_f32; 2]));
    meshwork_accel::Accelerator::copy(&one, &a, 0..2, &mut b, 0).unwrap();
    one.pairwise(Pairwise::Multiply, &mut a, &b).unwrap();
    one.pointwise(Pointwise::Negate, &mut b).unwrap();
    assert_eq!(read::<f32>(&one, &a), [9.0, 25.0]);
    assert_eq!(read::<f32>(&one, &b), [-3.0, -5.0]);
}

#[test]
fn what_is_no_float_is_refused_even_where_there_is_none() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let one = accelerator(&plugin, 1);
    let mut none = with::<u16>(&one, 0, &[]);
    let (element, by) = (u16::TYPE, with::<u16>(&one, 0, &[]));
    let refused = Err(Error::UnsupportedElement { element });
    assert_eq!(one.pointwise(Pointwise::Exp, &mut none), refused);
    assert_eq!(one.pairwise(Pairwise::Add, &mut none, &by), refused);
    let shape = ProductShape::new(0, 0, 0).unwrap();
    assert_eq!(one.matmul(shape, &by, &by, &mut none), refused);
}
