//! The MNIST files, and batches out of them.

mod idx;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::error::Error;
use idx::{Idx, Kind};

/// Which of the two parts of MNIST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// The training set.
    Train,
    /// The test set, never trained on.
    Test,
}

/// Labelled images of one size, in the order of their files.
#[derive(Debug)]
pub(crate) struct Dataset {
    /// Pixels, row-major, image after image, with the mean of MNIST at 0 and its deviation at 1.
    images: Vec<f32>,
    /// One digit for each image, 0 to 9.
    labels: Vec<u8>,
    rows: usize,
    cols: usize,
    source: PathBuf,
}

/// Samples picked from a [`Dataset`].
#[derive(Debug)]
pub(crate) struct Batch {
    /// Pixels, row-major, image after image.
    pub(crate) pixels: Vec<f32>,
    /// One digit for each image.
    pub(crate) labels: Vec<u32>,
}

impl Dataset {
    /// Reads one part of MNIST from `folder`, each file compressed (`.gz`) or plain.
    ///
    /// # Errors
    ///
    /// A `Data…` variant that names the file which is missing, damaged, or at odds with its
    /// partner.
    pub(crate) fn load(folder: &Path, split: Split) -> Result<Self, Error> {
        let (image_path, images) = idx::read(folder, split.image_file(), Kind::Images)?;
        let (label_path, labels) = idx::read(folder, split.label_file(), Kind::Labels)?;
        let (count, rows, cols) = (images.dims[0], images.dims[1], images.dims[2]);
        if count != labels.dims[0] {
            return Err(Error::DataCount {
                image_path,
                images: count,
                label_path,
                labels: labels.dims[0],
            });
        }
        check_digits(&label_path, &labels)?;
        let images = images.bytes.into_iter().map(normalised).collect();
        Ok(Self {
            images,
            labels: labels.bytes,
            rows,
            cols,
            source: image_path,
        })
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Checks that the images are squares of `side` pixels.
    ///
    /// # Errors
    ///
    /// [`Error::DataImageSize`] if they are not.
    pub(crate) fn require_side(&self, side: usize) -> Result<(), Error> {
        if (self.rows, self.cols) == (side, side) {
            return Ok(());
        }
        let (rows, cols, path) = (self.rows, self.cols, self.source.clone());
        Err(Error::DataImageSize {
            path,
            rows,
            cols,
            side,
        })
    }

    /// Copies the samples with these indices, in their order; an index may be given twice.
    ///
    /// # Panics
    ///
    /// If an index is not below [`len`](Self::len).
    pub(crate) fn gather(&self, indices: &[usize]) -> Batch {
        let size = self.rows * self.cols;
        let mut pixels = Vec::with_capacity(indices.len() * size);
        for &index in indices {
            pixels.extend_from_slice(&self.images[index * size..(index + 1) * size]);
        }
        let labels = indices
            .iter()
            .map(|&index| u32::from(self.labels[index]))
            .collect();
        Batch { pixels, labels }
    }
}

impl Split {
    fn image_file(self) -> &'static str {
        match self {
            Self::Train => "train-images-idx3-ubyte",
            Self::Test => "t10k-images-idx3-ubyte",
        }
    }

    fn label_file(self) -> &'static str {
        match self {
            Self::Train => "train-labels-idx1-ubyte",
            Self::Test => "t10k-labels-idx1-ubyte",
        }
    }
}

fn check_digits(path: &Path, labels: &Idx) -> Result<(), Error> {
    match labels.bytes.iter().position(|&label| label > 9) {
        None => Ok(()),
        Some(index) => Err(Error::DataLabel {
            path: path.to_owned(),
            index,
            label: labels.bytes[index],
        }),
    }
}

fn normalised(byte: u8) -> f32 {
    (f32::from(byte) / 255.0 - MEAN) / DEVIATION
}

/// Mean and standard deviation of all pixels of the full training set, as everyone uses them.
const MEAN: f32 = 0.1307;
const DEVIATION: f32 = 0.3081;
