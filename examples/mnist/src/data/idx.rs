//! The IDX format: a magic number, one length for each dimension, then the bytes.
//!
//! ```text
//! 00 00 08 nn | length of dimension 1 | … | length of dimension nn | bytes, row-major
//!             big-endian, 4 bytes each
//! ```

use std::path::Path;

use super::file::{Content, truncated};
use crate::error::Error;

/// The contents of one file: as many bytes as the product of the dimensions, which is above 0.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idx {
    pub(super) dims: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// What a file announces.
#[derive(Debug)]
pub(super) struct Header {
    kind: Kind,
    /// As many as the file has room for.
    dims: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Count, rows, columns.
    Images,
    /// Count.
    Labels,
}

impl Header {
    /// `None` for a file of another format, by its magic number: two zero bytes, 08 for unsigned
    /// bytes, then the number of dimensions.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<MAGIC_LEN>()?;
        let kind = match magic {
            [0, 0, 8, 3] => Kind::Images,
            [0, 0, 8, 1] => Kind::Labels,
            _ => return None,
        };
        let (words, _) = rest.as_chunks::<4>();
        let words = words.iter().take(kind.dimension_count());
        let dims = words.map(|word| u32::from_be_bytes(*word)).collect();
        Some(Self { kind, dims })
    }

    /// Bytes that the file should have; `None` where its lengths are cut off, 0, or too large.
    pub(super) fn file_len(&self) -> Option<usize> {
        if self.dims.len() < self.kind.dimension_count() {
            return None;
        }
        let product = self.dims.iter().try_fold(1_usize, |product, &dim| {
            let dim = usize::try_from(dim).ok().filter(|&dim| dim > 0)?;
            product.checked_mul(dim)
        });
        product?.checked_add(self.len())
    }

    /// Bytes of the header.
    fn len(&self) -> usize {
        MAGIC_LEN + 4 * self.kind.dimension_count()
    }
}

/// Takes a file apart behind its `header`, which `bytes` begin with.
pub(super) fn parse(header: Header, mut bytes: Vec<u8>, path: &Path) -> Result<Content, Error> {
    let found = bytes.len();
    if header.dims.len() < header.kind.dimension_count() {
        return Err(truncated(path, found as u64, header.len() as u64));
    }
    let Some(expected) = header.file_len() else {
        return Err(Error::DataDimensions {
            path: path.to_owned(),
            dims: header.dims,
        });
    };
    if found < expected {
        return Err(truncated(path, found as u64, expected as u64));
    }
    if found > expected {
        return Err(Error::DataTooLong {
            path: path.to_owned(),
            found: found as u64,
            expected: expected as u64,
        });
    }
    bytes.drain(..header.len());
    // Their product was addressable.
    let dims = header.dims.iter().map(|&dim| dim as usize).collect();
    let idx = Idx { dims, bytes };
    Ok(match header.kind {
        Kind::Images => Content::Images(idx),
        Kind::Labels => Content::Labels(idx),
    })
}

impl Kind {
    fn dimension_count(self) -> usize {
        match self {
            Self::Images => 3,
            Self::Labels => 1,
        }
    }
}

/// Bytes of a magic number.
pub(super) const MAGIC_LEN: usize = 4;
