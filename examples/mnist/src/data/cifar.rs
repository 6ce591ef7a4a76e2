//! The binary format of CIFAR-10: records without a header, each a label and then the red, the
//! green and the blue pixels of an image of 32 by 32, row-major.

use std::path::Path;

use super::{Colours, ImageShape};
use crate::error::Error;

/// The contents of one file.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) pixels: Vec<u8>,
    pub(super) labels: Vec<u8>,
}

impl Records {
    /// Takes a file of whole records apart.
    pub(super) fn parse(bytes: Vec<u8>, path: &Path) -> Result<Self, Error> {
        let count = bytes.len() / RECORD;
        let (mut pixels, mut labels) = (
            Vec::with_capacity(count * (RECORD - 1)),
            Vec::with_capacity(count),
        );
        for record in bytes.chunks_exact(RECORD) {
            labels.push(record[0]);
            pixels.extend_from_slice(&record[1..]);
        }
        super::folder::check_classes(path, &labels)?;
        Ok(Self { pixels, labels })
    }
}

/// Whether a file may be one of records.
pub(super) fn has_whole_records(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.len().is_multiple_of(RECORD)
}

/// The length of a file whose last record is whole, where it has `len` bytes.
pub(super) fn whole_records(len: u64) -> u64 {
    len.div_ceil(RECORD as u64).max(1) * RECORD as u64
}

/// Whether a file has a name as CIFAR-10's have: of an unknown format, it was cut off.
pub(super) fn is_named_so(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.trim_end_matches(".gz").ends_with(".bin"))
}

/// The images of all files.
pub(super) const SHAPE: ImageShape = ImageShape {
    colours: Colours::Rgb,
    rows: 32,
    cols: 32,
};

/// Bytes of a record.
const RECORD: usize = 1 + 3 * 32 * 32;
