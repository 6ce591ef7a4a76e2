//! From text to JSON values, with errors that show the place.

use serde_json::Value;
use serde_json::error::Category;

use crate::error::{Error, JsonProblem};

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
