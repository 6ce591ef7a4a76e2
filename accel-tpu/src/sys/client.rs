//! A plugin at work on devices that are there.
#![expect(
    unsafe_code,
    reason = "calls into the plugin, with memory that it reads"
)]

use std::ptr::NonNull;
use std::sync::Arc;

use meshwork_accel::Element;

use super::api::Plugin;
use super::args::Args;
use super::buffer::{self, Buffer};
use super::executable::Executable;
use super::handle::Handle;
use super::pjrt::*;
use super::read;
use crate::{AttributeValue, CompileOptions, DeviceInfo, Error};

/// A plugin together with the devices that it drives; clones are the same one.
///
/// Devices are numbered from 0 in the order in which the plugin gives those of this process.
#[derive(Clone, Debug)]
pub struct PjrtClient(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    handle: Handle<PJRT_Client>,
    platform: String,
    platform_version: String,
    process: i32,
    devices: Vec<DeviceInfo>,
    raw_devices: Vec<RawDevice>,
}

/// A device, alive as long as its client.
#[derive(Clone, Copy, Debug)]
struct RawDevice(NonNull<PJRT_Device>);

// SAFETY: a device is only ever an argument of calls, which may come from any thread.
unsafe impl Send for RawDevice {}
// SAFETY: as above.
unsafe impl Sync for RawDevice {}

/// A device's memory usage in bytes, as its plugin reports it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceMemory {
    in_use: i64,
    limit: Option<i64>,
}

impl DeviceMemory {
    /// Bytes in use.
    #[must_use]
    pub const fn in_use(self) -> i64 {
        self.in_use
    }

    /// The most bytes that can be used, where the plugin knows.
    #[must_use]
    pub const fn limit(self) -> Option<i64> {
        self.limit
    }
}

impl PjrtClient {
    /// Starts the plugin on its devices; `options` are the plugin's own, such as
    /// `cpu_device_count` of XLA's CPU plugin.
    ///
    /// # Errors
    /// [`Error::Plugin`] when there are no devices or an option is unknown, [`Error::ZeroByte`],
    /// [`Error::NotSupported`].
    pub fn new(plugin: &Plugin, options: &[(&str, AttributeValue)]) -> Result<Self, Error> {
        let values = read::options(options.iter().map(|(name, value)| (*name, value)))?;
        let mut args = PJRT_Client_Create_Args {
            create_options: values.as_ptr(),
            num_options: values.len(),
            ..Args::new()
        };
        // SAFETY: options and what they point to live until the call ends.
        unsafe { plugin.call(&mut args) }?;
        // SAFETY: the client is new.
        let handle = unsafe { Handle::take(plugin, "PJRT_Client_Create", args.client) }?;
        Opened::of(handle).map(|opened| Self(Arc::new(opened)))
    }

    /// The plugin.
    #[must_use]
    pub fn plugin(&self) -> &Plugin {
        self.0.handle.plugin()
    }

    /// The platform that it drives: `cpu`, `cuda`, `tpu`.
    #[must_use]
    pub fn platform(&self) -> &str {
        &self.0.platform
    }

    /// The version of what drives it, in the plugin's words.
    #[must_use]
    pub fn platform_version(&self) -> &str {
        &self.0.platform_version
    }

    /// The number of this process among those that share the platform.
    #[must_use]
    pub fn process(&self) -> i32 {
        self.0.process
    }

    /// The devices of this process.
    #[must_use]
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.0.devices
    }

    /// The memory of a device.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`]; [`Error::Plugin`] with
    /// [`Status::UNIMPLEMENTED`](crate::Status::UNIMPLEMENTED) from plugins that do not report it.
    pub fn memory(&self, device: usize) -> Result<DeviceMemory, Error> {
        let device = self.raw_device(device)?;
        let mut args = PJRT_Device_MemoryStats_Args {
            device,
            ..Args::new()
        };
        // SAFETY: the device lives as long as the client.
        unsafe { self.plugin().call(&mut args) }?;
        Ok(DeviceMemory {
            in_use: args.bytes_in_use,
            limit: args.bytes_limit_is_set.then_some(args.bytes_limit),
        })
    }

    /// Compiles a program of StableHLO, as text or as MLIR bytecode, and loads it.
    ///
    /// # Errors
    /// [`Error::Plugin`] with what is wrong with the program.
    pub fn compile(&self, program: &[u8], options: &CompileOptions) -> Result<Executable, Error> {
        let mut program = program.to_vec();
        let program = mlir(&mut program);
        let options = options.encode();
        let mut args = PJRT_Client_Compile_Args {
            client: self.raw(),
            program: &raw const program,
            compile_options: options.as_ptr().cast(),
            compile_options_size: options.len(),
            ..Args::new()
        };
        // SAFETY: program and options live until the call ends.
        unsafe { self.plugin().call(&mut args) }?;
        // SAFETY: the executable is new.
        unsafe { Executable::take(self, "PJRT_Client_Compile", args.executable) }
    }

    /// Loads what [`PjrtProgram::serialize`](crate::PjrtProgram::serialize) gave; the inverse of it,
    /// for the same plugin.
    ///
    /// # Errors
    /// [`Error::Plugin`] when it is of another plugin or another version.
    pub fn load(&self, serialized: &[u8]) -> Result<Executable, Error> {
        let mut args = PJRT_Executable_DeserializeAndLoad_Args {
            client: self.raw(),
            serialized_executable: serialized.as_ptr().cast(),
            serialized_executable_size: serialized.len(),
            ..Args::new()
        };
        // SAFETY: the bytes live until the call ends.
        unsafe { self.plugin().call(&mut args) }?;
        // SAFETY: the executable is new.
        unsafe {
            Executable::take(
                self,
                "PJRT_Executable_DeserializeAndLoad",
                args.loaded_executable,
            )
        }
    }

    /// Copies `elements` to a new buffer on `device`, in row-major order.
    ///
    /// # Shapes
    /// The product of `dims` is the number of elements; no dimensions are a scalar.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::TooLarge`], [`Error::UnknownDevice`], [`Error::Plugin`] when the
    /// device has no memory left.
    pub fn upload<T: Element>(
        &self,
        device: usize,
        dims: &[usize],
        elements: &[T],
    ) -> Result<Buffer, Error> {
        let sizes = buffer::sizes(dims, elements.len())?;
        let mut args = PJRT_Client_BufferFromHostBuffer_Args {
            client: self.raw(),
            data: elements.as_ptr().cast(),
            type_: buffer::code_of(T::TYPE)?,
            dims: sizes.as_ptr(),
            num_dims: sizes.len(),
            host_buffer_semantics: PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
            device: self.raw_device(device)?,
            ..Args::new()
        };
        // SAFETY: elements and sizes live until the call ends, and are not read later.
        unsafe { self.plugin().call(&mut args) }?;
        let function = "PJRT_Client_BufferFromHostBuffer";
        // SAFETY: the event is new, and ours to destroy; nobody has to wait for it.
        drop(unsafe { Handle::take(self.plugin(), function, args.done_with_host_buffer) });
        // SAFETY: the buffer is new.
        unsafe { Buffer::take(self, device, function, args.buffer) }
    }

    pub(super) fn raw(&self) -> *mut PJRT_Client {
        self.0.handle.raw()
    }

    /// Whether both are the same one.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn number_of(&self, device: *mut PJRT_Device) -> Option<usize> {
        let mut devices = self.0.raw_devices.iter();
        devices.position(|known| known.0.as_ptr() == device)
    }

    pub(super) fn raw_device(&self, device: usize) -> Result<*mut PJRT_Device, Error> {
        let available = self.0.raw_devices.len();
        let found = self.0.raw_devices.get(device);
        found
            .map(|device| device.0.as_ptr())
            .ok_or(Error::UnknownDevice { device, available })
    }
}

impl Opened {
    fn of(handle: Handle<PJRT_Client>) -> Result<Self, Error> {
        let (plugin, client) = (handle.plugin(), handle.raw());
        let mut platform = PJRT_Client_PlatformName_Args {
            client,
            ..Args::new()
        };
        // SAFETY: the client is alive.
        unsafe { plugin.call(&mut platform) }?;
        let mut version = PJRT_Client_PlatformVersion_Args {
            client,
            ..Args::new()
        };
        // SAFETY: as above.
        unsafe { plugin.call(&mut version) }?;
        let mut process = PJRT_Client_ProcessIndex_Args {
            client,
            ..Args::new()
        };
        // SAFETY: as above.
        unsafe { plugin.call(&mut process) }?;
        let mut devices = PJRT_Client_AddressableDevices_Args {
            client,
            ..Args::new()
        };
        // SAFETY: as above.
        unsafe { plugin.call(&mut devices) }?;
        // SAFETY: the list lives as long as the client.
        let devices =
            unsafe { read::list(devices.addressable_devices, devices.num_addressable_devices) };
        let raw_devices: Vec<_> = devices
            .iter()
            .copied()
            .filter_map(NonNull::new)
            .map(RawDevice)
            .collect();
        let described = raw_devices.iter().map(|device| describe(plugin, *device));
        Ok(Self {
            // SAFETY: the text lives as long as the client.
            platform: unsafe { read::text(platform.platform_name, platform.platform_name_size) },
            // SAFETY: as above.
            platform_version: unsafe {
                read::text(version.platform_version, version.platform_version_size)
            },
            process: process.process_index,
            devices: described.collect::<Result<_, _>>()?,
            raw_devices,
            handle,
        })
    }
}

fn describe(plugin: &Plugin, device: RawDevice) -> Result<DeviceInfo, Error> {
    let mut args = PJRT_Device_GetDescription_Args {
        device: device.0.as_ptr(),
        ..Args::new()
    };
    // SAFETY: the device is alive, as its client is.
    unsafe { plugin.call(&mut args) }?;
    // SAFETY: the description lives as long as the device.
    unsafe { DeviceInfo::read(plugin, args.device_description) }
}

/// The program as PJRT takes it; it points into `code`.
pub(super) fn mlir(code: &mut [u8]) -> PJRT_Program {
    const FORMAT: &str = "mlir";
    PJRT_Program {
        struct_size: PJRT_Program_STRUCT_SIZE,
        extension_start: std::ptr::null_mut(),
        code: code.as_mut_ptr().cast(),
        code_size: code.len(),
        format: FORMAT.as_ptr().cast(),
        format_size: FORMAT.len(),
    }
}
