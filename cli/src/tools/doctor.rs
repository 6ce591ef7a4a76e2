//! `meshwork doctor`: why a job failed, why one that runs does not get on, and whether one can
//! begin here.

mod dumps;
mod live;
mod preflight;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use meshwork_launcher::{LaunchError, Outcome};

use crate::tools::attach::{Attach, AttachError};

/// What to look at.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Say why a job failed, from the dumps that its ranks left in this folder
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,

    /// Ask the ranks of a running job what they wait for: those of a folder, or at addresses
    #[arg(long, conflicts_with_all = ["dump", "ranks", "hosts"], requires = "job")]
    live: bool,

    #[command(flatten)]
    attach: Attach,

    /// Write the operations of all dumps to this file, for Perfetto or Chrome's about:tracing
    #[arg(long, value_name = "FILE", requires = "dump")]
    trace: Option<PathBuf>,

    /// Start this many ranks on this machine, and look at their pairs
    #[arg(short = 'n', long, value_name = "N", conflicts_with_all = ["dump", "hosts"])]
    ranks: Option<usize>,

    /// The addresses of all ranks, host:port, of which this is one [default: those of TF_CONFIG]
    #[arg(
        long,
        value_delimiter = ',',
        requires = "rank",
        conflicts_with = "dump",
        value_name = "HOST:PORT,…"
    )]
    hosts: Vec<String>,

    /// Which of the hosts this is, from 0
    #[arg(long, requires = "hosts")]
    rank: Option<u32>,

    /// This process is one of the ranks that another has started
    #[arg(long, hide = true)]
    worker: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Why `meshwork doctor` fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DoctorError {
    /// A file or folder cannot be read or written.
    #[error("{} cannot be {what}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Read or written.
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// The folder has no dumps.
    #[error(
        "no rank-N.json is in {}: let every rank have the same MESHWORK_DUMP, and bring the files together",
        path.display()
    )]
    NoDumps {
        /// The folder.
        path: PathBuf,
    },
    /// A file is no dump.
    #[error("{} is no dump", path.display())]
    NoDump {
        /// The file.
        path: PathBuf,
        #[source]
        source: meshwork_collectives::diagnosis::DumpError,
    },
    /// A job is named, and nothing says what is to be looked at there.
    #[error(
        "{given} is only looked at with --live, for a job that runs: add that, and --dump before the folder of one that failed"
    )]
    NotLive {
        /// What is named.
        given: String,
    },
    /// The ranks of a running job cannot be asked.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// None of them answers.
    #[error("no rank answers: {first}")]
    NoAnswer {
        /// What the first of them did instead.
        first: String,
    },
    /// Nothing says who the members of the job are.
    #[error("who is in the job is not known: give --hosts and --rank, -n, or TF_CONFIG")]
    Members(#[from] meshwork_strategy::Error),
    /// The ranks cannot be started here.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Ranks that were started here have ended before they had looked at each other.
    #[error("the ranks did not get to the end: {outcome}")]
    Ranks {
        /// How they ended.
        outcome: Outcome,
    },
    /// A job could not begin; the report says why.
    #[error("there are problems")]
    Problems,
    /// The report cannot be written.
    #[error("standard output cannot be written")]
    Output(#[from] io::Error),
}

impl DoctorError {
    /// The exit status: of ranks that were started here, what they ended with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Launch(error) => error.exit_code(),
            Self::Ranks { outcome } => outcome.exit_code(),
            Self::File { .. }
            | Self::NoDumps { .. }
            | Self::NoDump { .. }
            | Self::NotLive { .. }
            | Self::Attach(_)
            | Self::NoAnswer { .. }
            | Self::Members(_)
            | Self::Problems
            | Self::Output(_) => PROBLEMS,
        }
    }
}

/// The exit status where there are problems, and where nothing could be looked at.
const PROBLEMS: u8 = 1;

/// Looks, and prints what it finds.
pub(crate) fn run(wanted: &Doctor) -> Result<(), DoctorError> {
    if let (false, Some(given)) = (wanted.live, wanted.attach.first()) {
        let given = given.to_owned();
        return Err(DoctorError::NotLive { given });
    }
    if wanted.live {
        let live = live::look(&wanted.attach)?;
        return print(&match wanted.json {
            true => live.json(),
            false => live.text(),
        });
    }
    let Some(folder) = &wanted.dump else {
        let checkup = preflight::run(wanted)?;
        print(&checkup.text)?;
        // Where standard error is closed nobody wants to know.
        let _ = io::stderr().write_all(checkup.aside.as_bytes());
        return match checkup.healthy {
            true => Ok(()),
            false => Err(DoctorError::Problems),
        };
    };
    let found = dumps::find(folder, wanted.trace.as_deref())?;
    print(&match wanted.json {
        true => format!("{}\n", found.json()),
        false => found.text(),
    })
}

fn print(text: &str) -> Result<(), DoctorError> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()?;
    Ok(())
}
