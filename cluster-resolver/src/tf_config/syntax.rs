//! From text to JSON values, with errors that show the place.

use std::fmt::{self, Display};

use serde_json::Value;
use serde_json::error::Category;

use crate::Error;

/// What keeps a text from being JSON. Shown, it says what to do about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum JsonProblem {
    /// There is nothing, or nothing but blanks.
    Empty,
    /// The text ends inside a value.
    Truncated,
    /// A text or key stands in single quotes.
    SingleQuotes,
    /// Another character was expected.
    Malformed,
}

impl Display for JsonProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => {
                "it is empty, so write a JSON object, or unset the variable to run alone"
            }
            Self::Truncated => "it ends too early, so add the closing quote, bracket or brace",
            Self::SingleQuotes => "JSON has no single quotes, so write double quotes",
            Self::Malformed => "this is no JSON, so check quotes, commas and brackets there",
        })
    }
}

/// Reads one JSON value that makes up the whole text.
pub(super) fn read(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let around = Around::of(text, line, column);
        let problem = if text.trim().is_empty() {
            JsonProblem::Empty
        } else if error.classify() == Category::Eof {
            JsonProblem::Truncated
        } else if around.after.starts_with('\'') {
            JsonProblem::SingleQuotes
        } else {
            JsonProblem::Malformed
        };
        Error::Json {
            line,
            column,
            snippet: around.snippet(),
            problem,
        }
    })
}

/// A line cut in two before the character that a reader stopped at.
struct Around<'a> {
    before: &'a str,
    after: &'a str,
}

impl<'a> Around<'a> {
    /// `line` counts from 1, `column` counts bytes up to and including the offending one.
    fn of(text: &'a str, line: usize, column: usize) -> Self {
        let line = text
            .split('\n')
            .nth(line.saturating_sub(1))
            .unwrap_or_default();
        let at = line.floor_char_boundary(column.saturating_sub(1));
        let (before, after) = line.split_at(at);
        Self { before, after }
    }

    fn snippet(&self) -> String {
        let hidden = self.before.chars().count().saturating_sub(BEFORE);
        let left = if hidden > 0 { "…" } else { "" };
        let right = if self.after.chars().nth(AFTER).is_some() {
            "…"
        } else {
            ""
        };
        let shown = self
            .before
            .chars()
            .skip(hidden)
            .chain(self.after.chars().take(AFTER));
        format!("{left}{}{right}", shown.collect::<String>())
    }
}

/// Characters shown before the offending one.
const BEFORE: usize = 16;

/// Characters shown from the offending one on.
const AFTER: usize = 24;
