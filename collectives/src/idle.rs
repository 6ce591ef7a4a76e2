//! Connections that are closed while nothing needs them, and what keeps them open.
//!
//! A rank that has more connections than its [budget] asks the others to close the longest idle
//! ones; how both ends agree, so that no byte and no operation is lost, is in [`closing`]. Whoever
//! needs a connection [holds](Closable::hold) it.

pub(crate) mod budget;
pub(crate) mod closing;
mod counted;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::wire::ClosingMessage;
use closing::{Begin, Break, ByteCounts, Closing, End, Reaction};
pub(crate) use counted::Counted;

/// A connection that may be closed: what its users, its streams and those who close it share.
pub(crate) struct Closable {
    closing: Mutex<Closing>,
    /// Tells that whoever waits is to look again.
    changed: Notify,
    /// Bytes of operations: those of a connection that nobody holds do not change.
    sent: AtomicU64,
    received: AtomicU64,
}

/// A connection stays open as long as this lives.
#[derive(Debug)]
pub(crate) struct Held(Arc<Closable>);

impl Closable {
    /// Of a connection that has just been made.
    pub(crate) fn new(end: End) -> Arc<Self> {
        Arc::new(Self {
            closing: Mutex::new(Closing::new(end, Instant::now())),
            changed: Notify::new(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        })
    }

    /// Keeps it open, or finds that it is closed. Waits for the other end where that was asked.
    pub(crate) async fn hold(self: &Arc<Self>) -> Option<Held> {
        loop {
            // Made before the look, so that a change between the two is not missed.
            let changed = self.changed.notified();
            let begin = self.closing().begin();
            match begin {
                Begin::Begun => return Some(Held(self.clone())),
                Begin::Closed => return None,
                Begin::Wait => changed.await,
            }
        }
    }

    /// Waits until it is closed, as both ends have agreed.
    pub(crate) async fn closed(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing().is_closed()
    }

    /// Whether it is about to be closed, or may be.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing().is_closing()
    }

    /// Since when nothing has needed it.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.closing().idle_since()
    }

    /// What to say to close it, if that is possible.
    pub(crate) fn propose(&self) -> Option<ClosingMessage> {
        let mut closing = self.closing();
        closing.propose(Instant::now(), self.counts())
    }

    /// What is to be done about what the other end says.
    pub(crate) fn hear(&self, message: ClosingMessage) -> Reaction {
        let mut closing = self.closing();
        let reaction = closing.hear(Instant::now(), message, self.counts());
        drop(closing);
        self.changed.notify_waiters();
        reaction
    }

    /// It has ended without a reason.
    pub(crate) fn breaks(&self) -> Break {
        self.closing().breaks()
    }

    /// It has ended with the group.
    pub(crate) fn give_up(&self) {
        self.closing().give_up();
        self.changed.notify_waiters();
    }

    /// It is closed, as was agreed, and forgotten by whoever knew of it.
    pub(crate) fn close(&self) {
        self.closing().close();
        self.changed.notify_waiters();
    }

    /// To be asked for with the lock: whoever held the connection has let go of the lock since.
    fn counts(&self) -> ByteCounts {
        ByteCounts {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }

    fn closing(&self) -> MutexGuard<'_, Closing> {
        // Nothing that holds the lock can panic half-way through a change.
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Closable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.closing().fmt(f)
    }
}

impl Held {
    pub(crate) fn connection(&self) -> &Arc<Closable> {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.closing().end(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::wire::CloseRequest;

    #[tokio::test]
    async fn whoever_needs_a_connection_waits_for_the_answer_and_goes_by_it() {
        let higher = Closable::new(End::Asks);
        let stays = [ClosingMessage::Keep(1), ClosingMessage::Close(2)];
        for (answer, is_held) in stays.into_iter().zip([true, false]) {
            assert!(higher.propose().is_some());
            let hold = higher.hold();
            tokio::pin!(hold);
            tokio::select! {
                biased;
                held = &mut hold => panic!("{held:?} before the answer"),
                () = tokio::task::yield_now() => {}
            }
            if higher.hear(answer) != Reaction::Nothing {
                assert!(!higher.is_closed());
                higher.close();
                higher.closed().await;
            }
            assert_eq!(hold.await.is_some(), is_held, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_connection_is_closed_neither_while_held_nor_with_bytes_unread() {
        let lower = Closable::new(End::Decides);
        let (near, far) = tokio::io::duplex(8);
        let mut read = Counted::new(near, lower.clone());
        let mut write = Counted::new(far, Closable::new(End::Asks));
        write.write_all(&[1, 2, 3]).await.unwrap();
        let request = |number| {
            ClosingMessage::Request(CloseRequest {
                number,
                sent: write.connection().counts().sent,
                received: 0,
            })
        };
        let keep = |number| Reaction::Say(ClosingMessage::Keep(number));
        assert_eq!(lower.hear(request(1)), keep(1));
        let held = lower.hold().await;
        read.read_exact(&mut [0; 3]).await.unwrap();
        assert_eq!(lower.hear(request(2)), keep(2));
        assert_eq!(lower.idle_since(), None);
        drop(held);
        let close = Reaction::Close(Some(ClosingMessage::Close(3)));
        assert_eq!(lower.hear(request(3)), close);
    }
}
