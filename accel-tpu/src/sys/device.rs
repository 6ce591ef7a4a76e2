//! What a plugin says of a device, whether it is there or only described.
#![expect(unsafe_code, reason = "descriptions are read from the plugin's memory")]

use super::api::Plugin;
use super::args::Args;
use super::pjrt::*;
use super::read;
use crate::{DeviceInfo, Error};

impl DeviceInfo {
    /// # Safety
    /// `raw` is a description of this plugin, alive until this returns.
    pub(super) unsafe fn read(
        plugin: &Plugin,
        raw: *mut PJRT_DeviceDescription,
    ) -> Result<Self, Error> {
        let mut id = PJRT_DeviceDescription_Id_Args {
            device_description: raw,
            ..Args::new()
        };
        // SAFETY: the description is alive.
        unsafe { plugin.call(&mut id) }?;
        let mut process = PJRT_DeviceDescription_ProcessIndex_Args {
            device_description: raw,
            ..Args::new()
        };
        // SAFETY: as above.
        unsafe { plugin.call(&mut process) }?;
        let mut kind = PJRT_DeviceDescription_Kind_Args {
            device_description: raw,
            ..Args::new()
        };
        // SAFETY: as above.
        unsafe { plugin.call(&mut kind) }?;
        let mut text = PJRT_DeviceDescription_ToString_Args {
            device_description: raw,
            ..Args::new()
        };
        // SAFETY: as above.
        unsafe { plugin.call(&mut text) }?;
        let mut attributes = PJRT_DeviceDescription_Attributes_Args {
            device_description: raw,
            ..Args::new()
        };
        // SAFETY: as above.
        unsafe { plugin.call(&mut attributes) }?;
        // SAFETY: the text lives as long as the description.
        let kind = unsafe { read::text(kind.device_kind, kind.device_kind_size) };
        // SAFETY: as above.
        let text = unsafe { read::text(text.to_string, text.to_string_size) };
        // SAFETY: and so do attributes.
        let attributes =
            unsafe { read::attributes(attributes.attributes, attributes.num_attributes) };
        let (id, process) = (id.id, process.process_index);
        Ok(Self::new(id, process, kind, text, attributes))
    }
}
