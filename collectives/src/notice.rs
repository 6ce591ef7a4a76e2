//! What is said to people while a group runs.

use std::fmt::Display;
use std::io::{self, Write};

/// Says a line where people read it: in the program's log, or else on standard error.
pub(crate) fn say(line: impl Display) {
    match tracing::enabled!(tracing::Level::WARN) {
        true => tracing::warn!("{line}"),
        // Whoever has closed it does not want to know.
        false => drop(writeln!(io::stderr(), "meshwork: {line}")),
    }
}
