//! How much memory the buffers of one device take, and how much they may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The books of one logical device.
#[derive(Debug)]
pub(crate) struct Account {
    /// Bytes that its buffers may take together.
    limit: u64,
    used: AtomicU64,
    buffers: AtomicUsize,
}

impl Account {
    /// Books of a device that nobody uses yet.
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
            buffers: AtomicUsize::new(0),
        })
    }

    /// Bytes that its buffers may take together.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that are left of them.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Buffers that have not been dropped.
    pub(crate) fn buffers(&self) -> usize {
        self.buffers.load(Ordering::Relaxed)
    }

    /// Books a buffer, unless that is more than is left.
    pub(crate) fn book(self: &Arc<Self>, bytes: u64) -> Option<Booking> {
        let within = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        self.used.fetch_update(set, get, within).ok()?;
        self.buffers.fetch_add(1, Ordering::Relaxed);
        Some(Booking {
            account: self.clone(),
            bytes,
        })
    }
}

/// What one buffer takes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Booking {
    account: Arc<Account>,
    bytes: u64,
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.buffers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_booked_is_gone_until_it_is_dropped() {
        let account = Account::new(10);
        let first = account.book(7);
        assert!(first.is_some() && account.book(4).is_none());
        let second = account.book(3);
        assert_eq!((account.left(), account.buffers()), (0, 2));
        assert!(account.book(0).is_some(), "nothing fits always");
        drop((first, second));
        assert_eq!((account.left(), account.buffers()), (10, 0));
        assert!(account.book(u64::MAX).is_none());
    }
}
