//! One data file: its bytes, and which format they are in.

use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::cifar::{self, Records};
use super::idx::{self, Header, Idx};
use crate::error::Error;

/// The contents of a file, in the format that its bytes say.
#[derive(Debug)]
pub(super) enum Content {
    /// An IDX file of images.
    Images(Idx),
    /// An IDX file of labels.
    Labels(Idx),
    /// A CIFAR-10 file: images, each with its label.
    Records(Records),
}

/// Reads a file and recognises its format: an IDX file has the length that its header announces, a
/// CIFAR-10 file has no header and whole records.
pub(super) fn read(path: &Path) -> Result<Content, Error> {
    let (bytes, cut) = contents(path)?;
    let content = parse(bytes, path)?;
    match cut {
        // Everything is there but the checksum.
        Some(source) => Err(unreadable(path)(source)),
        None => Ok(content),
    }
}

fn parse(bytes: Vec<u8>, path: &Path) -> Result<Content, Error> {
    let header = Header::parse(&bytes);
    if !matches!(&header, Some(header) if header.file_len() == Some(bytes.len()))
        && cifar::has_whole_records(&bytes)
    {
        return Ok(Content::Records(Records::parse(bytes, path)?));
    }
    match header {
        Some(header) => idx::parse(header, bytes, path),
        None => Err(unknown(&bytes, path)),
    }
}

/// The bytes of a file, decompressed if they are compressed; and the error if the compressed stream
/// ends early.
fn contents(path: &Path) -> Result<(Vec<u8>, Option<io::Error>), Error> {
    let mut file = BufReader::new(File::open(path).map_err(unreadable(path))?);
    let mut start = Vec::new();
    let took = (&mut file).take(2).read_to_end(&mut start);
    took.map_err(unreadable(path))?;
    let compressed = start == GZIP_MAGIC;
    let mut file = Cursor::new(start).chain(file);
    let mut bytes = Vec::new();
    let read = match compressed {
        true => MultiGzDecoder::new(file).read_to_end(&mut bytes),
        false => file.read_to_end(&mut bytes),
    };
    match read {
        Ok(_) => Ok((bytes, None)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok((bytes, Some(error))),
        Err(error) => Err(unreadable(path)(error)),
    }
}

/// The error for a file that has no known header, nor whole records.
fn unknown(bytes: &[u8], path: &Path) -> Error {
    let len = bytes.len() as u64;
    if cifar::is_named_so(path) || bytes.len() < idx::MAGIC_LEN {
        let expected = match cifar::is_named_so(path) {
            true => cifar::whole_records(len),
            false => idx::MAGIC_LEN as u64,
        };
        return truncated(path, len, expected);
    }
    let found = [bytes[0], bytes[1], bytes[2], bytes[3]];
    Error::DataMagic {
        path: path.to_owned(),
        found: u32::from_be_bytes(found),
        len,
    }
}

pub(super) fn truncated(path: &Path, found: u64, expected: u64) -> Error {
    Error::DataTruncated {
        path: path.to_owned(),
        found,
        expected,
    }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let path: PathBuf = path.to_owned();
    move |source| Error::DataRead {
        path: path.clone(),
        source,
    }
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
