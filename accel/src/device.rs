//! What is known of a device before anything is asked of it.

use std::fmt::{self, Display};

/// A device's number within its backend and process, from 0.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeviceId(usize);

impl DeviceId {
    /// The device with this number; whether it exists is for the backend to say.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The number.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

impl Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.0, f)
    }
}

/// One device of a backend: its number and kind, and further properties that the backend knows.
///
/// ```
/// use meshwork_accel::{Device, DeviceId};
///
/// let core = Device::new(DeviceId::new(3), "TPU")
///     .with_name("TPU v5e")
///     .with_address("host 0, chip 3")
///     .with_coordinates([1, 1, 0]);
/// assert_eq!(core.to_string(), "TPU:3 (TPU v5e) at host 0, chip 3");
/// assert_eq!(core.coordinates(), Some([1, 1, 0].as_slice()));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Device {
    id: DeviceId,
    kind: &'static str,
    name: Option<String>,
    address: Option<String>,
    coordinates: Option<Vec<usize>>,
}

impl Device {
    /// Describes a device; `kind` is the type that appears in device names, such as `CPU`.
    #[must_use]
    pub const fn new(id: DeviceId, kind: &'static str) -> Self {
        Self {
            id,
            kind,
            name: None,
            address: None,
            coordinates: None,
        }
    }

    /// With the name that its maker gave it, such as `NVIDIA H100`.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// With an address that identifies it among equal devices of this machine, such as a PCI
    /// address or a range of cores.
    #[must_use]
    pub fn with_address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// With its place among the devices it is wired to, major to minor as the maker counts; of a
    /// TPU x, y, z and the core on the chip.
    #[must_use]
    pub fn with_coordinates(mut self, coordinates: impl Into<Vec<usize>>) -> Self {
        self.coordinates = Some(coordinates.into());
        self
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> DeviceId {
        self.id
    }

    /// Its type, such as `CPU`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        self.kind
    }

    /// The name that its maker gave it, where the backend knows it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The address that identifies it among equal devices of this machine, where the backend knows
    /// one.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Its place among the devices it is wired to, where they have one.
    #[must_use]
    pub fn coordinates(&self) -> Option<&[usize]> {
        self.coordinates.as_deref()
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        match &self.address {
            Some(address) => write!(f, " at {address}"),
            None => Ok(()),
        }
    }
}

/// The memory of a device, in bytes, as far as its backend knows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Memory {
    total: Option<u64>,
    free: Option<u64>,
}

impl Memory {
    /// A device of whose memory nothing is known.
    pub const UNKNOWN: Self = Self {
        total: None,
        free: None,
    };

    /// A device with this much memory, whose free part is unknown.
    #[must_use]
    pub const fn of(total: u64) -> Self {
        Self {
            total: Some(total),
            free: None,
        }
    }

    /// With this many bytes free at this moment; at most the total.
    #[must_use]
    pub const fn with_free(mut self, free: u64) -> Self {
        self.free = Some(match self.total {
            Some(total) if total < free => total,
            _ => free,
        });
        self
    }

    /// All of it.
    #[must_use]
    pub const fn total(self) -> Option<u64> {
        self.total
    }

    /// The memory that was free when asked; others may have taken it since.
    #[must_use]
    pub const fn free(self) -> Option<u64> {
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_reads_by_what_is_known_of_it() {
        let bare = Device::new(DeviceId::new(0), "CPU");
        assert_eq!(bare.to_string(), "CPU:0");
        assert_eq!(bare.coordinates(), None);
        assert_eq!(
            bare.with_address("cores 0-3").to_string(),
            "CPU:0 at cores 0-3"
        );
    }

    #[test]
    fn no_more_memory_is_free_than_there_is() {
        assert_eq!(Memory::of(10).with_free(11).free(), Some(10));
        assert_eq!(Memory::of(10).with_free(9).free(), Some(9));
        assert_eq!(
            Memory::UNKNOWN.with_free(9),
            Memory {
                total: None,
                free: Some(9)
            }
        );
    }
}
