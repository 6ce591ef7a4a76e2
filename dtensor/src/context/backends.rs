//! Accelerators that compute for this client's devices.

use std::sync::{Arc, PoisonError};

use meshwork_accel::{DeviceId, Elementwise, Matmul};
use meshwork_core::Mesh;

use super::Context;
use crate::compute::{Backend, Compute};
use crate::{DeviceType, Error, Scalar};

/// Where a block is computed with.
pub(crate) struct Device<T> {
    pub(crate) backend: Arc<dyn Compute<T>>,
    pub(crate) id: DeviceId,
}

impl Context {
    /// From now on, what tensors on devices of a type compute, an accelerator does: device `i` of this
    /// client is its device `i`. Clones of this context do the same.
    ///
    /// Those ops are the arithmetic of floats ([`add`](crate::DTensor::add), `sub`, `mul`, `div`,
    /// `neg`, `relu`, `exp`, `ln`, [`bias_add`](crate::DTensor::bias_add)) and
    /// [`matmul`](crate::DTensor::matmul). Blocks stay in the memory of the host: an op carries them to
    /// the devices, which work at the same time, and the result back, so that large products gain and
    /// small sums do not. All else the host does, as without an accelerator.
    ///
    /// Results may differ from the host's in the last places, NaN and the sign of zero. Clients that
    /// compute the same, as with tensors that are not cut, are to have accelerators of one kind.
    ///
    /// ```
    /// use meshwork_core::Client;
    /// use meshwork_dtensor::{Context, DeviceType, Error};
    /// # use meshwork_accel::{Elementwise, Matmul};
    /// # use std::sync::Arc;
    ///
    /// /// One process, whose tensors on TPUs are computed with by them.
    /// fn context<A: Elementwise + Matmul + 'static>(tpus: Arc<A>) -> Result<Context, Error> {
    ///     let count = u32::try_from(tpus.devices().len()).unwrap_or(u32::MAX);
    ///     let client = Client::new("localhost", 0, 1)?.with_devices("TPU", count)?;
    ///     let context = Context::alone(client);
    ///     context.compute_on(DeviceType::Tpu, &tpus)?;
    ///     Ok(context)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooFewDevices`] where the client has more devices of the type than the accelerator.
    pub fn compute_on<A: Elementwise + Matmul + 'static>(
        &self,
        device_type: DeviceType,
        accelerator: &Arc<A>,
    ) -> Result<(), Error> {
        let named = self.client().devices(device_type.name());
        let named = named.map_or(0, |devices| devices.len());
        let available = accelerator.devices().len();
        if named > available {
            return Err(Error::TooFewDevices {
                device_type,
                named,
                available,
            });
        }
        let backend = Arc::new(Backend::new(accelerator));
        let mut backends = self
            .0
            .backends
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        backends.insert(device_type, backend);
        Ok(())
    }

    /// The device of each of this client's ranks on a mesh, in their order; none where the host
    /// computes with elements `T`.
    pub(crate) fn devices<T: Scalar>(&self, mesh: &Mesh) -> Option<Vec<Device<T>>> {
        let device_type: DeviceType = mesh.device_type()?.parse().ok()?;
        let backends = self
            .0
            .backends
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let backend = backends.get(&device_type)?.of::<T>()?;
        let device = |spec: meshwork_core::DeviceSpec| {
            let index = usize::try_from(spec.device_index()?).ok()?;
            Some(Device {
                backend: Arc::clone(&backend),
                id: DeviceId::new(index),
            })
        };
        mesh.local_devices().iter().map(device).collect()
    }
}
