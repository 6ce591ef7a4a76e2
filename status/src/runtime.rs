use std::io;
use std::ops::Deref;

use tokio::runtime::{Builder, Runtime};

/// A runtime of one thread that waits for nothing when it is dropped: the look-up of a name cannot
/// be ended, and goes on past every deadline.
#[derive(Debug)]
pub(crate) struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self(Some(runtime)))
    }
}

impl Deref for OwnRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("only the drop takes it")
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
