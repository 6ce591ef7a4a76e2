//! What can be wrong with a `TF_CONFIG` text.

use std::fmt::{self, Display};

use crate::task::MAX_TASK_INDEX;

/// What belongs in a field of `TF_CONFIG`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Expected {
    /// The whole: an object with the keys `cluster` and `task`.
    Config,
    /// An object from job names to tasks.
    Jobs,
    /// A list of addresses, or an object from task index to address.
    Tasks,
    /// The address of one task.
    Address,
    /// An object with the keys `type` and `index`.
    Task,
    /// A task index.
    Index,
    /// A text.
    Text,
}

impl Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config => f.write_str(r#"an object with the keys "cluster" and "task""#),
            Self::Jobs => {
                f.write_str(r#"an object of jobs such as {"worker": ["host:2222"]}, or leave it out"#)
            }
            Self::Tasks => f.write_str(
                r#"a list of addresses such as ["host:2222"] or an object such as {"0": "host:2222"}"#,
            ),
            Self::Address => f.write_str(r#"a text such as "host:2222""#),
            Self::Task => {
                f.write_str(r#"an object such as {"type": "worker", "index": 0}, or leave it out"#)
            }
            Self::Index => write!(f, "a whole number from 0 to {MAX_TASK_INDEX}"),
            Self::Text => f.write_str("a text in double quotes"),
        }
    }
}

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
