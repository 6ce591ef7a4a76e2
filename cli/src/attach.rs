//! Which ranks of a running job are asked.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use meshwork_status::{Client, FetchError, Target, Token, targets};

/// The job.
#[derive(Args, Debug)]
pub(crate) struct Attach {
    /// The folder in MESHWORK_STATUS_FOLDER, or addresses of ranks, host:port
    #[arg(value_name = "FOLDER|HOST:PORT")]
    job: Vec<String>,

    /// The file with the token that the ranks ask for
    #[arg(long, value_name = "FILE", env = "MESHWORK_STATUS_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

/// Why the ranks cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// Nothing says where they are.
    #[error(
        "no rank says where it is asked: start the job with MESHWORK_STATUS=127.0.0.1:0 and \
         MESHWORK_STATUS_FOLDER, and give that folder, or addresses of ranks"
    )]
    Nobody,
    /// A folder or token cannot be read.
    #[error(transparent)]
    Status(#[from] meshwork_status::Error),
    /// The system refuses what sockets need.
    #[error("no network")]
    Network(#[source] io::Error),
}

/// How long a rank may take: one that is stopped does not answer, and one that works does at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// What one rank said.
pub(crate) type Answer = Result<String, FetchError>;

/// A job whose ranks can be asked.
pub(crate) struct Job<'a> {
    attach: &'a Attach,
    client: Client,
}

impl Attach {
    pub(crate) fn job(&self) -> Result<Job<'_>, AttachError> {
        let token = self.token_file.as_deref().map(Token::from_file);
        let client = Client::new(token.transpose()?, PATIENCE).map_err(AttachError::Network)?;
        Ok(Job {
            attach: self,
            client,
        })
    }

    fn targets(&self) -> Result<Vec<Target>, AttachError> {
        let mut all = Vec::new();
        for given in &self.job {
            let folder = Path::new(given);
            match folder.is_dir() {
                true => all.extend(targets(folder)?),
                false => all.push(Target::new(given.as_str())),
            }
        }
        match all.is_empty() {
            true => Err(AttachError::Nobody),
            false => Ok(all),
        }
    }
}

impl Job<'_> {
    /// What all ranks say at this path, those that say where they are by now.
    pub(crate) fn ask(&self, path: &'static str) -> Result<Vec<Answer>, AttachError> {
        Ok(self.client.fetch(&self.attach.targets()?, path))
    }
}
