//! The thread that takes part in all exchanges of a worker, whether its training has come so far or
//! not: it gives what it has been offered, or nothing, and makes the outer steps.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use meshwork_collectives::{Group, MeasuredLinks};

use super::super::exchange::{self, How};
use super::super::links::Fastest;
use super::super::rounds::Contribution;
use super::Quorum;
use super::common::{Common, Decision, Report};
use crate::{Error, LowCommunicationError};

/// Workers report so many times within their patience, and at least as often as this.
const REPORTS: u32 = 10;
const SELDOM: Duration = Duration::from_secs(1);
/// More often than this makes no difference to a round.
const OFTEN: Duration = Duration::from_millis(1);

/// What the thread and the training share.
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
    /// Whether this worker makes no more inner steps.
    is_finished: bool,
    /// Whether the training is over without having finished.
    pub(super) is_dropped: bool,
    /// How the thread has ended.
    pub(super) ended: Option<Result<(), Error>>,
    pub(super) links: Option<MeasuredLinks>,
    pub(super) bytes: u64,
}

/// What a worker gives an exchange.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) contribution: Contribution,
    /// Since when it waits; `None` for one that was late, and goes on meanwhile.
    pub(super) since: Option<Instant>,
}

impl Shared {
    pub(super) fn new(common: Common) -> Self {
        Self {
            state: Mutex::new(State {
                begun: common.made(),
                common,
                offers: VecDeque::new(),
                is_finished: false,
                is_dropped: false,
                ended: None,
                links: None,
                bytes: 0,
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
    fn wait_for_news(&self, told: Report, longest: Duration) {
        let same = |state: &mut State| {
            let is_same = discriminant(&state.report()) == discriminant(&told);
            is_same && !state.is_dropped
        };
        drop(self.changed.wait_timeout_while(self.lock(), longest, same));
    }
}

impl State {
    fn report(&self) -> Report {
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
}

/// Takes part until all workers have finished.
pub(super) fn run(mut group: Group, shared: &Shared, quorum: Quorum) {
    let ended = match catch_unwind(AssertUnwindSafe(|| take_part(&mut group, shared, quorum))) {
        Ok(ended) => ended,
        Err(_) => Err(group.abort("the thread that exchanges has panicked").into()),
    };
    shared.lock().ended = Some(ended);
    shared.notify();
}

fn take_part(group: &mut Group, shared: &Shared, quorum: Quorum) -> Result<(), Error> {
    let measures_links = shared.lock().common.rounds.settings.measures_links;
    let fragments = shared.lock().common.rounds.ranges.len();
    let mut fastest = Fastest::of(fragments);
    let mut is_to_measure = measures_links;
    let interval = (quorum.patience / REPORTS).clamp(OFTEN, SELDOM);
    loop {
        if is_to_measure {
            shared.lock().links = group.measure_links()?;
            fastest.forget();
        }
        is_to_measure = false;
        let (report, is_dropped) = {
            let state = shared.lock();
            (state.report(), state.is_dropped)
        };
        if is_dropped {
            let error = group.abort("a worker dropped its outer optimizer before it had finished");
            return Err(error.into());
        }
        let mut words = vec![0; group.world() as usize];
        group.all_gather(&[report.word()], &mut words)?;
        let reports: Vec<Report> = words.into_iter().map(Report::read).collect();
        match quorum.decide(&reports) {
            Decision::End => return Ok(()),
            Decision::Wait => {
                // All others are there at once when one that works has news.
                let nobody_works = !reports.contains(&Report::Working);
                if report == Report::Working || nobody_works {
                    shared.wait_for_news(report, interval);
                }
            }
            Decision::Exchange => {
                let is_slow = exchange_next(group, shared, &mut fastest)?;
                is_to_measure = is_slow && measures_links;
            }
        }
    }
}

/// Makes the next exchange, with what this worker has to give by now, and says whether it was slow.
fn exchange_next(group: &mut Group, shared: &Shared, fastest: &mut Fastest) -> Result<bool, Error> {
    let mut state = shared.lock();
    let (fragment, number) = (state.common.fragment(), state.common.made());
    let settings = state.common.rounds.settings;
    let length = state.common.rounds.ranges[fragment].len();
    state.begun = number + 1;
    let contribution = match state.offers.pop_front() {
        Some(offer) => offer.contribution,
        None => Contribution::none(length),
    };
    let residual = std::mem::take(&mut state.common.rounds.residuals[fragment]);
    let bytes = match settings.compression {
        None => length * size_of::<f32>(),
        Some(compression) => compression.compressed_len(length),
    };
    state.bytes += bytes as u64;
    drop(state);
    let how = How {
        residual: &residual,
        compression: settings.compression.map(|one| one.for_call(number)),
        limit: fastest.limit(fragment),
    };
    let outcome = exchange::carry_out(group, &contribution, how);
    let seal = outcome.sealed?;
    let sum = outcome.sum.ok_or(LowCommunicationError::NotStarted)?;
    fastest.took(fragment, outcome.took);
    let mut state = shared.lock();
    state.common.rounds.residuals[fragment] = match settings.compression {
        Some(_) => sum.left_out,
        None => residual,
    };
    state.common.take_in(&sum.values, seal)?;
    drop(state);
    shared.notify();
    Ok(seal.is_slow)
}
