//! The protobuf form of a layout: TensorFlow's package `tensorflow.dtensor`, by its field numbers.
//!
//! ```proto
//! syntax = "proto3";
//! package tensorflow.dtensor;
//!
//! message ShardingSpec {
//!   reserved 1;
//!   string sharding_spec = 2;
//! }
//!
//! message LayoutProto {
//!   enum LayoutType {
//!     UNKNOWN = 0;
//!     STATIC = 1;
//!     PARTED = 2;
//!     SINGLE_DEVICE = 3;
//!   }
//!   repeated ShardingSpec sharding_specs = 1;
//!   MeshProto mesh_config = 2;
//!   LayoutType type = 3;
//! }
//! ```
//!
//! The structs below are that schema in prost's terms, with the mesh of [`meshwork_core::proto`].
//! They hold whatever was sent; what it means is for [`AnyLayout::try_from`] to say. Fields are
//! written in the order of their numbers, so equal layouts have equal bytes. Layouts with several
//! mesh dimensions on one tensor dimension, or with partial ones, have no such form.

use meshwork_core::proto::MeshProto;
use meshwork_core::{AnyMesh, Mesh};
use prost::Message;

use crate::pattern::SpecPattern;
use crate::{AnyLayout, Error, LayoutPattern, LayoutType, ShardingSpec, text};

/// The spec of one tensor dimension in a message.
#[derive(Clone, Eq, Hash, Message, PartialEq)]
pub struct ShardingSpecProto {
    /// `unsharded`, a mesh dimension, `match`, or `any`.
    #[prost(string, tag = "2")]
    pub sharding_spec: String,
}

/// A layout, as it is sent.
#[derive(Clone, Eq, Hash, Message, PartialEq)]
pub struct LayoutProto {
    /// The spec of each tensor dimension.
    #[prost(message, repeated, tag = "1")]
    pub sharding_specs: Vec<ShardingSpecProto>,
    /// The mesh.
    #[prost(message, optional, tag = "2")]
    pub mesh_config: Option<MeshProto>,
    /// A number of [`LayoutTypeProto`], if it is known.
    #[prost(enumeration = "LayoutTypeProto", tag = "3")]
    pub r#type: i32,
}

/// The type of a layout in a message.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, prost::Enumeration)]
#[repr(i32)]
pub enum LayoutTypeProto {
    /// None.
    Unknown = 0,
    /// [`LayoutType::Static`].
    Static = 1,
    /// [`LayoutType::Parted`].
    Parted = 2,
    /// [`AnyLayout::SingleDevice`].
    SingleDevice = 3,
}

impl AnyLayout {
    /// The protobuf form, as bytes; inverse of [`decode`](Self::decode).
    ///
    /// # Errors
    /// [`Error::NestedInProto`] and [`Error::PartialInProto`] for layouts that TensorFlow cannot
    /// express.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        Ok(LayoutProto::try_from(self)?.encode_to_vec())
    }

    /// Reads the protobuf form.
    ///
    /// # Errors
    /// [`Error::Decode`], and those of the conversion from [`LayoutProto`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let message = LayoutProto::decode(bytes).map_err(|source| Error::Decode { source })?;
        message.try_into()
    }
}

/// Fails by [`Error::NestedInProto`] and [`Error::PartialInProto`].
impl TryFrom<&AnyLayout> for LayoutProto {
    type Error = Error;

    fn try_from(layout: &AnyLayout) -> Result<Self, Error> {
        let (sharding_specs, kind) = match layout {
            AnyLayout::Empty => (vec![], LayoutTypeProto::Unknown),
            AnyLayout::SingleDevice(_) => (vec![], LayoutTypeProto::SingleDevice),
            AnyLayout::Pattern(pattern) => (specs(pattern)?, pattern.layout_type().into()),
        };
        Ok(Self {
            sharding_specs,
            mesh_config: Some(MeshProto::from(&layout.mesh())),
            r#type: kind.into(),
        })
    }
}

/// Decodes a message as TensorFlow does: the type has to be that of the mesh, so a layout from
/// before there were types is refused.
///
/// Fails by [`Error::Mesh`], [`Error::UnknownType`], [`Error::Untyped`], [`Error::NotOneDevice`],
/// [`Error::SpecsWithoutMesh`], and as [`LayoutPattern::new`] does.
impl TryFrom<LayoutProto> for AnyLayout {
    type Error = Error;

    fn try_from(message: LayoutProto) -> Result<Self, Error> {
        let value = message.r#type;
        let kind = LayoutTypeProto::try_from(value).map_err(|_| Error::UnknownType { value })?;
        let mesh = AnyMesh::try_from(message.mesh_config.unwrap_or_default())?;
        let specs = message.sharding_specs.iter();
        let words: Vec<&str> = specs.map(|spec| spec.sharding_spec.as_str()).collect();
        let pattern = |mesh| {
            let mesh = Mesh::try_from(mesh)?;
            text::pattern(&words, &mesh, ShardingSpec::from_name)
        };
        match kind {
            LayoutTypeProto::Static => Ok(pattern(mesh)?.into()),
            LayoutTypeProto::Parted => Ok(pattern(mesh)?.to_parted().into()),
            LayoutTypeProto::Unknown if mesh != AnyMesh::Empty => Err(Error::Untyped),
            _ if !words.is_empty() => Err(Error::SpecsWithoutMesh { count: words.len() }),
            LayoutTypeProto::Unknown => Ok(Self::Empty),
            LayoutTypeProto::SingleDevice => Self::from_single_device_mesh(&mesh),
        }
    }
}

impl From<LayoutType> for LayoutTypeProto {
    fn from(layout_type: LayoutType) -> Self {
        match layout_type {
            LayoutType::Static => Self::Static,
            LayoutType::Parted => Self::Parted,
        }
    }
}

fn specs(pattern: &LayoutPattern) -> Result<Vec<ShardingSpecProto>, Error> {
    if let Some(dim) = pattern.partial().next() {
        return Err(Error::PartialInProto { dim: dim.clone() });
    }
    let spec = |(axis, spec): (usize, SpecPattern)| match spec {
        SpecPattern::Exactly(spec) if spec.dims().len() > 1 => {
            Err(Error::NestedInProto { axis, spec })
        }
        spec => Ok(ShardingSpecProto {
            sharding_spec: spec.to_string(),
        }),
    };
    pattern.specs().enumerate().map(spec).collect()
}

#[cfg(test)]
mod tests;
