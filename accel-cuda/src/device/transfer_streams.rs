use std::sync::Arc;

use crate::error::Failure;
use crate::sys::stream::Stream;

/// Streams beside that of a device, on which transfers go both ways at once.
#[derive(Clone, Debug)]
pub(crate) struct TransferStreams {
    pub(crate) down: Arc<Stream>,
    pub(crate) up: Arc<Stream>,
}

impl TransferStreams {
    /// New ones on the GPU of this stream.
    pub(crate) fn beside(stream: &Stream) -> Result<Self, Failure> {
        let down = Stream::new(stream.gpu().clone())?;
        let up = Stream::new(stream.gpu().clone())?;
        Ok(Self { down, up })
    }
}
