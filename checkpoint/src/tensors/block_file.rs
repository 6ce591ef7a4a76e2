//! The file that a writer makes of its blocks.

use std::fmt::Write;

use safetensors::tensor::TensorInfo;
use twox_hash::XxHash3_64;

use super::block::DIGITS;
use super::head::head_of;
use super::{Block, CHUNK};
use crate::Error;

/// A file in the making: room for its head, and behind it for the elements of its blocks.
#[derive(Debug)]
pub struct BlockFile {
    blocks: Vec<(String, TensorInfo)>,
    bytes: Vec<u8>,
    head: usize,
    filled: usize,
}

impl BlockFile {
    /// A file of these blocks, in memory that a file before may have left.
    ///
    /// # Errors
    /// [`Error::BlockSize`]
    pub fn new(blocks: &[Block], mut memory: Vec<u8>) -> Result<Self, Error> {
        let mut end = 0_usize;
        let mut infos = Vec::with_capacity(blocks.len());
        for block in blocks {
            let start = end;
            let too_large = || Error::BlockSize {
                block: block.to_string(),
            };
            let length = block.len().ok_or_else(too_large)?;
            end = start.checked_add(length).ok_or_else(too_large)?;
            let info = TensorInfo {
                dtype: block.dtype(),
                shape: block.sizes(),
                data_offsets: (start, end),
            };
            infos.push((block.to_string(), info));
        }
        let head = head_with(&infos, |info| {
            let (start, end) = info.data_offsets;
            "0".repeat(DIGITS * (end - start).div_ceil(CHUNK))
        });
        memory.resize(head.len() + end, 0);
        Ok(Self {
            blocks: infos,
            filled: head.len(),
            head: head.len(),
            bytes: memory,
        })
    }

    /// Copies in what comes next: the elements of the blocks, one after the other.
    ///
    /// # Panics
    /// If that is more than the blocks have.
    pub fn put(&mut self, elements: &[u8]) {
        let start = self.filled;
        self.filled += elements.len();
        self.bytes[start..self.filled].copy_from_slice(elements);
    }

    /// The bytes of the file, and how many of them are its head, which has hashes of the others.
    ///
    /// # Panics
    /// If elements are missing.
    #[must_use]
    pub fn seal(mut self) -> (Vec<u8>, usize) {
        let missing = self.bytes.len() - self.filled;
        assert_eq!(missing, 0, "so many bytes of elements have not been put in");
        let data = &self.bytes[self.head..];
        let head = head_with(&self.blocks, |info| {
            let (start, end) = info.data_offsets;
            hashes_of(&data[start..end])
        });
        self.bytes[..self.head].copy_from_slice(&head);
        (self.bytes, self.head)
    }
}

/// The head of a file, with hashes of each block's chunks.
fn head_with(blocks: &[(String, TensorInfo)], hashes: impl Fn(&TensorInfo) -> String) -> Vec<u8> {
    let hashes = blocks
        .iter()
        .map(|(name, info)| (name.as_str(), hashes(info)));
    head_of(blocks, &hashes.collect())
}

fn hashes_of(bytes: &[u8]) -> String {
    bytes.chunks(CHUNK).fold(String::new(), |mut text, chunk| {
        // A string takes all that is written to it.
        let _ = write!(text, "{:016x}", XxHash3_64::oneshot(chunk));
        text
    })
}
