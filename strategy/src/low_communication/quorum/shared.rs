//! What a worker's training and the thread that exchanges for it share.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use meshwork_collectives::{MeasuredLinks, Rank};

use super::super::exchange::Traffic;
use super::super::rounds::Contribution;
use super::common::{Common, Report};
use super::state::Cut;
use crate::{Error, LowCommunicationError};

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) common: Common,
    /// Exchanges that have begun, of which the last may not be made.
    pub(super) begun: u64,
    /// For the next exchanges, in order; no more than there are fragments.
    offers: VecDeque<Offer>,
    /// What was kept behind an exchange, until the training comes by.
    pub(super) cut: Option<Cut>,
    /// Whether others' state came in the place of this worker's.
    pub(super) has_taken_over: bool,
    /// Since when others have waited for the next inner step of this worker.
    pub(super) waited_for_since: Option<Instant>,
    /// Whether this worker makes no more inner steps.
    is_finished: bool,
    /// Whether the training is over without having finished.
    pub(super) is_dropped: bool,
    /// How the thread has ended.
    pub(super) ended: Option<Result<(), Error>>,
    pub(super) place: Place,
    pub(super) links: Option<MeasuredLinks>,
    pub(super) traffic: Traffic,
}

/// Where a worker is among the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) rank: Rank,
    pub(super) workers: u32,
}

/// What a worker gives an exchange.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) contribution: Contribution,
    /// Since when it waits; `None` for one that was late, and goes on meanwhile.
    pub(super) since: Option<Instant>,
}

impl Shared {
    pub(super) fn new(common: Common, place: Place, offers: VecDeque<Offer>) -> Self {
        Self {
            state: Mutex::new(State {
                begun: common.made(),
                common,
                offers,
                cut: None,
                has_taken_over: false,
                waited_for_since: None,
                is_finished: false,
                is_dropped: false,
                ended: None,
                place,
                links: None,
                traffic: Traffic::default(),
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panics with the lock leaves numbers behind, and its end ends the group.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits until something has changed.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this worker has something else to report, for no longer than this.
    pub(super) fn wait_for_news(&self, told: Report, longest: Duration) {
        let same = |state: &mut State| {
            let is_same = discriminant(&state.report()) == discriminant(&told);
            is_same && !state.is_dropped
        };
        drop(self.changed.wait_timeout_while(self.lock(), longest, same));
    }
}

impl State {
    pub(super) fn report(&self) -> Report {
        match self.offers.front() {
            Some(Offer {
                since: Some(since), ..
            }) => Report::Waiting(since.elapsed()),
            Some(Offer { since: None, .. }) => Report::Ready,
            None if self.is_finished => Report::Finished,
            None => Report::Working,
        }
    }

    /// No more inner steps are made, and what was given early is taken back.
    pub(super) fn finish(&mut self) {
        self.offers.retain(|offer| offer.since.is_some());
        self.is_finished = true;
    }

    /// Instead of what a late worker has given before, if that is still there.
    pub(super) fn offer(&mut self, contribution: Contribution, since: Option<Instant>) {
        self.offers.retain(|offer| offer.since.is_some());
        self.offers.push_back(Offer {
            contribution,
            since,
        });
    }

    /// Begins the next exchange, with what this worker has to give by now.
    pub(super) fn begin(&mut self) -> Contribution {
        let rounds = &self.common.rounds;
        let length = rounds.ranges[self.common.fragment()].len();
        let compression = rounds.settings.compression;
        self.traffic.count(length, compression, self.place.workers);
        self.begun = self.common.made() + 1;
        self.waited_for_since = None;
        match self.offers.pop_front() {
            Some(offer) => offer.contribution,
            None => Contribution::none(length),
        }
    }

    /// Takes over what others have in common, before this worker's training begins.
    pub(super) fn take_over(&mut self, package: &[u8]) -> Result<(), LowCommunicationError> {
        self.common.rounds.take_over(package)?;
        self.begun = self.common.made();
        self.offers.clear();
        self.has_taken_over = true;
        Ok(())
    }

    /// Keeps what a restart needs behind the exchange that was just made: nothing is under way, and
    /// all workers have made the same. What the training has not come by to save is of no use.
    pub(super) fn cut(&mut self) {
        let rounds = &self.common.rounds;
        self.cut = Some(Cut {
            exchanges: self.common.made(),
            rank: self.place.rank,
            common: rounds.package(),
            residual: rounds.residuals.concat(),
            offers: self.offers.clone(),
        });
    }
}
