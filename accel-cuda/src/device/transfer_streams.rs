use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Failure;
use crate::sys::stream::Stream;

/// Streams beside that of a device, on which transfers go both ways at once.
#[derive(Clone, Debug)]
pub(crate) struct TransferStreams {
    pub(crate) down: Arc<Stream>,
    pub(crate) up: Arc<Stream>,
    /// The newest buffer of the device whose making both have waited for.
    caught_up: Arc<AtomicU64>,
}

impl TransferStreams {
    /// New ones on the GPU of this stream.
    pub(crate) fn beside(stream: &Stream) -> Result<Self, Failure> {
        let down = Stream::new(stream.gpu().clone())?;
        let up = Stream::new(stream.gpu().clone())?;
        let caught_up = Arc::default();
        Ok(Self {
            down,
            up,
            caught_up,
        })
    }

    /// Lets transfers that begin from now on wait for what `stream` was asked so far: for the
    /// making of all buffers up to the one with the number `newest`.
    pub(crate) fn catch_up_with(&self, stream: &Stream, newest: u64) -> Result<(), Failure> {
        self.down.follow(stream)?;
        self.up.follow(stream)?;
        self.caught_up.fetch_max(newest, Ordering::Release);
        Ok(())
    }

    /// The number of the newest buffer whose making transfers wait for.
    pub(crate) fn caught_up(&self) -> u64 {
        self.caught_up.load(Ordering::Acquire)
    }
}
