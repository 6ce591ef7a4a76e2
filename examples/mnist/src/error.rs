//! Everything that can stop the program, each as one line that says what to do.

use std::num::ParseIntError;
use std::path::{Path, PathBuf};

use plotters::drawing::DrawingAreaErrorKind;

use crate::data::{ImageShape, Split};
use crate::model::Kind;

/// Why training did not start or did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// No file of a part of the data is in the data folder.
    #[error(
        "no file of {split} data in {folder}; pass --data DIR with the files of MNIST (train-*, t10k-*) or of CIFAR-10 (data_batch_*.bin, test_batch.bin)",
        folder = folder.display()
    )]
    DataMissing { folder: PathBuf, split: Split },

    /// The operating system refused to read a data file or the folder, or a compressed stream is
    /// damaged.
    #[error(
        "cannot read {path}; fetch it again, or pass --data DIR with another copy of the data",
        path = path.display()
    )]
    DataRead {
        path: PathBuf,
        source: std::io::Error,
    },

    /// The files of a part do not make up one data set.
    #[error(
        "{split} data in {folder}: files of images {images}, of labels {labels}, of CIFAR-10 records {records}; leave one of images with one of labels there, or records alone",
        folder = folder.display()
    )]
    DataParts {
        folder: PathBuf,
        split: Split,
        images: usize,
        labels: usize,
        records: usize,
    },

    /// A data file ends inside its header, before the last element that its header announces, or
    /// inside a record.
    #[error(
        "data file {path} ends after {found} of {expected} bytes; fetch it again",
        path = path.display()
    )]
    DataTruncated {
        path: PathBuf,
        found: u64,
        expected: u64,
    },

    /// A data file goes on after the last element its header announces.
    #[error(
        "data file {path} has {found} bytes, and its header announces {expected}; fetch it again",
        path = path.display()
    )]
    DataTooLong {
        path: PathBuf,
        found: u64,
        expected: u64,
    },

    /// A data file is in no known format.
    #[error(
        "data file {path} of {len} bytes has magic number {found:#010x}, neither 0x00000803 of images nor 0x00000801 of labels, and no records of 3073 bytes as CIFAR-10; fetch it again",
        path = path.display()
    )]
    DataMagic { path: PathBuf, found: u32, len: u64 },

    /// A header announces no elements, or more bytes than can be addressed.
    #[error(
        "data file {path} announces dimensions {dims:?}, each must be at least 1 and their product addressable; fetch it again",
        path = path.display()
    )]
    DataDimensions { path: PathBuf, dims: Vec<u32> },

    /// The two files of a data set disagree on how many samples there are.
    #[error(
        "{images} images in {image_path} but {labels} labels in {label_path}; use two files of the same set",
        image_path = image_path.display(),
        label_path = label_path.display()
    )]
    DataCount {
        image_path: PathBuf,
        images: usize,
        label_path: PathBuf,
        labels: usize,
    },

    /// A label is no decimal digit.
    #[error(
        "label {label} of sample {index} in {path} is above 9; fetch the file again",
        path = path.display()
    )]
    DataLabel {
        path: PathBuf,
        index: usize,
        label: u8,
    },

    /// Training and test images have different sizes.
    #[error(
        "training images in {folder} are {train} (channels, rows, columns) and test images {test}; use two parts of one data set",
        folder = folder.display()
    )]
    DataShapes {
        folder: PathBuf,
        train: ImageShape,
        test: ImageShape,
    },

    /// The images are too small for the network.
    #[error(
        "images in {folder} are {shape} (channels, rows, columns), below the {least}x{least} pixels that the networks take at least; scale them first",
        folder = folder.display()
    )]
    DataImageSize {
        folder: PathBuf,
        shape: ImageShape,
        least: usize,
    },

    /// A count given on the command line is no whole number.
    #[error("not a whole number of at least 1")]
    CountSyntax { source: ParseIntError },

    /// A count given on the command line is zero.
    #[error("must be at least 1")]
    CountZero,

    /// The seed is no number.
    #[error("not a whole number from 0 to {}", u64::MAX)]
    Seed { source: ParseIntError },

    /// The range of an elastic run is none.
    #[error("must be MIN:MAX, the least and the most workers, such as 2:3")]
    Range,

    /// Batch normalisation is to be synchronized where there is none.
    #[error("--sync-batch-norm is for --model resnet; {model} has no batch normalisation")]
    NothingToSynchronize { model: Kind },

    /// The engine was left out of this build.
    #[cfg(not(feature = "xla"))]
    #[error(
        "--engine xla is not in this build: cargo run --release -p mnist --features xla -- --engine xla"
    )]
    WithoutXla,

    /// The program for XLA is of another network.
    #[cfg(feature = "xla")]
    #[error("--engine xla has --model cnn only: leave --model {model} away, or --engine xla")]
    OtherNetwork { model: Kind },

    /// The engine has one process, and was started as one of several.
    #[cfg(feature = "xla")]
    #[error(
        "--engine xla trains in one process, and the environment describes several: start it alone"
    )]
    OneProcess,

    /// Devices would have unequal parts of a batch.
    #[cfg(feature = "xla")]
    #[error(
        "{batch} images cannot be divided evenly among {devices} devices: pass another --global-batch or --devices"
    )]
    UnevenBatch { batch: usize, devices: usize },

    /// There is no plugin, or it failed.
    #[cfg(feature = "xla")]
    #[error(transparent)]
    Plugin(#[from] meshwork_accel_tpu::Error),

    /// The program could not be compiled or carried out.
    #[cfg(feature = "xla")]
    #[error(transparent)]
    Program(#[from] meshwork_dtensor::Error),

    /// A learning rate given on the command line is no number above zero.
    #[error("must be a finite number above 0, such as 0.1")]
    LearningRate,

    /// The loss left the finite numbers; the variables are of no use any more.
    #[error("loss is {loss} at step {step} with learning rate {rate}; pass a lower --lr")]
    LossNotFinite { step: usize, loss: f32, rate: f64 },

    /// The checkpoint is of a run with other settings, which would go on another way.
    #[error(
        "the checkpoint was written with {saved} and not with {now}; pass the same options, or --checkpoint with another folder"
    )]
    OtherSettings { saved: String, now: String },

    /// The checkpoint is of a run over other images.
    #[error(
        "the checkpoint was written with {saved} and not with {now}; pass the same --data, or --checkpoint with another folder"
    )]
    OtherImages { saved: String, now: String },

    /// The program was asked to end, and everything it needs to go on is saved.
    #[error("ended by SIGTERM; checkpoints are in {folder}, run again to go on", folder = folder.display())]
    Preempted { folder: PathBuf },

    /// The operating system refused to tell this program about SIGTERM.
    #[error("cannot watch for SIGTERM; leave --checkpoint away")]
    Signal { source: std::io::Error },

    /// The thread pool could not be made.
    #[error("cannot start {threads} compute threads; pass a lower --threads")]
    Threads {
        threads: usize,
        source: rayon::ThreadPoolBuildError,
    },

    /// The program could not start itself over with another environment.
    #[error(
        "cannot restart; set RAYON_NUM_THREADS and CANDLE_NUM_THREADS to the value of --threads"
    )]
    Restart { source: std::io::Error },

    /// A worker was lost, or differs from the others, or the cluster is described wrongly.
    #[error(transparent)]
    Workers(#[from] meshwork_candle::Error),

    /// The workers could not be started.
    #[error(transparent)]
    Launch(#[from] meshwork_launcher::LaunchError),

    /// The workers were started, and one of them failed.
    #[error("{outcome}")]
    Job { status: u8, outcome: String },

    /// candle refused an operation: a mistake in this program.
    #[error("cannot evaluate the network")]
    Network {
        #[from]
        source: candle_core::Error,
    },

    /// A result file cannot be written.
    #[error("cannot write {path}; pass another name with {flag}", path = path.display())]
    Write {
        path: PathBuf,
        flag: &'static str,
        source: std::io::Error,
    },

    /// Standard output takes no more, as a file on a full disk.
    #[error("cannot write the result to standard output; pass --json FILE to have it there")]
    Output { source: std::io::Error },

    /// The loss curve could not be laid out: a mistake in this program.
    #[error("cannot draw the loss curve of {steps} steps")]
    Draw {
        steps: usize,
        source: DrawingAreaErrorKind<std::io::Error>,
    },
}

impl Error {
    /// The status that the launcher understands.
    pub(crate) fn exit_status(&self) -> u8 {
        if let Self::Workers(error) = self {
            return error.exit_status();
        }
        if let Self::Job { status, .. } = self {
            return *status;
        }
        1
    }

    /// Returns a function that makes an I/O error of a result file one that names it and its flag.
    pub(crate) fn write(path: &Path, flag: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Write {
            path: path.to_owned(),
            flag,
            source,
        }
    }
}

impl From<meshwork_strategy::Error> for Error {
    fn from(error: meshwork_strategy::Error) -> Self {
        Self::Workers(error.into())
    }
}

/// One line for `error` and its causes, outermost first, without the backtraces some of them
/// append.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |cause| cause.source())
        .map(|cause| {
            cause
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_on_the_same_line() {
        let source = std::io::Error::other("disk on fire\nframe 1\nframe 2");
        let error = Error::write(Path::new("out.json"), "--json")(source);
        assert_eq!(
            one_line(&error),
            "cannot write out.json; pass another name with --json: disk on fire"
        );
    }
}
