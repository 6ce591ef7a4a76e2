use std::fmt::{self, Display};

/// The kind of a plugin's failure: one of the codes of Abseil's `absl::Status`, or another number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Status(u32);

impl Status {
    /// An argument makes no sense.
    pub const INVALID_ARGUMENT: Self = Self(3);
    /// It took too long.
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    /// A named entity does not exist, such as a TPU.
    pub const NOT_FOUND: Self = Self(5);
    /// Memory, for the most part, has run out.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// The plugin cannot do this.
    pub const UNIMPLEMENTED: Self = Self(12);

    pub(crate) const fn new(code: u32) -> Self {
        Self(code)
    }

    /// The number of the code.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.0
    }
}

impl Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "cancelled",
            2 => "unknown",
            3 => "invalid argument",
            4 => "deadline exceeded",
            5 => "not found",
            6 => "already exists",
            7 => "permission denied",
            8 => "resource exhausted",
            9 => "failed precondition",
            10 => "aborted",
            11 => "out of range",
            12 => "unimplemented",
            13 => "internal",
            14 => "unavailable",
            15 => "data loss",
            16 => "unauthenticated",
            code => return write!(f, "code {code}"),
        };
        write!(f, "code {} ({name})", self.0)
    }
}
