//! TPU slices: core locations, axes, and the enumeration of all cores tile by tile and host by
//! host. Rings over them are in `ring`, meshes in `create`.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::TpuError;

/// A core of a TPU slice: the chip's place along x, y and z, and the core's number on the chip.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TpuCore([usize; 4]);

impl TpuCore {
    /// The core at `[x, y, z, core]`.
    #[must_use]
    pub const fn new(location: [usize; 4]) -> Self {
        Self(location)
    }

    /// `[x, y, z, core]`.
    #[must_use]
    pub const fn location(self) -> [usize; 4] {
        self.0
    }
}

impl Display for TpuCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z, core] = self.0;
        write!(f, "core {core} of chip {x},{y},{z}")
    }
}

/// A direction in which the cores of a TPU slice are counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TpuAxis {
    /// Along x.
    X,
    /// Along y.
    Y,
    /// Along z.
    Z,
    /// Over the cores of a chip.
    Core,
}

impl TpuAxis {
    /// Its place in a location.
    fn index(self) -> usize {
        match self {
            Self::X => 0,
            Self::Y => 1,
            Self::Z => 2,
            Self::Core => 3,
        }
    }
}

impl FromStr for TpuAxis {
    type Err = TpuError;

    /// Reads `x`, `y`, `z` or `core`.
    ///
    /// # Errors
    /// [`TpuError::Axis`].
    fn from_str(name: &str) -> Result<Self, TpuError> {
        match name {
            "x" => Ok(Self::X),
            "y" => Ok(Self::Y),
            "z" => Ok(Self::Z),
            "core" => Ok(Self::Core),
            _ => Err(TpuError::Axis {
                name: name.to_owned(),
            }),
        }
    }
}

/// How many chips a TPU slice has along x, y and z, and how many cores a chip has: one or two.
///
/// ```
/// use meshwork_core::tpu::{TpuError, TpuTopology};
///
/// assert_eq!(TpuTopology::new([4, 4, 1, 2])?.cores(), 32);
/// # Ok::<(), TpuError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TpuTopology {
    sizes: [usize; 4],
    cores: usize,
}

/// As many as a `Vec` has room for.
const MOST_CORES: usize = isize::MAX.unsigned_abs() / size_of::<TpuCore>();

impl TpuTopology {
    /// A slice of `[x, y, z, cores per chip]`.
    ///
    /// # Errors
    /// [`TpuError::Topology`] for a size of 0, more than two cores per chip, or more cores than any
    /// list can hold.
    pub fn new(sizes: [usize; 4]) -> Result<Self, TpuError> {
        let cores = sizes.into_iter().try_fold(1_usize, usize::checked_mul);
        match cores.filter(|cores| (1..=MOST_CORES).contains(cores)) {
            Some(cores) if sizes[3] <= 2 => Ok(Self { sizes, cores }),
            _ => Err(TpuError::Topology { sizes }),
        }
    }

    /// `[x, y, z, cores per chip]`.
    #[must_use]
    pub fn sizes(&self) -> [usize; 4] {
        self.sizes
    }

    /// How many cores there are; never 0.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// The chips and cores of one host: 2×2 chips, or the one chip there is.
    pub(super) fn host(&self) -> [usize; 4] {
        match self.cores {
            0..=2 => [1, 1, 1, self.sizes[3]],
            _ => [2, 2, 1, self.sizes[3]],
        }
    }

    /// All cores: tile by tile, in each host by host, in each core by core, and every time the
    /// first of `axes` fastest.
    ///
    /// # Errors
    /// [`TpuError::RingBounds`] when hosts do not fill a tile or tiles the slice.
    pub(super) fn enumerate(
        &self,
        axes: [TpuAxis; 4],
        tile: [usize; 4],
        host: [usize; 4],
    ) -> Result<Vec<TpuCore>, TpuError> {
        let fills = |small: [usize; 4], large: [usize; 4]| {
            let mut sizes = small.into_iter().zip(large);
            sizes.all(|(small, large)| small > 0 && large % small == 0)
        };
        if !fills(host, tile) || !fills(tile, self.sizes) {
            return Err(TpuError::RingBounds {
                bounds: tile,
                host,
                sizes: self.sizes,
            });
        }
        let at = |mut number: usize| {
            let mut location = [0; 4];
            for (unit, whole) in [([1; 4], host), (host, tile), (tile, self.sizes)] {
                for axis in axes.map(TpuAxis::index) {
                    let count = whole[axis] / unit[axis];
                    location[axis] += number % count * unit[axis];
                    number /= count;
                }
            }
            TpuCore(location)
        };
        Ok((0..self.cores).map(at).collect())
    }
}
