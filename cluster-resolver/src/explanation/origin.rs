use std::fmt::{self, Display};
use std::path::PathBuf;

use crate::text::Shortened;

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
    /// The answer to a request, by URL, without user name and password.
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

    /// The answer to a request; a user name and password before the host are left out.
    #[must_use]
    pub fn url(url: &str) -> Self {
        Self::new(Source::Url(without_user(url)))
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

/// The URL without what stands between the scheme and an `@` before the path.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_loses_its_user_and_password() {
        let check = |url: &str, shown: &str| assert_eq!(Origin::url(url).to_string(), shown);
        check("https://me:pass@host:1/a@b?c", "https://host:1/a@b?c");
        check("http://host/x", "http://host/x");
        check("http://a@b@host", "http://host");
        check("no url", "no url");
    }
}
