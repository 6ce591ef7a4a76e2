//! What a system is asked for.

use std::num::NonZeroU32;

use meshwork_collectives::JobSecret;

use crate::DeviceType;

/// Options of [`System::initialize`](crate::System::initialize).
///
/// ```
/// use std::num::NonZeroU32;
/// use meshwork_dtensor::{DeviceType, Initialize};
///
/// let eight = NonZeroU32::new(8).expect("not zero");
/// let asked = Initialize::new().device_type(DeviceType::Cpu).logical_cpu_devices(eight);
/// # let _ = asked;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Initialize {
    pub(super) device_type: Option<DeviceType>,
    pub(super) logical_cpus: Option<NonZeroU32>,
    pub(super) coordination: Coordination,
    pub(super) before: Before,
    pub(super) cores: Cores,
    pub(super) secret: Option<JobSecret>,
}

/// Whether barriers check that all clients mean the same one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Coordination {
    #[default]
    Checked,
    Unchecked,
}

/// The treatment of a context that was used before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Before {
    #[default]
    Refused,
    TornDown,
}

/// The number of devices that a TPU chip counts as.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Cores {
    #[default]
    Single,
    Paired,
}

impl Initialize {
    /// The preferred type of device, with as many logical CPUs as there are.
    pub fn new() -> Self {
        Self::default()
    }

    /// For this type of device.
    pub fn device_type(self, device_type: DeviceType) -> Self {
        Self {
            device_type: Some(device_type),
            ..self
        }
    }

    /// With this many logical CPUs in this process.
    #[doc(alias = "num_logical_cpu_devices")]
    pub fn logical_cpu_devices(self, count: NonZeroU32) -> Self {
        Self {
            logical_cpus: Some(count),
            ..self
        }
    }

    /// Without the checks that TensorFlow's coordination service makes: that all clients have the
    /// same list of jobs, and that a barrier has the same name on all. Clients watch each other all
    /// the same.
    #[doc(alias = "enable_coordination_service")]
    pub fn without_coordination_service(self) -> Self {
        Self {
            coordination: Coordination::Unchecked,
            ..self
        }
    }

    /// Even if tensors were made before, which then cannot be moved between processes any more.
    #[doc(alias = "experimental_reset_context")]
    pub fn reset_context(self) -> Self {
        Self {
            before: Before::TornDown,
            ..self
        }
    }

    /// With the two cores of a TPU chip as one device. Plugins list devices as they pair them.
    #[doc(alias = "experimental_enable_megcore")]
    pub fn megacore(self) -> Self {
        Self {
            cores: Cores::Paired,
            ..self
        }
    }

    /// With this job secret instead of what the environment names, see
    /// [`JobIdentity::from_env`](meshwork_collectives::JobIdentity::from_env). One client
    /// needs none.
    pub fn secret(self, secret: JobSecret) -> Self {
        Self {
            secret: Some(secret),
            ..self
        }
    }
}
