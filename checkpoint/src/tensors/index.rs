//! Which tensors the files of a generation have together.

use std::collections::BTreeMap;
use std::ops::Range;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use super::block::byte_count;
use super::head::METADATA;
use crate::Error;

/// A tensor, without its elements.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TensorInfo {
    dtype: Dtype,
    shape: Vec<usize>,
}

/// The tensors that all files of a generation have together.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TensorIndex {
    step: Option<u64>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl TensorInfo {
    /// One with elements of this type, and axes of these sizes.
    #[must_use]
    pub fn new(dtype: Dtype, shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        Self { dtype, shape }
    }

    /// Those that the first bytes of a safetensors file tell of, whoever wrote it, by name; `None`
    /// if they are none.
    #[must_use]
    pub fn of_file(bytes: &[u8]) -> Option<BTreeMap<String, Self>> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).ok()?;
        let all = metadata.tensors().into_iter();
        let tensor = all.map(|(name, info)| (name, Self::new(info.dtype, info.shape.as_slice())));
        Some(tensor.collect())
    }

    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The size of each axis.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The indices of all of its elements.
    #[must_use]
    pub fn region(&self) -> Vec<Range<usize>> {
        self.shape.iter().map(|size| 0..*size).collect()
    }

    /// Whether files of this many bytes can have all of its elements, and memory all of its
    /// indices.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        let nonempty: Vec<_> = self.shape.iter().map(|size| 0..(*size).max(1)).collect();
        let most = match self.shape.contains(&0) {
            true => isize::MAX.unsigned_abs() as u64,
            false => bytes,
        };
        byte_count(self.dtype, &nonempty).is_some_and(|count| count as u64 <= most)
    }

    pub(super) fn contains(&self, region: &[Range<usize>]) -> bool {
        let within = |(range, size): (&Range<usize>, &usize)| range.end <= *size;
        region.len() == self.shape.len() && region.iter().zip(&self.shape).all(within)
    }
}

impl TensorIndex {
    /// The same, saved at this step of a training.
    #[must_use]
    pub fn with_step(self, step: u64) -> Self {
        let step = Some(step);
        Self { step, ..self }
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// [`Error::TensorName`], [`Error::TensorTwice`].
    pub fn insert(&mut self, name: &str, tensor: TensorInfo) -> Result<(), Error> {
        if name == METADATA {
            return Err(Error::TensorName {
                name: name.to_owned(),
            });
        }
        match self.tensors.insert(name.to_owned(), tensor) {
            None => Ok(()),
            Some(_) => Err(Error::TensorTwice {
                name: name.to_owned(),
            }),
        }
    }

    /// The step at which they were saved, if they are of a training that counts.
    #[must_use]
    pub fn step(&self) -> Option<u64> {
        self.step
    }

    /// The tensor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// All names, in their order, and what belongs to them.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The bytes that an index has as its writer's own data: JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let tensor = |(name, tensor): (&String, &TensorInfo)| {
            let form = json!({"shape": tensor.shape, "element": name_of(tensor.dtype)});
            (name.clone(), form)
        };
        let tensors: Map<String, Value> = self.tensors.iter().map(tensor).collect();
        let body = match self.step {
            Some(step) => json!({"step": step, "tensors": tensors}),
            None => json!({"tensors": tensors}),
        };
        body.to_string().into_bytes()
    }

    /// The inverse of [`to_bytes`](Self::to_bytes), whatever the bytes are; `None` for what is
    /// none of tensors.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(bytes).ok()?;
        let step = match body.get("step") {
            Some(step) => Some(step.as_u64()?),
            None => None,
        };
        let tensor = |(name, form): (&String, &Value)| {
            let size = |size: &Value| usize::try_from(size.as_u64()?).ok();
            let shape = form.get("shape")?.as_array()?.iter().map(size);
            let dtype = dtype_of(form.get("element")?.as_str()?)?;
            let shape = shape.collect::<Option<Vec<_>>>()?;
            Some((name.clone(), TensorInfo::new(dtype, shape)))
        };
        let tensors = body.get("tensors")?.as_object()?.iter().map(tensor);
        let tensors = tensors.collect::<Option<_>>()?;
        Some(Self { step, tensors })
    }
}

/// As Rust calls it, where it has a name for it.
pub(super) fn name_of(dtype: Dtype) -> String {
    format!("{dtype:?}").to_lowercase()
}

fn dtype_of(name: &str) -> Option<Dtype> {
    serde_json::from_value(Value::String(name.to_uppercase())).ok()
}
