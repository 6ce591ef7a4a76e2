//! What a plugin says of a device, whether it is there or only described.
#![expect(unsafe_code, reason = "descriptions are read from the plugin's memory")]

use super::api::Plugin;
use super::args::Args;
use super::pjrt::*;
use super::read;
use crate::{Attributes, Error};

/// One device as its plugin describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    id: i32,
    process: i32,
    kind: String,
    text: String,
    attributes: Attributes,
}

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
        Ok(Self {
            id: id.id,
            process: process.process_index,
            // SAFETY: the text lives as long as the description.
            kind: unsafe { read::text(kind.device_kind, kind.device_kind_size) },
            // SAFETY: as above.
            text: unsafe { read::text(text.to_string, text.to_string_size) },
            // SAFETY: and so do attributes.
            attributes: unsafe {
                read::attributes(attributes.attributes, attributes.num_attributes)
            },
        })
    }

    /// The plugin's number of the device, unique over all processes; the numbers need not be dense.
    #[must_use]
    pub const fn id(&self) -> i32 {
        self.id
    }

    /// The process that it belongs to: of a TPU slice, the host.
    #[must_use]
    pub const fn process(&self) -> i32 {
        self.process
    }

    /// The maker's name of its kind, such as `TPU v5 lite`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its name in the plugin's words.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Further attributes that the plugin gives the device.
    #[must_use]
    pub const fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}
