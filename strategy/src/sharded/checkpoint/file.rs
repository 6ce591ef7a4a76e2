//! The file that a worker writes: rows of tensors, as safetensors with a hash of each chunk.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use twox_hash::XxHash3_64;

use crate::{Error, VariableSpec};

/// A file in the making: room for its head, and rows behind it.
#[derive(Debug)]
pub(super) struct Draft {
    blocks: Vec<(String, TensorInfo)>,
    bytes: Vec<u8>,
    head: usize,
    end: usize,
}

/// Rows of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) spec: VariableSpec,
    pub(super) rows: Range<usize>,
}

/// A block of a file that is there.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) name: String,
    pub(super) rows: Range<usize>,
    /// From the start of the file.
    pub(super) bytes: Range<u64>,
    pub(super) hashes: Vec<u64>,
}

impl Draft {
    /// A file of these rows, in memory that a file before may have left.
    pub(super) fn new(rows: &[Rows], mut bytes: Vec<u8>) -> Result<Self, Error> {
        let mut end = 0;
        let mut blocks = Vec::with_capacity(rows.len());
        for one in rows {
            let start = end;
            end += one.len() * size_of::<f32>();
            blocks.push((one.name(), one.info(start..end)));
        }
        let head = head_of(&blocks, |info| {
            let (start, end) = info.data_offsets;
            "0".repeat(DIGITS * (end - start).div_ceil(CHUNK))
        })?;
        bytes.resize(head.len() + end, 0);
        Ok(Self {
            blocks,
            end: head.len(),
            head: head.len(),
            bytes,
        })
    }

    /// Copies the next rows in.
    pub(super) fn put(&mut self, values: &[f32]) {
        let start = self.end;
        self.end += size_of_val(values);
        self.bytes[start..self.end].copy_from_slice(bytemuck::cast_slice(values));
    }

    /// The bytes of the file, and those of its head, which has the hashes of the others.
    pub(super) fn seal(mut self) -> Result<(Vec<u8>, usize), Error> {
        let data = &self.bytes[self.head..];
        let head = head_of(&self.blocks, |info| {
            let (start, end) = info.data_offsets;
            hashes_of(&data[start..end])
        })?;
        self.bytes[..self.head].copy_from_slice(&head);
        Ok((self.bytes, self.head))
    }
}

impl Rows {
    fn name(&self) -> String {
        let mut sizes = self.spec.shape().iter();
        let mut ranges = Vec::new();
        if sizes.next().is_some() {
            ranges.push(format!("{}:{}", self.rows.start, self.rows.end));
        }
        ranges.extend(sizes.map(|size| format!("0:{size}")));
        format!("{}@{}", self.spec.name(), ranges.join(","))
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len() * row_len(&self.spec)
    }

    fn info(&self, bytes: Range<usize>) -> TensorInfo {
        let mut shape = self.spec.shape().to_vec();
        if let Some(first) = shape.first_mut() {
            *first = self.rows.len();
        }
        TensorInfo {
            dtype: Dtype::F32,
            shape,
            data_offsets: (bytes.start, bytes.end),
        }
    }
}

/// Elements of a row.
pub(super) fn row_len(spec: &VariableSpec) -> usize {
    spec.shape().iter().skip(1).product()
}

/// Rows of a tensor; a scalar is one.
fn rows_of(spec: &VariableSpec) -> usize {
    match spec.shape() {
        [] => 1,
        [rows, ..] => *rows,
    }
}

/// The blocks of a tensor in a file of `length` bytes, by its head; `None` where one of them is in
/// no right form, or not of whole rows.
pub(super) fn blocks(head: &[u8], length: u64, spec: &VariableSpec) -> Option<Vec<Block>> {
    let (stated, json) = head.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*stated) != json.len() as u64 {
        return None;
    }
    let metadata: Metadata = serde_json::from_slice(json).ok()?;
    let all = metadata.tensors();
    let of_tensor = all.iter().filter_map(|(name, info)| {
        let (tensor, ranges) = name.rsplit_once('@')?;
        (tensor == spec.name()).then_some((name, ranges, *info))
    });
    let block = |(name, ranges, info): (&String, &str, &TensorInfo)| {
        let rows = match ranges.split(',').next()?.split_once(':') {
            Some((start, end)) => start.parse().ok()?..end.parse().ok()?,
            None => 0..1,
        };
        let of_rows = Rows {
            spec: spec.clone(),
            rows: rows.clone(),
        };
        let (start, end) = info.data_offsets;
        let place = |offset: usize| (head.len() as u64).checked_add(offset as u64);
        let hashes = metadata.metadata().as_ref()?.get(name)?;
        let block = Block {
            name: name.clone(),
            bytes: place(start)?..place(end)?,
            hashes: parsed(hashes)?,
            rows,
        };
        let bytes = end.checked_sub(start)?;
        let is_whole = block.rows.start <= block.rows.end
            && block.rows.end <= rows_of(spec)
            && *name == of_rows.name()
            && info.dtype == Dtype::F32
            && bytes == of_rows.len() * size_of::<f32>()
            && block.bytes.end <= length
            && block.hashes.len() == bytes.div_ceil(CHUNK);
        is_whole.then_some(block)
    };
    of_tensor.map(block).collect()
}

fn head_of(
    blocks: &[(String, TensorInfo)],
    hashes: impl Fn(&TensorInfo) -> String,
) -> Result<Vec<u8>, Error> {
    let texts: HashMap<String, String> = blocks
        .iter()
        .map(|(name, info)| (name.clone(), hashes(info)))
        .collect();
    // Of no tensors, safetensors 0.8 reads no metadata.
    let texts = (!texts.is_empty()).then_some(texts);
    let metadata = Metadata::new(texts, blocks.to_vec()).map_err(|_| Error::CheckpointForm)?;
    let mut json = serde_json::to_vec(&metadata).map_err(|_| Error::CheckpointForm)?;
    json.resize(json.len().next_multiple_of(ALIGNMENT), b' ');
    let mut head = (json.len() as u64).to_le_bytes().to_vec();
    head.extend(json);
    Ok(head)
}

fn hashes_of(bytes: &[u8]) -> String {
    bytes.chunks(CHUNK).fold(String::new(), |mut text, chunk| {
        // A string takes all that is written to it.
        let _ = write!(text, "{:016x}", XxHash3_64::oneshot(chunk));
        text
    })
}

fn parsed(text: &str) -> Option<Vec<u64>> {
    let hash = |digits: &[u8]| u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    let (all, rest) = text.as_bytes().as_chunks::<DIGITS>();
    let hashes = all.iter().map(|digits| hash(digits));
    hashes.collect::<Option<_>>().filter(|_| rest.is_empty())
}

/// Bytes that are hashed together.
pub(super) const CHUNK: usize = 1 << 20;

/// Digits of a hash.
const DIGITS: usize = 16;

/// Of the data in a file, as the format asks.
const ALIGNMENT: usize = 8;
