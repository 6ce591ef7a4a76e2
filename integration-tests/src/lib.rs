//! What programs for tests of whole processes have in common: how they print and end, and how they
//! start themselves as workers.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "tests read what it prints")]

use std::error::Error;
use std::fmt::Display;
use std::process::{ExitCode, Termination};

use meshwork_launcher::{Elastic, Launch};

/// Prints a line; a reader that has gone is no reason to stop.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

/// With what `program` exits, which says why it has failed if it has.
pub fn ended(program: &str, ended: Result<impl Termination, impl Display>) -> ExitCode {
    match ended {
        Ok(ended) => ended.report(),
        Err(error) => {
            eprintln!("{program}: error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts this program again as workers, with the same arguments but for those that begin with one
/// of `without`.
///
/// # Errors
/// Those of [`Launch`], and one where the path of this program is not known.
pub fn launch_again(
    without: &[&str],
    workers: usize,
    elastic: Option<Elastic>,
) -> Result<ExitCode, Box<dyn Error>> {
    let is_ours = |arg: &str| without.iter().any(|start| arg.starts_with(start));
    let args = std::env::args_os().skip(1);
    let args = args.filter(|arg| !is_ours(&arg.to_string_lossy()));
    let launch = Launch::new(std::env::current_exe()?).args(args);
    let launch = launch.workers(workers)?;
    let launch = match elastic {
        Some(elastic) => launch.elastic(elastic)?,
        None => launch,
    };
    let outcome = launch.run()?;
    eprintln!("{outcome}");
    Ok(ExitCode::from(outcome.exit_code()))
}
