//! Devices that need not be there.
#![expect(
    unsafe_code,
    reason = "calls into the plugin, with memory that it reads"
)]

use std::ptr;

use super::api::Plugin;
use super::args::Args;
use super::client::mlir;
use super::handle::Handle;
use super::pjrt::*;
use super::program::PjrtProgram;
use super::read;
use crate::{AttributeValue, CompileOptions, DeviceInfo, Error};

/// Devices that programs can be compiled for, whether they are there or not.
#[derive(Debug)]
pub struct Topology {
    handle: Handle<PJRT_TopologyDescription>,
    raw: RawTopology,
    devices: Vec<DeviceInfo>,
}

#[derive(Clone, Copy, Debug)]
struct RawTopology(*mut PJRT_TopologyDescription);

// SAFETY: a topology never changes, and may be used from any thread.
unsafe impl Send for RawTopology {}
// SAFETY: as above.
unsafe impl Sync for RawTopology {}

impl Topology {
    /// The devices that `name` stands for, in words that are the plugin's own, as are `options`.
    /// [`tpu::topology`](crate::tpu::topology) takes names of TPU slices that it has looked at
    /// first.
    ///
    /// # Errors
    /// [`Error::Plugin`] when the name or an option is unknown, or the plugin has no topologies;
    /// [`Error::ZeroByte`].
    pub fn new(
        plugin: &Plugin,
        name: &str,
        options: &[(&str, AttributeValue)],
    ) -> Result<Self, Error> {
        let values = read::options(options.iter().map(|(name, value)| (*name, value)))?;
        let mut args = PJRT_TopologyDescription_Create_Args {
            topology_name: name.as_ptr().cast(),
            topology_name_size: name.len(),
            create_options: values.as_ptr(),
            num_options: values.len(),
            ..Args::new()
        };
        // SAFETY: name and options live until the call ends.
        unsafe { plugin.call(&mut args) }?;
        // SAFETY: the topology is new.
        let handle =
            unsafe { Handle::take(plugin, "PJRT_TopologyDescription_Create", args.topology) }?;
        Self::of(handle)
    }

    /// Its devices, in the plugin's order.
    #[must_use]
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    /// The platform of the devices: `cpu`, `cuda`, `tpu`.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub fn platform(&self) -> Result<String, Error> {
        let mut args = PJRT_TopologyDescription_PlatformName_Args {
            topology: self.raw.0,
            ..Args::new()
        };
        // SAFETY: the topology is alive.
        unsafe { self.plugin().call(&mut args) }?;
        // SAFETY: the text lives as long as the topology.
        Ok(unsafe { read::text(args.platform_name, args.platform_name_size) })
    }

    /// The version of what compiles for it, in the plugin's words.
    ///
    /// # Errors
    /// [`Error::Plugin`].
    pub fn platform_version(&self) -> Result<String, Error> {
        let mut args = PJRT_TopologyDescription_PlatformVersion_Args {
            topology: self.raw.0,
            ..Args::new()
        };
        // SAFETY: the topology is alive.
        unsafe { self.plugin().call(&mut args) }?;
        // SAFETY: the text lives as long as the topology.
        Ok(unsafe { read::text(args.platform_version, args.platform_version_size) })
    }

    /// Compiles a program of StableHLO, as text or as MLIR bytecode, for these devices.
    ///
    /// # Errors
    /// [`Error::Plugin`] with what is wrong with the program.
    pub fn compile(&self, program: &[u8], options: &CompileOptions) -> Result<PjrtProgram, Error> {
        let mut program = program.to_vec();
        let program = mlir(&mut program);
        let options = options.encode();
        let mut args = PJRT_Compile_Args {
            topology: self.raw.0,
            program: &raw const program,
            compile_options: options.as_ptr().cast(),
            compile_options_size: options.len(),
            client: ptr::null_mut(),
            ..Args::new()
        };
        // SAFETY: the topology is alive; program and options live until the call ends.
        unsafe { self.plugin().call(&mut args) }?;
        // SAFETY: the program is new.
        unsafe { PjrtProgram::take(self.plugin(), "PJRT_Compile", args.executable) }
    }

    fn of(handle: Handle<PJRT_TopologyDescription>) -> Result<Self, Error> {
        let (plugin, raw) = (handle.plugin(), RawTopology(handle.raw()));
        let mut args = PJRT_TopologyDescription_GetDeviceDescriptions_Args {
            topology: raw.0,
            ..Args::new()
        };
        // SAFETY: the topology is alive, as its handle is.
        unsafe { plugin.call(&mut args) }?;
        // SAFETY: the list lives as long as the topology.
        let devices = unsafe { read::list(args.descriptions, args.num_descriptions) };
        let devices = devices
            .iter()
            // SAFETY: and so do descriptions.
            .map(|&device| unsafe { DeviceInfo::read(plugin, device) })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            handle,
            raw,
            devices,
        })
    }

    fn plugin(&self) -> &Plugin {
        self.handle.plugin()
    }
}
