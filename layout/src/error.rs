//! `Error` for layouts, patterns, text and protobuf forms, and relayout plans. Ops have an error
//! type of their own, `ops::Error`.

use meshwork_core::DimName;

use crate::ShardingSpec;

/// Errors of layouts, patterns and plans: an invalid value, or a query that a layout cannot answer.
///
/// The caller is at fault in every case, and nothing is changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The mesh refuses a name or a rank.
    #[error(transparent)]
    Mesh(#[from] meshwork_core::Error),
    /// A link is given no bandwidth.
    #[error("a link of 0 bytes a second never delivers: give its bandwidth")]
    NoBandwidth,
    /// The meshes of a relayout do not hold the same devices.
    #[error(
        "the meshes, of {from} and of {to} ranks, do not hold the same devices: a relayout moves a \
         tensor among the devices that have it"
    )]
    OtherDevices {
        /// The size of the source's mesh, in ranks.
        from: usize,
        /// The size of the target's mesh, in ranks.
        to: usize,
    },
    /// A plan's bytes would not fit into 64 bits.
    #[error(
        "a tensor of the shape {shape:?} with {element_size} bytes an element, over {ranks} ranks, \
         is too large to count its bytes: plan for at most 2^63 bytes on all ranks together"
    )]
    TensorTooLarge {
        /// The shape, in elements.
        shape: Vec<usize>,
        /// The bytes of an element.
        element_size: usize,
        /// The size of the mesh.
        ranks: usize,
    },
    /// No plan keeps within the memory that is allowed.
    #[error(
        "no plan keeps within {bound} bytes on each device: it takes {smallest} bytes, or a shape \
         that is cut further"
    )]
    MemoryBound {
        /// The bound that was asked for, in bytes.
        bound: u64,
        /// The smallest bound with which there is a plan, in bytes.
        smallest: u64,
    },
    /// No plan that keeps within the memory that is allowed was found, and not all were looked at.
    #[error(
        "no plan within {bound} bytes on each device was found before the search was given up: \
         allow {known} bytes, with which there is one, or use a mesh of fewer dimensions"
    )]
    SearchGivenUp {
        /// The bound that was asked for, in bytes.
        bound: u64,
        /// A bound with which there is a plan, in bytes.
        known: u64,
    },
    /// One mesh dimension cuts two tensor dimensions, or one of them twice.
    #[error(
        "mesh dimension {dim} cuts tensor dimension {first} and again tensor dimension {second}: \
         use each mesh dimension once"
    )]
    RepeatedDim {
        /// The mesh dimension.
        dim: DimName,
        /// The first tensor dimension that it cuts, counted from 0.
        first: usize,
        /// The second one, which may be the same.
        second: usize,
    },
    /// One mesh dimension would both cut a tensor dimension and be partial.
    #[error(
        "mesh dimension {dim} cuts tensor dimension {axis} and cannot be partial: along it ranks \
         hold different elements, not terms of the same"
    )]
    CutAndPartial {
        /// The mesh dimension.
        dim: DimName,
        /// The tensor dimension, counted from 0.
        axis: usize,
    },
    /// A mesh dimension is listed twice among the partial ones.
    #[error("mesh dimension {dim} is partial twice: list each mesh dimension once")]
    RepeatedPartial {
        /// The mesh dimension.
        dim: DimName,
    },
    /// A pattern leaves two tensor dimensions to match.
    #[error(
        "tensor dimensions {first} and {second} are both left to match: leave one, and name the \
         mesh dimensions of the other or leave it to any"
    )]
    RepeatedMatch {
        /// The first tensor dimension, counted from 0.
        first: usize,
        /// The second one.
        second: usize,
    },
    /// A pattern leaves a tensor dimension open, where a layout is needed.
    #[error(
        "tensor dimension {axis} is left to {word}, so this is no layout yet: resolve it for a \
         tensor, by its layout"
    )]
    OpenSpec {
        /// The tensor dimension, counted from 0.
        axis: usize,
        /// `match` or `any`.
        word: &'static str,
    },
    /// A pattern is resolved for a tensor with more or fewer dimensions.
    #[error(
        "a pattern for tensors of rank {expected} cannot be resolved for one of rank {found}: give \
         it one spec for each dimension"
    )]
    PatternRank {
        /// The rank of the tensor's layout.
        found: usize,
        /// The rank of the pattern.
        expected: usize,
    },
    /// The layout has no such tensor dimension.
    #[error("tensor dimension {axis} is outside a tensor of rank {rank}: dimensions count from 0")]
    AxisOutside {
        /// The tensor dimension.
        axis: usize,
        /// How many there are.
        rank: usize,
    },
    /// A shape or an index has more or fewer numbers than the layout has tensor dimensions.
    #[error(
        "{found:?} has the rank {}, but the layout is for tensors of rank {expected}: give one \
         number for each dimension",
        found.len()
    )]
    RankMismatch {
        /// The shape or index.
        found: Vec<usize>,
        /// How many tensor dimensions the layout has.
        expected: usize,
    },
    /// An index reaches past the end of the tensor.
    #[error("index {index} is outside tensor dimension {axis} of size {size}: indices run from 0")]
    IndexOutside {
        /// The tensor dimension, counted from 0.
        axis: usize,
        /// The index along it.
        index: usize,
        /// Its size.
        size: usize,
    },
    /// Not all shards would be of one size.
    #[error(
        "tensor dimension {axis} of size {size} makes no {shards} equal shards: ask what each rank \
         holds, or pad it to a multiple of {shards}"
    )]
    Uneven {
        /// The tensor dimension, counted from 0.
        axis: usize,
        /// Its size.
        size: usize,
        /// Into how many shards it is cut.
        shards: usize,
    },
    /// A tensor would be larger than memory can be addressed.
    #[error(
        "tensor dimension {axis} would have {shards} shards of {size} indices, more than {}: make \
         it smaller",
        usize::MAX
    )]
    TooLarge {
        /// The tensor dimension, counted from 0.
        axis: usize,
        /// The size of each shard.
        size: usize,
        /// How many shards there are.
        shards: usize,
    },
    /// A tensor dimension has fewer shards.
    #[error(
        "shard {shard} is outside tensor dimension {axis} of {shards} shards: shards count from 0"
    )]
    ShardOutside {
        /// The tensor dimension, counted from 0.
        axis: usize,
        /// The shard asked for.
        shard: usize,
        /// How many there are.
        shards: usize,
    },
    /// Text names partial mesh dimensions and not how they are reduced.
    #[error("partial mesh dimensions {text:?} have no reduction: write them such as partial:sum:y")]
    PartialText {
        /// The text after `partial:`.
        text: String,
    },
    /// Text names a reduction that there is not.
    #[error("{word:?} is no reduction: use one of sum, product, min, max")]
    UnknownReduction {
        /// The word.
        word: String,
    },
    /// Text is no layout, or has no mesh.
    #[error("{text:?} is no layout: write it such as sharding_specs:x,unsharded, mesh:…")]
    LayoutText {
        /// The text.
        text: String,
    },
    /// Text is of no kind of layout.
    #[error(
        "{text:?} is the beginning of no layout: begin with sharding_specs:, parted: or maximal:true"
    )]
    LayoutTypeText {
        /// The text before the mesh.
        text: String,
    },
    /// A spec in text is not followed by a comma, so that others would not read it.
    #[error("the specs {specs:?} have no comma after the last one: add it")]
    LastComma {
        /// The specs.
        specs: String,
    },
    /// There is no layout, where one is needed.
    #[error("this layout is empty: give one that says how tensors lie")]
    EmptyLayout,
    /// A layout for one device is on a mesh of another kind.
    #[error("a layout for one device alone needs a mesh that is one: make it from the device")]
    NotOneDevice,
    /// The protobuf message has a mesh and no type, like those from before types existed.
    #[error("this layout has a mesh and no type: set the type STATIC where it was written")]
    Untyped,
    /// The protobuf message has an unknown type.
    #[error("{value} is no type of a layout: types run from 0 to 3")]
    UnknownType {
        /// The number sent.
        value: i32,
    },
    /// The protobuf message has specs, and no mesh for them.
    #[error(
        "a layout without mesh dimensions was sent with specs ({count}): send none, or the type STATIC"
    )]
    SpecsWithoutMesh {
        /// How many there are.
        count: usize,
    },
    /// TensorFlow's protobuf form has one mesh dimension at most for each tensor dimension.
    #[error(
        "tensor dimension {axis} is cut by {spec}, which the protobuf form cannot say: send the text"
    )]
    NestedInProto {
        /// The tensor dimension, counted from 0.
        axis: usize,
        /// The spec by which it is cut.
        spec: ShardingSpec,
    },
    /// TensorFlow's protobuf form has no partial mesh dimensions.
    #[error("mesh dimension {dim} is partial, which the protobuf form cannot say: send the text")]
    PartialInProto {
        /// The first partial mesh dimension.
        dim: DimName,
    },
    /// Bytes are no protobuf form of a layout.
    #[error("these bytes are no layout in protobuf form")]
    Decode {
        /// The error of the protobuf decoder.
        source: prost::DecodeError,
    },
}
