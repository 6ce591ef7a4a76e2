//! The last operations of a rank, and who uses its groups.

use std::panic::Location;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::Rank;
use crate::contract::{Call, Contract, Kind, site};
use crate::waits::{Hold, Wait};

/// Operations that are remembered.
pub(super) const LENGTH: usize = 256;
/// Ranks that one operation is remembered to have waited for.
const WAITS: usize = 8;
/// When others are first told that an operation waits.
const SOON: Duration = Duration::from_millis(50);
/// How often they are told at least.
const OFTEN: Duration = Duration::from_secs(1);
/// Groups whose use is remembered: more than a rank can have.
const GROUPS: usize = 128;

/// An operation's number among those of its rank, from 1.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Serial(pub(super) u64);

/// What an operation's bytes go through.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Carrier {
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
#[derive(Debug)]
pub(super) struct Record {
    pub(super) serial: Serial,
    pub(super) contract: Contract,
    pub(super) caller: &'static Location<'static>,
    pub(super) carrier: Carrier,
    pub(super) began: Instant,
    /// When it ended, and how.
    pub(super) ended: Option<(Instant, Ending)>,
    pub(super) waits: SmallVec<[Waited; 2]>,
    /// When others are told next that it waits.
    tell: Duration,
}

/// A rank that was waited for at length, and from when until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waited {
    pub(super) rank: Rank,
    pub(super) from: Instant,
    pub(super) until: Instant,
}

/// Who used a group last, and how far it has got.
#[derive(Debug)]
struct Use {
    group: u64,
    /// The group whose operations it is a part of: whoever uses that one uses this one.
    part_of: Option<u64>,
    thread: ThreadId,
    finished: u64,
}

#[derive(Debug)]
pub(super) struct Ring {
    /// The operation with serial number `n` is at `n % LENGTH`.
    records: Vec<Record>,
    last: Serial,
    uses: Vec<Use>,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self {
            records: Vec::with_capacity(LENGTH),
            last: Serial::default(),
            uses: Vec::new(),
        }
    }

    pub(super) fn adopt(&mut self, group: u64, thread: ThreadId) {
        self.used(group, thread);
        let using = self.uses.iter_mut().find(|using| using.group == group);
        if let Some(using) = using {
            using.finished = 0;
        }
    }

    pub(super) fn is_part(&mut self, group: u64, whole: u64) {
        let using = self.uses.iter_mut().find(|using| using.group == group);
        if let Some(using) = using {
            using.part_of = Some(whole);
        }
    }

    pub(super) fn begin(
        &mut self,
        (now, thread): (Instant, ThreadId),
        (contract, caller, carrier): (Contract, &'static Location<'static>, Carrier),
    ) -> Serial {
        self.last.0 += 1;
        let record = Record {
            serial: self.last,
            contract,
            caller,
            carrier,
            began: now,
            ended: None,
            waits: SmallVec::new(),
            tell: SOON,
        };
        let place = place(self.last);
        match self.records.get_mut(place) {
            Some(oldest) => *oldest = record,
            None => self.records.push(record),
        }
        self.used(contract.group, thread);
        self.last
    }

    pub(super) fn waits(
        &mut self,
        now: Instant,
        serial: Serial,
        (rank, awaited): (Rank, Rank),
    ) -> Option<Wait> {
        let record = self.find(serial)?;
        let room = record.waits.len() < WAITS;
        match record.waits.last_mut() {
            Some(last) if last.rank == awaited => last.until = now,
            _ if room => record.waits.push(Waited {
                rank: awaited,
                from: now,
                until: now,
            }),
            _ => {}
        }
        // A message over links may be on its way while its sender does something else, so waiting
        // for it says nothing about the sender's call.
        let tells = record.carrier == Carrier::Memory || record.contract.kind != Kind::Send;
        let waited = now.saturating_duration_since(record.began);
        if !tells || waited < record.tell {
            return None;
        }
        record.tell = waited + waited.min(OFTEN);
        let (contract, caller) = (record.contract, record.caller);
        Some(Wait {
            waiter: rank,
            awaited,
            serial: serial.0,
            call: Call::new(contract, site(caller)),
            holds: self.holds(contract.group),
        })
    }

    pub(super) fn end(&mut self, now: Instant, serial: Serial, how: Ending) {
        let Some(record) = self.find(serial) else {
            return;
        };
        record.ended = Some((now, how));
        if let Some(last) = record.waits.last_mut() {
            last.until = now;
        }
        if how == Ending::Well {
            self.finish(serial);
        }
    }

    /// Notes that nobody waits for this rank in the operation any more.
    pub(super) fn finish(&mut self, serial: Serial) {
        let Some(record) = self.find(serial) else {
            return;
        };
        let Contract {
            kind,
            group,
            sequence,
            ..
        } = record.contract;
        let using = self.uses.iter_mut().find(|using| using.group == group);
        // Messages are not numbered among the operations of all.
        if let (Some(using), true) = (using, kind != Kind::Send) {
            using.finished = sequence;
        }
    }

    /// The operations, the oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        let (new, old) = self.records.split_at(match self.records.len() {
            LENGTH => place(Serial(self.last.0 + 1)),
            _ => 0,
        });
        old.iter().chain(new)
    }

    /// The groups that the thread which used this one last was the last to use.
    fn holds(&self, group: u64) -> Vec<Hold> {
        let user = |group: u64| {
            let using = self.uses.iter().find(|using| using.group == group)?;
            let whole = using.part_of.and_then(|whole| {
                let mut uses = self.uses.iter();
                uses.find(|using| using.group == whole)
            });
            Some(whole.unwrap_or(using).thread)
        };
        let own = user(group);
        let same = |using: &&Use| own.is_some() && user(using.group) == own;
        let held = self.uses.iter().filter(same).map(|using| Hold {
            group: using.group,
            finished: using.finished,
        });
        held.collect()
    }

    fn find(&mut self, serial: Serial) -> Option<&mut Record> {
        let record = self.records.get_mut(place(serial))?;
        (record.serial == serial).then_some(record)
    }

    fn used(&mut self, group: u64, thread: ThreadId) {
        let room = self.uses.len() < GROUPS;
        match self.uses.iter_mut().find(|using| using.group == group) {
            Some(using) => using.thread = thread,
            None if room => self.uses.push(Use {
                group,
                part_of: None,
                thread,
                finished: 0,
            }),
            // Of groups beyond this nothing is concluded.
            None => {}
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below LENGTH")]
fn place(serial: Serial) -> usize {
    (serial.0.wrapping_sub(1) % LENGTH as u64) as usize
}
