use super::Error;

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
