//! `Error` for meshes, device names and ids. Formatting of counts and lists in its messages is in
//! `error/show`; orders of TPU cores have an error type of their own, `tpu::TpuError`.

mod show;

use show::{By, Counted, Dims};

use crate::{DeviceSpec, DimName, MAX_MESH_SIZE, MeshRank};

/// Errors of meshes, device names and ids: an invalid value, or a query that the mesh cannot
/// answer.
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
    /// A mesh dimension's name has a character that separates fields in the text form.
    #[error("mesh dimension {name:?} has the character {character:?} in its name: leave it out")]
    DimNameCharacter {
        /// The name.
        name: String,
        /// The first character that must not be there.
        character: char,
    },
    /// A mesh's name has a character that separates fields in the text form.
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
    /// A mesh dimension is named twice where each may be named once.
    #[error("mesh dimension {name} is named twice: name it once")]
    RepeatedDim {
        /// The name.
        name: DimName,
    },
    /// Some dimensions of a mesh are left out where all have to be named.
    #[error("{found} of {} are named: name each once", Counted(*expected, "mesh dimension"))]
    DimsLeftOut {
        /// How many are named.
        found: usize,
        /// How many there are.
        expected: usize,
    },
    /// No mesh dimension is named where one has to be.
    #[error("no mesh dimension is named: name one at least")]
    NoDims,
    /// A range of coordinates is empty or reaches past the end of its dimension.
    #[error(
        "{start}..{end} is no range of mesh dimension {dim}, which has size {size}: select at least one index of 0..{size}"
    )]
    RangeOutside {
        /// The dimension.
        dim: DimName,
        /// The first coordinate.
        start: usize,
        /// The end of the range, exclusive.
        end: usize,
        /// The size of the dimension.
        size: usize,
    },
    /// A dimension is to be split into sizes that do not make it up.
    #[error(
        "mesh dimension {dim} of size {size} is not {}: give sizes whose product is {size}",
        By(parts)
    )]
    SplitSize {
        /// The dimension.
        dim: DimName,
        /// Its size.
        size: usize,
        /// The sizes of the parts.
        parts: Vec<usize>,
    },
    /// Ranks at irregular distances are to be cut through.
    #[error(
        "mesh dimension {dim} was flattened from others and cannot be cut there: cut it before it is flattened"
    )]
    NotStrided {
        /// The dimension.
        dim: DimName,
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
        rank: MeshRank,
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
    #[error("a mesh of {} was given {}: give one for each", Counted(*expected, "rank"), Counted(*found, "device"))]
    DeviceCount {
        /// How many were given.
        found: usize,
        /// How many ranks the mesh has.
        expected: usize,
    },
    /// A process has no devices of a type.
    #[error("the process has no {device_type} devices: use another type, or name the devices")]
    NoSuchDevices {
        /// The type asked for.
        device_type: String,
    },
    /// Devices were given, and another type than theirs.
    #[error(
        "device {device} is not of the type {asked}: leave the type out, or give devices of it"
    )]
    ConflictingDeviceType {
        /// The type asked for.
        asked: String,
        /// The first device.
        device: DeviceSpec,
    },
    /// A process has a number that none of them has.
    #[error("client {index} is outside a job of {}: clients run from 0", Counted(*count as usize, "client"))]
    ClientOutside {
        /// The number.
        index: u32,
        /// How many processes there are.
        count: u32,
    },
    /// A TPU mesh of several processes was asked for without the slice that orders it.
    #[error(
        "the order of TPU devices depends on their slice: make the mesh by tpu::create_tpu_mesh"
    )]
    TpuWithoutTopology,
    /// There are more or fewer device ids than ranks.
    #[error("a mesh of {} was given {}: give one for each rank", Counted(*expected, "rank"), Counted(*found, "device id"))]
    IdCount {
        /// How many were given.
        found: usize,
        /// How many ranks the mesh has.
        expected: usize,
    },
    /// The device ids of a mesh that is built do not count up.
    #[error(
        "device id {id} stands at position {position} of ids that count up from {start}: leave no gap and keep the order"
    )]
    IdsNotConsecutive {
        /// The first id out of order.
        id: i64,
        /// Its position, from 0.
        position: usize,
        /// The first id.
        start: i64,
    },
    /// The last of ids that count up is above the largest.
    #[error(
        "{count} device ids from {first} on go above the largest, {}: start lower",
        i64::MAX
    )]
    IdsTooLarge {
        /// The first id.
        first: i64,
        /// How many there should be.
        count: usize,
    },
    /// An id is used for two devices.
    #[error(
        "device id {id} is given at the positions {first} and {second}: give each device its own"
    )]
    DuplicateId {
        /// The id.
        id: i64,
        /// The first position that has it.
        first: usize,
        /// The second position that has it.
        second: usize,
    },
    /// A local device id is not one of the mesh.
    #[error("local device id {id} is none of the mesh: give ids of the mesh's own")]
    ForeignLocalId {
        /// The id.
        id: i64,
    },
    /// There are more or fewer local devices than local ids.
    #[error("{} were given {}: give one for each", Counted(*ids, "local device id"), Counted(*devices, "local device"))]
    LocalDeviceCount {
        /// How many ids there are.
        ids: usize,
        /// How many devices there are.
        devices: usize,
    },
    /// There are more or fewer global devices than ranks.
    #[error("a mesh of {} was given {}: give one for each rank, or none", Counted(*expected, "rank"), Counted(*found, "global device"))]
    GlobalDeviceCount {
        /// How many were given.
        found: usize,
        /// How many ranks the mesh has.
        expected: usize,
    },
    /// A mesh was given its devices, and there are none.
    #[error(
        "the mesh was given empty lists of devices: name local or global devices, or give no list"
    )]
    NoDevices,
    /// More devices are counted than there are numbers or memory for.
    #[error(
        "more devices are counted than memory and indices up to {} hold: count fewer",
        u32::MAX
    )]
    TooManyDevices,
    /// A device of a mesh has no type.
    #[error("device {device:?} at position {position} has no type: name it such as /device:GPU:0", device = device.to_string())]
    DeviceWithoutType {
        /// The device.
        device: DeviceSpec,
        /// Its position, from 0.
        position: usize,
    },
    /// A local device does not say which process has it.
    #[error("device {device:?} at position {position} has no job or no task: name it such as /job:worker/task:0/device:GPU:0", device = device.to_string())]
    DeviceWithoutHost {
        /// The device.
        device: DeviceSpec,
        /// Its position, from 0.
        position: usize,
    },
    /// Two devices of a mesh are of different types.
    #[error(
        "the devices at the positions 0 and {position} are of the types {first} and {other}: use one type"
    )]
    MixedDeviceTypes {
        /// The type of the first device.
        first: String,
        /// The first other type.
        other: String,
        /// Its position.
        position: usize,
    },
    /// The local devices of a mesh are of another type than the global ones.
    #[error("the local devices are of the type {local}, the global ones of {global}: use one type")]
    LocalDeviceType {
        /// The type of the local devices.
        local: String,
        /// The type of the global devices.
        global: String,
    },
    /// A device is given twice.
    #[error(
        "device {device} is given at the positions {first} and {second}: give each rank its own"
    )]
    DuplicateDevice {
        /// The device.
        device: DeviceSpec,
        /// The first position that has it.
        first: usize,
        /// The second position that has it.
        second: usize,
    },
    /// XLA SPMD was asked for devices that it does not know.
    #[error("XLA SPMD is for TPU, not for a {device_type} mesh: leave it out")]
    SpmdNeedsTpu {
        /// The type of the mesh's devices.
        device_type: String,
    },
    /// The local devices of a mesh do not divide it.
    #[error("{} do not divide a mesh of {}: have as many on every process", Counted(*local, "local device"), Counted(*size, "rank"))]
    UnevenLocalDevices {
        /// How many local devices there are.
        local: usize,
        /// How many ranks the mesh has.
        size: usize,
    },
    /// A mesh without local devices was asked for the CPUs beside them.
    #[error("the mesh has no local devices, so no host: ask on a process that has some")]
    RemoteHost,
    /// The text of a mesh has too few or too many parts.
    #[error("the text of a mesh has {} between |: there are 3, 5, 6 or 7, or 1 for one device", Counted(*found, "part"))]
    TextParts {
        /// How many there are.
        found: usize,
    },
    /// A dimension in the text of a mesh has no size.
    #[error("mesh dimension {part:?} has no size: write it such as batch=2")]
    TextDim {
        /// The text of the dimension.
        part: String,
    },
    /// A number in the text of a mesh cannot be parsed.
    #[error(
        "{part:?} is no number that the text of a mesh may have: write a whole one of 32 bits, a size without a sign"
    )]
    TextNumber {
        /// The text of the number.
        part: String,
    },
    /// The text of a mesh should say which devices it has, and does not.
    #[error("{part:?} names no devices: write one star and a type such as *CPU")]
    TextGenerator {
        /// The text in its place.
        part: String,
    },
    /// The seventh part of the text of a mesh is unknown.
    #[error("{part:?} stands where only use_xla_spmd may: leave it out")]
    TextFlag {
        /// The text in its place.
        part: String,
    },
    /// The text of a mesh has more local devices than devices, or not as many as local ids.
    #[error("{}, {} and {} do not fit together: give each local device an id of the mesh", Counted(*ids, "device id"), Counted(*local_ids, "local device id"), Counted(*local_devices, "local device"))]
    TextLocalCount {
        /// How many ids the mesh has.
        ids: usize,
        /// How many local ids it has.
        local_ids: usize,
        /// How many local devices it has.
        local_devices: usize,
    },
    /// A text is neither a mesh nor a single device in place of one.
    #[error(
        "{text:?} is no mesh and no full device: write such as /job:worker/task:0/device:GPU:0"
    )]
    SingleDeviceText {
        /// The text.
        text: String,
    },
    /// A single device has no name.
    #[error("the single device has an empty name: write such as GPU:0")]
    EmptySingleDevice,
    /// Devices arranged along dimensions are needed, and there are none.
    #[error("the mesh is empty: it has to have one device at least")]
    EmptyMesh,
    /// Devices arranged along dimensions are needed, and there is one alone.
    #[error("the device {device:?} stands alone: a mesh with dimensions is needed here")]
    OnlyOneDevice {
        /// The device.
        device: String,
    },
    /// Bytes are no mesh in protobuf form.
    #[cfg(feature = "protobuf")]
    #[error("the bytes are no mesh in protobuf form")]
    Decode {
        /// Where they go wrong.
        source: prost::DecodeError,
    },
    /// A dimension of a mesh in protobuf form has a size that none can have.
    #[error(
        "mesh dimension {name:?} has size {size}: sizes run from 0 to {}",
        MAX_MESH_SIZE
    )]
    ProtoSize {
        /// The dimension.
        name: String,
        /// The size.
        size: i64,
    },
    /// A part of a device name is none of `job:…`, `replica:…`, `task:…`, `device:…:…` and a
    /// device.
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
    /// A number in a device name cannot be parsed.
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
    /// A job or device type is empty or has a character that separates parts of a device name.
    #[error(
        "{word:?} is no job or device type: use letters, digits, _ and -, without any of / : , |"
    )]
    DeviceWord {
        /// The text given.
        word: String,
    },
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
            mesh.coords(crate::MeshRank::new(9)),
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
            "a mesh of 8 ranks was given 1 device: give one for each",
        );
        check(
            DeviceSpec::parse("/job:w/task:x"),
            "device \"/job:w/task:x\" has no whole number in the part \"task:x\": write it such as task:1 \
             or device:GPU:0",
        );
    }
}
