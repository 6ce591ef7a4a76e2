use std::fmt::{self, Display};

use crate::{DeviceSpec, DimName, MAX_MESH_SIZE, Rank};

/// Why a mesh, a name or a device is refused, or a question about a mesh not answered.
///
/// The caller is at fault in every case, and nothing is changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A mesh dimension has no name.
    #[error("a mesh dimension has an empty name: name it, such as batch")]
    EmptyDimName,
    /// A mesh dimension is named by a word with a meaning of its own in layouts.
    #[error(
        "mesh dimension {name:?} has a reserved name: use another than unsharded, match and any"
    )]
    ReservedDimName {
        /// The name.
        name: String,
    },
    /// A mesh dimension's name could not be told from what surrounds it in text.
    #[error("mesh dimension {name:?} has the character {character:?} in its name: leave it out")]
    DimNameCharacter {
        /// The name.
        name: String,
        /// The first character that must not be there.
        character: char,
    },
    /// A mesh's name could not be told from what surrounds it in text.
    #[error("mesh {name:?} has the character {character:?} in its name: leave it out")]
    MeshNameCharacter {
        /// The name.
        name: String,
        /// The first character that must not be there.
        character: char,
    },
    /// Two dimensions of a mesh have one name.
    #[error("mesh dimension {name} is given twice: name each dimension differently")]
    DuplicateDim {
        /// The name.
        name: DimName,
    },
    /// A mesh dimension has size 0.
    #[error("mesh dimension {name} has size 0: a mesh has at least one rank along each dimension")]
    EmptyDim {
        /// The dimension.
        name: DimName,
    },
    /// The sizes of a mesh multiply to more than [`MAX_MESH_SIZE`].
    #[error(
        "a mesh of shape {} has more than {MAX_MESH_SIZE} ranks: make it smaller",
        By(shape)
    )]
    TooManyRanks {
        /// The sizes of all dimensions.
        shape: Vec<usize>,
    },
    /// The mesh has no such dimension.
    #[error("mesh dimension {name:?} does not exist: the mesh has {}", Dims(known))]
    UnknownDim {
        /// The name asked for.
        name: String,
        /// The dimensions of the mesh, major to minor.
        known: Vec<DimName>,
    },
    /// The mesh has fewer ranks.
    #[error("{rank} is outside a mesh of {}: ranks run from 0", Counted(*size, "rank"))]
    RankOutside {
        /// The rank asked for.
        rank: Rank,
        /// How many ranks there are.
        size: usize,
    },
    /// There are more or fewer coordinates than dimensions.
    #[error("a mesh of {} was given {}: give one for each dimension", Counted(*expected, "dimension"), Counted(*found, "coordinate"))]
    CoordCount {
        /// How many were given.
        found: usize,
        /// How many dimensions the mesh has.
        expected: usize,
    },
    /// A coordinate reaches past the end of its dimension.
    #[error(
        "coordinate {coord} is outside mesh dimension {dim} of size {size}: coordinates run from 0"
    )]
    CoordOutside {
        /// The dimension.
        dim: DimName,
        /// The coordinate.
        coord: usize,
        /// The size of the dimension.
        size: usize,
    },
    /// There are more or fewer devices than ranks.
    #[error("a mesh of {} was given {}: give one for each rank", Counted(*expected, "rank"), Counted(*found, "device"))]
    DeviceCount {
        /// How many were given.
        found: usize,
        /// How many ranks the mesh has.
        expected: usize,
    },
    /// A device of a mesh does not say what it is.
    #[error("the device {device:?} of {rank} has no type: name it such as /device:GPU:0", device = device.to_string())]
    DeviceWithoutType {
        /// The device.
        device: DeviceSpec,
        /// Its rank.
        rank: Rank,
    },
    /// Two devices of a mesh are of different types.
    #[error("the devices of rank 0 and {rank} are of the types {first} and {other}: use one type")]
    MixedDeviceTypes {
        /// The type of the device of rank 0.
        first: String,
        /// The first other type.
        other: String,
        /// The rank that has it.
        rank: Rank,
    },
    /// Two ranks of a mesh have one device.
    #[error("the device {device} is given to {first} and to {second}: give each rank its own")]
    DuplicateDevice {
        /// The device.
        device: DeviceSpec,
        /// The first rank that has it.
        first: Rank,
        /// The second rank that has it.
        second: Rank,
    },
    /// A part of a device name is none of `job:…`, `replica:…`, `task:…`, `device:…:…` and a device.
    #[error(
        "device {spec:?} has the part {part:?}: write parts such as job:worker, replica:0, task:1, \
         device:GPU:0 or CPU:0"
    )]
    DevicePart {
        /// The whole name.
        spec: String,
        /// The part.
        part: String,
    },
    /// A number in a device name is none.
    #[error(
        "device {spec:?} has no whole number in the part {part:?}: write it such as task:1 or device:GPU:0"
    )]
    DeviceNumber {
        /// The whole name.
        spec: String,
        /// The part.
        part: String,
    },
    /// A device name names two devices.
    #[error("device {spec:?} names two devices, the second by {part:?}: keep one")]
    TwoDevices {
        /// The whole name.
        spec: String,
        /// The part that names the second device.
        part: String,
    },
    /// A job or device type is empty or could not be told from what surrounds it in a device name.
    #[error(
        "{word:?} is no job or device type: use letters, digits, _ and -, without any of / : , |"
    )]
    DeviceWord {
        /// The text given.
        word: String,
    },
}

/// A number with its noun: `1 rank`, `8 ranks`.
struct Counted(usize, &'static str);

impl Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

/// Sizes joined by `×`.
struct By<'a>(&'a [usize]);

impl Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, size) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { "×" };
            write!(f, "{separator}{size}")?;
        }
        Ok(())
    }
}

/// The dimensions of a mesh: `no dimensions`, `the dimension x`, `the dimensions x, y`.
struct Dims<'a>(&'a [DimName]);

impl Display for Dims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0 else {
            return f.write_str("no dimensions");
        };
        let plural = if rest.is_empty() { "" } else { "s" };
        write!(f, "the dimension{plural} {first}")?;
        rest.iter().try_for_each(|name| write!(f, ", {name}"))
    }
}

#[cfg(test)]
mod tests {
    use crate::{DeviceSpec, Mesh};

    #[track_caller]
    fn check<T: std::fmt::Debug>(result: Result<T, crate::Error>, message: &str) {
        assert_eq!(result.expect_err(message).to_string(), message);
    }

    #[test]
    fn messages_name_the_thing_the_numbers_and_the_remedy() {
        let mesh = Mesh::new([("x", 2), ("y", 4)]).unwrap();
        check(
            mesh.coords(crate::Rank::new(9)),
            "rank 9 is outside a mesh of 8 ranks: ranks run from 0",
        );
        check(
            mesh.dim_size("q"),
            "mesh dimension \"q\" does not exist: the mesh has the dimensions x, y",
        );
        check(
            mesh.rank_of(&[1, 4]),
            "coordinate 4 is outside mesh dimension y of size 4: coordinates run from 0",
        );
        check(
            Mesh::new([("x", usize::MAX), ("y", 2)]),
            "a mesh of shape 18446744073709551615×2 has more than 9223372036854775807 ranks: make it smaller",
        );
        check(
            mesh.with_devices([DeviceSpec::parse("CPU:0").unwrap()]),
            "a mesh of 8 ranks was given 1 device: give one for each rank",
        );
        check(
            DeviceSpec::parse("/job:w/task:x"),
            "device \"/job:w/task:x\" has no whole number in the part \"task:x\": write it such as task:1 \
             or device:GPU:0",
        );
    }
}
