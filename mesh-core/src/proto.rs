//! The protobuf form of a mesh: TensorFlow's package `tensorflow.dtensor`, by its field numbers.
//!
//! ```proto
//! syntax = "proto3";
//! package tensorflow.dtensor;
//!
//! message MeshDimensionProto {
//!   string name = 1;
//!   int64 size = 2;
//! }
//!
//! message MeshProto {
//!   repeated MeshDimensionProto mesh_dimensions = 1;
//!   repeated int64 global_device_ids = 2;
//!   string name = 3;
//!   repeated int64 local_device_ids = 4;
//!   repeated string local_devices = 5;
//!   repeated string global_devices = 6;
//!   bool use_xla_spmd = 7;
//!   string single_device = 8;
//! }
//! ```
//!
//! The structs below are that schema in prost's terms. They hold whatever was sent; what it means
//! is for [`AnyMesh::try_from`](crate::AnyMesh) to say. Fields are written in the order of their
//! numbers, so equal meshes have equal bytes.

use prost::Message;

use crate::{AnyMesh, DeviceIds, Devices, Error, Mesh, SingleDevice};

/// One dimension of a mesh, as it is sent.
#[derive(Clone, Eq, Hash, Message, PartialEq)]
pub struct MeshDimensionProto {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How many devices there are along it.
    #[prost(int64, tag = "2")]
    pub size: i64,
}

/// A mesh, as it is sent.
#[derive(Clone, Eq, Hash, Message, PartialEq)]
pub struct MeshProto {
    /// The dimensions, major to minor.
    #[prost(message, repeated, tag = "1")]
    pub mesh_dimensions: Vec<MeshDimensionProto>,
    /// The device ids, in rank order.
    #[prost(int64, repeated, tag = "2")]
    pub global_device_ids: Vec<i64>,
    /// The name; empty if there is none.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The ids of the sender's devices.
    #[prost(int64, repeated, tag = "4")]
    pub local_device_ids: Vec<i64>,
    /// The sender's devices, in the order of their ids.
    #[prost(string, repeated, tag = "5")]
    pub local_devices: Vec<String>,
    /// The devices of all ranks, in rank order; empty if they are not known.
    #[prost(string, repeated, tag = "6")]
    pub global_devices: Vec<String>,
    /// Whether the XLA compiler partitions the programs of the mesh.
    #[prost(bool, tag = "7")]
    pub use_xla_spmd: bool,
    /// The one device, for a mesh that has no dimensions; else empty.
    #[prost(string, tag = "8")]
    pub single_device: String,
}

impl AnyMesh {
    /// The protobuf form, as bytes; inverse of [`decode`](Self::decode).
    #[must_use]
    #[doc(alias = "as_proto")]
    pub fn encode(&self) -> Vec<u8> {
        MeshProto::from(self).encode_to_vec()
    }

    /// Reads the protobuf form.
    ///
    /// # Errors
    /// [`Error::Decode`], and those of the conversion from [`MeshProto`].
    #[doc(alias = "from_proto")]
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let message = MeshProto::decode(bytes).map_err(|source| Error::Decode { source })?;
        message.try_into()
    }
}

impl From<&AnyMesh> for MeshProto {
    fn from(mesh: &AnyMesh) -> Self {
        match mesh {
            AnyMesh::Empty => Self::default(),
            AnyMesh::SingleDevice(device) => Self {
                use_xla_spmd: device.use_xla_spmd(),
                single_device: device.to_string(),
                ..Self::default()
            },
            AnyMesh::Mesh(mesh) => mesh.into(),
        }
    }
}

impl From<&Mesh> for MeshProto {
    fn from(mesh: &Mesh) -> Self {
        let dimension = |dim: &crate::MeshDim| MeshDimensionProto {
            name: dim.name().to_string(),
            size: i64::try_from(dim.size()).expect("a size is at most `MAX_MESH_SIZE`"),
        };
        let texts = |devices: &Devices| devices.texts().map(Into::into).collect();
        Self {
            mesh_dimensions: mesh.dims().iter().map(dimension).collect(),
            global_device_ids: mesh.global_device_ids().iter().collect(),
            name: mesh.name().to_owned(),
            local_device_ids: mesh.local_device_ids().iter().collect(),
            local_devices: texts(mesh.local_devices()),
            global_devices: texts(mesh.global_devices()),
            use_xla_spmd: mesh.use_xla_spmd(),
            single_device: String::new(),
        }
    }
}

/// Decodes a message as TensorFlow does: a single device outweighs everything but `use_xla_spmd`,
/// and ids may come in any order.
///
/// Unlike TensorFlow, a mesh of no devices has no name, dimensions or flag, and devices, names and
/// local ids are held to what every [`Mesh`] keeps to.
impl TryFrom<MeshProto> for AnyMesh {
    type Error = Error;

    fn try_from(message: MeshProto) -> Result<Self, Error> {
        if !message.single_device.is_empty() {
            let device = SingleDevice::new(message.single_device)?;
            let device = match message.use_xla_spmd {
                true => device.with_xla_spmd(),
                false => device,
            };
            return Ok(Self::SingleDevice(device));
        }
        let mut dims = Vec::with_capacity(message.mesh_dimensions.len());
        for MeshDimensionProto { name, size } in message.mesh_dimensions {
            match usize::try_from(size) {
                Ok(size) => dims.push((name, size)),
                Err(_) => return Err(Error::ProtoSize { name, size }),
            }
        }
        let no_rank = dims.is_empty() || dims.iter().any(|(_, size)| *size == 0);
        if message.global_device_ids.is_empty() && no_rank {
            return Ok(Self::Empty);
        }
        let local_ids = DeviceIds::new(message.local_device_ids)?;
        let builder = Mesh::builder(dims)
            .name(message.name)
            .global_device_ids(DeviceIds::new(message.global_device_ids)?)
            .local(local_ids, Devices::parse(message.local_devices)?)
            .global_devices(Devices::parse(message.global_devices)?);
        let builder = match message.use_xla_spmd {
            true => builder.xla_spmd(),
            false => builder,
        };
        builder.assemble().map(Self::Mesh)
    }
}
