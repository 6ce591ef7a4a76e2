//! How much memory the buffers of one device take, and how much they may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The memory budget of one logical device: with it a backend keeps a memory limit, reports free
/// memory, and counts buffers that leaked.
///
/// ```
/// use meshwork_accel::MemoryBudget;
///
/// let budget = MemoryBudget::new(Some(100));
/// let reservation = budget.reserve(60).expect("100 bytes are free");
/// assert!(budget.reserve(41).is_none());
/// drop(reservation);
/// assert_eq!(budget.free(), Some(100));
/// ```
#[derive(Debug)]
pub struct MemoryBudget {
    /// Bytes that its buffers may take together.
    limit: Option<u64>,
    used: AtomicU64,
    buffers: AtomicUsize,
}

impl MemoryBudget {
    /// Memory budget of a device that is not in use yet, whose buffers may take `limit` bytes
    /// together.
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

    /// Reserves the memory of a buffer of `bytes`, unless that is more than is free.
    #[must_use = "what is dropped is given back"]
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<MemoryReservation> {
        let limit = self.limit.unwrap_or(u64::MAX);
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        self.buffers.fetch_add(1, Ordering::Relaxed);
        let memory_budget = self.clone();
        Some(MemoryReservation {
            memory_budget,
            bytes,
        })
    }
}

/// The share of a [`MemoryBudget`] that one buffer holds; released when dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    memory_budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.memory_budget
            .used
            .fetch_sub(self.bytes, Ordering::Relaxed);
        self.memory_budget.buffers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_booked_and_what_is_dropped_comes_back() {
        let memory_budget = MemoryBudget::new(Some(100));
        let first = memory_budget.reserve(60).unwrap();
        assert!(memory_budget.reserve(41).is_none());
        let second = memory_budget.reserve(40).unwrap();
        let nothing = memory_budget.reserve(0).unwrap();
        assert_eq!(
            (memory_budget.free(), memory_budget.buffers()),
            (Some(0), 3)
        );
        drop(first);
        assert_eq!(
            (memory_budget.free(), memory_budget.buffers()),
            (Some(60), 2)
        );
        drop((nothing, second));
        assert_eq!(
            (memory_budget.free(), memory_budget.buffers()),
            (Some(100), 0)
        );
    }

    #[test]
    fn without_a_limit_sums_that_overflow_are_still_refused() {
        let memory_budget = MemoryBudget::new(None);
        let _most = memory_budget.reserve(u64::MAX).unwrap();
        assert!(memory_budget.reserve(1).is_none());
        assert_eq!(memory_budget.free(), None);
    }
}
