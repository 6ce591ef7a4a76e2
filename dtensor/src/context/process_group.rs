//! The other clients, and the memory through which this one reaches them.

use meshwork_collectives::{Group, Registered};

use crate::{Error, Scalar};

/// The other clients.
pub(crate) enum ProcessGroup {
    None,
    Connected(Box<Connected>),
    Left,
}

/// Clients that have met.
pub(crate) struct Connected {
    pub(crate) group: Group,
    pub(crate) staging: StagingBuffer,
}

/// Memory for messages to and from other clients, shared with those on the same host. It is kept,
/// and grows to the most that was needed.
#[derive(Default)]
pub(crate) struct StagingBuffer(Option<Registered<u8>>);

impl ProcessGroup {
    pub(super) fn of(group: Group) -> Self {
        let staging = StagingBuffer::default();
        Self::Connected(Box::new(Connected { group, staging }))
    }

    /// Those that have met.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub(crate) fn connected(&mut self) -> Result<&mut Connected, Error> {
        match self {
            Self::Connected(connected) => Ok(connected),
            Self::None | Self::Left => Err(Error::ShutDown),
        }
    }
}

impl StagingBuffer {
    /// Room for this many elements, of unspecified value.
    pub(crate) fn elements<T: Scalar>(
        &mut self,
        group: &mut Group,
        count: usize,
    ) -> Result<&mut [T], Error> {
        let bytes = count.saturating_mul(size_of::<T>());
        let memory = match self.0.take() {
            Some(memory) if memory.len() >= bytes => memory,
            _ => group.alloc(bytes)?,
        };
        let bytes = &mut self.0.insert(memory)[..bytes];
        // Not all bytes are truth values; all others are values of every other type.
        if T::TYPE == crate::ElementType::Bool {
            bytes.fill(0);
        }
        Ok(bytemuck::checked::cast_slice_mut(bytes))
    }
}
