//! What the operations of a rank add up to.
//!
//! An operation adds to three numbers that no other thread writes; whoever asks does the rest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::clock::Scale;
use super::dump::what;
use super::journal::{Ending, MediumKind, Record};
use super::{FlightRecorder, Log, State, locked};
use crate::contract::{Contract, Kind, site};
use crate::statistics::{AwaitedRank, CurrentCall};
use crate::{Member, OperationError, Rank};

/// The operations of one group by one medium, written by the one that runs.
#[derive(Debug, Default)]
pub(super) struct Counters {
    operations: AtomicU64,
    bytes: AtomicU64,
    ticks: AtomicU64,
}

impl Counters {
    #[inline]
    pub(super) fn count(&self, bytes: u64, ticks: u64) {
        // There is one writer: a load and a store are an addition, and cheaper than a locked one.
        let add = |counter: &AtomicU64, more: u64| {
            let sum = counter.load(Ordering::Relaxed).wrapping_add(more);
            counter.store(sum, Ordering::Relaxed);
        };
        add(&self.operations, 1);
        add(&self.bytes, bytes);
        add(&self.ticks, ticks);
    }
}

/// Bytes of the buffers of an operation among so many ranks.
#[inline]
pub(crate) fn buffer_bytes(contract: &Contract, ranks: u32) -> u64 {
    // The contracts of these count the elements of one rank's block.
    let blocks = match matches!(contract.kind, Kind::Gather | Kind::Scatter) {
        true => u64::from(ranks),
        false => 1,
    };
    contract
        .count
        .saturating_mul(contract.element.size() as u64)
        .saturating_mul(blocks)
}

/// What one medium has carried.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Carried {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// Of the operations that are remembered.
    recent_bytes: u64,
    recent_time: Duration,
}

/// What the operations of a rank add up to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Totals {
    pub(crate) memory: Carried,
    pub(crate) links: Carried,
    pub(crate) in_operations: Duration,
}

impl Carried {
    /// Of the last operations; `None` where none of them moved anything.
    pub(crate) fn recent_gigabytes_per_second(&self) -> Option<f64> {
        let seconds = self.recent_time.as_secs_f64();
        (self.recent_bytes > 0 && seconds > 0.0).then(|| self.recent_bytes as f64 / seconds / 1e9)
    }

    fn add(&mut self, earlier: &Self) {
        self.operations += earlier.operations;
        self.bytes = self.bytes.saturating_add(earlier.bytes);
    }
}

impl Totals {
    /// Adds what was before, which is not recent any more.
    pub(crate) fn add(&mut self, earlier: &Self) {
        self.memory.add(&earlier.memory);
        self.links.add(&earlier.links);
        self.in_operations = self.in_operations.saturating_add(earlier.in_operations);
    }

    /// Adds the operations of a group that is to be forgotten.
    pub(super) fn add_forgotten(&mut self, log: &Log, scale: Scale) {
        let mut group = Self::default();
        group.add_group(log, scale);
        self.add(&group);
    }

    /// Adds the operations of one group.
    pub(super) fn add_group(&mut self, log: &Log, scale: Scale) {
        let part = log.part_of.get().is_some();
        for medium in [MediumKind::Memory, MediumKind::Links] {
            let counters = log.journal.counters(medium);
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let carried = self.of(medium);
            carried.bytes = carried.bytes.saturating_add(count(&counters.bytes));
            // The operation whose part it is counts, and so does its time.
            if !part {
                carried.operations += count(&counters.operations);
                let spent = scale.of(count(&counters.ticks));
                self.in_operations = self.in_operations.saturating_add(spent);
            }
        }
        for record in log.journal.records() {
            self.add_recent(&record, scale);
        }
    }

    fn add_recent(&mut self, record: &Record, scale: Scale) {
        if let (1.., Some((ended, Ending::Well))) = (record.moved, record.ended) {
            let carried = self.of(record.medium);
            carried.recent_bytes = carried.recent_bytes.saturating_add(record.moved);
            carried.recent_time += scale.between(record.began, ended);
        }
    }

    fn of(&mut self, medium: MediumKind) -> &mut Carried {
        match medium {
            MediumKind::Memory => &mut self.memory,
            MediumKind::Links => &mut self.links,
        }
    }
}

impl FlightRecorder {
    /// What all operations so far add up to.
    pub(crate) fn totals(&self) -> Totals {
        let (state, scale) = (self.state(), self.clock.scale());
        let mut totals = state.forgotten;
        for log in &state.logs {
            totals.add_group(log, scale);
        }
        totals
    }

    /// Whose it is, in the group that was joined.
    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Why the group has failed, if it has.
    pub(crate) fn failure(&self) -> Option<OperationError> {
        self.state().failure.clone()
    }

    /// The operation that goes on, and of several the one that began first; the parts of one that
    /// goes host by host are no operations of their own.
    pub(crate) fn current(&self) -> Option<CurrentCall> {
        let (state, now, scale) = (self.state(), self.clock.now(), self.clock.scale());
        let (log, record) = state.current()?;
        let awaited = locked(&log.long).of(&record).last().map(|wait| wait.rank);
        Some(CurrentCall {
            what: what(record.contract),
            site: site(record.caller),
            since: scale.between(record.began, now),
            awaited,
        })
    }

    /// Notes that a rank was waited for for so much longer.
    pub(super) fn count_wait(&self, awaited: Rank, more: Duration) {
        let nanos = u64::try_from(more.as_nanos()).unwrap_or(u64::MAX);
        if let Some(waited) = self.awaited.get(awaited.index()) {
            // Several threads may wait at once, each in a group of its own.
            waited.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// The ranks that were waited for at length, in order.
    pub(crate) fn awaited(&self) -> Vec<AwaitedRank> {
        let waited = self
            .awaited
            .iter()
            .map(|nanos| nanos.load(Ordering::Relaxed));
        let ranks = Rank::all(u32::MAX).zip(waited);
        let awaited = ranks.map(|(rank, nanos)| AwaitedRank {
            rank,
            waited: Duration::from_nanos(nanos),
        });
        awaited
            .filter(|awaited| !awaited.waited.is_zero())
            .collect()
    }

    /// The text of the dump that it would leave now.
    pub(crate) fn dump_now(&self) -> String {
        self.text(&self.state())
    }
}

impl State {
    fn current(&self) -> Option<(&Log, Record)> {
        let whole = self.logs.iter().filter(|log| log.part_of.get().is_none());
        let last = whole.filter_map(|log| Some((&**log, log.journal.records().next_back()?)));
        let running = last.filter(|(_, record)| record.ended.is_none());
        running.min_by_key(|(_, record)| record.began)
    }
}
