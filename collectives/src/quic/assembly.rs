//! Where the members of an epoch that is over agree on the next one.
//!
//! ```text
//!   seat 1 ── knock(epoch, incarnation) ──> seat 2        a connection each way:
//!          <── knock: it is here, too ─────               who dials it speaks
//!          ── words ──────────────────────>
//! ```
//!
//! The connections of the last epoch are gone with it, so everybody calls everybody anew, until
//! those who are called have come here as well. Somebody who has no answer for a while, or is still
//! at work and does not know yet, is alive as long as its process takes calls.

mod call;
mod door;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::EVENTS;
use super::station::{Station, Term};
use crate::agreement::{Action, Agreement, Event, Pace, Past, Proof, Seat};
use crate::wire::{Decision, Knock, Standing, Word};
use crate::{Error, host};

/// Words that may wait for a slow line; those beyond it are lost, and said again with the next ballot.
const WORDS: usize = 64;
/// How long a ballot waits for its answers: longer than a process that lives is ever held up.
const RETRY: Duration = Duration::from_secs(1);

/// What all calls have in common.
struct Assembly {
    station: Arc<Station>,
    knock: Knock,
    events: mpsc::Sender<Event>,
}

/// What is known of the members of the last epoch.
#[derive(Default)]
pub(crate) struct Evidence {
    pub(crate) lost: Vec<(Seat, Proof)>,
    /// Members on this host, and their process ids.
    pub(crate) neighbours: Vec<(Seat, u32)>,
}

impl Station {
    /// Agrees with the other members of `past` on the epoch that follows it, or waits to be let into
    /// one if it is nowhere.
    pub(crate) async fn agree(
        self: &Arc<Self>,
        past: Past,
        own: Standing,
        evidence: Evidence,
    ) -> Result<Term, Error> {
        let (events, inbox) = mpsc::channel(EVENTS);
        let assembly = Arc::new(Assembly {
            station: self.clone(),
            knock: Knock {
                epoch: past.epoch,
                newcomer: self.me,
                restarts: self.config.restarts(),
            },
            events,
        });
        let rules = (self.config.pair(), self.pace());
        let agreement = Agreement::new(self.me, past.clone(), rules, own, Instant::now());
        let mut floor = Floor {
            lines: BTreeMap::new(),
            tasks: JoinSet::new(),
            assembly,
            inbox,
            agreement,
        };
        floor.tasks.spawn(floor.assembly.clone().receive_all());
        let gone = |seat: &Seat| {
            evidence
                .lost
                .iter()
                .any(|(lost, proof)| lost == seat && *proof == Proof::Ended)
        };
        let called: Vec<Seat> = match past.epoch {
            0 => (0..).take(self.config.members().len()).collect(),
            _ => past
                .members
                .iter()
                .copied()
                .filter(|seat| !gone(seat))
                .collect(),
        };
        for seat in called {
            floor.line(seat);
        }
        floor.watch(evidence.neighbours);
        let outcome = floor.debate(evidence.lost).await;
        let decision = outcome.map_err(|end| self.explain(end, &past))?;
        self.term(decision)
            .ok_or(Error::Excluded { epoch: past.epoch })
    }

    fn pace(&self) -> Pace {
        let join = self.config.timeouts().join();
        Pace {
            gather: join / 2,
            retry: RETRY,
            limit: join,
        }
    }

    fn explain(&self, end: Action, past: &Past) -> Error {
        match (end, past.epoch) {
            (Action::NoMajority(_), 0) => Error::NotAdmitted {
                waited: self.config.timeouts().join(),
            },
            (Action::NoMajority(present), epoch) => Error::NoMajority {
                epoch,
                present: present.len(),
                members: past.members.len(),
            },
            (_, epoch) => Error::Excluded { epoch },
        }
    }
}

/// One agreement under way.
struct Floor {
    /// To whom this process speaks.
    lines: BTreeMap<Seat, mpsc::Sender<Word>>,
    /// Ends when this is dropped, but for lines, which say their last words.
    tasks: JoinSet<()>,
    assembly: Arc<Assembly>,
    inbox: mpsc::Receiver<Event>,
    agreement: Agreement,
}

impl Floor {
    /// Feeds the agreement with events and the time, and does what it says, until it has come to an
    /// end: the decision, or why there is none.
    async fn debate(&mut self, lost: Vec<(Seat, Proof)>) -> Result<Decision, Action> {
        let mut out = Vec::new();
        for (seat, proof) in lost {
            let lost = Event::Lost(seat, proof);
            self.agreement.handle(Instant::now(), lost, &mut out);
        }
        loop {
            self.agreement.handle(Instant::now(), Event::Tick, &mut out);
            let mut end = None;
            for action in out.drain(..) {
                match action {
                    Action::Send(seat, word) => self.say(seat, word),
                    other => end = Some(other),
                }
            }
            match end {
                Some(Action::Decided(decision)) => return Ok(decision),
                Some(other) => return Err(other),
                None => {}
            }
            let wake = self.agreement.wake().unwrap_or_else(Instant::now);
            let event = tokio::select! {
                event = self.inbox.recv() => event.unwrap_or(Event::Tick),
                () = tokio::time::sleep_until(wake.into()) => Event::Tick,
            };
            self.agreement.handle(Instant::now(), event, &mut out);
        }
    }

    fn say(&mut self, seat: Seat, word: Word) {
        self.line(seat);
        if let Some(line) = self.lines.get(&seat) {
            let _ = line.try_send(word);
        }
    }

    /// Begins to call a seat, unless that is being done.
    fn line(&mut self, seat: Seat) {
        if seat != self.assembly.knock.newcomer.seat && !self.lines.contains_key(&seat) {
            let (words, said) = mpsc::channel(WORDS);
            tokio::spawn(self.assembly.clone().speak(seat, said));
            self.lines.insert(seat, words);
        }
    }

    /// Hears from the kernel when a member on this host ends.
    fn watch(&mut self, neighbours: Vec<(Seat, u32)>) {
        for (seat, process) in neighbours {
            let events = self.assembly.events.clone();
            self.tasks.spawn(async move {
                if host::process_ended(process).await.is_ok() {
                    let _ = events.send(Event::Lost(seat, Proof::Ended)).await;
                }
            });
        }
    }
}
