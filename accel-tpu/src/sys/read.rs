//! Memory that belongs to a plugin, read into our own.
#![expect(
    unsafe_code,
    reason = "what a plugin points to can only be read by address"
)]

use std::slice;

use super::pjrt::*;
use crate::{AttributeValue, Attributes, Error};

/// The `len` values at `start`; none where nothing is pointed to.
///
/// # Safety
/// Where `start` is not null it points to `len` values that live and stay as they are for `'a`.
pub(super) unsafe fn list<'a, T>(start: *const T, len: usize) -> &'a [T] {
    if start.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller says so.
    unsafe { slice::from_raw_parts(start, len) }
}

/// The text at `start`; what is no UTF-8 is replaced.
///
/// # Safety
/// As for [`list`], until this returns.
pub(super) unsafe fn text(start: *const std::ffi::c_char, len: usize) -> String {
    // SAFETY: the caller says so.
    let bytes = unsafe { list(start.cast::<u8>(), len) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// The named values at `start`, as long as the first says; a value of a kind that this crate does
/// not know is left out.
///
/// # Safety
/// As for [`list`], until this returns, and so for names and values in them.
pub(super) unsafe fn attributes(start: *const PJRT_NamedValue, len: usize) -> Attributes {
    // SAFETY: the caller says so.
    let Some(first) = unsafe { list(start, len.min(1)) }.first() else {
        return Attributes::new();
    };
    // A newer plugin has longer values, and counts what fills the last of their words up as none.
    let longer = first.struct_size.max(size_of::<PJRT_NamedValue>());
    let step = longer.next_multiple_of(align_of::<PJRT_NamedValue>());
    let known = (0..len).filter_map(|index| {
        let value = start.wrapping_byte_add(index * step);
        // SAFETY: the caller says that there are as many of this size.
        let value = unsafe { &*value };
        // SAFETY: so does the caller of names.
        let name = unsafe { text(value.name, value.name_size) };
        // SAFETY: and of values.
        unsafe { one(value) }.map(|value| (name, value))
    });
    known.collect()
}

/// # Safety
/// As for [`attributes`].
#[expect(
    non_upper_case_globals,
    reason = "constants have the names of the header"
)]
unsafe fn one(value: &PJRT_NamedValue) -> Option<AttributeValue> {
    let of = &value.__bindgen_anon_1;
    Some(match value.type_ {
        PJRT_NamedValue_kString => {
            // SAFETY: the type says which of the union it is.
            let start = unsafe { of.string_value };
            // SAFETY: the caller says so.
            AttributeValue::Text(unsafe { text(start, value.value_size) })
        }
        // SAFETY: the type says which of the union it is.
        PJRT_NamedValue_kInt64 => AttributeValue::Int(unsafe { of.int64_value }),
        PJRT_NamedValue_kInt64List => {
            // SAFETY: the type says which of the union it is.
            let start = unsafe { of.int64_array_value };
            // SAFETY: the caller says so.
            AttributeValue::Ints(unsafe { list(start, value.value_size) }.to_vec())
        }
        // SAFETY: the type says which of the union it is.
        PJRT_NamedValue_kFloat => AttributeValue::Float(unsafe { of.float_value }),
        // SAFETY: the type says which of the union it is.
        PJRT_NamedValue_kBool => AttributeValue::Bool(unsafe { of.bool_value }),
        _ => return None,
    })
}

/// Options as a plugin reads them; they point into the names and values that they were made of.
pub(super) fn options<'a>(
    values: impl IntoIterator<Item = (&'a str, &'a AttributeValue)>,
) -> Result<Vec<PJRT_NamedValue>, Error> {
    values
        .into_iter()
        .map(|(name, value)| option(name, value))
        .collect()
}

fn option(name: &str, value: &AttributeValue) -> Result<PJRT_NamedValue, Error> {
    // Sizes are given, and yet some plugins read up to a zero: a name with one would end early.
    if name.contains('\0') {
        let name = name.to_owned();
        return Err(Error::ZeroByte { name });
    }
    let (type_, union, value_size) = match value {
        AttributeValue::Text(text) => (
            PJRT_NamedValue_kString,
            PJRT_NamedValue__bindgen_ty_1 {
                string_value: text.as_ptr().cast(),
            },
            text.len(),
        ),
        AttributeValue::Int(number) => (
            PJRT_NamedValue_kInt64,
            PJRT_NamedValue__bindgen_ty_1 {
                int64_value: *number,
            },
            1,
        ),
        AttributeValue::Ints(numbers) => (
            PJRT_NamedValue_kInt64List,
            PJRT_NamedValue__bindgen_ty_1 {
                int64_array_value: numbers.as_ptr(),
            },
            numbers.len(),
        ),
        AttributeValue::Float(number) => (
            PJRT_NamedValue_kFloat,
            PJRT_NamedValue__bindgen_ty_1 {
                float_value: *number,
            },
            1,
        ),
        AttributeValue::Bool(truth) => (
            PJRT_NamedValue_kBool,
            PJRT_NamedValue__bindgen_ty_1 { bool_value: *truth },
            1,
        ),
    };
    Ok(PJRT_NamedValue {
        struct_size: PJRT_NamedValue_STRUCT_SIZE,
        extension_start: std::ptr::null_mut(),
        name: name.as_ptr().cast(),
        name_size: name.len(),
        type_,
        __bindgen_anon_1: union,
        value_size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value as a newer header may have it: a word longer, and a byte.
    #[repr(C)]
    struct Longer {
        value: PJRT_NamedValue,
        word: u64,
        byte: u8,
    }

    #[test]
    fn values_that_are_longer_than_ours_are_all_read() {
        let numbers = [
            ("first", AttributeValue::Int(7)),
            ("second", AttributeValue::Int(8)),
        ];
        let named = numbers.iter().map(|(name, value)| (*name, value));
        let longer = |value: PJRT_NamedValue| Longer {
            value: PJRT_NamedValue {
                struct_size: std::mem::offset_of!(Longer, byte) + 1,
                ..value
            },
            word: u64::MAX,
            byte: u8::MAX,
        };
        let values: Vec<Longer> = options(named).unwrap().into_iter().map(longer).collect();
        // SAFETY: there are as many values, which say how long they are.
        let read = unsafe { attributes(values.as_ptr().cast(), values.len()) };
        assert!(
            numbers
                .iter()
                .all(|(name, value)| read.get(*name) == Some(value)),
            "{read:?}"
        );
    }

    #[test]
    fn values_that_do_not_say_how_long_they_are_are_as_long_as_the_first_release_had_them() {
        let value = AttributeValue::Bool(true);
        let mut values = options([("only", &value)]).unwrap();
        values[0].struct_size = 0;
        // SAFETY: there are as many values.
        let read = unsafe { attributes(values.as_ptr(), values.len()) };
        assert_eq!(read.get("only"), Some(&value));
    }
}
