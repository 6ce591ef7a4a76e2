//! What a rank remembers of its last operations, and leaves behind when its group fails.
//!
//! ```text
//!   operation ──begin──> journal of its group ──fail──> rank-2.json in the folder for dumps
//!              waits     call, site, times,
//!              end       ranks waited for
//! ```
//!
//! Always on: it costs an operation two looks at the processor's clock and one cache line.

mod clock;
mod dump;
mod folder;
mod journal;
mod long;
mod totals;

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::contract::{Call, Contract, Kind, site};
use crate::session::GroupId;
use crate::wait_for_graph::{HeldGroup, MessageCounts, WaitEdge, WaitId};
use crate::wire::MemberRecord;
use crate::{Member, OperationError, Rank};

use clock::{Clock, Tick};
pub(crate) use folder::of_view;
pub use folder::{dumps_in, epoch_folders};
pub(crate) use journal::{Ending, MediumKind, Serial};
use journal::{Journal, Operation};
use long::LongWaits;
pub(crate) use totals::{Carried, Totals, buffer_bytes};

/// One rank's recorder, shared by its groups and by the driver of its network.
#[derive(Debug)]
pub(crate) struct FlightRecorder {
    rank: Rank,
    members: Arc<[Member]>,
    folder: Option<PathBuf>,
    /// The same on all ranks of this run and view, and on no others; empty until they have met.
    run: OnceLock<u64>,
    clock: Clock,
    state: Mutex<State>,
    /// Nanoseconds that each of the members was waited for at length.
    awaited: Box<[AtomicU64]>,
}

#[derive(Debug)]
struct State {
    /// Those of all groups, and of some that are no more.
    logs: Vec<Arc<Log>>,
    opened: u64,
    /// What groups have done that are not remembered any more.
    forgotten: Totals,
    failure: Option<OperationError>,
    afterwards: Afterwards,
}

/// What is remembered of one group.
#[derive(Debug)]
struct Log {
    /// Tells it from others of its rank.
    number: u64,
    journal: Journal,
    long: Mutex<LongWaits>,
    /// The group whose operations it is a part of: whoever uses that one uses this one.
    part_of: OnceLock<u64>,
    /// This rank's place in the group, and who all are.
    me: Rank,
    members: Arc<[Member]>,
    /// The calls for messages to and from each of them.
    messages: Box<[Messages]>,
}

/// Calls for messages to another rank, and from it.
#[derive(Debug, Default)]
struct Messages {
    sent: AtomicU64,
    received: AtomicU64,
}

/// What the operations of one group are noted with.
#[derive(Debug)]
pub(crate) struct OperationLog {
    log: Arc<Log>,
    clock: Clock,
    last: Serial,
    /// When the last operation began, by what, and what it moves.
    began: Tick,
    medium: MediumKind,
    moved: u64,
}

/// Looks on while an operation waits.
#[derive(Clone, Debug)]
pub(crate) struct StallObserver(Arc<Log>);

/// What a rank did after its group had failed, which tells a slow rank from one that never came.
#[derive(Debug)]
enum Afterwards {
    Nothing,
    /// It made this call, which found the group over.
    CallOutcome(Box<Call>, Tick),
    /// It dropped its group.
    Dropped(Tick),
}

/// Groups that are remembered when they are no more.
const GROUPS: usize = 128;

impl OperationLog {
    /// Notes that this thread has a new group, whose operations are still to come.
    pub(crate) fn adopt(&self) {
        let journal = &self.log.journal;
        journal.thread.store(thread(), Ordering::Relaxed);
        journal.finished.store(0, Ordering::Relaxed);
    }

    /// Notes that operations of this group are made of some in another.
    pub(crate) fn is_part_of(&self, whole: u64) {
        // It never becomes a part of a third.
        let _ = self.log.part_of.set(whole);
    }

    /// Notes that an operation begins, which moves so many bytes.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        contract: &Contract,
        caller: &'static Location<'static>,
        medium: MediumKind,
        moved: u64,
    ) -> Serial {
        if cfg!(meshwork_bare) {
            return Serial::default();
        }
        let operation = Operation {
            contract: *contract,
            caller,
            medium,
            moved,
        };
        self.last = self.last.next();
        (self.began, self.medium, self.moved) = (self.clock.now(), medium, moved);
        let journal = &self.log.journal;
        journal.begin(self.last, self.began, operation);
        journal.thread.store(thread(), Ordering::Relaxed);
        self.last
    }

    /// Calls for messages to another rank of the group so far, and for messages from it.
    pub(crate) fn messages(&self, with: Rank) -> (u64, u64) {
        let messages = &self.log.messages[with.index()];
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&messages.sent), count(&messages.received))
    }

    /// Notes a call for a message to another rank of the group.
    pub(crate) fn sends(&mut self, to: Rank) {
        self.log.messages[to.index()]
            .sent
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a call for a message from another rank of the group.
    pub(crate) fn receives(&mut self, from: Rank) {
        let messages = &self.log.messages[from.index()];
        messages.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that what is left of the last operation are parts in other groups: nobody waits for
    /// this rank in it.
    pub(crate) fn agreed(&self) {
        self.log.journal.finish(self.last);
    }

    /// Notes that the last operation is over.
    #[inline]
    pub(crate) fn end(&self, how: Ending) {
        if cfg!(meshwork_bare) {
            return;
        }
        let (journal, now) = (&self.log.journal, self.clock.now());
        journal.end(self.last, now, how);
        let counters = journal.counters(self.medium);
        counters.count(self.moved, self.began.until(now));
    }

    pub(crate) fn stall_observer(&self) -> StallObserver {
        StallObserver(self.log.clone())
    }
}

impl FlightRecorder {
    pub(crate) fn new(rank: Rank, members: Arc<[Member]>, folder: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            rank,
            awaited: members.iter().map(|_| AtomicU64::new(0)).collect(),
            members,
            folder,
            run: OnceLock::new(),
            clock: Clock::new(),
            state: Mutex::new(State {
                logs: Vec::new(),
                opened: 0,
                forgotten: Totals::default(),
                failure: None,
                afterwards: Afterwards::Nothing,
            }),
        })
    }

    /// What the operations of a new group in this epoch are noted with, on this of its ranks.
    pub(crate) fn open(&self, id: GroupId, me: Rank, members: Arc<[Member]>) -> OperationLog {
        let mut state = self.state();
        state.opened += 1;
        let log = Arc::new(Log {
            number: state.opened,
            journal: Journal::new(id.epoch, id.number),
            long: Mutex::default(),
            part_of: OnceLock::new(),
            messages: members.iter().map(|_| Messages::default()).collect(),
            me,
            members,
        });
        let ended = |log: &Arc<Log>| Arc::strong_count(log) == 1;
        if state.logs.len() >= GROUPS
            && let Some(oldest) = state.logs.iter().position(ended)
        {
            let log = state.logs.remove(oldest);
            state.forgotten.add_forgotten(&log, self.clock.scale());
        }
        state.logs.push(log.clone());
        let log = OperationLog {
            log,
            clock: self.clock,
            last: Serial::default(),
            began: self.clock.now(),
            medium: MediumKind::Memory,
            moved: 0,
        };
        log.adopt();
        log
    }

    /// Notes whom this rank has met.
    pub(crate) fn met(&self, records: &[MemberRecord]) {
        // Each is a random number, so the sum is as good as one.
        let incarnations = records.iter().map(|record| record.incarnation);
        // All meet once.
        let _ = self.run.set(incarnations.fold(0, u64::wrapping_add));
    }

    /// How long an operation waits before it is asked whether it does so in vain.
    pub(crate) fn patience(&self) -> Duration {
        long::patience(self.members.len())
    }

    /// Notes that an operation waits for a rank, at length. Returns what it waits for and who
    /// waits for it, where it has waited for long and that is due.
    #[cold]
    pub(crate) fn waits(
        &self,
        StallObserver(log): &StallObserver,
        serial: Serial,
        awaited: Rank,
        is_due: impl FnOnce(WaitId) -> bool,
    ) -> Option<WaitEdge> {
        let record = log.journal.find(serial)?;
        let (now, scale) = (self.clock.now(), self.clock.scale());
        let waits = locked(&log.long).note(&record, awaited, now, scale);
        self.count_wait(awaited, waits.more);
        let waiter = self.rank;
        let call = || Call::new(record.contract, site(record.caller));
        if waits.slow {
            tracing::warn!(
                "{waiter} waits for {awaited} since {:.1?}: {}",
                waits.waited,
                call()
            );
        }
        let serial = log.number << SERIAL_BITS | serial.0;
        if waits.waited < self.patience() || !is_due(WaitId { waiter, serial }) {
            // Nothing is put together for a wait that is looked at and soon over.
            return None;
        }
        let message = record.contract.kind == Kind::Send;
        let held = self.state().held_with(log);
        Some(WaitEdge {
            waiter,
            awaited,
            serial,
            call: call(),
            receives: message && record.contract.root == Some(log.me),
            held_groups: held.iter().map(|log| log.hold()).collect(),
            message_counts: Some(held.iter().flat_map(|log| log.message_counts()).collect()),
        })
    }

    /// Notes why the group has failed, and leaves a dump behind, once.
    pub(crate) fn fail(&self, error: &OperationError) {
        let mut state = self.state();
        if state.failure.is_none() {
            state.failure = Some(error.clone());
            self.dump(&state);
        }
    }

    /// Notes a call that found the group over.
    pub(crate) fn came_late(&self, contract: &Contract, caller: &'static Location<'static>) {
        let call = || Box::new(Call::new(*contract, site(caller)));
        self.afterwards(|now| Afterwards::CallOutcome(call(), now));
    }

    /// Notes that this rank's group was dropped.
    pub(crate) fn dropped(&self) {
        self.afterwards(Afterwards::Dropped);
    }

    /// The first thing that a rank does after its group has failed is what counts.
    fn afterwards(&self, what: impl FnOnce(Tick) -> Afterwards) {
        let mut state = self.state();
        if state.failure.is_some() && matches!(state.afterwards, Afterwards::Nothing) {
            state.afterwards = what(self.clock.now());
            self.dump(&state);
        }
    }

    /// A folder that cannot be written to must not hide why the group failed.
    fn dump(&self, state: &State) {
        let Some(folder) = &self.folder else { return };
        let path = folder.join(format!("rank-{}.json", self.rank.number()));
        match replace(folder, &path, &self.text(state)) {
            Ok(()) => tracing::info!("the last operations are in {}", path.display()),
            Err(error) => tracing::warn!(%error, "no dump in {}", path.display()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl State {
    /// The groups that the thread which used this one last was the last to use.
    fn held_with(&self, own: &Log) -> Vec<Arc<Log>> {
        let user = |log: &Log| {
            let whole = log.part_of.get().and_then(|whole| {
                let mut logs = self.logs.iter().rev();
                logs.find(|log| log.journal.group == *whole)
            });
            let journal = whole.map_or(&log.journal, |whole| &whole.journal);
            journal.thread.load(Ordering::Relaxed)
        };
        let used = user(own);
        let held = self.logs.iter().filter(|log| user(log) == used);
        held.cloned().collect()
    }
}

impl Log {
    fn hold(&self) -> HeldGroup {
        HeldGroup {
            group: self.journal.group,
            finished: self.journal.finished.load(Ordering::Relaxed),
        }
    }

    /// The messages that there were at all, with the ranks called as in the group that was joined.
    fn message_counts(&self) -> impl Iterator<Item = MessageCounts> {
        let all = self.members.iter().zip(&self.messages);
        let message_counts = all.map(|(member, messages)| MessageCounts {
            group: self.journal.group,
            with: member.rank(),
            sent: messages.sent.load(Ordering::Relaxed),
            received: messages.received.load(Ordering::Relaxed),
        });
        message_counts.filter(|message_counts| message_counts.sent + message_counts.received > 0)
    }
}

/// Nothing that holds one of the locks here can panic half-way through a change.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody ever reads half a file, or guesses where it is written and has something else there.
fn replace(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let nonce = RandomState::new().hash_one(std::process::id());
    let draft = path.with_extension(format!("{nonce:016x}.draft"));
    let mut file = File::create_new(&draft)?;
    let written = file.write_all(text.as_bytes());
    let placed = written.and_then(|()| fs::rename(&draft, path));
    if placed.is_err() {
        let _ = fs::remove_file(&draft);
    }
    placed
}

/// A number of this thread's own, from 1, which is read faster than its id.
fn thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or_default()
}

/// Bits of an operation's number that count in its own group; those above are the group's.
const SERIAL_BITS: u32 = 40;

#[cfg(test)]
mod tests;
