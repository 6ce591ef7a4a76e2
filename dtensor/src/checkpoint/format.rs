//! What stands in the files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use meshwork_accel::ElementType;
use meshwork_layout::Ranges;
use ndarray::ArrayViewD;
use safetensors::tensor::{Dtype, Metadata, TensorView};
use serde_json::{Value, json};

use super::index_path;
use crate::{Error, Scalar};

/// A tensor, without its elements.
#[derive(Clone, Debug)]
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub struct Described {
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

/// Which files there are, and which tensors.
#[derive(Debug)]
pub(super) struct Index {
    clients: u32,
    tensors: BTreeMap<String, Described>,
}

impl Index {
    pub(super) fn new(clients: u32) -> Self {
        Self {
            clients,
            tensors: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, name: &str, described: &Described) {
        self.tensors.insert(name.to_owned(), described.clone());
    }

    /// The file of a client's blocks.
    pub(super) fn file(&self, prefix: &Path, client: u32) -> PathBuf {
        let mut path = prefix.as_os_str().to_owned();
        path.push(format!("-{client:05}-of-{:05}.safetensors", self.clients));
        path.into()
    }

    pub(super) fn files(&self, prefix: &Path) -> impl Iterator<Item = PathBuf> {
        (0..self.clients).map(|client| self.file(prefix, client))
    }

    pub(super) fn described(&self, name: &str) -> Option<&Described> {
        self.tensors.get(name)
    }

    /// Written beside its place and moved there, so that nobody reads half of it.
    pub(super) fn write(&self, prefix: &Path) -> Result<(), Error> {
        let tensor = |(name, described): (&String, &Described)| {
            let form = json!({"shape": described.shape, "element": described.element.to_string()});
            (name.clone(), form)
        };
        let tensors: serde_json::Map<String, Value> = self.tensors.iter().map(tensor).collect();
        let text = json!({"version": VERSION, "clients": self.clients, "tensors": tensors});
        let path = index_path(prefix);
        let mut beside = path.clone().into_os_string();
        beside.push(".new");
        fs::write(&beside, text.to_string()).map_err(failed(&path))?;
        fs::rename(&beside, &path).map_err(failed(&path))
    }

    pub(super) fn read(prefix: &Path) -> Result<Self, Error> {
        let path = index_path(prefix);
        let text = fs::read_to_string(&path).map_err(failed(&path))?;
        let value: Value = serde_json::from_str(&text).map_err(|_| misshapen(&path))?;
        Self::of_value(&value).ok_or_else(|| misshapen(&path))
    }

    fn of_value(value: &Value) -> Option<Self> {
        if value["version"] != VERSION {
            return None;
        }
        let clients = u32::try_from(value["clients"].as_u64()?).ok()?;
        let tensor = |(name, form): (&String, &Value)| {
            let size = |size: &Value| usize::try_from(size.as_u64()?).ok();
            let shape = form["shape"].as_array()?.iter().map(size);
            let named = |element: &ElementType| form["element"] == element.to_string();
            let described = Described {
                shape: shape.collect::<Option<_>>()?,
                element: ElementType::ALL.into_iter().find(named)?,
            };
            Some((name.clone(), described))
        };
        let tensors = value["tensors"].as_object()?.iter().map(tensor);
        Some(Self {
            clients,
            tensors: tensors.collect::<Option<_>>()?,
        })
    }
}

/// A block in a file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) held: Ranges,
    /// Where its elements are, in bytes from the start of the file.
    pub(super) bytes: Range<u64>,
    pub(super) element: ElementType,
}

/// The blocks of a tensor in a file.
pub(super) fn entries(path: &Path, name: &str) -> Result<Vec<Entry>, Error> {
    let mut file = File::open(path).map_err(failed(path))?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(failed(path))?;
    let length = u64::from_le_bytes(length);
    let size = file.metadata().map_err(failed(path))?.len();
    if length.checked_add(8).is_none_or(|end| end > size) {
        return Err(misshapen(path));
    }
    let mut header = Vec::new();
    let mut head = file.by_ref().take(length);
    head.read_to_end(&mut header).map_err(failed(path))?;
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|_| misshapen(path))?;
    let mut found = Vec::new();
    for (key, info) in metadata.tensors() {
        let Some((tensor, ranges)) = key.rsplit_once('@') else {
            continue;
        };
        if tensor != name {
            continue;
        }
        let (start, end) = info.data_offsets;
        let entry = Entry {
            held: ranges_of(ranges).ok_or_else(|| misshapen(path))?,
            bytes: 8 + length + start as u64..8 + length + end as u64,
            element: element_of(info.dtype).ok_or_else(|| misshapen(path))?,
        };
        let elements: usize = entry.held.iter().map(ExactSizeIterator::len).product();
        let expected = elements.checked_mul(entry.element.size());
        if expected != Some(end - start) || entry.bytes.end > size {
            return Err(misshapen(path));
        }
        found.push(entry);
    }
    Ok(found)
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

/// Writes the blocks of one client.
pub(super) fn write(path: &Path, stored: &[Stored]) -> Result<(), Error> {
    let mut views = Vec::new();
    for block in stored {
        let dtype = dtype_of(block.element).ok_or_else(|| misshapen(path))?;
        let view = TensorView::new(dtype, block.shape.clone(), &block.bytes);
        views.push((block.name.as_str(), view.map_err(|_| misshapen(path))?));
    }
    let bytes = safetensors::serialize(views, None).map_err(|_| misshapen(path))?;
    fs::write(path, bytes).map_err(failed(path))
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

/// Of the index.
const VERSION: u64 = 1;

pub(super) fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::File {
        path,
        kind: error.kind(),
    }
}

pub(super) fn misshapen(path: &Path) -> Error {
    Error::FileForm {
        path: path.to_owned(),
    }
}
