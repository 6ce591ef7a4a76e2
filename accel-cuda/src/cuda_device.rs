//! `CudaDevice`: one device of a backend, as adapters of model libraries are given it.

use std::sync::Arc;

use meshwork_accel::{Accelerator, DeviceId, Error as Refusal};

use crate::{CudaAccelerator, CudaBuffer, Error, ExternalMemory};

/// One device of a backend, on which the tensors of a model library lie.
///
/// ```
/// use std::sync::Arc;
/// use meshwork_accel_cuda::{CudaAccelerator, CudaDevice};
///
/// match CudaAccelerator::new() {
///     Ok(cuda) => println!("{:?}", CudaDevice::new(Arc::new(cuda), 0)?.id()),
///     Err(absent) => println!("no GPU: {absent}"),
/// }
/// # Ok::<(), meshwork_accel_cuda::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CudaDevice {
    accelerator: Arc<CudaAccelerator>,
    id: DeviceId,
}

impl CudaDevice {
    /// The device of this number, from 0: one GPU each, unless they are configured otherwise.
    ///
    /// # Errors
    /// [`Error::Device`] for one that is not there.
    pub fn new(accelerator: Arc<CudaAccelerator>, number: usize) -> Result<Self, Error> {
        let (device, available) = (DeviceId::new(number), accelerator.devices().len());
        match number < available {
            true => Ok(Self {
                accelerator,
                id: device,
            }),
            false => Err(Refusal::UnknownDevice { device, available }.into()),
        }
    }

    /// The backend.
    #[must_use]
    pub fn accelerator(&self) -> &Arc<CudaAccelerator> {
        &self.accelerator
    }

    /// Which of its devices it is.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// As [`CudaAccelerator::borrow`].
    ///
    /// # Errors
    /// Those of [`CudaAccelerator::borrow`].
    pub fn borrow(&self, memory: ExternalMemory) -> Result<CudaBuffer, Error> {
        self.accelerator.borrow(self.id, memory)
    }
}
