//! For which architecture kernels are compiled: pure.

use std::fmt::{self, Display};

/// The compute capability of a GPU, such as 9.0, which decides what code it runs.
///
/// ```
/// use meshwork_accel_cuda::Capability;
///
/// assert_eq!(Capability::new(9, 0).to_string(), "9.0");
/// assert!(Capability::new(8, 6) < Capability::new(8, 9));
/// ```
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Capability {
    major: u32,
    minor: u32,
}

impl Capability {
    /// The capability with these two numbers; whether a GPU or a compiler knows it is for them to
    /// say.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// As compilers number it: 90 for 9.0. Minor numbers have one digit.
    pub(crate) const fn number(self) -> u32 {
        self.major.saturating_mul(10).saturating_add(self.minor)
    }
}

impl Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The form of code that a compiler is asked to make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    /// Machine code of one architecture, which runs as it is.
    Machine(u32),
    /// Code for all architectures from this one on, which the driver translates.
    Portable(u32),
}

impl Target {
    /// The best that a compiler that knows the architectures `known` can make for a GPU: machine
    /// code of its own architecture; else portable code of the newest that is older. `None` where
    /// all that is known is newer than the GPU.
    pub(crate) fn choose(capability: Capability, known: &[u32]) -> Option<Self> {
        let wanted = capability.number();
        if known.contains(&wanted) {
            return Some(Self::Machine(wanted));
        }
        let older = known.iter().filter(|number| **number < wanted);
        older.max().map(|number| Self::Portable(*number))
    }
}

/// As the compiler's option has it.
impl Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(number) => write!(f, "sm_{number}"),
            Self::Portable(number) => write!(f, "compute_{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [u32; 5] = [75, 80, 90, 100, 120];

    #[test]
    fn a_known_architecture_gets_machine_code() {
        for number in KNOWN {
            let capability = Capability::new(number / 10, number % 10);
            assert_eq!(
                Target::choose(capability, &KNOWN),
                Some(Target::Machine(number))
            );
        }
    }

    #[test]
    fn an_unknown_architecture_gets_portable_code_of_the_newest_older_one() {
        let chosen = |major, minor| Target::choose(Capability::new(major, minor), &KNOWN);
        assert_eq!(chosen(8, 6), Some(Target::Portable(80)));
        assert_eq!(chosen(13, 0), Some(Target::Portable(120)));
        assert_eq!(chosen(7, 0), None);
        assert_eq!(Target::choose(Capability::new(9, 0), &[]), None);
    }

    #[test]
    fn targets_read_as_options_of_the_compiler() {
        assert_eq!(Target::Machine(90).to_string(), "sm_90");
        assert_eq!(Target::Portable(120).to_string(), "compute_120");
    }
}
