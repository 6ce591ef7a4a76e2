use std::fmt::{self, Display};

/// Why the library of an unavailable backend cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Absence {
    /// No library of that name can be loaded.
    NotFound,
    /// It is there, but lacks a function.
    NoFunction {
        /// The function's name.
        function: String,
    },
    /// It is there, but older than what the backend can use.
    TooOld {
        /// Its version.
        found: String,
        /// The oldest that is good enough.
        needed: String,
    },
    /// It was loaded, and then refused to begin.
    Refused {
        /// The code that it returned.
        code: i64,
        /// The library's description of the code.
        status: String,
    },
    /// It works, and sees no device.
    NoDevices,
}

/// Reads on after the library's name.
impl Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("cannot be loaded"),
            Self::NoFunction { function } => write!(f, "has no function {function}"),
            Self::TooOld { found, needed } => {
                write!(
                    f,
                    "is version {found}, and {needed} is the oldest that will do"
                )
            }
            Self::Refused { code, status } => {
                write!(f, "refused to begin with code {code} ({status})")
            }
            Self::NoDevices => f.write_str("sees no device"),
        }
    }
}
