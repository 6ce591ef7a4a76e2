//! Element types: the sealed trait `Element`, its run-time tag `ElementType` with the wire codes,
//! which never change, and dispatch from the tag to the Rust type (`ElementType::run`). Conversion
//! between types is in `convert`, arithmetic in `kernel`.

use std::fmt::Debug;

use bytemuck::{CheckedBitPattern, NoUninit};

use crate::element_type::ElementType;
use crate::kernel::Kernel;
use crate::number::Convert;

/// A value that buffers hold, ranks exchange and reduce ops combine.
///
/// Sealed: an element type has one wire form (little-endian) and one meaning of every
/// [`ReduceOp`](crate::ReduceOp) on all backends, so it is added here and nowhere else.
///
/// The bytes of a slice of elements are `bytemuck::cast_slice`; bytes become elements by
/// `bytemuck::checked`, which costs nothing but for `bool`, or by writing to
/// [`bytes_mut`](Self::bytes_mut).
pub trait Element:
    NoUninit + CheckedBitPattern + PartialOrd + Debug + Default + Send + Sync + Kernel + Convert
{
    /// The type's tag on the wire and in buffers.
    const TYPE: ElementType;

    /// The memory of `values`, if any bytes may be written to it: `None` for `bool`, of whose bytes
    /// only 0 and 1 are values.
    fn bytes_mut(values: &mut [Self]) -> Option<&mut [u8]>;

    /// The values themselves where they are truth values, which [`bytes_mut`](Self::bytes_mut) has
    /// not.
    fn truth_mut(values: &mut [Self]) -> Option<&mut [bool]>;
}

/// A generic task for elements whose type is known at run time only; see [`ElementType::run`].
pub trait ElementTask {
    /// The result of the task.
    type Output;

    /// Runs the task with elements `T`.
    fn run<T: Element>(self) -> Self::Output;
}

impl ElementType {
    /// Does `task` with the Rust type that this names.
    ///
    /// ```
    /// use meshwork_accel::{Element, ElementTask, ElementType};
    ///
    /// struct Zero;
    ///
    /// impl ElementTask for Zero {
    ///     type Output = String;
    ///
    ///     fn run<T: Element>(self) -> String {
    ///         format!("{:?}", T::default())
    ///     }
    /// }
    ///
    /// assert_eq!(ElementType::F32.run(Zero), "0.0");
    /// assert_eq!(ElementType::Bool.run(Zero), "false");
    /// ```
    pub fn run<K: ElementTask>(self, task: K) -> K::Output {
        match self {
            Self::Bool => task.run::<bool>(),
            Self::I8 => task.run::<i8>(),
            Self::I16 => task.run::<i16>(),
            Self::I32 => task.run::<i32>(),
            Self::I64 => task.run::<i64>(),
            Self::U8 => task.run::<u8>(),
            Self::U16 => task.run::<u16>(),
            Self::U32 => task.run::<u32>(),
            Self::U64 => task.run::<u64>(),
            Self::F16 => task.run::<half::f16>(),
            Self::Bf16 => task.run::<half::bf16>(),
            Self::F32 => task.run::<f32>(),
            Self::F64 => task.run::<f64>(),
        }
    }
}

impl Element for bool {
    const TYPE: ElementType = ElementType::Bool;

    #[inline]
    fn bytes_mut(_: &mut [Self]) -> Option<&mut [u8]> {
        None
    }

    fn truth_mut(values: &mut [Self]) -> Option<&mut [bool]> {
        Some(values)
    }
}

macro_rules! element {
    ($($number:ty => $kind:ident),+) => {$(
        impl Element for $number {
            const TYPE: ElementType = ElementType::$kind;

            #[inline]
            fn bytes_mut(values: &mut [Self]) -> Option<&mut [u8]> {
                Some(bytemuck::cast_slice_mut(values))
            }

            fn truth_mut(_: &mut [Self]) -> Option<&mut [bool]> {
                None
            }
        }
    )+};
}

element!(i8 => I8, i16 => I16, i32 => I32, i64 => I64);
element!(u8 => U8, u16 => U16, u32 => U32, u64 => U64);
element!(half::f16 => F16, half::bf16 => Bf16, f32 => F32, f64 => F64);

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn sizes_are_those_of_the_rust_types_and_all_but_bool_take_any_bytes() {
        fn check<T: Element>() {
            assert_eq!(T::TYPE.size(), size_of::<T>(), "{}", T::TYPE);
            let mut values = [T::default(); 3];
            let bytes = T::bytes_mut(&mut values).map(|bytes| bytes.len());
            let expected = (T::TYPE != ElementType::Bool).then_some(3 * size_of::<T>());
            assert_eq!(bytes, expected, "{}", T::TYPE);
            let truth = T::truth_mut(&mut values).map(|truth| truth.len());
            assert_eq!(truth.is_some(), bytes.is_none(), "{}", T::TYPE);
        }
        check::<bool>();
        check::<i8>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<u8>();
        check::<u16>();
        check::<u32>();
        check::<u64>();
        check::<f16>();
        check::<bf16>();
        check::<f32>();
        check::<f64>();
    }
}
