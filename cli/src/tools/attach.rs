//! Which ranks of a running job are asked.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use meshwork_status::{FetchError, Look, StatusClient, Target, Token, targets};

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
const PATIENCE: Duration = Duration::from_millis(700);
/// How long one may take that asks all others.
const OF_ALL: Duration = Duration::from_secs(4);

/// What one rank said.
pub(crate) type Answer = Result<String, FetchError>;

/// The ranks of a job, which can be asked.
pub(crate) struct Ranks<'a> {
    attach: &'a Attach,
    client: StatusClient,
    /// One that asks the others.
    through: StatusClient,
    began: Instant,
}

impl Attach {
    pub(crate) fn ranks(&self) -> Result<Ranks<'_>, AttachError> {
        let token = self.token_file.as_deref().map(Token::from_file);
        let token = token.transpose()?;
        let client =
            |patience| StatusClient::new(token.clone(), patience).map_err(AttachError::Network);
        Ok(Ranks {
            attach: self,
            client: client(PATIENCE)?,
            through: client(OF_ALL)?,
            began: Instant::now(),
        })
    }

    /// The first of what is named to ask.
    pub(crate) fn first(&self) -> Option<&str> {
        self.job.first().map(String::as_str)
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

    /// Whether it names one rank only, which then is to ask the others.
    fn is_one_address(&self) -> bool {
        matches!(&self.job[..], [given] if !Path::new(given).is_dir())
    }
}

impl Ranks<'_> {
    /// What all ranks say at this path, those that say where they are by now.
    pub(crate) fn ask(&self, path: &str) -> Result<Vec<Answer>, AttachError> {
        Ok(self.client.fetch(&self.attach.targets()?, path))
    }

    /// What all ranks say of themselves at this moment.
    pub(crate) fn look(&mut self) -> Result<Look, AttachError> {
        let targets = self.attach.targets()?;
        let answers = match self.attach.is_one_address() {
            true => self.through.fetch(&targets, "/ranks.jsonl?hops=2"),
            false => self.client.fetch(&targets, "/ranks.jsonl"),
        };
        let lines = targets
            .iter()
            .zip(&answers)
            .flat_map(|(target, answer)| match answer {
                Ok(lines) => lines.lines().map(Ok).collect(),
                Err(error) => vec![Err(target.unanswered(error))],
            });
        let at = self.began.elapsed().as_secs_f64();
        Ok(Look::from_lines(at, lines))
    }
}
