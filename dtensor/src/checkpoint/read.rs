//! Blocks read back, by the ranges of bytes that they are in.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use meshwork_accel::{ElementType, bf16};
use meshwork_layout::Ranges;
use ndarray::ArrayD;

use super::format::{Described, Entry, Index, entries, failed, misshapen};
use crate::exchange::from_bytes;
use crate::route::region;
use crate::{Error, Scalar};

/// A tensor in files.
pub(super) struct Reader {
    name: String,
    described: Described,
    files: Vec<(PathBuf, Vec<Entry>)>,
}

impl Reader {
    pub(super) fn open(prefix: &Path, name: &str) -> Result<Self, Error> {
        let index = Index::read(prefix)?;
        let described = index
            .described(name)
            .cloned()
            .ok_or_else(|| Error::NotSaved {
                name: name.to_owned(),
                prefix: prefix.to_owned(),
            })?;
        let found = index.files(prefix).map(|path| {
            let entries = entries(&path, name)?;
            Ok((path, entries))
        });
        Ok(Self {
            name: name.to_owned(),
            files: found.collect::<Result<_, Error>>()?,
            described,
        })
    }

    /// The sizes of the axes of the whole tensor.
    pub(super) fn shape(&self) -> &[usize] {
        &self.described.shape
    }

    /// The elements in these ranges.
    pub(super) fn block<T: Scalar>(&self, held: &Ranges) -> Result<ArrayD<T>, Error> {
        let mut block = ArrayD::from_elem(region::sizes(held).to_vec(), T::default());
        let mut missing = vec![held.clone()];
        missing.retain(|region| !region::is_empty(region));
        for (path, entries) in &self.files {
            for entry in entries {
                let Some(common) = region::intersection(held, &entry.held) else {
                    continue;
                };
                let elements = self.elements::<T>(path, entry, &common)?;
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
                name: self.name.clone(),
            }),
        }
    }

    /// Some elements of an entry, row-major. What follows each other in the file is read at once.
    fn elements<T: Scalar>(
        &self,
        path: &Path,
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
        let mut file = File::open(path).map_err(failed(path))?;
        let mut bytes = Vec::new();
        for index in indices(&inner[..outer.len()]) {
            let place = index
                .iter()
                .zip(outer)
                .fold(0, |place, (i, size)| place * size + i);
            let start = (place * rest.iter().product::<usize>() + run.start * row) * size;
            file.seek(SeekFrom::Start(entry.bytes.start + start as u64))
                .map_err(failed(path))?;
            let before = bytes.len();
            bytes.resize(before + run.len() * row * size, 0);
            file.read_exact(&mut bytes[before..])
                .map_err(failed(path))?;
        }
        self.parsed(&bytes, entry.element)
            .ok_or_else(|| misshapen(path))?
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
                name: self.name.clone(),
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
