//! The protocol between ranks, tried in every interleaving that the memory model allows.
//!
//! The flags are those of the product, on atomic numbers of the checker; what they protect are
//! cells of the checker, which finds any two accesses that nothing keeps apart. A lost wake-up is
//! found as a deadlock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::shm::flag::{Atomic, Flag};

mod communicator;

/// A number with the system's wait and wake. A sleep that may end by itself does so at once.
///
/// The checker knows no order of all sequentially consistent operations, only of fences: these
/// stand where the product's operations are part of that order.
#[derive(Debug, Default)]
struct Checked {
    number: AtomicU32,
    asleep: Mutex<()>,
    woken: Condvar,
}

impl Atomic for Checked {
    fn load(&self) -> u32 {
        fence(Ordering::SeqCst);
        self.number.load(Ordering::SeqCst)
    }

    fn store(&self, number: u32) {
        self.number.store(number, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn publish(&self, number: u32) {
        self.number.store(number, Ordering::Release);
    }

    fn wake_sleepers() {
        fence(Ordering::SeqCst);
    }

    fn add(&self, number: u32) {
        self.number.fetch_add(number, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn subtract(&self, number: u32) {
        self.number.fetch_sub(number, Ordering::SeqCst);
    }

    /// The kernel compares and goes to sleep in one step; holding the lock makes it one here.
    fn sleep(&self, seen: u32, at_most: Duration) {
        if at_most < Duration::MAX {
            return thread::yield_now();
        }
        let asleep = self.asleep.lock().unwrap();
        if self.load() == seen {
            drop(self.woken.wait(asleep).unwrap());
        }
    }

    fn wake(&self) {
        drop(self.asleep.lock().unwrap());
        self.woken.notify_all();
    }

    fn pause() {
        thread::yield_now();
    }
}

fn wait(flag: &Flag<Checked>, number: u32) {
    while !flag.reached(number) {
        flag.sleep_until(number, Duration::MAX);
    }
}

/// One rank's flags and the cells behind them.
struct Side {
    posted: Flag<Checked>,
    consumed: Flag<Checked>,
    inside: Flag<Checked>,
    done: Flag<Checked>,
    closed: Flag<Checked>,
    places: [UnsafeCell<u32>; 2],
}

fn side() -> Side {
    Side {
        posted: Flag::default(),
        consumed: Flag::default(),
        inside: Flag::default(),
        done: Flag::default(),
        closed: Flag::default(),
        places: [UnsafeCell::new(0), UnsafeCell::new(0)],
    }
}

#[expect(
    unsafe_code,
    reason = "whether this is sound is what the checker finds out"
)]
fn write(place: &UnsafeCell<u32>, value: u32) {
    // SAFETY: the checker stops the test if anybody else touches the cell meanwhile.
    place.with_mut(|cell| unsafe { *cell = value });
}

#[expect(
    unsafe_code,
    reason = "whether this is sound is what the checker finds out"
)]
fn read(place: &UnsafeCell<u32>) -> u32 {
    // SAFETY: the checker stops the test if anybody writes to the cell meanwhile.
    place.with(|cell| unsafe { *cell })
}

/// Runs both ranks of a pair in every order of their steps.
fn in_every_order(rank: impl Fn(&[Side; 2], usize) + Send + Sync + Copy + 'static) {
    let mut model = loom::model::Builder::new();
    // Two forced switches at most: all bugs of the known kinds need no more.
    model.preemption_bound = Some(2);
    model.check(move || {
        let sides = Arc::new([side(), side()]);
        let other = sides.clone();
        let thread = thread::spawn(move || rank(&other, 1));
        rank(&sides, 0);
        thread.join().unwrap();
    });
}

#[test]
fn a_sleeper_is_woken_by_whoever_reaches_its_number() {
    in_every_order(|sides, me| {
        if me == 0 {
            sides[0].posted.set(1);
            sides[0].posted.set(2);
        } else {
            wait(&sides[0].posted, 2);
        }
    });
}

/// As operations do it: a number is shown, the other is waited for, and then sleepers are looked
/// for.
#[test]
fn nobody_sleeps_on_where_two_show_and_look_for_sleepers_later() {
    in_every_order(|sides, me| {
        for operation in 1..=2 {
            sides[me].posted.show(operation);
            wait(&sides[1 - me].posted, operation);
            Flag::wake([&sides[me].posted, &sides[me].done]);
        }
    });
}

/// Small messages: two places in turn, and a post for each operation.
#[test]
fn two_places_are_enough_when_every_operation_waits_for_all_posts() {
    in_every_order(|sides, me| {
        for operation in 1..=3 {
            let place = operation as usize % 2;
            write(&sides[me].places[place], operation * 10);
            sides[me].posted.set(operation);
            wait(&sides[1 - me].posted, operation);
            assert_eq!(read(&sides[1 - me].places[place]), operation * 10);
        }
    });
}

/// Slots: the writer waits until what was in one before has been consumed.
#[test]
fn a_slot_is_written_again_only_when_its_reader_is_done_with_it() {
    in_every_order(|sides, me| {
        for tick in 1..=3_u32 {
            let slot = tick as usize % 2;
            if me == 0 {
                wait(&sides[1].consumed, tick.wrapping_sub(2));
                write(&sides[0].places[slot], tick);
                sides[0].posted.set(tick);
            } else {
                wait(&sides[0].posted, tick);
                assert_eq!(read(&sides[0].places[slot]), tick);
                sides[1].consumed.set(tick);
            }
        }
    });
}

/// A rank that takes its memory back against one that is about to touch it.
#[test]
fn a_rank_that_closes_gets_its_memory_back_before_it_goes_on() {
    in_every_order(|sides, me| {
        let [owner, other] = sides;
        if me == 0 {
            owner.closed.set(1);
            while !other.done.reached(other.inside.number()) {
                thread::yield_now();
            }
            write(&owner.places[0], 1);
        } else {
            other.inside.set(1);
            if owner.closed.reached(1) {
                other.inside.set(0);
            } else {
                write(&owner.places[0], 2);
                other.done.set(1);
            }
        }
    });
}

/// The same without the second look: the checker has to notice.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_does_not_look_twice_is_found_out() {
    in_every_order(|sides, me| {
        let [owner, other] = sides;
        if me == 0 {
            owner.closed.set(1);
            while !other.done.reached(other.inside.number()) {
                thread::yield_now();
            }
            write(&owner.places[0], 1);
        } else if !owner.closed.reached(1) {
            other.inside.set(1);
            write(&owner.places[0], 2);
            other.done.set(1);
        }
    });
}
