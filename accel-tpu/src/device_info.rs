use crate::Attributes;

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
    pub(crate) const fn new(
        id: i32,
        process: i32,
        kind: String,
        text: String,
        attributes: Attributes,
    ) -> Self {
        Self {
            id,
            process,
            kind,
            text,
            attributes,
        }
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

    /// What else the plugin says of it.
    #[must_use]
    pub const fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}
