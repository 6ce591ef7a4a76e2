//! The head of a safetensors file.

use std::collections::BTreeMap;

use safetensors::tensor::TensorInfo;
use serde_json::{Value, json};

/// The length of what follows, and JSON that is the same each time.
pub(super) fn head_of(
    tensors: &[(String, TensorInfo)],
    metadata: &BTreeMap<&str, String>,
) -> Vec<u8> {
    let mut head: BTreeMap<&str, Value> = tensors
        .iter()
        .map(|(name, info)| (name.as_str(), json!(info)))
        .collect();
    // Of no tensors, safetensors 0.8 reads no metadata.
    if !tensors.is_empty() && !metadata.is_empty() {
        head.insert(METADATA, json!(metadata));
    }
    let mut json = json!(head).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(ALIGNMENT), b' ');
    let mut head = (json.len() as u64).to_le_bytes().to_vec();
    head.extend(json);
    head
}

/// Of the data in a file, as the format asks.
const ALIGNMENT: usize = 8;

/// The name that the format has for what is no tensor.
pub(super) const METADATA: &str = "__metadata__";
