//! The files of a folder, put together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::file::{self, Content};
use super::idx::Idx;
use super::{Colours, Dataset, ImageShape, Split, cifar};
use crate::error::Error;

/// The contents of the files of one part.
#[derive(Debug, Default)]
struct Files {
    images: Vec<(PathBuf, Idx)>,
    labels: Vec<(PathBuf, Idx)>,
    records: Vec<cifar::Records>,
}

/// Reads one part of the data set in `folder`.
pub(super) fn load(folder: &Path, split: Split) -> Result<Dataset, Error> {
    let paths = paths(folder, split)?;
    if paths.is_empty() {
        return Err(Error::DataMissing {
            folder: folder.to_owned(),
            split,
        });
    }
    let mut files = Files::default();
    for path in paths {
        match file::read(&path)? {
            Content::Images(idx) => files.images.push((path, idx)),
            Content::Labels(idx) => files.labels.push((path, idx)),
            Content::Records(records) => files.records.push(records),
        }
    }
    let counts = [files.images.len(), files.labels.len(), files.records.len()];
    match counts {
        [1, 1, 0] => paired(files.images.remove(0), files.labels.remove(0)),
        [0, 0, _] => Ok(joined(files.records)),
        [images, labels, records] => Err(Error::DataParts {
            folder: folder.to_owned(),
            split,
            images,
            labels,
            records,
        }),
    }
}

/// The files of one part, by their names, in the order of these; the compressed one where there are
/// both.
fn paths(folder: &Path, split: Split) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |source| Error::DataRead {
        path: folder.to_owned(),
        source,
    };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy());
        let Some(name) = name.filter(|name| split.has_file(name)) else {
            continue;
        };
        let plain = name.trim_end_matches(".gz").to_owned();
        let is_plain = plain == *name;
        if !is_plain || !found.contains_key(&plain) {
            found.insert(plain, path);
        }
    }
    Ok(found.into_values().collect())
}

impl Split {
    /// Whether this is the name of one of its files: MNIST's begin so. CIFAR-10's, of which all are
    /// read, are called just so, or a copy such as `data_batch_1 (1).bin` would count twice.
    fn has_file(self, name: &str) -> bool {
        let name = name.trim_end_matches(".gz").trim_end_matches(".bin");
        match self {
            Self::Train => match name.strip_prefix("data_batch_") {
                Some(number) => number.parse::<u8>().is_ok(),
                None => name.starts_with("train"),
            },
            Self::Test => match name.strip_prefix("test_batch") {
                Some(rest) => rest.is_empty(),
                None => name.starts_with("t10k") || name.starts_with("test"),
            },
        }
    }
}

/// A file of images and one of their labels.
fn paired(images: (PathBuf, Idx), labels: (PathBuf, Idx)) -> Result<Dataset, Error> {
    let ((image_path, images), (label_path, labels)) = (images, labels);
    let (count, rows, cols) = (images.dims[0], images.dims[1], images.dims[2]);
    if count != labels.dims[0] {
        return Err(Error::DataCount {
            image_path,
            images: count,
            label_path,
            labels: labels.dims[0],
        });
    }
    check_classes(&label_path, &labels.bytes)?;
    let shape = ImageShape {
        colours: Colours::Grey,
        rows,
        cols,
    };
    Ok(Dataset {
        pixels: images.bytes,
        labels: labels.bytes,
        shape,
    })
}

/// Files of records, one behind the other.
fn joined(files: Vec<cifar::Records>) -> Dataset {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for mut records in files {
        pixels.append(&mut records.pixels);
        labels.append(&mut records.labels);
    }
    Dataset {
        pixels,
        labels,
        shape: cifar::SHAPE,
    }
}

/// Checks that all labels are classes that the networks know.
pub(super) fn check_classes(path: &Path, labels: &[u8]) -> Result<(), Error> {
    match labels.iter().position(|&label| label > 9) {
        None => Ok(()),
        Some(index) => Err(Error::DataLabel {
            path: path.to_owned(),
            index,
            label: labels[index],
        }),
    }
}
