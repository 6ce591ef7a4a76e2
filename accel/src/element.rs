//! Element types: the sealed trait `Element`, its run-time tag `ElementType` with the wire codes,
//! which never change, and dispatch from the tag to the Rust type (`by_type!`, `ElementType::run`).
//! Conversion between types is in `convert`, arithmetic in `kernel`.

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

/// Evaluates an expression with a name for the Rust type that an [`ElementType`] stands for: in the
/// place of [`ElementType::run`] where an [`ElementTask`] would only carry arguments to a function.
///
/// ```
/// use meshwork_accel::{Element, ElementType, by_type};
///
/// fn zeros<T: Element>(len: usize) -> String {
///     format!("{:?}", vec![T::default(); len])
/// }
///
/// assert_eq!(by_type!(ElementType::F32, T, zeros::<T>(2)), "[0.0, 0.0]");
/// assert_eq!(by_type!(ElementType::Bool, T, zeros::<T>(1)), "[false]");
/// ```
#[macro_export]
macro_rules! by_type {
    ($element:expr, $T:ident, $result:expr) => {
        $crate::by_type!(@complete $element, $T, $result, _ => unreachable!("all are above"))
    };
    // Other crates need a last arm; without one this crate compiles only if all types are there.
    (@complete $element:expr, $T:ident, $result:expr $(, $other:pat => $never:expr)?) => {
        match $element {
            $crate::ElementType::Bool => { type $T = bool; $result }
            $crate::ElementType::I8 => { type $T = i8; $result }
            $crate::ElementType::I16 => { type $T = i16; $result }
            $crate::ElementType::I32 => { type $T = i32; $result }
            $crate::ElementType::I64 => { type $T = i64; $result }
            $crate::ElementType::U8 => { type $T = u8; $result }
            $crate::ElementType::U16 => { type $T = u16; $result }
            $crate::ElementType::U32 => { type $T = u32; $result }
            $crate::ElementType::U64 => { type $T = u64; $result }
            $crate::ElementType::F16 => { type $T = $crate::f16; $result }
            $crate::ElementType::Bf16 => { type $T = $crate::bf16; $result }
            $crate::ElementType::F32 => { type $T = f32; $result }
            $crate::ElementType::F64 => { type $T = f64; $result }
            $(
                #[allow(unreachable_patterns, reason = "this crate sees that all are above")]
                $other => $never,
            )?
        }
    };
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
        by_type!(@complete self, T, task.run::<T>())
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
    use super::*;

    #[test]
    fn sizes_are_those_of_the_rust_types_and_all_but_bool_take_any_bytes() {
        fn check<T: Element>(element: ElementType) {
            assert_eq!(T::TYPE, element);
            assert_eq!(element.size(), size_of::<T>(), "{element}");
            let mut values = [T::default(); 3];
            let bytes = T::bytes_mut(&mut values).map(|bytes| bytes.len());
            let expected = (element != ElementType::Bool).then_some(3 * size_of::<T>());
            assert_eq!(bytes, expected, "{element}");
            let truth = T::truth_mut(&mut values).map(|truth| truth.len());
            assert_eq!(truth.is_some(), bytes.is_none(), "{element}");
        }
        for element in ElementType::ALL {
            by_type!(element, T, check::<T>(element));
        }
    }
}
