//! The cost model of collectives: latency and bandwidth per mesh dimension (α–β), in whole
//! femtoseconds, so that sums of times are exact and plans are the same on every machine.

use std::time::Duration;

use meshwork_core::DimName;

use crate::Error;

/// The cost of a collective along a mesh dimension: a latency for each step, and a time for each
/// byte that a device receives.
///
/// ```
/// use std::time::Duration;
/// use meshwork_layout::Link;
///
/// let link = Link::new(Duration::from_micros(10), 100_000_000_000)?;
/// assert_eq!(link.time(1_000_000), Duration::from_micros(20));
/// # Ok::<(), meshwork_layout::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Link {
    latency: Duration,
    fs_per_byte: u64,
}

impl Link {
    /// A link with this latency and bandwidth.
    ///
    /// The bandwidth is held as whole femtoseconds a byte, at least one, so that times add up
    /// exactly: 3 GB/s count as 333,333 fs/B.
    ///
    /// # Errors
    /// [`Error::NoBandwidth`] for 0 bytes a second.
    pub fn new(latency: Duration, bytes_per_second: u64) -> Result<Self, Error> {
        if bytes_per_second == 0 {
            return Err(Error::NoBandwidth);
        }
        Ok(Self {
            latency,
            fs_per_byte: (FS_PER_SECOND / bytes_per_second).max(1),
        })
    }

    /// How long a step lasts in which a device receives this many bytes; not more than
    /// [`Duration::MAX`].
    #[must_use]
    pub fn time(self, bytes: u64) -> Duration {
        duration(self.latency_fs() + self.transfer_fs(bytes))
    }

    pub(super) fn latency_fs(self) -> u128 {
        self.latency.as_nanos() * FS_PER_NANOSECOND
    }

    pub(super) fn transfer_fs(self, bytes: u64) -> u128 {
        u128::from(bytes) * u128::from(self.fs_per_byte)
    }

    /// A link as slow as either in both respects.
    pub(super) fn slower(self, other: Self) -> Self {
        Self {
            latency: self.latency.max(other.latency),
            fs_per_byte: self.fs_per_byte.max(other.fs_per_byte),
        }
    }

    /// A link as fast as either in both respects.
    pub(super) fn faster(self, other: Self) -> Self {
        Self {
            latency: self.latency.min(other.latency),
            fs_per_byte: self.fs_per_byte.min(other.fs_per_byte),
        }
    }
}

/// 10 µs a step and 100 GB/s: accelerators of one host.
impl Default for Link {
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(10),
            fs_per_byte: 10_000,
        }
    }
}

/// The [`Link`] of each mesh dimension.
///
/// A collective over several mesh dimensions takes the highest latency and the lowest bandwidth
/// among them; a permutation may cross any, and takes those of the whole mesh.
///
/// ```
/// use std::time::Duration;
/// use meshwork_core::DimName;
/// use meshwork_layout::{Link, Links};
///
/// let network = Link::new(Duration::from_micros(30), 12_500_000_000)?;
/// let links = Links::default().with(DimName::new("host")?, network);
/// assert_eq!(links.link(&DimName::new("host")?), network);
/// assert_eq!(links.link(&DimName::new("chip")?), Link::default());
/// # Ok::<(), meshwork_layout::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Links {
    others: Link,
    named: Vec<(DimName, Link)>,
}

impl Links {
    /// The same link along every mesh dimension.
    #[must_use]
    pub fn uniform(link: Link) -> Self {
        Self {
            others: link,
            named: Vec::new(),
        }
    }

    /// These links, but this one along `dim`, in place of any that was given for it before.
    #[must_use]
    pub fn with(mut self, dim: DimName, link: Link) -> Self {
        self.named.retain(|(named, _)| *named != dim);
        self.named.push((dim, link));
        self
    }

    /// The link along a mesh dimension.
    #[must_use]
    pub fn link(&self, dim: &DimName) -> Link {
        let named = self.named.iter().find(|(named, _)| named == dim);
        named.map_or(self.others, |(_, link)| *link)
    }
}

/// This many femtoseconds, to the nearest nanosecond.
pub(super) fn duration(fs: u128) -> Duration {
    let nanos = (fs + FS_PER_NANOSECOND / 2) / FS_PER_NANOSECOND;
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(u64::MAX);
    let rest = u32::try_from(nanos % NANOS_PER_SECOND);
    rest.map_or(Duration::MAX, |rest| Duration::new(seconds, rest))
}

const FS_PER_SECOND: u64 = 1_000_000_000_000_000;
const FS_PER_NANOSECOND: u128 = 1_000_000;
const NANOS_PER_SECOND: u128 = 1_000_000_000;
