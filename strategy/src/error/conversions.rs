//! What becomes an `Error`, and how it is shown to who debugs.

use std::fmt;

use super::Error;

/// The message and its causes, as `main` and `unwrap` print them.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        meshwork_collectives::fmt_with_causes(self, f)
    }
}

/// Errors of groups, by what was tried, become one variant.
macro_rules! from_collectives {
    ($($error:ident),*) => {$(
        impl From<meshwork_collectives::$error> for Error {
            fn from(error: meshwork_collectives::$error) -> Self {
                Self::Group(error.into())
            }
        }
    )*};
}

from_collectives!(ConfigError, JoinError, OperationError);
