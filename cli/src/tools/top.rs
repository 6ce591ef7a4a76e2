//! `meshwork top`: how the ranks of a running job fare.

mod screen;
mod table;

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use clap::Args;
use meshwork_status::{Job, JobWatch};

use crate::tools::attach::{Attach, AttachError, Ranks};

/// What to show.
#[derive(Args, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    attach: Attach,

    /// Look once, print, and end
    #[arg(long)]
    once: bool,

    /// Print one JSON object
    #[arg(long, requires = "once")]
    json: bool,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopError {
    /// The ranks cannot be asked.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// None of them answers.
    #[error("no rank answers: {first}")]
    Silent {
        /// What the first of them did instead.
        first: String,
    },
    /// The terminal or standard output cannot be written.
    #[error("the terminal cannot be used")]
    Output(#[from] io::Error),
}

/// Between the two looks by which a rank is named that makes others wait.
const APART: Duration = Duration::from_secs(1);

/// Looks, and shows.
pub(crate) fn run(wanted: &Top) -> Result<(), TopError> {
    let mut ranks = wanted.attach.ranks()?;
    let mut watch = JobWatch::default();
    if !wanted.once {
        return screen::show(|| look(&mut ranks, &mut watch));
    }
    look(&mut ranks, &mut watch)?;
    thread::sleep(APART);
    let job = look(&mut ranks, &mut watch)?;
    let text = match wanted.json {
        true => format!("{}\n", job.json()),
        false => table::text(&job),
    };
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    Ok(output.flush()?)
}

fn look(ranks: &mut Ranks<'_>, watch: &mut JobWatch) -> Result<Job, TopError> {
    let look = ranks.look()?;
    match (look.ranks().is_empty(), look.unanswered().first()) {
        (true, Some(first)) => Err(TopError::Silent {
            first: first.why.clone(),
        }),
        (true | false, _) => Ok(watch.see(look)),
    }
}
