//! Blocks read back, by the ranges of bytes that they are in.

use std::path::PathBuf;

use meshwork_accel::{ElementType, bf16};
use meshwork_checkpoint::{Entry as FileEntry, Generation, Opened, Series};
use meshwork_core::MeshRank;
use meshwork_layout::{Layout, Ranges};
use ndarray::ArrayD;

use super::chunks::ChunkReader;
use super::format::{Entry, TensorInfo, Tensors, entries, misshapen};
use crate::exchange::from_bytes;
use crate::transfer_plan::region;
use crate::{Block, Error, Scalar};

/// A tensor in the files of one save.
pub(super) struct Reader<'a> {
    series: &'a Series,
    generation: Generation,
    /// The path of the index, without which the files do not count.
    index: PathBuf,
    name: &'a str,
    described: TensorInfo,
    files: Vec<(FileEntry, Vec<Entry>)>,
}

impl<'a> Reader<'a> {
    pub(super) fn open(
        series: &'a Series,
        generation: Generation,
        name: &'a str,
    ) -> Result<Self, Error> {
        let path = series.index_path(generation);
        let index = series.index(generation)?;
        let tensors = Tensors::from_bytes(index.body()).ok_or_else(|| misshapen(&path))?;
        let described = tensors.described(name).ok_or_else(|| Error::NotSaved {
            name: name.to_owned(),
            prefix: series.prefix(),
        })?;
        let bytes = index.files().iter().map(FileEntry::length);
        if !described.fits(bytes.fold(0, u64::saturating_add)) {
            return Err(misshapen(&path));
        }
        let found = index.files().iter().map(|file| {
            let opened = series.open(generation, file)?;
            let entries = entries(opened.head(), opened.length(), name, described);
            let entries = entries.ok_or_else(|| misshapen(opened.path()))?;
            Ok((file.clone(), entries))
        });
        Ok(Self {
            files: found.collect::<Result<_, Error>>()?,
            described: described.clone(),
            series,
            generation,
            index: path,
            name,
        })
    }

    /// The sizes of the axes of the whole tensor.
    pub(super) fn shape(&self) -> &[usize] {
        &self.described.shape
    }

    /// The blocks of some ranks.
    pub(super) fn blocks<T: Scalar>(
        &self,
        layout: &Layout,
        ranks: &[MeshRank],
    ) -> Result<Vec<Block<T>>, Error> {
        let block = |rank: &MeshRank| {
            let held = layout.shard(*rank, self.shape())?;
            Ok(self.block::<T>(&held)?.into_shared())
        };
        ranks.iter().map(block).collect()
    }

    /// The elements in these ranges.
    fn block<T: Scalar>(&self, held: &Ranges) -> Result<ArrayD<T>, Error> {
        let mut block = ArrayD::from_elem(region::sizes(held).to_vec(), T::default());
        let mut missing = vec![held.clone()];
        missing.retain(|region| !region::is_empty(region));
        for (file, entries) in &self.files {
            let is_needed = |entry: &Entry| region::intersection(held, &entry.held).is_some();
            if !entries.iter().any(is_needed) {
                continue;
            }
            // Open no longer than it is read: there may be more files than a process may have open.
            let opened = self.series.open(self.generation, file)?;
            for entry in entries {
                let Some(common) = region::intersection(held, &entry.held) else {
                    continue;
                };
                let elements = self.elements::<T>(&opened, entry, &common)?;
                let target = region::within(&common, held);
                let mut part =
                    block.slice_each_axis_mut(|axis| target[axis.axis.index()].clone().into());
                for (target, element) in part.iter_mut().zip(elements) {
                    *target = element;
                }
                missing = missing
                    .iter()
                    .flat_map(|whole| match region::intersection(whole, &common) {
                        Some(found) => region::difference(whole, &found),
                        None => vec![whole.clone()],
                    })
                    .collect();
            }
        }
        match missing.is_empty() {
            true => Ok(block),
            false => Err(Error::SavedHole {
                name: self.name.to_owned(),
            }),
        }
    }

    /// Some elements of an entry, row-major. What follows each other in the file is read at once.
    fn elements<T: Scalar>(
        &self,
        file: &Opened,
        entry: &Entry,
        wanted: &Ranges,
    ) -> Result<Vec<T>, Error> {
        let size = entry.element.size();
        let inner = region::within(wanted, &entry.held);
        let shape = region::sizes(&entry.held);
        // From this axis on, all indices are wanted, so rows of it follow each other.
        let is_whole = |axis: usize| inner[axis] == (0..shape[axis]);
        let first = (0..shape.len())
            .rev()
            .find(|&axis| !is_whole(axis))
            .unwrap_or(0);
        let (outer, rest) = shape.split_at(first.min(shape.len()));
        let row: usize = rest.iter().skip(1).product();
        let run = inner.get(first).map_or(0..1, Clone::clone);
        let mut chunks = ChunkReader::new(file, entry, &self.index);
        let mut bytes = Vec::new();
        for index in indices(&inner[..outer.len()]) {
            let place = index
                .iter()
                .zip(outer)
                .fold(0, |place, (i, size)| place * size + i);
            let start = (place * rest.iter().product::<usize>() + run.start * row) * size;
            chunks.read(start..start + run.len() * row * size, &mut bytes)?;
        }
        self.parsed(&bytes, entry.element)
            .ok_or_else(|| misshapen(file.path()))?
    }

    /// Elements of the type that is asked for; rounded ones are made wider.
    fn parsed<T: Scalar>(
        &self,
        bytes: &[u8],
        element: ElementType,
    ) -> Option<Result<Vec<T>, Error>> {
        match (element, T::TYPE) {
            (same, asked) if same == asked => Some(Ok(from_bytes(bytes)?)),
            (ElementType::Bf16, ElementType::F32) => {
                let rounded: Vec<bf16> = from_bytes(bytes)?;
                Some(Ok(rounded
                    .into_iter()
                    .map(|x| T::from_f64(x.to_f64()))
                    .collect()))
            }
            (found, expected) => Some(Err(Error::SavedElement {
                name: self.name.to_owned(),
                found,
                expected,
            })),
        }
    }
}

/// All indices in a box, row-major; one without axes has one.
fn indices(region: &[std::ops::Range<usize>]) -> impl Iterator<Item = Vec<usize>> {
    let count: usize = region.iter().map(ExactSizeIterator::len).product();
    (0..count).map(move |mut number| {
        let mut index = vec![0; region.len()];
        for (place, range) in index.iter_mut().zip(region).rev() {
            *place = range.start + number % range.len();
            number /= range.len();
        }
        index
    })
}
