//! What stands in the files.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use meshwork_accel::ElementType;
use meshwork_layout::Ranges;
use ndarray::ArrayViewD;
use safetensors::tensor::{Dtype, Metadata, TensorView};
use serde_json::{Value, json};

use super::chunks;
use crate::{Error, Scalar};

/// A tensor, without its elements.
#[derive(Clone, Debug)]
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub struct TensorInfo {
    pub(super) shape: Vec<usize>,
    pub(super) element: ElementType,
}

/// A block that is to be written.
#[derive(Debug)]
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub struct Stored {
    name: String,
    element: ElementType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stored {
    pub(super) fn of<T: Scalar>(name: &str, held: &Ranges, block: &ArrayViewD<'_, T>) -> Self {
        let elements: Vec<T> = block.iter().copied().collect();
        let ranges = held
            .iter()
            .map(|range| format!("{}:{}", range.start, range.end));
        Self {
            name: format!("{name}@{}", ranges.collect::<Vec<_>>().join(",")),
            element: T::TYPE,
            shape: block.shape().to_vec(),
            bytes: bytemuck::cast_slice(&elements).to_vec(),
        }
    }
}

/// The tensors that all files have together.
#[derive(Debug, Default)]
pub(super) struct Tensors(BTreeMap<String, TensorInfo>);

impl Tensors {
    pub(super) fn add(&mut self, name: &str, described: TensorInfo) {
        self.0.insert(name.to_owned(), described);
    }

    pub(super) fn described(&self, name: &str) -> Option<&TensorInfo> {
        self.0.get(name)
    }

    /// The bytes of the index.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let tensor = |(name, described): (&String, &TensorInfo)| {
            let form = json!({"shape": described.shape, "element": described.element.to_string()});
            (name.clone(), form)
        };
        let tensors: serde_json::Map<String, Value> = self.0.iter().map(tensor).collect();
        json!({"tensors": tensors}).to_string().into_bytes()
    }

    /// The inverse of [`to_bytes`](Self::to_bytes), whatever the bytes are.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let tensor = |(name, form): (&String, &Value)| {
            let size = |size: &Value| usize::try_from(size.as_u64()?).ok();
            let shape = form.get("shape")?.as_array()?.iter().map(size);
            let named = |element: &ElementType| form["element"] == element.to_string();
            let described = TensorInfo {
                shape: shape.collect::<Option<_>>()?,
                element: ElementType::ALL.into_iter().find(named)?,
            };
            Some((name.clone(), described))
        };
        let tensors = value.get("tensors")?.as_object()?.iter().map(tensor);
        Some(Self(tensors.collect::<Option<_>>()?))
    }
}

impl TensorInfo {
    /// Whether files of this many bytes can have all of its elements, and memory all of its
    /// indices.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        let sizes = self.shape.iter().map(|size| (*size).max(1));
        let mut all = std::iter::once(self.element.size()).chain(sizes);
        let product = all.try_fold(1, usize::checked_mul);
        let most = match self.shape.contains(&0) {
            true => isize::MAX.unsigned_abs() as u64,
            false => bytes,
        };
        product.is_some_and(|product| product as u64 <= most)
    }

    fn holds(&self, held: &Ranges) -> bool {
        let within = |(range, size): (&Range<usize>, &usize)| range.end <= *size;
        held.len() == self.shape.len() && held.iter().zip(&self.shape).all(within)
    }
}

/// A block in a file.
#[derive(Debug)]
pub(super) struct Entry {
    /// The tensor, and which of its elements.
    pub(super) block: String,
    pub(super) held: Ranges,
    /// Where its elements are, in bytes from the start of the file.
    pub(super) bytes: Range<u64>,
    pub(super) element: ElementType,
    /// Of each chunk of them.
    pub(super) hashes: Vec<u64>,
}

/// The blocks of a tensor in a file of `length` bytes, by its head; none at all if one of them is
/// in no right form.
pub(super) fn entries(
    head: &[u8],
    length: u64,
    name: &str,
    described: &TensorInfo,
) -> Option<Vec<Entry>> {
    let metadata = metadata(head)?;
    let all = metadata.tensors();
    let of_tensor = all.keys().filter_map(|block| {
        let (tensor, ranges) = block.rsplit_once('@')?;
        (tensor == name).then_some((block, ranges))
    });
    let entry = |(block, ranges): (&String, &str)| {
        let info = all.get(block)?;
        let stated = metadata.metadata().as_ref()?.get(block)?;
        let place = |offset: usize| (head.len() as u64).checked_add(offset as u64);
        let (start, end) = info.data_offsets;
        let entry = Entry {
            block: block.clone(),
            held: ranges_of(ranges)?,
            bytes: place(start)?..place(end)?,
            element: element_of(info.dtype)?,
            hashes: chunks::hashes_of(stated)?,
        };
        let bytes = end.checked_sub(start)?;
        let is_whole = described.holds(&entry.held)
            && described.element == entry.element
            && entry.len() == Some(bytes)
            && entry.bytes.end <= length
            && entry.hashes.len() == bytes.div_ceil(chunks::CHUNK);
        is_whole.then_some(entry)
    };
    of_tensor.map(entry).collect()
}

impl Entry {
    /// Bytes of its elements.
    fn len(&self) -> Option<usize> {
        let sizes = self.held.iter().map(ExactSizeIterator::len);
        let mut all = std::iter::once(self.element.size()).chain(sizes);
        all.try_fold(1, usize::checked_mul)
    }
}

fn metadata(head: &[u8]) -> Option<Metadata> {
    let (length, header) = head.split_first_chunk::<8>()?;
    match u64::from_le_bytes(*length) == header.len() as u64 {
        true => serde_json::from_slice(header).ok(),
        false => None,
    }
}

fn ranges_of(text: &str) -> Option<Ranges> {
    let axes = text.split(',').filter(|axis| !axis.is_empty());
    let range = |axis: &str| {
        let (start, end) = axis.split_once(':')?;
        let (start, end) = (start.parse().ok()?, end.parse().ok()?);
        (start <= end).then_some(start..end)
    };
    axes.map(range).collect()
}

/// The file of the blocks of one client, and the length of its head. In the head are hashes of the
/// rest.
pub(super) fn to_bytes(stored: &[Stored]) -> Option<(Vec<u8>, usize)> {
    let mut views = Vec::new();
    let mut hashes = HashMap::new();
    for block in stored {
        let view = TensorView::new(dtype_of(block.element)?, block.shape.clone(), &block.bytes);
        views.push((block.name.as_str(), view.ok()?));
        hashes.insert(block.name.clone(), chunks::text_of(&block.bytes));
    }
    // Of no tensors with metadata, even if there is none of it, safetensors 0.8 makes what it
    // cannot read.
    let hashes = (!hashes.is_empty()).then_some(hashes);
    let bytes = safetensors::serialize(views, hashes).ok()?;
    let length = u64::from_le_bytes(*bytes.first_chunk()?);
    let head = usize::try_from(length).ok()?.checked_add(8)?;
    Some((bytes, head))
}

fn dtype_of(element: ElementType) -> Option<Dtype> {
    let known = TYPES.iter().find(|(known, _)| *known == element);
    known.map(|(_, dtype)| *dtype)
}

fn element_of(dtype: Dtype) -> Option<ElementType> {
    let known = TYPES.iter().find(|(_, known)| *known == dtype);
    known.map(|(element, _)| *element)
}

const TYPES: [(ElementType, Dtype); 13] = [
    (ElementType::Bool, Dtype::BOOL),
    (ElementType::I8, Dtype::I8),
    (ElementType::I16, Dtype::I16),
    (ElementType::I32, Dtype::I32),
    (ElementType::I64, Dtype::I64),
    (ElementType::U8, Dtype::U8),
    (ElementType::U16, Dtype::U16),
    (ElementType::U32, Dtype::U32),
    (ElementType::U64, Dtype::U64),
    (ElementType::F16, Dtype::F16),
    (ElementType::Bf16, Dtype::BF16),
    (ElementType::F32, Dtype::F32),
    (ElementType::F64, Dtype::F64),
];

/// Decodes an index, or the head of a file.
pub(super) fn decode(bytes: &[u8]) {
    if let Some(tensors) = Tensors::from_bytes(bytes) {
        assert!(Tensors::from_bytes(&tensors.to_bytes()).is_some());
        let _ = tensors.0.values().all(|described| described.fits(1 << 20));
    }
    let described = TensorInfo {
        shape: vec![4, 2],
        element: ElementType::F32,
    };
    let _ = entries(bytes, 1 << 20, "t", &described);
}

pub(super) fn misshapen(path: &Path) -> Error {
    Error::FileForm {
        path: path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_blocks_has_a_file_without_blocks() {
        let (bytes, head) = to_bytes(&[]).unwrap();
        let described = TensorInfo {
            shape: vec![4, 2],
            element: ElementType::F32,
        };
        let found = entries(&bytes[..head], bytes.len() as u64, "t", &described);
        let text = String::from_utf8_lossy(&bytes[8..]);
        assert!(found.is_some_and(|found| found.is_empty()), "{text}");
    }
}
