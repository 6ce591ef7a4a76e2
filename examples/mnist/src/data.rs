//! Labelled images in MNIST's and CIFAR-10's files, and batches out of them.

mod cifar;
mod file;
mod folder;
mod idx;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use flate2::Crc;

use crate::error::Error;

/// Which part of a data set.
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
    /// Bytes of the pixels, image after image, each channel by channel, row-major.
    pixels: Vec<u8>,
    /// One class for each image, 0 to 9.
    labels: Vec<u8>,
    shape: ImageShape,
}

/// The sizes that all images of a data set have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageShape {
    pub(crate) colours: Colours,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

/// The channels of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colours {
    /// One, as MNIST has it.
    Grey,
    /// Red, green and blue, as CIFAR-10 has them.
    Rgb,
}

/// Samples picked from a [`Dataset`].
#[derive(Debug)]
pub(crate) struct Batch {
    /// Pixels in the order of [`Dataset`], each channel with about 0 as its mean and 1 as its
    /// deviation.
    pub(crate) pixels: Vec<f32>,
    /// One class for each image.
    pub(crate) labels: Vec<u32>,
    pub(crate) shape: ImageShape,
}

impl Dataset {
    /// Reads one part of the data set in `folder`, whose files are recognised by what is in them,
    /// each compressed by gzip or plain.
    ///
    /// # Errors
    ///
    /// A `Data…` variant that names the file which is missing, damaged, or at odds with its
    /// partner.
    pub(crate) fn load(folder: &Path, split: Split) -> Result<Self, Error> {
        folder::load(folder, split)
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// The sizes of its images.
    pub(crate) fn shape(&self) -> ImageShape {
        self.shape
    }

    /// A checksum of all pixels and labels (CRC-32, as gzip has it).
    pub(crate) fn checksum(&self) -> u32 {
        let mut checksum = Crc::new();
        checksum.update(&self.pixels);
        checksum.update(&self.labels);
        checksum.sum()
    }

    /// Copies the samples with these indices, in their order; an index may be given twice.
    ///
    /// # Panics
    ///
    /// If an index is not below [`len`](Self::len).
    pub(crate) fn gather(&self, indices: &[usize]) -> Batch {
        let size = self.shape.len();
        let area = self.shape.rows * self.shape.cols;
        let mut pixels = Vec::with_capacity(indices.len() * size);
        for &index in indices {
            let image = &self.pixels[index * size..(index + 1) * size];
            let planes = image.chunks_exact(area);
            for (plane, scale) in planes.zip(self.shape.colours.scales()) {
                pixels.extend(plane.iter().map(|&byte| scale.normalised(byte)));
            }
        }
        let labels = indices
            .iter()
            .map(|&index| u32::from(self.labels[index]))
            .collect();
        Batch {
            pixels,
            labels,
            shape: self.shape,
        }
    }
}

impl ImageShape {
    pub(crate) fn channels(self) -> usize {
        self.colours.scales().len()
    }

    /// Pixels of an image, over all channels.
    pub(crate) fn len(self) -> usize {
        self.channels() * self.rows * self.cols
    }
}

impl Colours {
    /// How bright each channel is.
    fn scales(self) -> &'static [Scale] {
        match self {
            Self::Grey => &MNIST,
            Self::Rgb => &CIFAR,
        }
    }
}

impl fmt::Display for ImageShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.channels(), self.rows, self.cols)
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "training",
            Self::Test => "test",
        })
    }
}

/// Mean and standard deviation of a channel, where white is 1.
#[derive(Clone, Copy, Debug)]
struct Scale {
    mean: f32,
    deviation: f32,
}

impl Scale {
    fn normalised(self, byte: u8) -> f32 {
        (f32::from(byte) / 255.0 - self.mean) / self.deviation
    }
}

/// Of all pixels of the full training set, as everyone uses them.
const MNIST: [Scale; 1] = [Scale {
    mean: 0.1307,
    deviation: 0.3081,
}];

/// The same of red, green and blue.
const CIFAR: [Scale; 3] = [
    Scale {
        mean: 0.4914,
        deviation: 0.2470,
    },
    Scale {
        mean: 0.4822,
        deviation: 0.2435,
    },
    Scale {
        mean: 0.4465,
        deviation: 0.2616,
    },
];
