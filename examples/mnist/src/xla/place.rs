//! Devices of a plugin, and how tensors lie on them.

use std::sync::Arc;

use meshwork_accel_tpu::{AttributeValue, Platform as Plugins, Plugin};
use meshwork_accel_tpu::{PjrtAccelerator, PjrtClient};
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{Backend, Context, DTensor, DeviceType, Error as TensorError, ImageBatch};
use meshwork_layout::Layout;
use ndarray::{Array1, Array4};

use crate::args::{Args, Platform};
use crate::data::Batch;
use crate::error::Error;

/// A mesh of one dimension, by which batches are cut.
pub(super) struct Place {
    context: Context,
    mesh: Mesh,
    images: Layout,
    labels: Layout,
}

impl Place {
    /// The devices that were asked for, of a plugin that is found as everywhere.
    ///
    /// # Errors
    ///
    /// [`Error::Plugin`] without a plugin, or one that cannot be used; [`Error::Program`] if it has
    /// fewer devices.
    pub(super) fn new(args: &Args) -> Result<Self, Error> {
        let (plugins, device_type) = match args.platform {
            Platform::Cpu => (Plugins::Cpu, DeviceType::Cpu),
            Platform::Gpu => (Plugins::Cuda, DeviceType::Gpu),
            Platform::Tpu => (Plugins::Tpu, DeviceType::Tpu),
        };
        let plugin = Plugin::load(plugins.find()?)?;
        // A processor is as many devices as one likes; the devices of others are there or not.
        let count = AttributeValue::Int(args.devices.into());
        let client = match args.platform {
            Platform::Cpu => PjrtClient::new(&plugin, &[("cpu_device_count", count)]),
            Platform::Gpu | Platform::Tpu => PjrtClient::new(&plugin, &[]),
        }?;
        let backend = Backend::of(&Arc::new(PjrtAccelerator::new(client))).arithmetic();
        let backend = backend.arrangement().collectives().graphs();
        let (context, mesh) = mesh(device_type, args.devices, backend.into())?;
        let images = Layout::batch_sharded(&mesh, DATA, 4).map_err(TensorError::from)?;
        let labels = Layout::batch_sharded(&mesh, DATA, 1).map_err(TensorError::from)?;
        Ok(Self {
            context,
            mesh,
            images,
            labels,
        })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The most images, but no more than `most` if there are fewer devices, of which all devices
    /// have as many.
    pub(super) fn evenly(&self, most: usize) -> usize {
        let devices = self.mesh.size();
        (most / devices).max(1) * devices
    }

    /// Images and their classes, each device its part.
    pub(super) fn batch(&self, batch: Batch) -> Result<ImageBatch, Error> {
        let shape = batch.shape;
        let sizes = (batch.labels.len(), shape.channels(), shape.rows, shape.cols);
        let planes = Array4::from_shape_vec(sizes, batch.pixels).expect("pixels of all images");
        let images = planes.permuted_axes([0, 2, 3, 1]);
        let labels: Array1<i64> = batch.labels.iter().map(|own| i64::from(*own)).collect();
        Ok((
            self.context.copy_to_mesh(images, &self.images)?,
            self.context.copy_to_mesh(labels, &self.labels)?,
        ))
    }

    /// A number that all devices have.
    pub(super) fn number(&self, number: f32) -> Result<DTensor<f32>, Error> {
        let whole = Layout::replicated(&self.mesh, 0);
        Ok(self.context.full(&[], &whole, number)?)
    }
}

fn mesh(device_type: DeviceType, count: u32, by: Backend) -> Result<(Context, Mesh), TensorError> {
    let client = Client::new("localhost", 0, 1)?.with_devices(device_type.name(), count)?;
    let context = Context::alone(client);
    context.compute_on(device_type, by)?;
    let mesh = CreateMesh::new().device_type(device_type.name());
    let mesh = context.create_mesh(mesh.dims([(DATA, count as usize)]))?;
    Ok((context, mesh))
}

const DATA: &str = "data";
