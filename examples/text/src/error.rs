//! Everything that can stop a training, each as one line that says what to do.

use std::path::{Path, PathBuf};

/// Why training did not start or did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A folder or a file of the text cannot be read.
    #[error("cannot read {path}; pass --data DIR with a folder of text files", path = path.display())]
    DataRead {
        /// Which one.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },

    /// No file below a folder is text, or all are empty.
    #[error(
        "no text in {path}, where {passed_over} {files} no UTF-8; pass --data DIR with a folder of text files",
        path = path.display(),
        files = if *passed_over == 1 { "file is" } else { "files are" }
    )]
    DataNone {
        /// The folder.
        path: PathBuf,
        /// Files that are no UTF-8.
        passed_over: usize,
    },

    /// There is more text than is meant for a small model.
    #[error("more than {most} bytes of text in {path}; pass --data DIR with a smaller folder", path = path.display())]
    DataTooLong {
        /// The folder.
        path: PathBuf,
        /// The most bytes.
        most: usize,
    },

    /// A tenth of the text holds no row.
    #[error(
        "{characters} characters of text are too few for a context of {context}, which needs more than {context} in its last tenth; pass --data DIR with more, or a lower --context"
    )]
    DataTooShort {
        /// Of all text.
        characters: usize,
        /// Characters of a row.
        context: usize,
    },

    /// A transformer of these sizes cannot be made.
    #[error("{layers} layers of width {width} with {heads} heads and context {context}: {problem}")]
    Size {
        /// Its layers.
        layers: usize,
        /// Numbers that stand for a character.
        width: usize,
        /// Heads of attention.
        heads: usize,
        /// Characters that are looked back at.
        context: usize,
        /// What is wrong, and the remedy.
        problem: &'static str,
    },

    /// An option that has nothing to do beside the others.
    #[error("{option} has no effect {circumstance}; leave it out, or choose another method")]
    Unused {
        /// Which one.
        option: &'static str,
        /// With or without which other one.
        circumstance: String,
    },

    /// A step was to be made without a batch.
    #[error("a step has no batch; give it as many as it adds up")]
    NoBatch,

    /// The loss left the finite numbers; the variables are of no use any more.
    #[error("loss is {loss} at step {step} with learning rate {rate}; pass a lower --lr")]
    LossNotFinite {
        /// From 1.
        step: usize,
        /// The loss.
        loss: f32,
        /// The highest rate.
        rate: f64,
    },

    /// A GPU cannot be had.
    #[error(
        "cannot compute on GPU {gpu}; pass --device cpu, the number of a GPU that is there, or build with --features cuda"
    )]
    Device {
        /// Its number.
        gpu: usize,
        /// What candle says.
        source: candle_core::Error,
    },

    /// The program could not start itself as the workers.
    #[error("cannot start this program again as the workers")]
    Restart {
        /// What the operating system says.
        source: std::io::Error,
    },

    /// A worker was lost, or differs from the others, or the cluster is described wrongly.
    #[error(transparent)]
    Workers(#[from] meshwork_candle::Error),

    /// The workers could not be started.
    #[error(transparent)]
    Launch(#[from] meshwork_launcher::LaunchError),

    /// The workers were started, and one of them failed.
    #[error("{outcome}")]
    Job {
        /// The status that the launcher ends with.
        status: u8,
        /// Who failed and how.
        outcome: String,
    },

    /// candle refused an operation: a mistake in this program.
    #[error("cannot evaluate the network")]
    Network {
        /// What candle says.
        #[from]
        source: candle_core::Error,
    },

    /// A result file cannot be written.
    #[error("cannot write {path}; pass another name with --json", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },

    /// Standard output takes no more, as a file on a full disk.
    #[error("cannot write the result to standard output; pass --json FILE to have it there")]
    Output {
        /// What the operating system says.
        source: std::io::Error,
    },
}

impl Error {
    /// The status that the launcher understands.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        if let Self::Workers(error) = self {
            return error.exit_status();
        }
        if let Self::Job { status, .. } = self {
            return *status;
        }
        1
    }

    /// Returns a function that makes an I/O error of a result file one that names it.
    pub fn write(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Write {
            path: path.to_owned(),
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
#[must_use]
pub fn one_line(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    let lines = causes.map(|cause| {
        cause
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    });
    lines.collect::<Vec<_>>().join(": ")
}
