//! Where this project means to answer otherwise than the recorded system, and why.
//!
//! Each rule holds for any case it fits, whether or not it was recorded.

/// A rule by which an answer differs, and the reason in one line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Deviation {
    /// What is done otherwise.
    pub(crate) rule: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
}

impl Deviation {
    const fn new(rule: &'static str, reason: &'static str) -> Self {
        Self { rule, reason }
    }
}

/// Meshes and devices.
pub(crate) mod mesh {
    use super::Deviation;

    pub(crate) const EMPTY_DIM_NAME: Deviation = Deviation::new(
        "a mesh dimension has a name",
        "nothing can refer to a dimension without one",
    );
    pub(crate) const RESERVED_DIM_NAME: Deviation = Deviation::new(
        "no mesh dimension is named unsharded, match or any",
        "TensorFlow's constructor takes such a mesh, which its own parser refuses",
    );
    pub(crate) const DUPLICATE_DIM: Deviation = Deviation::new(
        "mesh dimensions have different names",
        "TensorFlow's constructor takes such a mesh, which its own parser refuses",
    );
    pub(crate) const SEPARATORS: Deviation = Deviation::new(
        "names have no character that separates names in text",
        "TensorFlow writes a text that it reads as another mesh, or crashes on",
    );
    pub(crate) const DUPLICATE_ID: Deviation = Deviation::new(
        "a device id stands for one device",
        "no id could be found again",
    );
    pub(crate) const FOREIGN_LOCAL_ID: Deviation = Deviation::new(
        "a local device id is one of the mesh",
        "TensorFlow fails later, when it asks where the device is",
    );
    pub(crate) const IDS_FROM_ELSEWHERE: Deviation = Deviation::new(
        "local devices have locations whatever the first id is",
        "TensorFlow takes ids for positions and fails with a KeyError",
    );
    pub(crate) const DEVICE_COUNT: Deviation = Deviation::new(
        "a list of devices has one for each id, or none",
        "nothing says which devices are left out",
    );
    pub(crate) const DUPLICATE_DEVICE: Deviation = Deviation::new(
        "a device stands at one place, but for one CPU at all",
        "TensorFlow's constructor refuses what its parsers do not look at",
    );
    pub(crate) const DEVICE_TYPES: Deviation = Deviation::new(
        "all devices of a mesh are of one type",
        "TensorFlow's constructor refuses what its parsers do not look at",
    );
    pub(crate) const NO_DEVICE: Deviation = Deviation::new(
        "a device has a name that says what it is",
        "TensorFlow takes any text here, and fails when the device is used",
    );
    pub(crate) const NUMBER_WITH_MORE: Deviation = Deviation::new(
        "a number has nothing behind it",
        "TensorFlow reads 2abc, 2.5 and 2=3 as 2",
    );
    pub(crate) const IMPOSSIBLE_SIZE: Deviation = Deviation::new(
        "a mesh with devices has sizes above 0",
        "TensorFlow runs out of memory, or keeps a mesh whose sizes do not count its devices",
    );
    pub(crate) const GLOBAL_DEVICES_KEPT: Deviation = Deviation::new(
        "global devices are read where a further part follows them",
        "TensorFlow loses them, so a mesh that it wrote comes back as another",
    );
    pub(crate) const EMPTY_KEEPS_NOTHING: Deviation = Deviation::new(
        "a mesh of no devices is the empty mesh",
        "TensorFlow prints it so, and sends its name and dimensions all the same",
    );
    pub(crate) const RANK_OUTSIDE: Deviation = Deviation::new(
        "a rank outside the mesh has no coordinates",
        "TensorFlow's coords wraps around where its device_location refuses",
    );
}

/// Layouts.
pub(crate) mod layout {
    use super::Deviation;

    pub(crate) const OPEN_SHARDS: Deviation = Deviation::new(
        "a dimension left to match has no shards",
        "TensorFlow counts 18446744073709551615 of them, and fails with a KeyError",
    );
    pub(crate) const AXES_THAT_ARE_NOT: Deviation = Deviation::new(
        "a tensor dimension that is deleted is there",
        "TensorFlow ignores one that is not, so -1 deletes nothing",
    );
    pub(crate) const LAST_COMMA: Deviation = Deviation::new(
        "a comma is missing after the last spec of a text",
        "TensorFlow loses the spec, and reads a layout of another rank",
    );
    pub(crate) const MESH_WITH_BLANKS: Deviation = Deviation::new(
        "a layout is read back whose mesh has blanks in its name",
        "TensorFlow writes such a text and does not read it",
    );
    pub(crate) const BEYOND_TENSORFLOW: Deviation = Deviation::new(
        "x|y cuts by two mesh dimensions, and partial:sum:z leaves one to reduce",
        "TensorFlow has no such layouts, so their text is free for them",
    );
    pub(crate) const UNEVEN_SHARDS: Deviation = Deviation::new(
        "uneven shards are exact",
        "TensorFlow rounds down, so the shards do not make up the tensor",
    );
    pub(crate) const UNKNOWN_SIZES: Deviation = Deviation::new(
        "sizes are known",
        "TensorFlow multiplies the -1 of an unknown size: -1 over 4 shards becomes -4",
    );
    pub(crate) const SHAPES_OF_OTHER_RANKS: Deviation = Deviation::new(
        "a shape has as many sizes as the layout has dimensions",
        "TensorFlow drops sizes that are too many, and reads out of bounds for too few",
    );
}
