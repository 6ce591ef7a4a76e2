//! `AnyMesh`: everything that TensorFlow's `Mesh` can be (a mesh, a single device, empty), and
//! conversions to `Mesh`. Parsing and printing are in `any_mesh/text`, protobuf in `proto`.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::{DeviceSpec, Error, Mesh};

mod text;

/// TensorFlow's mesh type: devices arranged along dimensions, one device alone, or none.
///
/// Its text and protobuf forms are TensorFlow's, byte for byte: [`parse`](Self::parse) is inverse
/// to [`Display`], [`decode`](Self::decode) to [`encode`](Self::encode).
///
/// ```
/// use meshwork_core::{AnyMesh, Error};
///
/// let text = "m|x=2|0,1|0,1|/job:w/task:0/device:CPU:0,/job:w/task:0/device:CPU:1";
/// let mesh = AnyMesh::parse(text)?;
/// assert_eq!(mesh.to_string(), text);
/// assert_eq!(AnyMesh::decode(&mesh.encode())?, mesh);
/// assert_eq!(mesh.mesh().map(|mesh| mesh.size()), Some(2));
/// assert_eq!(AnyMesh::parse("empty_mesh")?, AnyMesh::Empty);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub enum AnyMesh {
    /// No device. A mesh of no devices has no name and no dimensions here; TensorFlow's protobuf
    /// form, unlike its text form, keeps them.
    #[default]
    Empty,
    /// One device alone.
    SingleDevice(SingleDevice),
    /// Devices arranged along dimensions.
    Mesh(Mesh),
}

/// A single device in place of a mesh, with the spelling of its name.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SingleDevice {
    text: String,
    spec: DeviceSpec,
    xla_spmd: bool,
}

impl AnyMesh {
    /// The device of this name alone.
    ///
    /// # Errors
    /// [`Error::EmptySingleDevice`], and those of [`DeviceSpec::parse`].
    pub fn from_device(device: impl Into<String>) -> Result<Self, Error> {
        SingleDevice::new(device).map(Self::SingleDevice)
    }

    /// The mesh, if it is one.
    #[must_use]
    pub fn mesh(&self) -> Option<&Mesh> {
        match self {
            Self::Mesh(mesh) => Some(mesh),
            Self::Empty | Self::SingleDevice(_) => None,
        }
    }

    /// The single device, if it is one.
    #[must_use]
    pub fn single_device(&self) -> Option<&SingleDevice> {
        match self {
            Self::SingleDevice(device) => Some(device),
            Self::Empty | Self::Mesh(_) => None,
        }
    }

    /// Whether it is one device alone.
    #[must_use]
    pub fn is_single_device(&self) -> bool {
        self.single_device().is_some()
    }

    /// The type of its devices, such as `GPU`, if it has any.
    #[must_use]
    pub fn device_type(&self) -> Option<&str> {
        match self {
            Self::Empty => None,
            Self::SingleDevice(device) => device.spec.device_type(),
            Self::Mesh(mesh) => mesh.device_type(),
        }
    }

    /// The CPUs beside its devices; no mesh for one device alone.
    ///
    /// # Errors
    /// Those of [`Mesh::host_mesh`].
    pub fn host_mesh(&self) -> Result<Self, Error> {
        match self {
            Self::Empty | Self::SingleDevice(_) => Ok(Self::Empty),
            Self::Mesh(mesh) => mesh.host_mesh().map(Self::Mesh),
        }
    }
}

impl From<Mesh> for AnyMesh {
    fn from(mesh: Mesh) -> Self {
        Self::Mesh(mesh)
    }
}

impl TryFrom<AnyMesh> for Mesh {
    type Error = Error;

    fn try_from(any: AnyMesh) -> Result<Self, Error> {
        match any {
            AnyMesh::Mesh(mesh) => Ok(mesh),
            AnyMesh::Empty => Err(Error::EmptyMesh),
            AnyMesh::SingleDevice(device) => Err(Error::OnlyOneDevice {
                device: device.text,
            }),
        }
    }
}

impl SingleDevice {
    /// The device of this name.
    ///
    /// # Errors
    /// [`Error::EmptySingleDevice`], and those of [`DeviceSpec::parse`].
    pub fn new(device: impl Into<String>) -> Result<Self, Error> {
        let text = device.into();
        if text.is_empty() {
            return Err(Error::EmptySingleDevice);
        }
        let spec = DeviceSpec::parse(&text)?;
        Ok(Self {
            text,
            spec,
            xla_spmd: false,
        })
    }

    /// The same device, marked as one whose programs the XLA compiler partitions.
    #[must_use]
    pub fn with_xla_spmd(mut self) -> Self {
        self.xla_spmd = true;
        self
    }

    /// The device's name as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The parsed device name.
    #[must_use]
    pub fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    /// Whether the XLA compiler partitions the programs of this device.
    #[must_use]
    pub fn use_xla_spmd(&self) -> bool {
        self.xla_spmd
    }
}

impl Display for SingleDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text form, as TensorFlow's `to_string` writes it.
impl Display for AnyMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str(text::EMPTY),
            Self::SingleDevice(device) => device.fmt(f),
            Self::Mesh(mesh) => mesh.fmt(f),
        }
    }
}

impl FromStr for AnyMesh {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl FromStr for Mesh {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        AnyMesh::parse(text)?.try_into()
    }
}

#[cfg(test)]
mod tests;
