//! How much memory the buffers of one device take, and how much they may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The books of one logical device: what a backend needs to keep a memory limit, to say how much is
/// free, and to count what was never given back.
///
/// ```
/// use meshwork_accel::Account;
///
/// let account = Account::new(Some(100));
/// let booking = account.book(60).expect("100 bytes are free");
/// assert!(account.book(41).is_none());
/// drop(booking);
/// assert_eq!(account.free(), Some(100));
/// ```
#[derive(Debug)]
pub struct Account {
    /// Bytes that its buffers may take together.
    limit: Option<u64>,
    used: AtomicU64,
    buffers: AtomicUsize,
}

impl Account {
    /// Books of a device that nobody uses yet, whose buffers may take `limit` bytes together.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
            buffers: AtomicUsize::new(0),
        })
    }

    /// Bytes that the buffers may take together, if that is limited.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Bytes that are left of the limit, if there is one.
    #[must_use]
    pub fn free(&self) -> Option<u64> {
        let used = self.used.load(Ordering::Relaxed);
        Some(self.limit?.saturating_sub(used))
    }

    /// Buffers that have not been dropped.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.buffers.load(Ordering::Relaxed)
    }

    /// Books a buffer of `bytes`, unless that is more than is free.
    #[must_use = "what is dropped is given back"]
    pub fn book(self: &Arc<Self>, bytes: u64) -> Option<Booking> {
        let limit = self.limit.unwrap_or(u64::MAX);
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        self.buffers.fetch_add(1, Ordering::Relaxed);
        let account = self.clone();
        Some(Booking { account, bytes })
    }
}

/// What one buffer takes of an [`Account`]; given back when dropped.
#[derive(Debug)]
pub struct Booking {
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
    fn no_more_than_the_limit_is_booked_and_what_is_dropped_comes_back() {
        let account = Account::new(Some(100));
        let first = account.book(60).unwrap();
        assert!(account.book(41).is_none());
        let second = account.book(40).unwrap();
        let nothing = account.book(0).unwrap();
        assert_eq!((account.free(), account.buffers()), (Some(0), 3));
        drop(first);
        assert_eq!((account.free(), account.buffers()), (Some(60), 2));
        drop((nothing, second));
        assert_eq!((account.free(), account.buffers()), (Some(100), 0));
    }

    #[test]
    fn without_a_limit_sums_that_overflow_are_still_refused() {
        let account = Account::new(None);
        let _most = account.book(u64::MAX).unwrap();
        assert!(account.book(1).is_none());
        assert_eq!(account.free(), None);
    }
}
