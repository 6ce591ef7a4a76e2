//! Where a value comes from.

use std::fmt::{self, Display};
use std::path::PathBuf;

use crate::text::{Shortened, url_without_secrets};

/// Where a value comes from: a source, and a field in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Origin {
    source: Source,
    field: Option<String>,
}

/// The place that holds a value.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// The program, when it made the resolver.
    Program,
    /// What holds when nobody says otherwise.
    Default,
    /// An environment variable, by name.
    Variable(String),
    /// A file, by path.
    File(PathBuf),
    /// The answer to a request, by URL, without user name, password and query.
    Url(String),
    /// The output of a command, by its words.
    Command(String),
}

impl Origin {
    /// The program that made the resolver.
    #[must_use]
    pub fn program() -> Self {
        Self::new(Source::Program)
    }

    /// What holds when nobody says otherwise.
    #[must_use]
    pub fn default_value() -> Self {
        Self::new(Source::Default)
    }

    /// An environment variable.
    #[must_use]
    pub fn variable(name: impl Into<String>) -> Self {
        Self::new(Source::Variable(name.into()))
    }

    /// A file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::new(Source::File(path.into()))
    }

    /// The answer to a request; user name, password and query are left out.
    #[must_use]
    pub fn url(url: &str) -> Self {
        Self::new(Source::Url(url_without_secrets(url)))
    }

    /// The output of a command, such as `scontrol show hostnames n[1-3]`.
    #[must_use]
    pub fn command(words: impl Into<String>) -> Self {
        Self::new(Source::Command(words.into()))
    }

    /// This field of it, such as `task.index`.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The place that holds the value.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The field in that place, if it is not the whole.
    #[must_use]
    pub fn field_name(&self) -> Option<&str> {
        self.field.as_deref()
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            field: None,
        }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("the program"),
            Self::Default => f.write_str("the default"),
            Self::Variable(name) => write!(f, "variable {}", Shortened(name)),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Url(url) => f.write_str(url),
            Self::Command(words) => write!(f, "`{}`", Shortened(words)),
        }
    }
}

impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{} in {}", Shortened(field), self.source),
            None => self.source.fmt(f),
        }
    }
}
