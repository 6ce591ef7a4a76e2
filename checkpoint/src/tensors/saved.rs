//! Tensors read back, whoever wrote which blocks of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use twox_hash::XxHash3_64;

use super::block::{Stored, byte_count, common, stored};
use super::{Block, CHUNK, TensorIndex, TensorInfo};
use crate::{Entry, Error, FileDamage, Generation, Opened, Series};

/// The tensors of a whole generation.
#[derive(Debug)]
pub struct SavedTensors<'a> {
    series: &'a Series,
    generation: Generation,
    index: TensorIndex,
    files: Vec<Entry>,
    /// Of each tensor those of the first file first.
    blocks: BTreeMap<String, Vec<InFile>>,
}

/// A block, and the number of the file that has it.
#[derive(Debug)]
struct InFile {
    file: usize,
    stored: Stored,
}

impl<'a> SavedTensors<'a> {
    /// Those of a generation; the heads of all of its files are read.
    ///
    /// # Errors
    /// [`Error::Removed`] for one that is not there any more, [`Error::TensorForm`] for one that is
    /// of something else, [`Error::Damaged`], and those of [`Series::latest`].
    pub fn open(series: &'a Series, generation: Generation) -> Result<Self, Error> {
        let path = series.index_path(generation);
        let found = series.index(generation).map_err(removed)?;
        let form = |path| Error::TensorForm { path };
        let index = TensorIndex::from_bytes(found.body()).ok_or_else(|| form(path.clone()))?;
        let lengths = found.files().iter().map(Entry::length);
        let bytes = lengths.fold(0, u64::saturating_add);
        if !index.tensors().all(|(_, tensor)| tensor.fits(bytes)) {
            return Err(form(path));
        }
        let mut blocks: BTreeMap<String, Vec<InFile>> = BTreeMap::new();
        for (file, entry) in found.files().iter().enumerate() {
            // Open no longer than it is read: there may be more files than a process may have open.
            let opened = series.open(generation, entry)?;
            let all = stored(opened.head(), opened.length(), &index);
            let mut all = all.ok_or_else(|| form(opened.path().to_owned()))?;
            // A head has them in no order.
            all.sort_by_cached_key(|stored| ends(stored.block.region()));
            for stored in all {
                let of_tensor = blocks.entry(stored.block.tensor().to_owned()).or_default();
                of_tensor.push(InFile { file, stored });
            }
        }
        Ok(Self {
            series,
            generation,
            index,
            files: found.files().to_vec(),
            blocks,
        })
    }

    /// Which tensors there are.
    #[must_use]
    pub fn index(&self) -> &TensorIndex {
        &self.index
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::NoTensor`]
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.index.get(name).ok_or_else(|| Error::NoTensor {
            name: name.to_owned(),
            index: self.index_path(),
        })
    }

    /// The blocks in a file of the generation, in the order of names, and those of a tensor in that
    /// of their indices.
    pub fn blocks(&self, entry: &Entry) -> impl Iterator<Item = &Block> {
        let all = self.blocks.values().flatten();
        let in_file = all.filter(move |one| self.files.get(one.file) == Some(entry));
        in_file.map(|one| &one.stored.block)
    }

    /// Reads the elements of a region of a tensor, row-major. Each byte is checked on the way.
    ///
    /// # Errors
    /// [`Error::NoTensor`], [`Error::TensorHole`] where the files have not all of the elements,
    /// [`Error::BlockDamaged`], [`Error::TensorForm`], and those of [`Series::latest`].
    ///
    /// # Panics
    /// If the region has not the axes of the tensor, or `into` not the bytes of its elements.
    pub fn read(&self, name: &str, region: &[Range<usize>], into: &mut [u8]) -> Result<(), Error> {
        let tensor = self.tensor(name)?;
        let wanted = Block::new(name, region, tensor.dtype());
        assert_eq!(region.len(), tensor.shape().len(), "the axes of {wanted}");
        assert_eq!(wanted.len(), Some(into.len()), "the bytes of {wanted}");
        let mut missing = into.len();
        let mut read: Vec<Vec<Range<usize>>> = Vec::new();
        let mut open: Option<(usize, Opened)> = None;
        for one in self.blocks.get(name).into_iter().flatten() {
            let Some(region) = common(region, one.stored.block.region()) else {
                continue;
            };
            let opened = match open.take() {
                Some((file, opened)) if file == one.file => opened,
                _ => self.series.open(self.generation, &self.files[one.file])?,
            };
            if read.iter().any(|other| common(other, &region).is_some()) {
                let path = opened.path().to_owned();
                return Err(Error::TensorForm { path });
            }
            let mut chunks = Chunks::new(&opened, &one.stored, self.index_path());
            for run in Runs::of(&region, &one.stored.block, &wanted) {
                chunks.read(run.from, &mut into[run.to..run.to + run.length])?;
                missing -= run.length;
            }
            read.push(region);
            open = Some((one.file, opened));
        }
        match missing {
            0 => Ok(()),
            _ => Err(Error::TensorHole {
                name: name.to_owned(),
                index: self.index_path(),
            }),
        }
    }

    fn index_path(&self) -> PathBuf {
        self.series.index_path(self.generation)
    }
}

/// A generation without an index is none.
fn removed(error: Error) -> Error {
    match error {
        Error::Damaged {
            path: index,
            damage: FileDamage::Missing,
        } => Error::Removed { index },
        error => error,
    }
}

/// What regions are sorted by.
fn ends(region: &[Range<usize>]) -> Vec<[usize; 2]> {
    let ends = region.iter().map(|range| [range.start, range.end]);
    ends.collect()
}

/// Bytes that follow each other in two blocks.
struct Run {
    from: usize,
    to: usize,
    length: usize,
}

/// What follows each other in two blocks of one tensor.
struct Runs<'a> {
    region: &'a [Range<usize>],
    blocks: [&'a Block; 2],
    /// Axes that a run does not go along.
    outer: usize,
    length: usize,
    number: usize,
    count: usize,
}

impl<'a> Runs<'a> {
    /// The runs of a region that lies within both.
    fn of(region: &'a [Range<usize>], from: &'a Block, to: &'a Block) -> Self {
        let blocks = [from, to];
        // Behind this axis all indices of both are in the region, so that rows follow each other.
        let is_cut = |axis: &usize| {
            let range = &region[*axis];
            blocks.iter().any(|block| block.region()[*axis] != *range)
        };
        let outer = (0..region.len()).rev().find(is_cut).unwrap_or(0);
        let length = byte_count(from.dtype(), &region[outer..]);
        let count = region[..outer].iter().map(ExactSizeIterator::len).product();
        Self {
            region,
            blocks,
            outer,
            length: length.expect("a part of a block has whole bytes as the block does"),
            number: 0,
            count,
        }
    }

    /// Where a run begins in a block.
    fn place(&self, block: &Block) -> usize {
        let mut number = self.number;
        let mut stride = block.dtype().bitsize() / 8;
        let mut place = 0;
        let axes = self.region.iter().zip(block.region()).enumerate().rev();
        for (axis, (range, whole)) in axes {
            let mut index = range.start - whole.start;
            if axis < self.outer {
                index += number % range.len();
                number /= range.len();
            }
            place += index * stride;
            stride *= whole.len();
        }
        place
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.number == self.count {
            return None;
        }
        let [from, to] = self.blocks.map(|block| self.place(block));
        self.number += 1;
        let length = self.length;
        Some(Run { from, to, length })
    }
}

/// The bytes of a block, of which each chunk is checked when the first byte of it is asked for.
struct Chunks<'a> {
    file: &'a Opened,
    stored: &'a Stored,
    /// Of the generation that the file belongs to.
    index: PathBuf,
    chunk: Vec<u8>,
    number: Option<usize>,
}

impl<'a> Chunks<'a> {
    fn new(file: &'a Opened, stored: &'a Stored, index: PathBuf) -> Self {
        Self {
            file,
            stored,
            index,
            chunk: Vec::new(),
            number: None,
        }
    }

    /// Copies the bytes from here on.
    fn read(&mut self, from: usize, mut into: &mut [u8]) -> Result<(), Error> {
        let mut start = from;
        while !into.is_empty() {
            let number = start / CHUNK;
            self.load(number)?;
            let rest = &self.chunk[start - number * CHUNK..];
            let (part, left) = into.split_at_mut(rest.len().min(into.len()));
            part.copy_from_slice(&rest[..part.len()]);
            start += part.len();
            into = left;
        }
        Ok(())
    }

    fn load(&mut self, number: usize) -> Result<(), Error> {
        if self.number == Some(number) {
            return Ok(());
        }
        self.number = None;
        let bytes = &self.stored.bytes;
        let start = bytes.start + (number * CHUNK) as u64;
        let rest = (bytes.end - start).min(CHUNK as u64);
        self.chunk
            .resize(usize::try_from(rest).expect("at most CHUNK"), 0);
        self.file.read_at(start, &mut self.chunk)?;
        match self.stored.hashes[number] == XxHash3_64::oneshot(&self.chunk) {
            true => {
                self.number = Some(number);
                Ok(())
            }
            false => Err(Error::BlockDamaged {
                path: self.file.path().to_owned(),
                block: self.stored.block.to_string(),
                index: self.index.clone(),
            }),
        }
    }
}
