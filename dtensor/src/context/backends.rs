//! Accelerators on which this client's tensors lie.

use std::sync::PoisonError;

use meshwork_accel::DeviceId;
use meshwork_core::{DeviceSpec, Mesh};

use super::Context;
use crate::backend::{Backend, LocalDevices};
use crate::{DeviceType, Error};

impl Context {
    /// From now on, tensors on devices of a type are stored and computed by an accelerator: device
    /// `i` of this client is its device `i`. Clones of this context do the same.
    ///
    /// Blocks go to the devices when an op needs them there, and stay: what the op makes is on the
    /// devices only, until it is asked for ([`unpack`](crate::DTensor::unpack),
    /// [`to_host`](crate::DTensor::to_host)), or an op that the backend does not have. Nothing goes
    /// either way twice. Which ops a backend has, its capabilities say; see
    /// [`BackendBuilder`](crate::BackendBuilder).
    ///
    /// Results may differ from the host's in the last places, NaN and the sign of zero. Clients
    /// that compute the same, as with tensors that are not cut, are to have accelerators of one
    /// kind.
    ///
    /// ```
    /// use meshwork_core::Client;
    /// use meshwork_dtensor::{Backend, Context, DeviceType, Error};
    ///
    /// /// One process, whose tensors on TPUs are computed with by them.
    /// fn context(tpus: Backend) -> Result<Context, Error> {
    ///     let count = u32::try_from(tpus.devices().len()).unwrap_or(u32::MAX);
    ///     let client = Client::new("localhost", 0, 1)?.with_devices("TPU", count)?;
    ///     let context = Context::alone(client);
    ///     context.compute_on(DeviceType::Tpu, tpus)?;
    ///     Ok(context)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooFewDevices`] where the client has more devices of the type than the accelerator.
    pub fn compute_on(
        &self,
        device_type: DeviceType,
        backend: impl Into<Backend>,
    ) -> Result<(), Error> {
        let backend = backend.into();
        let named = self.client().devices(device_type.name());
        let named = named.map_or(0, |devices| devices.len());
        let available = backend.devices().len();
        if named > available {
            return Err(Error::TooFewDevices {
                device_type,
                named,
                available,
            });
        }
        let mut backends = self
            .0
            .backends
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        backends.insert(device_type, backend);
        Ok(())
    }

    /// Whether a backend computes for a type of devices.
    pub(super) fn computes_on(&self, device_type: DeviceType) -> bool {
        let backends = &self.0.backends;
        let backends = backends.lock().unwrap_or_else(PoisonError::into_inner);
        backends.contains_key(&device_type)
    }

    /// The backend of a mesh's devices, and the one of each of this client's places; none where
    /// only the host computes.
    pub(crate) fn site(&self, mesh: &Mesh) -> Option<LocalDevices> {
        let device_type: DeviceType = mesh.device_type()?.parse().ok()?;
        let backends = self
            .0
            .backends
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let backend = backends.get(&device_type)?.clone();
        let devices = self.devices_of(mesh)?;
        Some(LocalDevices { backend, devices })
    }

    /// The device of each of this client's places on a mesh; none where they have no numbers.
    pub(crate) fn devices_of(&self, mesh: &Mesh) -> Option<Vec<DeviceId>> {
        let device = |spec: DeviceSpec| {
            let index = usize::try_from(spec.device_index()?).ok()?;
            Some(DeviceId::new(index))
        };
        let devices = mesh.local_devices().iter().map(device);
        devices.collect()
    }

    /// The same client with the same devices, on a backend that takes note of what it is asked. It
    /// reaches no other client.
    pub(crate) fn recording(&self, backend: &Backend) -> Self {
        let all = [DeviceType::Cpu, DeviceType::Gpu, DeviceType::Tpu];
        let backends = all.map(|device_type| (device_type, backend.clone()));
        let placements = self.0.device_placement.lock();
        let placements = placements.unwrap_or_else(PoisonError::into_inner).clone();
        Self::recorded(self, backends.into(), placements)
    }
}
