//! The text form of a mesh:
//!
//! ```text
//! name|dim=size,…|global ids|local ids|local devices[|global devices][|use_xla_spmd]
//! name|dim=size,…|*TYPE        every device of one host, for tests
//! /job:…/task:…/device:…       one device alone
//! empty_mesh                   no device
//! ```

use std::fmt::{self, Display, Write};

use super::{AnyMesh, SingleDevice};
use crate::{DeviceIds, DeviceSpec, Devices, DimName, Error, Mesh, MeshBuilder};

pub(super) const EMPTY: &str = "empty_mesh";
const XLA_SPMD: &str = "use_xla_spmd";

impl AnyMesh {
    /// Reads the text form.
    ///
    /// As TensorFlow does, except that numbers have nothing behind them but blanks, that a device
    /// alone has to be one, that global devices are read where `use_xla_spmd` follows them, and
    /// that no text brings the process down. Sizes and ids go up to 2,147,483,647 in text.
    ///
    /// # Errors
    /// - [`Error::TextParts`], [`Error::TextDim`], [`Error::TextNumber`], [`Error::TextGenerator`],
    ///   [`Error::TextFlag`], [`Error::SingleDeviceText`] for what is no mesh.
    /// - [`Error::TextLocalCount`], [`Error::UnevenLocalDevices`] and [`Error::DeviceWithoutHost`],
    ///   which a mesh that is built may have.
    /// - Those of [`MeshBuilder::build`] but for ids, which may come in any order here, and
    ///   [`Error::SpmdNeedsTpu`].
    #[doc(alias = "from_string")]
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text == EMPTY {
            return Ok(Self::Empty);
        }
        // One more than there may be is enough to see that there are too many.
        let parts: Vec<&str> = text.splitn(8, '|').collect();
        match *parts.as_slice() {
            [device] => read_single(device),
            [name, dims, generator] => generate(name, dims, generator),
            [name, dims, ids, local_ids, local, ref rest @ ..] if rest.len() <= 2 => {
                let dims = read_dims(dims)?;
                let (ids, local_ids) = (read_ids(ids)?, read_ids(local_ids)?);
                let local: Vec<&str> = pieces(local).collect();
                if local.len() != local_ids.len() || local.len() > ids.len() {
                    return Err(Error::TextLocalCount {
                        ids: ids.len(),
                        local_ids: local_ids.len(),
                        local_devices: local.len(),
                    });
                }
                if ids.is_empty() {
                    return Ok(Self::Empty);
                }
                let builder = Mesh::builder(dims)
                    .name(name)
                    .global_device_ids(ids)
                    .local(local_ids, Devices::parse(local)?);
                let mesh = with_rest(builder, rest)?.assemble()?;
                mesh.check_readable()?;
                Ok(Self::Mesh(mesh))
            }
            _ => Err(Error::TextParts {
                found: text.split('|').count(),
            }),
        }
    }
}

/// The text form, as TensorFlow's `to_string` writes it.
impl Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = self.dims().iter();
        write!(f, "{}|", self.name())?;
        join(f, dims.map(|dim| format!("{}={}", dim.name(), dim.size())))?;
        f.write_char('|')?;
        join(f, self.global_device_ids().iter())?;
        f.write_char('|')?;
        join(f, self.local_device_ids().iter())?;
        f.write_char('|')?;
        join(f, self.local_devices().texts())?;
        if !self.global_devices().is_empty() {
            f.write_char('|')?;
            join(f, self.global_devices().texts())?;
        }
        if self.use_xla_spmd() {
            write!(f, "|{XLA_SPMD}")?;
        }
        Ok(())
    }
}

fn join(f: &mut fmt::Formatter<'_>, items: impl IntoIterator<Item = impl Display>) -> fmt::Result {
    for (position, item) in items.into_iter().enumerate() {
        let separator = if position == 0 { "" } else { "," };
        write!(f, "{separator}{item}")?;
    }
    Ok(())
}

/// A device that stands alone names at least two of job, replica and task, and its index. That is
/// so for four or five colons, which is all that TensorFlow looks at.
fn read_single(device: &str) -> Result<AnyMesh, Error> {
    if !(4..=5).contains(&device.matches(':').count()) {
        return Err(Error::SingleDeviceText {
            text: device.to_owned(),
        });
    }
    SingleDevice::new(device).map(AnyMesh::SingleDevice)
}

/// All devices of one host, as `*TYPE` asks for.
fn generate(name: &str, dims: &str, generator: &str) -> Result<AnyMesh, Error> {
    let dims = read_dims(dims)?;
    // What stands before the star has no meaning.
    let Some((_, device_type)) = generator
        .split_once('*')
        .filter(|(_, device_type)| !device_type.contains('*'))
    else {
        return Err(Error::TextGenerator {
            part: generator.to_owned(),
        });
    };
    if dims.is_empty() || dims.iter().any(|(_, size)| *size == 0) {
        return Ok(AnyMesh::Empty);
    }
    // A type and no more: what reads as other parts of a device is none.
    DeviceSpec::default().with_device(device_type, None)?;
    let size = Mesh::new(dims.iter().map(|(name, size)| (name, *size)))?.size();
    let first = format!("/job:localhost/task:0/device:{device_type}:0");
    let mesh = Mesh::builder(dims).name(name).local(
        DeviceIds::consecutive(0, size)?,
        Devices::counted(&first, size)?,
    );
    mesh.assemble().map(AnyMesh::Mesh)
}

/// Parses the fields after the local devices.
fn with_rest(builder: MeshBuilder, rest: &[&str]) -> Result<MeshBuilder, Error> {
    let (devices, flag) = match *rest {
        [] => return Ok(builder),
        [XLA_SPMD] => ("", XLA_SPMD),
        [devices] => (devices, ""),
        [devices, flag, ..] => (devices, flag),
    };
    let builder = builder.global_devices(Devices::parse(pieces(devices))?);
    match flag {
        "" => Ok(builder),
        XLA_SPMD => Ok(builder.xla_spmd()),
        _ => Err(Error::TextFlag {
            part: flag.to_owned(),
        }),
    }
}

/// Dimensions, those of size 0 among them.
fn read_dims(text: &str) -> Result<Vec<(DimName, usize)>, Error> {
    let mut dims: Vec<(DimName, usize)> = Vec::new();
    for part in pieces(text) {
        let Some((name, size)) = part.split_once('=') else {
            return Err(Error::TextDim {
                part: part.to_owned(),
            });
        };
        let name = DimName::new(name)?;
        if dims.iter().any(|(known, _)| *known == name) {
            return Err(Error::DuplicateDim { name });
        }
        let size = usize::try_from(read_number(size)?).map_err(|_| Error::TextNumber {
            part: part.to_owned(),
        })?;
        dims.push((name, size));
    }
    Ok(dims)
}

fn read_ids(text: &str) -> Result<DeviceIds, Error> {
    let ids: Result<Vec<i64>, Error> = pieces(text)
        .map(|part| read_number(part).map(i64::from))
        .collect();
    DeviceIds::new(ids?)
}

/// TensorFlow reads numbers of 32 bits, and writes those of 64.
fn read_number(part: &str) -> Result<i32, Error> {
    part.trim().parse().map_err(|_| Error::TextNumber {
        part: part.to_owned(),
    })
}

/// The items between commas; none in an empty text.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(move |_| !text.is_empty())
}
