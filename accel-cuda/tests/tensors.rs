//! Arithmetic on values of tensors and elements in other places: the kernels' source as host code,
//! behind the functions of a driver without a GPU, against loops over numbers and indices.

#[path = "support/buffers.rs"]
mod buffers;
#[path = "support/cc.rs"]
mod cc;
#[path = "support/fake.rs"]
mod fake;

use std::cmp::Ordering;

use buffers::{read, with};
use fake::Fake;
use meshwork_accel::{
    Arrange, Arrangement, Element, ElementTask, ElementType, Elementwise, Error, Fold, Matmul,
    Pairwise, Pointwise, ProductShape, ReduceOp, Reduction, Region, bf16, conformance, f16,
};
use meshwork_accel_cuda::CudaAccelerator;

/// A float, and the type in which it is computed with.
trait Real: Element {
    type Wide: Copy + Into<f64>;

    fn of(number: f64) -> Self;

    fn wide(self) -> Self::Wide;

    /// The op in the wide type, rounded once.
    fn pointwise(op: Pointwise, one: Self::Wide) -> Self;

    /// The product with a number, in the wide type, rounded once.
    fn scaled(one: Self::Wide, by: f32) -> Self;

    /// The same of two.
    fn pairwise(op: Pairwise, one: Self::Wide, other: Self::Wide) -> Self;
}

macro_rules! real {
    ($($number:ty, $wide:ty, $of:expr, $to:expr, $back:expr);+) => {$(
        impl Real for $number {
            type Wide = $wide;

            #[allow(clippy::cast_possible_truncation, reason = "one of the types is shorter")]
            fn of(number: f64) -> Self {
                $of(number)
            }

            fn wide(self) -> $wide {
                $to(self)
            }

            fn pointwise(op: Pointwise, one: $wide) -> Self {
                $back(match op {
                    Pointwise::Negate => -one,
                    Pointwise::Relu if one <= 0.0 => 0.0,
                    Pointwise::Relu => one,
                    Pointwise::Exp => one.exp(),
                    Pointwise::Ln => one.ln(),
                })
            }

            fn scaled(one: $wide, by: f32) -> Self {
                $back(one * <$wide>::from(by))
            }

            fn pairwise(op: Pairwise, one: $wide, other: $wide) -> Self {
                $back(match op {
                    Pairwise::Add => one + other,
                    Pairwise::Subtract => one - other,
                    Pairwise::Multiply => one * other,
                    Pairwise::Divide => one / other,
                })
            }
        }
    )+};
}

real!(
    f16, f32, f16::from_f64, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::from_f64, bf16::to_f32, bf16::from_f32;
    f32, f32, |number: f64| number as f32, |number: f32| number, |wide: f32| wide;
    f64, f64, |number: f64| number, |number: f64| number, |wide: f64| wide
);

/// Numbers of all sizes, both zeros, infinities and NaN.
fn numbers<T: Real>(seed: u64, len: usize) -> Vec<T> {
    let mut state = seed;
    let mut next = || {
        // Knuth's MMIX; the upper bits are the better ones.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let number = |_| match next() % 16 {
        0 => 0.0,
        1 => -0.0,
        2 => f64::INFINITY,
        3 => f64::NEG_INFINITY,
        4 => f64::NAN,
        5 => 1e-7,
        _ => (next() % 20_001) as f64 * 0.001 - 10.0,
    };
    (0..len).map(number).map(T::of).collect()
}

/// The same number, or one of the neighbours where the last place is not defined. Every NaN is one.
#[track_caller]
fn near<T: Real>(what: &str, found: &[T], expected: &[T], places: f64) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let wide: [f64; 2] = [found.wide().into(), expected.wide().into()];
        let last_place = match T::TYPE {
            ElementType::F16 => 2.0_f64.powi(-10),
            ElementType::Bf16 => 2.0_f64.powi(-7),
            ElementType::F32 => f64::from(f32::EPSILON),
            _ => f64::EPSILON,
        };
        let apart = (wide[0] - wide[1]).abs();
        let same = wide[0].to_bits() == wide[1].to_bits() || wide.iter().all(|one| one.is_nan());
        assert!(
            same || apart <= wide[1].abs() * last_place * places,
            "{what} of {} at {at}: {found:?} for {expected:?}",
            T::TYPE
        );
    }
}

fn arithmetic<T: Real>(cuda: &CudaAccelerator) {
    // Packs of 16 bytes, and what is left over; more than a grid has threads for would take too
    // long here.
    for len in [1, 15, 16, 17, 1000] {
        let (a, b) = (numbers::<T>(1, len), numbers::<T>(2, len));
        for op in Pointwise::ALL {
            let mut values = with(cuda, 0, &a);
            cuda.pointwise(op, &mut values).expect("floats");
            let expected: Vec<T> = a.iter().map(|one| T::pointwise(op, one.wide())).collect();
            let places = match op {
                Pointwise::Negate | Pointwise::Relu => 0.0,
                _ => 1.0,
            };
            near(
                &op.to_string(),
                &read::<T>(cuda, &values, len),
                &expected,
                places,
            );
        }
        let mut scaled = with(cuda, 0, &a);
        cuda.scale(&mut scaled, 0.3).expect("floats");
        let expected: Vec<T> = a.iter().map(|one| T::scaled(one.wide(), 0.3)).collect();
        near("scale", &read::<T>(cuda, &scaled, len), &expected, 0.0);
        for op in Pairwise::ALL {
            let mut into = with(cuda, 1, &a);
            cuda.pairwise(op, &mut into, &with(cuda, 1, &b))
                .expect("floats");
            let pairs = a.iter().zip(&b);
            let pairs = pairs.map(|(one, other)| T::pairwise(op, one.wide(), other.wide()));
            let expected: Vec<T> = pairs.collect();
            near(
                &op.to_string(),
                &read::<T>(cuda, &into, len),
                &expected,
                0.0,
            );
        }
    }
}

#[test]
fn choices_conversions_and_scans_are_those_of_the_host() {
    let fake = Fake::new();
    let cuda = fake.open();
    conformance::check_choices(&cuda);
    conformance::check_conversions(&cuda);
    drop(cuda);
    fake.is_clean();
}

#[test]
fn what_becomes_a_short_float_is_rounded_once() {
    let fake = Fake::new();
    let cuda = fake.open();
    let two = |power: i32| 2.0_f64.powi(power);
    // Nearly half way between two neighbours, by less than a float of 32 bits tells apart; from the
    // smallest to beyond the largest.
    let nearly = [1.0 + two(-11) + two(-40), 1.0 + two(-11) - two(-40)];
    let ends = [two(-25) + two(-60), two(-25), 65_519.999, 65_520.0, -1e300];
    let values = [&nearly[..], &ends].concat();
    let short = cuda.convert(&with(&cuda, 0, &values), ElementType::F16);
    let short = read::<f16>(&cuda, &short.expect("any type"), values.len());
    let expected = [1.0 + two(-10), 1.0, two(-24), 0.0, 65_504.0];
    let infinite = [f64::INFINITY, f64::NEG_INFINITY];
    assert_eq!(
        short,
        [&expected[..], &infinite]
            .concat()
            .into_iter()
            .map(f16::from_f64)
            .collect::<Vec<_>>()
    );
    let values = [
        1.0 + two(-8) + two(-40),
        1.0 + two(-8) - two(-40),
        1.0 + two(-8),
        f64::MAX,
    ];
    let short = cuda.convert(&with(&cuda, 0, &values), ElementType::Bf16);
    let expected = [1.0 + two(-7), 1.0, 1.0, f64::INFINITY].map(bf16::from_f64);
    assert_eq!(read::<bf16>(&cuda, &short.expect("any type"), 4), expected);
    let values = [1.0 + f32::EPSILON + 1.0 / 256.0];
    let short = cuda.convert(&with(&cuda, 0, &values), ElementType::Bf16);
    assert_eq!(
        read::<bf16>(&cuda, &short.expect("any type"), 1),
        expected[..1]
    );
    // A little above the middle between two neighbours, of which the nearest `f64` is that middle.
    let above = (1_i64 << 62) + (1 << 54) + 1;
    let short = cuda.convert(&with(&cuda, 0, &[above, -above]), ElementType::Bf16);
    let expected = [1.0, -1.0].map(|sign| bf16::from_f64(sign * (two(62) + two(55))));
    assert_eq!(read::<bf16>(&cuda, &short.expect("any type"), 2), expected);
    let above = [(1_u64 << 63) + (1 << 55) + 1];
    let short = cuda.convert(&with(&cuda, 0, &above), ElementType::Bf16);
    let expected = [bf16::from_f64(two(63) + two(56))];
    assert_eq!(read::<bf16>(&cuda, &short.expect("any type"), 1), expected);
}

#[test]
fn arithmetic_of_every_float_is_that_of_its_computing_type_rounded_once() {
    let fake = Fake::new();
    let cuda = fake.open();
    arithmetic::<f16>(&cuda);
    arithmetic::<bf16>(&cuda);
    arithmetic::<f32>(&cuda);
    arithmetic::<f64>(&cuda);
    drop(cuda);
    fake.is_clean();
}

/// Against sums in `f64`, of numbers that have few digits: each term is exact, and so is each sum.
fn products<T: Real>(cuda: &CudaAccelerator) {
    for (depth, sizes) in [
        (1, [1, 1, 1]),
        (1, [63, 17, 65]),
        (2, [65, 5, 3]),
        (3, [2, 33, 64]),
        (1, [129, 16, 1]),
    ] {
        let [rows, inner, columns] = sizes;
        let shape = ProductShape::stacked(depth, sizes).expect("small");
        let number = |at: usize| T::of((at * 7 % 9) as f64 - 4.0);
        let left: Vec<T> = (0..shape.left()).map(number).collect();
        let right: Vec<T> = (3..3 + shape.right()).map(number).collect();
        let mut expected = Vec::new();
        for at in 0..shape.product() {
            let (row, column) = (at / columns, at % columns);
            let terms = (0..inner).map(|k| {
                let (one, other) = (row * inner + k, (row / rows * inner + k) * columns + column);
                left[one].wide().into() * right[other].wide().into()
            });
            expected.push(T::of(terms.sum::<f64>() + 0.0));
        }
        let (left, right) = (with(cuda, 0, &left), with(cuda, 0, &right));
        let mut into = with(cuda, 0, &vec![T::of(f64::NAN); shape.product()]);
        cuda.matmul(shape, &left, &right, &mut into)
            .expect("floats");
        near(
            "products",
            &read::<T>(cuda, &into, shape.product()),
            &expected,
            0.0,
        );
    }
}

#[test]
fn products_of_every_float_are_rounded_once() {
    let fake = Fake::new();
    let cuda = fake.open();
    products::<f16>(&cuda);
    products::<bf16>(&cuda);
    products::<f32>(&cuda);
    products::<f64>(&cuda);
}

/// Elements along an axis, of any bits, or small whole numbers where floats are combined.
struct Along<'a>(&'a CudaAccelerator, [usize; 3]);

impl ElementTask for Along<'_> {
    type Output = ();

    fn run<T: Element>(self) {
        let Self(cuda, sizes) = self;
        let [outer, len, inner] = sizes;
        let bits = |at: usize| (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let value = |at: usize| {
            let one = match T::TYPE {
                ElementType::F16 => 0x3C00,
                ElementType::Bf16 => 0x3F80,
                ElementType::F32 => 0x3F80_0000,
                ElementType::F64 => 0x3FF0_0000_0000_0000,
                _ => 1,
            };
            let bits = match T::TYPE.is_float() || T::TYPE == ElementType::Bool {
                true => bits(at) % 2 * one,
                false => bits(at),
            };
            bytemuck::checked::pod_read_unaligned(&bits.to_le_bytes()[..size_of::<T>()])
        };
        let values: Vec<T> = (0..outer * len * inner).map(value).collect();
        let buffer = with(cuda, 0, &values);
        let ops = ReduceOp::ALL.into_iter();
        for op in ops.filter(|op| *op != ReduceOp::Mean && op.supports(T::TYPE)) {
            let reduction = Reduction::<T>::new(op).expect("it is supported");
            let folded = cuda.fold(op, sizes, &buffer).expect("it is supported");
            for at in 0..outer * inner {
                let term = |along: usize| values[(at / inner * len + along) * inner + at % inner];
                let sources: Vec<T> = (0..len).map(term).collect();
                let total = total(&reduction, &sources);
                let found = read::<T>(cuda, &folded, outer * inner)[at];
                assert_eq!(found, total, "{op} of {} in {sizes:?} at {at}", T::TYPE);
            }
        }
    }
}

/// As the crate has it: in the computing type, rounded once.
fn total<T: Element>(reduction: &Reduction<T>, terms: &[T]) -> T {
    let terms: Vec<&[T]> = terms.chunks(1).collect();
    let mut total = [terms[0][0]];
    reduction.fold(&mut total, &terms).expect("equal lengths");
    total[0]
}

#[test]
fn elements_along_an_axis_are_made_one_for_every_type_and_op_in_one_pass_and_in_two() {
    let fake = Fake::new();
    let cuda = fake.open();
    for element in ElementType::ALL {
        for sizes in [[3, 300, 2], [1, 1025, 1], [2, 5, 70]] {
            element.run(Along(&cuda, sizes));
        }
    }
    // Long enough for several chunks.
    for element in [
        ElementType::F16,
        ElementType::F32,
        ElementType::I8,
        ElementType::Bool,
    ] {
        element.run(Along(&cuda, [1, 40_001, 1]));
    }
    drop(cuda);
    fake.is_clean();
}

/// Extremes along an axis, of any bits and of bits of which many are equal.
struct Extremes<'a>(&'a CudaAccelerator, [usize; 3]);

impl ElementTask for Extremes<'_> {
    type Output = ();

    fn run<T: Element>(self) {
        let Self(cuda, sizes) = self;
        let [outer, len, inner] = sizes;
        for different in [u64::MAX, 5] {
            let value = |at: usize| {
                let bits = (at as u64 % different + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 13;
                bytemuck::checked::pod_read_unaligned(&bits.to_le_bytes()[..size_of::<T>()])
            };
            let values: Vec<T> = (0..outer * len * inner).map(value).collect();
            let buffer = with(cuda, 0, &values);
            for (op, wanted) in [
                (ReduceOp::Min, Ordering::Less),
                (ReduceOp::Max, Ordering::Greater),
            ] {
                let found = cuda.arg_reduce(op, sizes, &buffer).expect("an order");
                let found = read::<i64>(cuda, &found, outer * inner);
                for (at, found) in found.into_iter().enumerate() {
                    let term = |along: i64| {
                        let along = usize::try_from(along).expect("an index");
                        values[(at / inner * len + along) * inner + at % inner]
                    };
                    let mut best = 0;
                    for along in 0..i64::try_from(len).expect("short") {
                        if term(along).partial_cmp(&term(best)) == Some(wanted) {
                            best = along;
                        }
                    }
                    assert_eq!(found, best, "{op} of {} in {sizes:?} at {at}", T::TYPE);
                }
            }
        }
    }
}

#[test]
fn the_first_extreme_along_an_axis_is_found_for_every_number_in_one_pass_and_in_two() {
    let fake = Fake::new();
    let cuda = fake.open();
    let ordered = ElementType::ALL.into_iter();
    for element in ordered.filter(|element| *element != ElementType::Bool) {
        for sizes in [[3, 300, 2], [1, 1025, 1], [2, 5, 70], [1, 40_001, 1]] {
            element.run(Extremes(&cuda, sizes));
        }
    }
    // Far from each other, in the last chunk and in the first.
    let mut values = vec![0.0_f32; 40_001];
    values[40_000] = 7.0;
    let found = |values: &[f32]| {
        let found = cuda.arg_reduce(ReduceOp::Max, [1, 40_001, 1], &with(&cuda, 0, values));
        read::<i64>(&cuda, &found.expect("floats"), 1)[0]
    };
    assert_eq!(found(&values), 40_000);
    values[3] = f32::NAN;
    assert_eq!(found(&values), 40_000);
    values[0] = f32::NAN;
    assert_eq!(found(&values), 0);
    drop(cuda);
    fake.is_clean();
}

#[test]
fn long_sums_of_short_floats_do_not_stop_where_their_own_sums_would() {
    let fake = Fake::new();
    let cuda = fake.open();
    // In f16 or bf16, a sum of ones ends at 2048 or 256.
    let ones = with(&cuda, 0, &vec![bf16::ONE; 40_000]);
    let sum = cuda.fold(ReduceOp::Sum, [1, 40_000, 1], &ones);
    let sum = read::<bf16>(&cuda, &sum.expect("numbers"), 1);
    assert_eq!(sum, [bf16::from_f32(40_000.0)]);
}

/// Every width that moves, and boxes that begin where it does not fit.
struct Boxes<'a>(&'a CudaAccelerator);

impl ElementTask for Boxes<'_> {
    type Output = ();

    fn run<T: Element>(self) {
        let Self(cuda) = self;
        let value = |at: usize| {
            let bits = match T::TYPE {
                ElementType::Bool => at as u64 & 1,
                _ => (at as u64 + 1).wrapping_mul(0x0123_4567_89AB_CDEF),
            };
            bytemuck::checked::pod_read_unaligned(&bits.to_le_bytes()[..size_of::<T>()])
        };
        let values: Vec<T> = (0..6 * 5 * 32).map(value).collect();
        let whole = with(cuda, 1, &values);
        for part in [
            [0..6, 0..5, 0..32],
            [1..4, 0..5, 16..32],
            [0..6, 2..3, 8..24],
            [2..6, 1..4, 3..19],
            [5..6, 4..5, 31..32],
        ] {
            let region = Region::new(&[6, 5, 32], &part).expect("inside");
            let inside = |at: &usize| {
                let index = [at / 160, at / 32 % 5, at % 32];
                part.iter()
                    .zip(index)
                    .all(|(range, at)| range.contains(&at))
            };
            let chosen: Vec<usize> = (0..values.len()).filter(inside).collect();
            let cut = cuda.cut(&whole, &region).expect("it fits");
            let expected: Vec<T> = chosen.iter().map(|at| values[*at]).collect();
            same(&read(cuda, &cut, chosen.len()), &expected);
            let mut into = with(cuda, 1, &vec![T::default(); values.len()]);
            cuda.paste(&cut, &mut into, &region).expect("it fits");
            let pasted = values.iter().enumerate();
            let pasted = pasted.map(|(at, value)| if inside(&at) { *value } else { T::default() });
            same(
                &read(cuda, &into, values.len()),
                &pasted.collect::<Vec<_>>(),
            );
        }
        let turned = Arrangement::new(&[30, 32], &[1, 0], &[32, 30]).expect("it fits");
        let columns = cuda.arrange(&whole, &turned).expect("it fits");
        let expected: Vec<T> = (0..960).map(|at| values[at % 30 * 32 + at / 30]).collect();
        same(&read(cuda, &columns, 960), &expected);
    }
}

#[track_caller]
fn same<T: Element>(found: &[T], expected: &[T]) {
    let bytes = |values: &[T]| bytemuck::cast_slice::<T, u8>(values).to_vec();
    assert!(bytes(found) == bytes(expected), "{}", T::TYPE);
}

#[test]
fn elements_of_every_type_go_where_their_indices_say_however_many_bytes_move_at_once() {
    let fake = Fake::new();
    let cuda = fake.open();
    for element in ElementType::ALL {
        element.run(Boxes(&cuda));
    }
    drop(cuda);
    fake.is_clean();
}

#[test]
fn sizes_that_cannot_be_counted_and_a_mean_are_refused() {
    let fake = Fake::new();
    let cuda = fake.open();
    let four = with(&cuda, 0, &[1.0_f32; 4]);
    let huge = cuda.fold(ReduceOp::Sum, [usize::MAX, 2, 2], &four);
    let (rows, columns) = (usize::MAX, 2);
    assert_eq!(huge.err(), Some(Error::ShapeTooLarge { rows, columns }));
    let (op, element) = (ReduceOp::Mean, ElementType::F32);
    let mean = cuda.fold(op, [1, 4, 1], &four);
    assert_eq!(mean.err(), Some(Error::UnsupportedOp { op, element }));
    let reversed: Vec<usize> = (0..17).rev().collect();
    let many = Arrangement::new(&[2; 17], &reversed, &[2; 17]).expect("it fits");
    let values = with(&cuda, 0, &vec![1_u8; 1 << 17]);
    let (axes, most) = (17, 16);
    let refused = cuda.arrange(&values, &many).err();
    assert_eq!(refused, Some(Error::TooManyAxes { axes, most }));
}

#[test]
fn products_go_by_the_library_that_takes_matrices_by_columns() {
    let fake = Fake::with_cublas_and(&[]);
    let cuda = fake.open();
    assert_eq!(cuda.matmul_library(), Ok("cuBLAS 13.0.2".to_owned()));
    products::<f16>(&cuda);
    products::<bf16>(&cuda);
    products::<f32>(&cuda);
    products::<f64>(&cuda);
    // Five products of each type, by the handle of one device.
    assert_eq!(fake.products(), (1, 20));
    conformance::check_compute(&cuda);
    assert_eq!(fake.products().0, 2);
    drop(cuda);
    assert_eq!(fake.products().0, 0);
    fake.is_clean();
}

#[test]
fn what_the_library_does_not_have_on_a_gpu_a_kernel_multiplies() {
    let fake = Fake::with_cublas_and(&["WITHOUT_BF16"]);
    let cuda = fake.open();
    products::<bf16>(&cuda);
    assert_eq!(fake.products(), (1, 0));
    products::<f32>(&cuda);
    assert_eq!(fake.products(), (1, 5));
}

#[test]
fn a_library_that_the_driver_is_too_old_for_is_named_with_both_versions() {
    let fake = Fake::with_cublas_and(&["TOO_NEW"]);
    let cuda = fake.open();
    let one = with(&cuda, 0, &[1.0_f32]);
    let shape = ProductShape::new(1, 1, 1).expect("small");
    let mut into = with(&cuda, 0, &[0.0_f32]);
    let refused = cuda
        .matmul(shape, &one, &one, &mut into)
        .expect_err("it is");
    let text = refused.to_string();
    for part in [
        "cublasCreate",
        "not initialized",
        "cuBLAS 13.0.2",
        "CUDA 13.0",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
