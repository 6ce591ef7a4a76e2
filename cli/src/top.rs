//! `meshwork top`: how the ranks of a running job fare.

mod job;
mod rank;
mod screen;
mod table;

use std::io::{self, Write};

use clap::Args;

use crate::attach::{Attach, AttachError};
use job::Job;
use rank::Rank;

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

/// Looks, and shows.
pub(crate) fn run(wanted: &Top) -> Result<(), TopError> {
    let asked = wanted.attach.job()?;
    if !wanted.once {
        return screen::show(|| look(&asked));
    }
    let job = look(&asked)?;
    let text = match wanted.json {
        true => format!("{}\n", job.json()),
        false => table::text(&job),
    };
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    Ok(output.flush()?)
}

fn look(asked: &crate::attach::Job<'_>) -> Result<Job, TopError> {
    let (mut ranks, mut unanswered) = (Vec::new(), Vec::new());
    for answer in asked.ask("/status.json")? {
        match answer.map(|text| Rank::from_json(&text)) {
            Ok(Some(rank)) => ranks.push(rank),
            Ok(None) => unanswered.push("a rank of another release, or no rank".to_owned()),
            Err(error) => unanswered.push(error.to_string()),
        }
    }
    match (ranks.is_empty(), unanswered.first()) {
        (true, Some(first)) => Err(TopError::Silent {
            first: first.clone(),
        }),
        _ => Ok(Job::new(ranks, unanswered)),
    }
}
