//! The standard input of an `ssh`, which a thread of its own writes.

use std::io::{self, Write};
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use meshwork_collectives::Rank;

use super::THREAD_STACK;
use crate::remote::{self, Orders};
use crate::{LaunchError, Signal};

/// Tells an `ssh` its orders and then of signals, and keeps nobody waiting for it: an `ssh` that
/// asks an agent, or for the touch of a key, reads nothing, perhaps for ever, and orders can be
/// longer than a pipe holds.
///
/// Nobody waits for the thread either. It ends with this, and before that with the `ssh`.
#[derive(Debug)]
pub(super) struct SshInput {
    lines: Sender<Vec<u8>>,
    has_orders: Arc<AtomicBool>,
}

impl SshInput {
    /// Starts to write the orders.
    ///
    /// # Errors
    /// [`LaunchError::Watch`]
    pub(super) fn start(
        rank: Rank,
        mut stdin: ChildStdin,
        orders: Orders,
    ) -> Result<Self, LaunchError> {
        let (lines, coming) = channel();
        let has_orders = Arc::new(AtomicBool::new(false));
        let written = has_orders.clone();
        thread::Builder::new()
            .name(format!("{rank} orders"))
            .stack_size(THREAD_STACK)
            // It fails where the `ssh` is gone, which is an end like any other, and seen as such.
            .spawn(move || -> io::Result<()> {
                orders.write_to(&mut stdin)?;
                written.store(true, Ordering::Release);
                let mut coming = coming.iter();
                coming.try_for_each(|line: Vec<u8>| stdin.write_all(&line))
            })
            .map_err(|source| LaunchError::Watch { source })?;
        Ok(Self { lines, has_orders })
    }

    /// Hands a signal on, once the orders are written.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(line) = remote::signal_line(signal) {
            // A failure means that the `ssh` is gone.
            let _ = self.lines.send(line.into_bytes());
        }
    }

    /// Whether all orders are written, without which nothing is started on the other host.
    pub(super) fn has_orders(&self) -> bool {
        self.has_orders.load(Ordering::Acquire)
    }
}
