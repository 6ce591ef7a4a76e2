use std::fmt::{self, Display};

/// Why a step is in no module with others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Apart {
    /// Elements are looked at on the host, as no device has the op.
    OnHost,
    /// Devices do different things, as with shards of different sizes.
    Uneven,
    /// A tensor of no elements.
    Empty,
    /// Tensors on other devices than those of the other steps.
    Elsewhere,
}

impl Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OnHost => "no device has it, or other processes are in it",
            Self::Uneven => "its shards are not of one size",
            Self::Empty => "a tensor has no elements",
            Self::Elsewhere => "its tensors are on other devices",
        })
    }
}
