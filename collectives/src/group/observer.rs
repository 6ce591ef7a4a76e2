//! [`Observer`]: how a group fares, asked from any thread while it works.

use std::collections::HashSet;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::Group;
use crate::flight_recorder::{Carried, FlightRecorder, Totals};
use crate::quic::{Admission, ConnectionCounters};
use crate::session::{ControlPlane, SessionContext};
use crate::statistics::{Arrival, Departure, Peer, Statistics, Traffic};
use crate::{Member, Rank, config};

/// Asks how a group fares, from any thread, while the group works. Asking costs the group nothing:
/// its operations set numbers in any case, and whoever asks puts them together.
///
/// It goes on through changes of members, and outlives the group.
///
/// ```
/// use meshwork_collectives::{Group, ReduceOp};
///
/// let mut group = Group::local(1)?.remove(0);
/// let observer = group.observer();
/// group.all_reduce(&mut [1.0_f32; 256], ReduceOp::Sum)?;
/// let statistics = std::thread::spawn(move || observer.statistics()).join().unwrap();
/// assert_eq!((statistics.operations(), statistics.bytes()), (1, 1024));
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
#[derive(Clone)]
pub struct Observer(Arc<Mutex<Observed>>);

struct Observed {
    joined: Instant,
    view: View,
    /// Of the views before.
    earlier: Totals,
    departures: Vec<(Instant, Departure)>,
    arrivals: Vec<(Instant, Arrival)>,
}

/// What is observed until the members change.
#[derive(Clone)]
struct View {
    number: u64,
    local_rank: u32,
    /// What carries bytes between hosts.
    links: &'static str,
    recorder: Arc<FlightRecorder>,
    /// Gone with the view, and among threads.
    admission: Weak<Admission>,
    connection_counters: Arc<ConnectionCounters>,
}

/// Departures and arrivals that are remembered, of each.
const CHANGES: usize = 64;

impl Observer {
    pub(super) fn new(context: &SessionContext) -> Self {
        Self(Arc::new(Mutex::new(Observed {
            joined: Instant::now(),
            view: View::of(context),
            earlier: Totals::default(),
            departures: Vec::new(),
            arrivals: Vec::new(),
        })))
    }

    /// Goes on with what another has observed so far of a new view.
    pub(super) fn follow(&self, next: &Self) {
        let view = next.observed().view.clone();
        let mut observed = self.observed();
        let last = std::mem::replace(&mut observed.view, view);
        observed.earlier.add(&last.recorder.totals());
        let departure = last.departure();
        let gone = departure.as_ref().and_then(|gone| gone.address.clone());
        let arrivals = observed.view.arrivals(&last, gone.as_deref());
        remember(&mut observed.departures, departure);
        remember(&mut observed.arrivals, arrivals);
    }

    /// The numbers at this moment.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let observed = self.observed();
        let Observed {
            joined,
            view,
            earlier,
            departures,
            arrivals,
        } = &*observed;
        let mut totals = view.recorder.totals();
        totals.add(earlier);
        let current = view.recorder.current();
        let going_on = current.as_ref().map_or(Duration::ZERO, |call| call.since);
        let members = view.recorder.members();
        let rank = view.recorder.rank();
        Statistics {
            rank,
            address: members[rank.index()].address().to_owned(),
            world: config::world_of(members.len()),
            local_rank: view.local_rank,
            view: view.number,
            age: joined.elapsed(),
            traffic: traffic(&totals, view.links),
            in_operations: totals.in_operations.saturating_add(going_on),
            current,
            awaited: view.recorder.awaited(),
            peers: view.peers(),
            connections: view.connection_counters.counts(),
            departures: departures
                .iter()
                .map(|(at, departure)| departure.clone().since(*at))
                .collect(),
            arrivals: arrivals
                .iter()
                .map(|(at, arrival)| arrival.clone().since(*at))
                .collect(),
            failure: view.recorder.failure().map(|error| error.to_string()),
        }
    }

    /// Who the members are now, by their ranks.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.observed().view.recorder.members().to_vec()
    }

    /// The rank's last operations, as in the dump that it leaves when its group fails: what
    /// [`diagnosis`](crate::diagnosis) reads.
    #[must_use]
    pub fn dump(&self) -> String {
        // Not under the lock that a change of members needs.
        let recorder = self.observed().view.recorder.clone();
        recorder.dump_now()
    }

    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    fn of(context: &SessionContext) -> Self {
        let recorder = context.recorder.clone();
        match &context.control {
            ControlPlane::Local(_) => Self {
                number: 1,
                local_rank: recorder.rank().number(),
                links: "quic",
                recorder,
                admission: Weak::new(),
                connection_counters: Arc::default(),
            },
            ControlPlane::Remote(remote) => Self {
                number: remote.view().number,
                local_rank: local_rank(remote.local_members(), recorder.rank()),
                links: remote.data_transport().name(),
                recorder,
                admission: remote.admission(),
                connection_counters: remote.connection_counters(),
            },
        }
    }

    fn peers(&self) -> Vec<Peer> {
        let admission = self.admission.upgrade();
        admission.map_or_else(Vec::new, |admission| admission.peers())
    }

    /// Why it ended, if it failed.
    fn departure(&self) -> Option<Departure> {
        let error = self.recorder.failure()?;
        let fault = error.rank_at_fault();
        let member = fault.and_then(|rank| self.recorder.members().get(rank.index()));
        Some(Departure {
            view: self.number,
            address: member.map(|member| member.address().to_owned()),
            reason: error.to_string(),
            ago: Duration::ZERO,
        })
    }

    /// Who is in this view and was not in the last; whoever was lost may be back at its address.
    fn arrivals(&self, last: &Self, gone: Option<&str>) -> Vec<Arrival> {
        let before: HashSet<_> = last
            .recorder
            .members()
            .iter()
            .map(Member::address)
            .collect();
        let is_new = |address: &str| !before.contains(address) || gone == Some(address);
        let addresses = self.recorder.members().iter().map(Member::address);
        let new = addresses.filter(|address| is_new(address));
        new.map(|address| Arrival {
            view: self.number,
            address: address.to_owned(),
            ago: Duration::ZERO,
        })
        .collect()
    }
}

/// Adds to the end, and forgets the first.
fn remember<T>(changes: &mut Vec<(Instant, T)>, more: impl IntoIterator<Item = T>) {
    let now = Instant::now();
    changes.extend(more.into_iter().map(|change| (now, change)));
    let surplus = changes.len().saturating_sub(CHANGES);
    changes.drain(..surplus);
}

/// A rank's number among those of its host.
fn local_rank(here: &[(Rank, u32)], rank: Rank) -> u32 {
    let lower = here.iter().filter(|(other, _)| *other < rank);
    config::world_of(lower.count())
}

/// By the transports that have carried anything.
fn traffic(totals: &Totals, links: &'static str) -> Vec<Traffic> {
    let by = |transport: &'static str, carried: &Carried| Traffic {
        transport,
        operations: carried.operations,
        bytes: carried.bytes,
        recent_gigabytes_per_second: carried.recent_gigabytes_per_second(),
    };
    let mut traffic = vec![by("memory", &totals.memory), by(links, &totals.links)];
    traffic.retain(|traffic| traffic.operations > 0 || traffic.bytes > 0);
    traffic
}

impl Group {
    /// How this rank's groups fare at this moment: the group that was joined, and all that were
    /// split from it. From another thread, ask an [`observer`](Self::observer).
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.observer.statistics()
    }

    /// Asks the same from other threads while the group works.
    #[must_use]
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }
}

impl Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
