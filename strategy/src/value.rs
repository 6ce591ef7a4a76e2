use meshwork_collectives::{Element, bf16, f16};

/// A number that is reduced over replicas: `f32`, `f64`, `f16`, `bf16`, `i32` or `i64`.
///
/// Other types do not compile:
///
/// ```compile_fail
/// # use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaReduceOp};
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// let flags = strategy.per_replica(|_| true);
/// strategy.reduce(ReplicaReduceOp::Sum, flags)?;
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
pub trait Value: Element + sealed::Arithmetic {}

pub(crate) mod sealed {
    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait Arithmetic: Copy + 'static {
        const IS_FLOAT: bool;

        fn plus(self, other: Self) -> Self;

        fn minus(self, other: Self) -> Self;

        /// The quotient, truncated for integers. `count` is above 0.
        fn divided(self, count: usize) -> Self;

        /// The product with the rounded `1 / count`, which can differ from the quotient in its last
        /// bit; of integers, the quotient.
        fn times_reciprocal(self, count: usize) -> Self;
    }
}

macro_rules! float {
    ($($number:ty, $through:ty, $bf16_buffers:expr);+) => {$(
        impl Value for $number {}
        impl sealed::Arithmetic for $number {
            const IS_FLOAT: bool = true;

            fn plus(self, other: Self) -> Self {
                self + other
            }

            fn minus(self, other: Self) -> Self {
                self - other
            }

            fn divided(self, count: usize) -> Self {
                // Counts of replicas and samples are far below where floats skip whole numbers.
                $bf16_buffers(<$through>::from(self) / count as $through)
            }

            fn times_reciprocal(self, count: usize) -> Self {
                $bf16_buffers(<$through>::from(self) * (1.0 / count as $through))
            }
        }
    )+};
}

float!(f32, f32, |x| x; f64, f64, |x| x; f16, f32, f16::from_f32; bf16, f32, bf16::from_f32);

macro_rules! integer {
    ($($number:ty),+) => {$(
        impl Value for $number {}
        impl sealed::Arithmetic for $number {
            const IS_FLOAT: bool = false;

            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn divided(self, count: usize) -> Self {
                Self::try_from(count).map_or(0, |count| self.wrapping_div(count))
            }

            fn times_reciprocal(self, count: usize) -> Self {
                self.divided(count)
            }
        }
    )+};
}

integer!(i32, i64);
