//! Bytes of a block, of which each chunk is checked when it is read: whoever needs a part of a
//! block does not read all of it.

use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use meshwork_checkpoint::Opened;
use twox_hash::XxHash3_64;

use super::format::{Entry, misshapen};
use crate::Error;

/// Bytes that are hashed together.
pub(super) const CHUNK: usize = 1 << 20;

/// Digits of a hash.
const DIGITS: usize = 16;

/// The hashes of all chunks of a block, as in the head of its file.
pub(super) fn text_of(bytes: &[u8]) -> String {
    bytes.chunks(CHUNK).fold(String::new(), |mut text, chunk| {
        // A string takes all that is written to it.
        let _ = write!(text, "{:016x}", XxHash3_64::oneshot(chunk));
        text
    })
}

/// The inverse of [`text_of`], as far as there is one.
pub(super) fn hashes_of(text: &str) -> Option<Vec<u64>> {
    let hash = |digits: &[u8]| u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    let (all, rest) = text.as_bytes().as_chunks::<DIGITS>();
    let hashes = all.iter().map(|digits| hash(digits));
    hashes.collect::<Option<_>>().filter(|_| rest.is_empty())
}

/// A block that is being read.
pub(super) struct ChunkReader<'a> {
    file: &'a Opened,
    entry: &'a Entry,
    /// Of the save that the file belongs to.
    index: &'a Path,
    chunk: Vec<u8>,
    number: Option<usize>,
}

impl<'a> ChunkReader<'a> {
    pub(super) fn new(file: &'a Opened, entry: &'a Entry, index: &'a Path) -> Self {
        Self {
            file,
            entry,
            index,
            chunk: Vec::new(),
            number: None,
        }
    }

    /// Appends the bytes of the block in `range`.
    pub(super) fn read(&mut self, range: Range<usize>, into: &mut Vec<u8>) -> Result<(), Error> {
        let mut start = range.start;
        while start < range.end {
            let number = start / CHUNK;
            self.load(number)?;
            let origin = number * CHUNK;
            let end = range.end.min(origin + self.chunk.len());
            let found = self.chunk.get(start - origin..end - origin);
            into.extend(found.ok_or_else(|| misshapen(self.file.path()))?);
            start = end;
        }
        Ok(())
    }

    fn load(&mut self, number: usize) -> Result<(), Error> {
        if self.number == Some(number) {
            return Ok(());
        }
        self.number = None;
        let bytes = &self.entry.bytes;
        let start = bytes.start + (number * CHUNK) as u64;
        let rest = bytes.end.saturating_sub(start).min(CHUNK as u64);
        self.chunk
            .resize(usize::try_from(rest).expect("at most PIECE"), 0);
        self.file.read_at(start, &mut self.chunk)?;
        match self.entry.hashes.get(number) == Some(&XxHash3_64::oneshot(&self.chunk)) {
            true => {
                self.number = Some(number);
                Ok(())
            }
            false => Err(Error::BlockDamaged {
                path: self.file.path().to_owned(),
                block: self.entry.block.clone(),
                index: self.index.to_owned(),
            }),
        }
    }
}
