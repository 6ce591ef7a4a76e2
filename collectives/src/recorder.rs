//! What a rank remembers of its last operations, and leaves behind when its group fails.
//!
//! ```text
//!   operation ──begin──> ring of the last 256 ──fail──> rank-2.json in the folder for dumps
//!              waits      call, site, times,
//!              end        ranks waited for
//! ```
//!
//! Always on: it costs an operation two short locks and two looks at the clock.

mod dump;
mod ring;

use std::fs;
use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant, SystemTime};

use crate::contract::{Call, Contract, site};
use crate::waits::Wait;
use crate::{Error, Member, Rank};

use ring::Ring;
pub(crate) use ring::{Carrier, Ending, Serial};

/// One rank's recorder, shared by its groups and by the driver of its network.
#[derive(Debug)]
pub(crate) struct Recorder {
    rank: Rank,
    members: Arc<[Member]>,
    folder: Option<PathBuf>,
    /// The same moment by both clocks.
    began: (Instant, SystemTime),
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ring: Ring,
    failure: Option<Error>,
    afterwards: Afterwards,
}

/// What a rank did after its group had failed, which tells a slow rank from one that never came.
#[derive(Debug)]
enum Afterwards {
    Nothing,
    /// It made this call, which found the group over.
    Called(Box<Call>, Instant),
    /// It dropped its group.
    Dropped(Instant),
}

impl Recorder {
    pub(crate) fn new(rank: Rank, members: Arc<[Member]>, folder: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            rank,
            members,
            folder,
            began: (Instant::now(), SystemTime::now()),
            state: Mutex::new(State {
                ring: Ring::new(),
                failure: None,
                afterwards: Afterwards::Nothing,
            }),
        })
    }

    /// Notes that this thread has a new group, whose operations are still to come.
    pub(crate) fn adopt(&self, group: u64) {
        self.state().ring.adopt(group, thread());
    }

    /// Notes that operations of one group are made of some in another.
    pub(crate) fn is_part(&self, group: u64, whole: u64) {
        self.state().ring.is_part(group, whole);
    }

    /// Notes that an operation begins.
    #[inline]
    pub(crate) fn begin(
        &self,
        contract: &Contract,
        caller: &'static Location<'static>,
        carrier: Carrier,
    ) -> Serial {
        if cfg!(meshwork_bare) {
            return Serial::default();
        }
        let now = Instant::now();
        self.state()
            .ring
            .begin((now, thread()), (*contract, caller, carrier))
    }

    /// Notes that it waits for a rank, at length. Returns what to tell the others of it, when it
    /// is time to.
    #[cold]
    pub(crate) fn waits(&self, serial: Serial, awaited: Rank) -> Option<Wait> {
        let now = Instant::now();
        self.state().ring.waits(now, serial, (self.rank, awaited))
    }

    /// Notes that what is left of it are parts in other groups: nobody waits for this rank in it.
    pub(crate) fn agreed(&self, serial: Serial) {
        self.state().ring.finish(serial);
    }

    /// Notes that it is over.
    #[inline]
    pub(crate) fn end(&self, serial: Serial, how: Ending) {
        if cfg!(meshwork_bare) {
            return;
        }
        let now = Instant::now();
        self.state().ring.end(now, serial, how);
    }

    /// Notes why the group has failed, and leaves a dump behind, once.
    pub(crate) fn fail(&self, error: &Error) {
        let mut state = self.state();
        if state.failure.is_none() {
            state.failure = Some(error.clone());
            self.dump(&state);
        }
    }

    /// Notes a call that found the group over.
    pub(crate) fn came_late(&self, contract: &Contract, caller: &'static Location<'static>) {
        let call = || Box::new(Call::new(*contract, site(caller)));
        self.afterwards(|now| Afterwards::Called(call(), now));
    }

    /// Notes that this rank's group was dropped.
    pub(crate) fn dropped(&self) {
        self.afterwards(Afterwards::Dropped);
    }

    /// The first thing that a rank does after its group has failed is what counts.
    fn afterwards(&self, what: impl FnOnce(Instant) -> Afterwards) {
        let mut state = self.state();
        if state.failure.is_some() && matches!(state.afterwards, Afterwards::Nothing) {
            state.afterwards = what(Instant::now());
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
        // Nothing that holds the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Microseconds since 1970.
    fn micros(&self, moment: Instant) -> u64 {
        let (began, at) = self.began;
        let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH);
        let began_at = since_epoch.unwrap_or(Duration::ZERO);
        let moment = began_at + moment.saturating_duration_since(began);
        u64::try_from(moment.as_micros()).unwrap_or(u64::MAX)
    }
}

/// Nobody ever reads half a file.
fn replace(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let draft = path.with_extension(format!("{}.draft", std::process::id()));
    fs::write(&draft, text)?;
    fs::rename(&draft, path)
}

/// This thread's id, kept where it can be read faster than by its handle.
fn thread() -> ThreadId {
    thread_local! {
        static OWN: ThreadId = std::thread::current().id();
    }
    OWN.try_with(|own| *own)
        .unwrap_or_else(|_| std::thread::current().id())
}

#[cfg(test)]
mod tests;
