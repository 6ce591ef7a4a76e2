//! Tensors as they are recorded, which are nested lists.

use serde_json::Value;

/// The lengths of nested lists; empty ones have no more dimensions than can be seen.
pub(crate) fn shape(value: &Value) -> Vec<usize> {
    let mut shape = Vec::new();
    let mut inside = value;
    while let Some(list) = inside.as_array() {
        shape.push(list.len());
        inside = list.first().unwrap_or(&Value::Null);
    }
    shape
}

/// All numbers in order, truths as 0 and 1; none if something is neither.
pub(crate) fn numbers(value: &Value) -> Option<Vec<f64>> {
    match value {
        Value::Array(list) => {
            let parts: Option<Vec<_>> = list.iter().map(numbers).collect();
            Some(parts?.concat())
        }
        Value::Bool(truth) => Some(vec![f64::from(u8::from(*truth))]),
        number => Some(vec![number.as_f64()?]),
    }
}
