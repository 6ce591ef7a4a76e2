//! Recorded numbers as arrays of their type, and arrays as they were recorded.

use meshwork_collectives::{bf16, f16};
use meshwork_strategy::Value as Number;
use ndarray::ArrayD;
use serde_json::{Value, json};

use crate::lists::shape;

/// A number type under the name that TensorFlow gives it.
pub(super) trait Named: Number {
    const NAME: &'static str;

    fn from_f64(value: f64) -> Self;

    fn to_f64(self) -> f64;
}

macro_rules! named {
    ($($number:ty, $name:literal, $from:expr, $to:expr);+) => {$(
        impl Named for $number {
            const NAME: &'static str = $name;

            #[expect(clippy::cast_possible_truncation, reason = "recorded as this type")]
            fn from_f64(value: f64) -> Self {
                $from(value)
            }

            fn to_f64(self) -> f64 {
                $to(self)
            }
        }
    )+};
}

named!(
    f32, "float32", |x: f64| x as f32, f64::from;
    i32, "int32", |x: f64| x as i32, f64::from;
    i64, "int64", |x: f64| x as i64, |x: i64| x as f64
);

macro_rules! exact {
    ($($number:ty, $name:literal, $from:expr, $to:expr);+) => {$(
        impl Named for $number {
            const NAME: &'static str = $name;

            fn from_f64(value: f64) -> Self {
                $from(value)
            }

            fn to_f64(self) -> f64 {
                $to(self)
            }
        }
    )+};
}

exact!(
    f64, "float64", |x| x, |x| x;
    f16, "float16", f16::from_f64, |x: f16| x.to_f64();
    bf16, "bfloat16", bf16::from_f64, |x: bf16| x.to_f64()
);

/// Calls a generic function with the type of a name; `None` for a type that is not reduced.
macro_rules! with_type {
    ($name:expr, $function:ident($($argument:expr),*)) => {
        match $name {
            "float32" => Some($function::<f32>($($argument),*)),
            "float64" => Some($function::<f64>($($argument),*)),
            "float16" => Some($function::<meshwork_collectives::f16>($($argument),*)),
            "bfloat16" => Some($function::<meshwork_collectives::bf16>($($argument),*)),
            "int32" => Some($function::<i32>($($argument),*)),
            "int64" => Some($function::<i64>($($argument),*)),
            _ => None,
        }
    };
}
pub(super) use with_type;

/// Nested lists as an array.
pub(super) fn array<T: Named>(value: &Value) -> ArrayD<T> {
    let elements = flat(value).into_iter().map(T::from_f64).collect();
    ArrayD::from_shape_vec(shape(value), elements).expect("lists of equal length")
}

/// All numbers in order.
pub(super) fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(flat).collect(),
        Value::String(text) => vec![text.to_ascii_lowercase().parse().unwrap_or(f64::NAN)],
        number => vec![number.as_f64().unwrap_or(f64::NAN)],
    }
}

/// Type, shape and value, as they are recorded.
pub(super) fn typed<T: Named>(array: &ArrayD<T>) -> Value {
    json!({"dtype": T::NAME, "shape": array.shape(), "value": nested(array)})
}

/// Nested lists.
pub(super) fn nested<T: Named>(array: &ArrayD<T>) -> Value {
    if array.ndim() == 0 {
        let value = array.first().map_or(f64::NAN, |value| value.to_f64());
        return if value.is_nan() {
            json!("NaN")
        } else {
            json!(value)
        };
    }
    let rows = array.outer_iter();
    rows.map(|row| nested(&row.to_owned())).collect()
}

/// Equal, with 5 and 5.0, and all texts for what is no number, the same.
pub(super) fn same(recorded: &Value, ours: &Value) -> bool {
    match (recorded, ours) {
        (Value::Number(recorded), Value::Number(ours)) => recorded.as_f64() == ours.as_f64(),
        (Value::String(recorded), Value::String(ours)) => recorded.eq_ignore_ascii_case(ours),
        // The mean of nothing was recorded without its type.
        (Value::String(_), Value::Object(ours)) => same(recorded, &ours["value"]),
        (Value::Object(recorded), Value::Object(ours)) => {
            let met = |(name, value): (&String, &Value)| {
                ours.get(name).is_some_and(|ours| same(value, ours))
            };
            recorded.len() == ours.len() && recorded.iter().all(met)
        }
        (Value::Array(recorded), Value::Array(ours)) => {
            let pairs = || recorded.iter().zip(ours);
            recorded.len() == ours.len() && pairs().all(|(value, ours)| same(value, ours))
        }
        _ => recorded == ours,
    }
}

/// Big-endian bits of floats, one after the other.
pub(super) fn from_bits(hex: &str) -> Vec<f32> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok();
    let words = (0..hex.len()).step_by(8).filter_map(word);
    words.map(f32::from_bits).collect()
}

/// The inverse of [`from_bits`].
pub(super) fn to_bits(values: &[f32]) -> String {
    values
        .iter()
        .map(|value| format!("{:08x}", value.to_bits()))
        .collect()
}
