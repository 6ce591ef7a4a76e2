//! The last operations of one group on one rank, written without a lock.
//!
//! ```text
//!   Pen ── begin, end ──> slot 0 | slot 1 | … | slot 255     one cache line each, in turn
//!                                                  ╰──> whoever dumps reads while they are written
//! ```
//!
//! Only the group's own operations write, one at a time; others read a slot, and read it again if
//! its number was not the same before and after.

#![expect(
    unsafe_code,
    reason = "a reference that another thread reads meanwhile is kept as a pointer"
)]

use std::array;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use super::clock::Tick;
use super::totals::Counters;
use crate::contract::{Contract, Kind};

/// Operations that are remembered of a group.
pub(super) const LENGTH: usize = 256;

/// An operation's number among those of its group, from 1.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Serial(pub(super) u64);

impl Serial {
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What an operation's bytes go through.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MediumKind {
    Memory,
    Links,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    Well,
    Failed,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) serial: Serial,
    pub(super) contract: Contract,
    pub(super) caller: &'static Location<'static>,
    pub(super) medium: MediumKind,
    pub(super) moved: u64,
    pub(super) began: Tick,
    /// When it ended, and how.
    pub(super) ended: Option<(Tick, Ending)>,
}

/// The operations of one group, and what is known of who uses it.
#[derive(Debug)]
pub(super) struct Journal {
    epoch: u64,
    pub(super) group: u64,
    /// The operation with serial number `n` is at `n % LENGTH`.
    slots: [Slot; LENGTH],
    last: AtomicU64,
    /// The thread that used the group last, by a number of its own.
    pub(super) thread: AtomicU64,
    /// The number of the last operation that nobody waits for this rank in.
    pub(super) finished: AtomicU64,
    memory: Counters,
    links: Counters,
}

/// One operation, as words.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    /// 0 while the others change.
    serial: AtomicU64,
    sequence: AtomicU64,
    /// [`Contract::codes`].
    codes: AtomicU64,
    count: AtomicU64,
    /// Bytes.
    moved: AtomicU64,
    caller: AtomicPtr<Location<'static>>,
    /// The tick, and the medium as its lowest bit.
    began: AtomicU64,
    /// The tick, and how as its lowest bit; 0 before.
    ended: AtomicU64,
}

/// How often a slot is read that changes meanwhile: its writer writes eight words.
const READS: usize = 1000;

impl Journal {
    pub(super) fn new(epoch: u64, group: u64) -> Self {
        Self {
            epoch,
            group,
            slots: array::from_fn(|_| Slot::default()),
            last: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            memory: Counters::default(),
            links: Counters::default(),
        }
    }

    /// What the operations by a medium add up to.
    #[inline]
    pub(super) fn counters(&self, medium: MediumKind) -> &Counters {
        match medium {
            MediumKind::Memory => &self.memory,
            MediumKind::Links => &self.links,
        }
    }

    /// Notes an operation under a number greater than all before.
    #[inline]
    pub(super) fn begin(&self, serial: Serial, now: Tick, operation: Operation) {
        let Operation {
            contract,
            caller,
            medium,
            moved,
        } = operation;
        let slot = &self.slots[place(serial)];
        slot.serial.store(0, Ordering::Relaxed);
        // Nobody who sees a word of this operation takes it for one of the slot's last.
        fence(Ordering::Release);
        slot.sequence.store(contract.sequence, Ordering::Relaxed);
        slot.codes.store(contract.codes(), Ordering::Relaxed);
        slot.count.store(contract.count, Ordering::Relaxed);
        slot.moved.store(moved, Ordering::Relaxed);
        let caller = ptr::from_ref(caller).cast_mut();
        slot.caller.store(caller, Ordering::Relaxed);
        let medium = u64::from(medium == MediumKind::Links);
        slot.began.store(now.0 << 1 | medium, Ordering::Relaxed);
        slot.ended.store(0, Ordering::Relaxed);
        slot.serial.store(serial.0, Ordering::Release);
        self.last.store(serial.0, Ordering::Release);
    }

    /// Notes that the last operation is over.
    #[inline]
    pub(super) fn end(&self, serial: Serial, now: Tick, how: Ending) {
        let how_bit = u64::from(how == Ending::Failed);
        let slot = &self.slots[place(serial)];
        slot.ended.store(now.0 << 1 | how_bit, Ordering::Release);
        if how == Ending::Well {
            self.finish(serial);
        }
    }

    /// Notes that nobody waits for this rank in the last operation any more.
    #[inline]
    pub(super) fn finish(&self, serial: Serial) {
        let slot = &self.slots[place(serial)];
        let kind = slot.codes.load(Ordering::Relaxed) & 0xff;
        // Messages are not numbered among the operations of all.
        if kind != Kind::Send as u64 {
            let sequence = slot.sequence.load(Ordering::Relaxed);
            self.finished.store(sequence, Ordering::Relaxed);
        }
    }

    /// The operation with this number, unless it has made room for another.
    pub(super) fn find(&self, serial: Serial) -> Option<Record> {
        let slot = &self.slots[place(serial)];
        let found = (0..READS).find_map(|_| self.read(slot))?;
        // A later one does not go away, however often it is read.
        (found.serial == serial).then_some(found)
    }

    /// The operations, the oldest first.
    pub(super) fn records(&self) -> impl DoubleEndedIterator<Item = Record> {
        let last = self.last.load(Ordering::Acquire);
        let first = last.saturating_sub(LENGTH as u64 - 1).max(1);
        (first..=last).filter_map(|serial| self.find(Serial(serial)))
    }

    /// What a slot holds, if it was not written to meanwhile.
    fn read(&self, slot: &Slot) -> Option<Record> {
        let serial = slot.serial.load(Ordering::Acquire);
        let sequence = slot.sequence.load(Ordering::Relaxed);
        let codes = slot.codes.load(Ordering::Relaxed);
        let count = slot.count.load(Ordering::Relaxed);
        let moved = slot.moved.load(Ordering::Relaxed);
        let caller = slot.caller.load(Ordering::Relaxed);
        let began = slot.began.load(Ordering::Relaxed);
        let ended = slot.ended.load(Ordering::Acquire);
        fence(Ordering::Acquire);
        if serial == 0 || slot.serial.load(Ordering::Relaxed) != serial {
            return None;
        }
        // SAFETY: nothing but null and references that live for ever is ever stored.
        let caller = unsafe { caller.as_ref() }?;
        let contract = Contract::of_codes(codes, self.epoch, self.group, sequence, count).ok()?;
        Some(Record {
            serial: Serial(serial),
            contract,
            caller,
            medium: match began & 1 {
                0 => MediumKind::Memory,
                _ => MediumKind::Links,
            },
            moved,
            began: Tick(began >> 1),
            ended: (ended != 0).then_some(match ended & 1 {
                0 => (Tick(ended >> 1), Ending::Well),
                _ => (Tick(ended >> 1), Ending::Failed),
            }),
        })
    }
}

/// What a journal is told of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) contract: Contract,
    pub(super) caller: &'static Location<'static>,
    pub(super) medium: MediumKind,
    pub(super) moved: u64,
}

#[expect(clippy::cast_possible_truncation, reason = "below LENGTH")]
fn place(serial: Serial) -> usize {
    (serial.0 % LENGTH as u64) as usize
}

#[cfg(test)]
mod tests {
    use meshwork_accel::{ElementType, ReduceOp};

    use super::*;
    use crate::Rank;
    use crate::schedule::Algorithm;

    /// One of several, in turn.
    fn of<T: Copy>(choices: &[T], number: u64) -> T {
        let mut choices = choices.iter().cycle();
        let skipped = usize::try_from(number % 60).unwrap();
        *choices.nth(skipped).unwrap()
    }

    fn operation(number: u64) -> Operation {
        let contract = Contract {
            epoch: 3,
            group: 7,
            sequence: number,
            kind: of(&Kind::ALL, number),
            algorithm: of(&[None, Some(Algorithm::Ring)], number),
            element: ElementType::F32,
            count: number * number,
            op: of(&[None, Some(ReduceOp::Max), Some(ReduceOp::Mean)], number),
            root: of(&[None, Some(Rank::CHIEF), Some(Rank::new(9))], number),
        };
        Operation {
            contract,
            caller: Location::caller(),
            medium: of(&[MediumKind::Memory, MediumKind::Links], number),
            moved: 7 * number,
        }
    }

    #[test]
    fn operations_are_read_as_they_were_written() {
        let journal = Journal::new(3, 7);
        for number in 1..=3 * LENGTH as u64 + 5 {
            journal.begin(Serial(number), Tick(10 * number), operation(number));
            let how = of(&[Ending::Well, Ending::Failed], number);
            journal.end(Serial(number), Tick(10 * number + 1), how);
            let record = journal.find(Serial(number)).unwrap();
            let expected = operation(number);
            assert_eq!(record.contract, expected.contract);
            assert_eq!(record.medium, expected.medium);
            assert_eq!(record.moved, expected.moved);
            assert_eq!(record.began, Tick(10 * number));
            assert_eq!(record.ended, Some((Tick(10 * number + 1), how)));
            let kept = journal.records().map(|record| record.serial.0);
            let first = (number + 1).saturating_sub(LENGTH as u64).max(1);
            assert!(kept.eq(first..=number));
        }
    }

    #[test]
    fn whoever_reads_while_another_writes_sees_whole_operations() {
        const OPERATIONS: u64 = 20_000;
        let journal = Journal::new(3, 7);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 1..=OPERATIONS {
                    journal.begin(Serial(number), Tick(number), operation(number));
                    journal.end(Serial(number), Tick(number), Ending::Well);
                }
            });
            while !writer.is_finished() {
                for record in journal.records() {
                    let number = record.serial.0;
                    assert_eq!(record.contract, operation(number).contract);
                    assert_eq!(record.moved, operation(number).moved);
                    assert_eq!(record.began, Tick(number));
                    let ended = record.ended.is_none_or(|(tick, _)| tick == Tick(number));
                    assert!(ended, "{record:?}");
                }
            }
        });
        assert_eq!(journal.records().count(), LENGTH);
    }
}
