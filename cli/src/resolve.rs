//! `meshwork resolve`: who is in the cluster, and why.

mod report;
mod source;

use std::io::{self, Write};

use clap::Args;
use meshwork_cluster_resolver::Variables;

use report::Report;
use source::{Choice, Source};

/// What to resolve, and how to show it.
#[derive(Args, Debug)]
pub(crate) struct Resolve {
    /// Who describes the cluster [default: whoever the environment shows]
    #[arg(value_enum)]
    source: Option<Source>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Print what each answer comes from, what was ignored, and why
    #[arg(long)]
    explain: bool,
}

/// Why `meshwork resolve` fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    /// Nothing shows where the process runs.
    #[error(
        "nothing here describes a cluster: none of {} is set; name the source, or set TF_CONFIG",
        source::all_signs()
    )]
    NothingFound,
    /// An answer is missing; the report said which.
    #[error(transparent)]
    Unanswered(#[from] meshwork_cluster_resolver::Error),
    /// The report cannot be written.
    #[error("standard output cannot be written")]
    Output(#[from] io::Error),
}

/// Resolves and prints. What can be answered is printed even if something else cannot.
pub(crate) fn run(wanted: &Resolve) -> Result<(), ResolveError> {
    let variables = Variables::of_process();
    let choice = match wanted.source {
        Some(source) => Choice::named(source),
        None => Choice::detect(&variables)?.ok_or(ResolveError::NothingFound)?,
    };
    let resolver = choice.source.resolver(variables);
    let mut report = Report::ask(&choice, resolver.as_ref());
    if wanted.explain {
        report = report.explained(resolver.explain());
    }
    let mut output = io::stdout().lock();
    if wanted.json {
        writeln!(output, "{}", report.to_json())?;
    } else {
        write!(output, "{report}")?;
    }
    output.flush()?;
    report
        .into_error()
        .map_or(Ok(()), |error| Err(error.into()))
}
