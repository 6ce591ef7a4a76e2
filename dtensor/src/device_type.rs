//! Device types by name (CPU, GPU, TPU), and how many devices of each a process has. Element types
//! are in `scalar`, backends for a type in `backend`.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::Error;

/// The type of devices that a program computes on.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum DeviceType {
    /// Logical devices that share the processor of the host.
    Cpu,
    /// Graphics processors.
    Gpu,
    /// Tensor processors.
    Tpu,
}

impl DeviceType {
    /// The type as it appears in device names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::Tpu => "TPU",
        }
    }
}

/// Reads a name in any case; inverse of its [`Display`].
///
/// # Errors
/// [`Error::DeviceType`].
impl FromStr for DeviceType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [Self::Cpu, Self::Gpu, Self::Tpu];
        let found = all
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| Error::DeviceType {
            found: text.to_owned(),
        })
    }
}

impl Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How many devices of each type there are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeviceCounts {
    cpus: u32,
    gpus: u32,
    tpus: u32,
}

impl DeviceCounts {
    /// This many CPUs and nothing else.
    #[must_use]
    pub const fn cpus(cpus: u32) -> Self {
        Self {
            cpus,
            gpus: 0,
            tpus: 0,
        }
    }

    /// The same with another number of devices of one type.
    #[must_use]
    pub const fn with(mut self, device_type: DeviceType, count: u32) -> Self {
        match device_type {
            DeviceType::Cpu => self.cpus = count,
            DeviceType::Gpu => self.gpus = count,
            DeviceType::Tpu => self.tpus = count,
        }
        self
    }

    /// How many there are of a type.
    #[must_use]
    pub const fn of(self, device_type: DeviceType) -> u32 {
        match device_type {
            DeviceType::Cpu => self.cpus,
            DeviceType::Gpu => self.gpus,
            DeviceType::Tpu => self.tpus,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_one_name_in_any_case() {
        for kind in [DeviceType::Cpu, DeviceType::Gpu, DeviceType::Tpu] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(kind.to_string().to_lowercase().parse(), Ok(kind));
        }
        for found in ["", "XPU", "CPU ", "TPU_SYSTEM"] {
            let found = found.to_owned();
            assert_eq!(
                found.parse::<DeviceType>(),
                Err(Error::DeviceType { found })
            );
        }
    }
}
