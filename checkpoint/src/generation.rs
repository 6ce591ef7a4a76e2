//! The names of saves.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::Error;

/// The number of a save; later saves have higher numbers.
///
/// The second half of its name cannot be guessed, and keeps writers apart that know nothing of each
/// other.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Generation {
    number: u64,
    nonce: u64,
}

impl Generation {
    pub(crate) const fn new(number: u64, nonce: u64) -> Self {
        Self { number, nonce }
    }

    /// Counted from 1.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }
}

impl Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{:08}-{:016x}", self.number, self.nonce)
    }
}

impl FromStr for Generation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = || {
            let (number, nonce) = text.strip_prefix('g')?.split_once('-')?;
            let number = number.parse().ok()?;
            let nonce = u64::from_str_radix(nonce, 16).ok()?;
            let generation = Self { number, nonce };
            // One name for one generation.
            (generation.to_string() == text).then_some(generation)
        };
        parsed().ok_or_else(|| Error::NoGeneration {
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_generations_are_inverse_and_a_generation_has_one_name() {
        for generation in [
            Generation::new(1, 0),
            Generation::new(7, 0x0123_4567_89ab_cdef),
            Generation::new(u64::MAX, u64::MAX),
        ] {
            assert_eq!(generation.to_string().parse(), Ok(generation));
        }
        for text in [
            "",
            "g1-0000000000000000",
            "g00000001-0",
            "g+0000001-0000000000000000",
            "g00000001-000000000000000A",
            "g00000001-0000000000000000 ",
            "00000001-0000000000000000",
        ] {
            let refused = Err(Error::NoGeneration {
                text: text.to_owned(),
            });
            assert_eq!(text.parse::<Generation>(), refused);
        }
    }
}
