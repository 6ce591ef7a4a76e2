//! The workers' output on its way to the launcher's own.

mod lines;
mod pump;
mod shown;
mod sink;

pub(crate) use pump::{OutputSummary, Pipe, Pump};
pub(crate) use shown::Shown;
pub(crate) use sink::{LostLines, Stream};

/// Where the workers' output goes: stdout to stdout and stderr to stderr, in both cases.
///
/// A line reaches it whole, after the worker's rank as in `[2] loss 0.31`, byte by byte as it was
/// written, UTF-8 or not. Rank prefixes are coloured on a terminal (unless `NO_COLOR` is set).
/// Three cases are less plain:
///
/// - what follows a lone carriage return, as progress bars write it, gets a prefix too, so that the
///   final state of the bar stands behind one on a terminal;
/// - a last line without newline gets one;
/// - a line of more than 64 KiB is broken into several.
///
/// The order of lines is kept within one worker's stdout and within its stderr, and nowhere else.
/// Workers block while the output is not read; once the launcher's stdout or stderr is closed, what
/// would go there is dropped and the workers go on. They go on as well where a line cannot be
/// written for another reason, as on a full disk: it is lost, later ones are tried, and a run that
/// has succeeded is [`LaunchError::OutputLost`](crate::LaunchError::OutputLost).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// All workers' lines are prefixed.
    #[default]
    Prefixed,
    /// Rank 0 writes to the launcher's stdout and stderr directly, so that it can draw a progress
    /// bar; the lines of the others are prefixed. What rank 0 says last is then not in the
    /// [`Failure`](crate::Failure).
    ChiefInherits,
}
