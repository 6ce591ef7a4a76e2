//! The IDX format: a magic number, one length for each dimension, then the bytes.
//!
//! ```text
//! 00 00 08 nn | length of dimension 1 | … | length of dimension nn | bytes, row-major
//!             big-endian, 4 bytes each
//! ```

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::error::Error;

/// The contents of one file: as many bytes as the product of the dimensions, which is above 0.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idx {
    pub(super) dims: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// The expected content of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Count, rows, columns.
    Images,
    /// Count.
    Labels,
}

/// Reads `folder/name.gz`, or `folder/name` where there is no such file, and says which it was.
pub(super) fn read(folder: &Path, name: &str, kind: Kind) -> Result<(PathBuf, Idx), Error> {
    let compressed = folder.join(format!("{name}.gz"));
    let plain = folder.join(name);
    if let Some(file) = open(&compressed)? {
        let stream = gunzip(BufReader::new(file), &compressed)?;
        let idx = parse(stream, &compressed, kind)?;
        return Ok((compressed, idx));
    }
    match open(&plain)? {
        Some(file) => {
            let idx = parse(BufReader::new(file), &plain, kind)?;
            Ok((plain, idx))
        }
        None => Err(Error::DataMissing { path: plain }),
    }
}

fn open(path: &Path) -> Result<Option<File>, Error> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::DataRead {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Checks the first two bytes first: the decoder would call any other file a damaged stream.
fn gunzip(mut file: impl Read, path: &Path) -> Result<impl Read, Error> {
    let found = read_up_to(&mut file, 2, path)?;
    if found != GZIP_MAGIC {
        return Err(Error::DataNotGzip {
            path: path.to_owned(),
            found,
        });
    }
    Ok(MultiGzDecoder::new(io::Cursor::new(found).chain(file)))
}

fn parse(mut stream: impl Read, path: &Path, kind: Kind) -> Result<Idx, Error> {
    let header_len = 4 * (1 + kind.dimension_count());
    let header = read_up_to(&mut stream, header_len, path)?;
    let words: Vec<u32> = header
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    // The magic number first: of a file of another kind the header may well be shorter.
    if let Some(&found) = words.first()
        && found != kind.magic()
    {
        return Err(Error::DataMagic {
            path: path.to_owned(),
            found,
            expected: kind.magic(),
        });
    }
    if header.len() as u64 != header_len {
        return Err(truncated(path, header.len(), header_len));
    }
    let (dims, len) = checked_dims(&words[1..], path)?;
    let bytes = read_up_to(&mut stream, len, path)?;
    if bytes.len() as u64 != len {
        return Err(truncated(
            path,
            header.len() + bytes.len(),
            header_len + len,
        ));
    }
    require_end(stream, path, header_len + len)?;
    Ok(Idx { dims, bytes })
}

/// The dimensions and their product, in bytes.
fn checked_dims(words: &[u32], path: &Path) -> Result<(Vec<usize>, u64), Error> {
    let wrong = || Error::DataDimensions {
        path: path.to_owned(),
        dims: words.to_vec(),
    };
    let dims = words
        .iter()
        .map(|&word| {
            usize::try_from(word)
                .ok()
                .filter(|&dim| dim > 0)
                .ok_or_else(wrong)
        })
        .collect::<Result<Vec<_>, _>>()?;
    // Every byte becomes a 4-byte number later: what cannot be addressed then is refused now.
    let addressable = dims
        .iter()
        .try_fold(size_of::<f32>(), |product, &dim| product.checked_mul(dim))
        .filter(|&product| isize::try_from(product).is_ok())
        .ok_or_else(wrong)?;
    Ok((dims, (addressable / size_of::<f32>()) as u64))
}

/// Reads `len` bytes or what there is; the buffer grows with what arrives, never with what was
/// announced.
fn read_up_to(stream: &mut impl Read, len: u64, path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    match stream.take(len).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        // A compressed stream that stops early: the caller says how much is missing.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(bytes),
        Err(source) => Err(Error::DataRead {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Checks that nothing is left after `len` bytes; of a compressed stream this also compares its
/// checksum.
fn require_end(mut stream: impl Read, path: &Path, len: u64) -> Result<(), Error> {
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Error::DataTooLong {
            path: path.to_owned(),
            expected: len,
        }),
        Err(source) => Err(Error::DataRead {
            path: path.to_owned(),
            source,
        }),
    }
}

fn truncated(path: &Path, found: usize, expected: u64) -> Error {
    Error::DataTruncated {
        path: path.to_owned(),
        found: found as u64,
        expected,
    }
}

impl Kind {
    fn dimension_count(self) -> u64 {
        match self {
            Self::Images => 3,
            Self::Labels => 1,
        }
    }

    /// Two zero bytes, 08 for unsigned bytes, then the number of dimensions.
    fn magic(self) -> u32 {
        match self {
            Self::Images => 0x0803,
            Self::Labels => 0x0801,
        }
    }
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
