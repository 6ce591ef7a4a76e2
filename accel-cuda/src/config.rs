//! `CudaConfig`: which GPUs to open, how many logical devices on each, their memory limit, and
//! where libraries and kernels come from; and `gpus`, which lists GPUs without creating a context
//! on any.

use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwork_accel::{self as accel, Device, DeviceId};

use crate::cache::KernelCache;
use crate::compiler::Compiler;
use crate::device::LogicalDevice;
use crate::kernels::MOST_PLACES;
use crate::sys::driver::Driver;
use crate::sys::gpu::{Gpu, VisibleGpu};
use crate::sys::module::Module;
use crate::sys::stream::Stream;
use crate::{Error, Libraries};

/// Which devices a [`CudaAccelerator`](crate::CudaAccelerator) has.
///
/// ```
/// use meshwork_accel_cuda::{CudaAccelerator, CudaConfig, Error, Library};
/// use std::num::NonZeroUsize;
///
/// let config = CudaConfig::from_env()
///     .with_gpus([0])
///     .with_logical_devices(NonZeroUsize::new(4).expect("not zero"))
///     .with_memory_limit(1 << 30);
/// match CudaAccelerator::open(&config) {
///     Ok(four) => drop(four),
///     Err(absent @ Error::NotLoadable { library: Library::Driver, .. }) => println!("{absent}"),
///     Err(other) => println!("{other}"),
/// }
/// ```
#[derive(Clone, Debug)]
pub struct CudaConfig {
    libraries: Libraries,
    cache: KernelCache,
    gpus: Option<Vec<usize>>,
    logical: NonZeroUsize,
    limit: Option<u64>,
}

impl CudaConfig {
    /// All GPUs, one device each, with the libraries and the cache that the environment names.
    #[must_use]
    pub fn from_env() -> Self {
        Self::new(Libraries::from_env(), KernelCache::from_env())
    }

    /// All GPUs, one device each.
    #[must_use]
    pub const fn new(libraries: Libraries, cache: KernelCache) -> Self {
        Self {
            libraries,
            cache,
            gpus: None,
            logical: NonZeroUsize::MIN,
            limit: None,
        }
    }

    /// With these GPUs only, by the driver's numbers; the first has the first devices.
    #[must_use]
    pub fn with_gpus(mut self, gpus: impl Into<Vec<usize>>) -> Self {
        self.gpus = Some(gpus.into());
        self
    }

    /// With `each` logical devices on every GPU, which share its memory and its processors.
    #[must_use]
    pub const fn with_logical_devices(mut self, each: NonZeroUsize) -> Self {
        self.logical = each;
        self
    }

    /// With at most `bytes` for the buffers of each device; without a limit, all of the GPU's
    /// memory.
    #[must_use]
    pub const fn with_memory_limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    pub(crate) fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// Opens every device, in order.
    pub(crate) fn devices(&self) -> Result<Vec<(Device, Arc<LogicalDevice>)>, Error> {
        let driver = Driver::open(&self.libraries)?;
        let gpus = self.ordinals(driver.device_count()?)?;
        let compiler = Compiler::open(&self.libraries)?;
        let mut devices = Vec::new();
        for ordinal in gpus {
            let card = VisibleGpu::find(driver.clone(), ordinal)?;
            let limit = self.limit_of(ordinal, card.total_memory()?)?;
            let (name, address) = (card.name()?, card.pci_address()?);
            let image = self.cache.kernels(&compiler, card.capability()?)?;
            let gpu = Gpu::open(card)?;
            let module = Module::load(gpu.clone(), &image);
            let module = module.map_err(|failure| compiler.refused_by(&driver, failure))?;
            let module = Arc::new(module);
            for _ in 0..self.logical.get() {
                let id = DeviceId::new(devices.len());
                let device = Device::new(id, KIND)
                    .with_name(&*name)
                    .with_address(&*address);
                let stream = Stream::new(gpu.clone())?;
                devices.push((
                    device,
                    LogicalDevice::new(id, stream, module.clone(), limit),
                ));
            }
        }
        Ok(devices)
    }

    /// The ordinals of the GPUs to open, of `available` ones.
    fn ordinals(&self, available: usize) -> Result<Vec<usize>, Error> {
        if available == 0 {
            return Err(Error::NoDevices);
        }
        let gpus = self
            .gpus
            .clone()
            .unwrap_or_else(|| (0..available).collect());
        if let Some(&ordinal) = gpus.iter().find(|ordinal| **ordinal >= available) {
            return Err(Error::UnknownGpu { ordinal, available });
        }
        let asked = gpus.len().saturating_mul(self.logical.get());
        if asked > MOST_PLACES {
            let most = MOST_PLACES;
            return Err(Error::TooManyDevices { asked, most });
        }
        Ok(gpus)
    }

    /// The memory limit of each logical device on a GPU of `total` bytes.
    fn limit_of(&self, ordinal: usize, total: u64) -> Result<u64, Error> {
        let Some(limit) = self.limit else {
            return Ok(total);
        };
        let devices = self.logical.get();
        let together = limit.checked_mul(devices as u64);
        if together.is_some_and(|together| together <= total) {
            return Ok(limit);
        }
        Err(Error::LimitTooLarge {
            ordinal,
            devices,
            limit,
            total,
        })
    }
}

/// The GPUs that the driver shows, numbered as it does, and their memory, without using any of
/// them.
///
/// # Errors
/// [`Error::NotLoadable`], [`Error::NoFunction`], [`Error::TooOld`], [`Error::NoDevices`], and
/// [`Error::Call`]; each says what to do.
pub fn gpus(libraries: &Libraries) -> Result<Vec<(Device, accel::Memory)>, Error> {
    let driver = Driver::open(libraries)?;
    let count = driver.device_count()?;
    if count == 0 {
        return Err(Error::NoDevices);
    }
    let gpu = |ordinal| {
        let card = VisibleGpu::find(driver.clone(), ordinal)?;
        let device = Device::new(DeviceId::new(ordinal), KIND);
        let device = device
            .with_name(card.name()?)
            .with_address(card.pci_address()?);
        Ok((device, accel::Memory::of(card.total_memory()?)))
    };
    (0..count).map(gpu).collect()
}

/// The device type in device names.
const KIND: &str = "GPU";
