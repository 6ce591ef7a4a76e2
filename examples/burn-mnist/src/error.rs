use std::io;
use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{} cannot be read", path.display())]
    Data { path: PathBuf, source: io::Error },
    #[error(
        "{} has {found} labels, and {needed} images need one each: fetch both files again",
        path.display()
    )]
    Labels {
        path: PathBuf,
        found: usize,
        needed: usize,
    },
    #[error(
        "label {label} of sample {index} in {} is above 9: fetch the file again",
        path.display()
    )]
    Label {
        path: PathBuf,
        index: usize,
        label: u8,
    },
    #[error(transparent)]
    Burn(#[from] meshwork_burn::Error),
    #[error("{0}")]
    Training(String),
    #[error("the thread pool cannot be made")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    #[error("this program cannot be started again")]
    Program { source: io::Error },
    #[error(transparent)]
    Launch(#[from] meshwork_launcher::LaunchError),
    #[error("{outcome}")]
    Job { outcome: String, status: u8 },
}

impl Error {
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Burn(error) => error.exit_status(),
            Self::Job { status, .. } => *status,
            Self::Data { .. }
            | Self::Labels { .. }
            | Self::Label { .. }
            | Self::Training(_)
            | Self::Program { .. }
            | Self::Threads(_)
            | Self::Launch(_) => 1,
        }
    }
}

/// The error and its causes.
pub(crate) fn one_line(error: &Error) -> String {
    let mut line = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        line = format!("{line}: {error}");
        source = error.source();
    }
    line
}
