//! A number that only grows, written by one rank and awaited by others.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// A counter on a cache line of its own with its waiters beside it.
///
/// The number wraps: "reached" means not more than half the number circle behind.
///
/// Waking costs a system call, so the writer makes it only when somebody sleeps. Both sides use
/// sequentially consistent operations: either the writer sees the sleeper, or the sleeper the new
/// number. Such an operation waits until all that was written before is visible, which takes longer
/// than all else when many lines come from another core; so the number can be shown first, and
/// sleepers be looked for when others have been waited for anyway.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Flag<A = AtomicU32> {
    number: A,
    sleepers: A,
}

/// What a flag needs of an atomic number; the tests have one that tries every interleaving.
pub(crate) trait Atomic: Debug {
    fn load(&self) -> u32;
    fn store(&self, number: u32);
    /// Makes the number visible some time soon, with all that was written before.
    fn publish(&self, number: u32);
    /// Either others see what this thread has published, or it sees afterwards what they did before
    /// they looked for it in vain.
    fn wake_sleepers();
    fn add(&self, number: u32);
    fn subtract(&self, number: u32);
    /// Sleeps while the number is `seen`, at most this long; may wake for no reason.
    fn sleep(&self, seen: u32, at_most: Duration);
    /// Wakes all that sleep on this number.
    fn wake(&self);
    /// Lets others run between two looks at a number.
    fn pause();
}

impl<A: Atomic> Flag<A> {
    pub(crate) fn set(&self, number: u32) {
        self.number.store(number);
        if self.sleepers.load() != 0 {
            self.number.wake();
        }
    }

    /// Sets the number without a look at sleepers, who would be missed: [`Flag::wake`] has to
    /// follow, before the writer itself waits for long.
    #[inline]
    pub(crate) fn show(&self, number: u32) {
        self.number.publish(number);
    }

    /// Wakes all who sleep until numbers that have been shown.
    #[inline]
    pub(crate) fn wake<const FLAGS: usize>(shown: [&Self; FLAGS]) {
        A::wake_sleepers();
        for flag in shown {
            if flag.sleepers.load() != 0 {
                flag.number.wake();
            }
        }
    }

    #[inline]
    pub(crate) fn reached(&self, number: u32) -> bool {
        reached(self.number.load(), number)
    }

    /// The number as it is now.
    pub(crate) fn number(&self) -> u32 {
        self.number.load()
    }

    /// Sleeps until the number is reached, at most this long, or for no reason shorter.
    pub(crate) fn sleep_until(&self, number: u32, at_most: Duration) {
        self.sleepers.add(1);
        let seen = self.number.load();
        if !reached(seen, number) {
            self.number.sleep(seen, at_most);
        }
        self.sleepers.subtract(1);
    }
}

fn reached(now: u32, number: u32) -> bool {
    now.wrapping_sub(number).cast_signed() >= 0
}

impl Atomic for AtomicU32 {
    #[inline]
    fn load(&self) -> u32 {
        Self::load(self, Ordering::SeqCst)
    }

    #[inline]
    fn store(&self, number: u32) {
        Self::store(self, number, Ordering::SeqCst);
    }

    #[inline]
    fn publish(&self, number: u32) {
        Self::store(self, number, Ordering::Release);
    }

    #[inline]
    fn wake_sleepers() {
        fence(Ordering::SeqCst);
    }

    fn add(&self, number: u32) {
        self.fetch_add(number, Ordering::SeqCst);
    }

    fn subtract(&self, number: u32) {
        self.fetch_sub(number, Ordering::SeqCst);
    }

    fn sleep(&self, seen: u32, at_most: Duration) {
        system::sleep(self, seen, at_most);
    }

    fn wake(&self) {
        system::wake(self);
    }

    fn pause() {
        std::thread::yield_now();
    }
}

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod system {
    use super::{AtomicU32, Duration};
    use rustix::thread::futex::{self, Flags, Timespec};

    pub(super) fn sleep(number: &AtomicU32, seen: u32, at_most: Duration) {
        let at_most = Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        // However it ends, the caller looks at the number again. Not private: other processes wake.
        let _ = futex::wait(number, Flags::empty(), seen, Some(&at_most));
    }

    pub(super) fn wake(number: &AtomicU32) {
        const ALL: u32 = i32::MAX as u32;
        let _ = futex::wake(number, Flags::empty(), ALL);
    }
}

#[cfg(any(not(target_os = "linux"), meshwork_portable))]
mod system {
    use super::{AtomicU32, Duration};

    /// Nobody is woken here: a short nap between two looks has to do.
    const NAP: Duration = Duration::from_micros(50);

    pub(super) fn sleep(_: &AtomicU32, _: u32, at_most: Duration) {
        std::thread::sleep(at_most.min(NAP));
    }

    pub(super) fn wake(_: &AtomicU32) {}
}
