//! Where the members of an epoch that is over agree on the next one.
//!
//! ```text
//!   member id 1 ── join request(epoch, incarnation) ──> member id 2     one connection:
//!               <── join request: it is here, too ────                  both speak on the stream
//!               ── messages ─────────────────────────>                  that the caller has opened
//!               <── answers ──────────────────────────
//! ```
//!
//! Whom the agreement needs is called: over a connection of the last epoch by a lower rank, if
//! there is one (`quic/admission/lent.rs`), else over another, until those who are called have come
//! here as well. Whoever was called answers by the line of its caller, and calls itself only if
//! that has ended. Somebody who has no answer for a while, or is still at work and does not know
//! yet, is alive as long as its process takes calls.

mod accept;
mod ask;
mod call;
mod callee;
mod denials;
mod line;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::EVENTS;
use super::admission::{Lent, LentConnection};
use super::node::{Node, View};
use crate::agreement::{
    Action, Agreement, AgreementRules, AgreementTimeouts, Event, MemberId, PreviousEpoch, Proof,
};
use crate::tasks::{spawn, spawn_in};
use crate::wire::{AgreementMessage, Decision, JoinRequest, MemberState};
use crate::{JoinError, OperationError, host};

use callee::Callee;
use line::{Instruction, Instructions, Line};

/// Messages that may wait for a slow connection; those beyond it are lost, and said again when they
/// are asked for.
const MESSAGES: usize = 64;
/// How long a ballot waits for answers of members that it has not reached.
const RETRY: Duration = Duration::from_secs(1);

/// What all calls have in common.
struct Reconfiguration {
    node: Arc<Node>,
    join_request: JoinRequest,
    inbox: mpsc::Sender<Arrival>,
    /// Whether a member of this job that this process asked has answered.
    is_answered: AtomicBool,
}

/// What comes to the driver.
enum Arrival {
    Event(Event),
    /// By this line its caller can be answered.
    Called(Line),
}

/// The driver has come to an end, and takes in nothing any more.
struct NobodyListens;

impl Reconfiguration {
    async fn tell(&self, event: Event) -> Result<(), NobodyListens> {
        self.arrives(Arrival::Event(event)).await
    }

    async fn arrives(&self, arrival: Arrival) -> Result<(), NobodyListens> {
        self.inbox.send(arrival).await.map_err(|_| NobodyListens)
    }

    /// Whether this process was in no epoch, and asks to be let in.
    fn asks(&self) -> bool {
        self.join_request.epoch == 0
    }

    fn explain(&self, end: Action, previous_epoch: &PreviousEpoch) -> OperationError {
        match (end, previous_epoch.epoch) {
            (Action::NoMajority(_), 0) => self.not_let_in().into(),
            (Action::NoMajority(present), epoch) => OperationError::NoMajority {
                epoch,
                present: present.len(),
                members: previous_epoch.members.len(),
            },
            (_, epoch) => OperationError::Excluded { epoch },
        }
    }

    fn not_let_in(&self) -> JoinError {
        let waited = self.node.config.timeouts().join();
        if !self.is_answered.load(Ordering::Relaxed) {
            let asked = self.asked();
            return match asked.is_empty() {
                true => JoinError::NobodyToAsk,
                false => JoinError::NobodyAnswered { asked, waited },
            };
        }
        let directory = self.node.directory();
        let most = directory.most();
        match directory.is_full_without(self.node.me.member_id) {
            true => JoinError::Full { most, waited },
            false => JoinError::NotAdmitted { waited },
        }
    }
}

/// What is known of the members of the last epoch.
#[derive(Default)]
pub(crate) struct Evidence {
    pub(crate) lost: Vec<(MemberId, Proof)>,
    /// Members on this host, and their process ids.
    pub(crate) local_members: Vec<(MemberId, u32)>,
    pub(crate) lent: Lent,
}

impl Node {
    /// Agrees with the other members of `previous_epoch` on the epoch that follows it, or waits to
    /// be let into one if it is nowhere.
    pub(crate) async fn agree(
        self: &Arc<Self>,
        previous_epoch: PreviousEpoch,
        own: MemberState,
        evidence: Evidence,
    ) -> Result<View, OperationError> {
        let (arrivals, inbox) = mpsc::channel(EVENTS);
        let reconfiguration = Arc::new(Reconfiguration {
            node: self.clone(),
            join_request: self.join_request(previous_epoch.epoch).await,
            inbox: arrivals,
            is_answered: AtomicBool::new(false),
        });
        let rules = AgreementRules {
            pair: self.config.pair(),
            timeouts: self.timeouts(),
        };
        let agreement = Agreement::new(self.me, previous_epoch.clone(), rules, own, Instant::now());
        let mut driver = ReconfigurationDriver {
            speakers: BTreeMap::new(),
            tasks: JoinSet::new(),
            reconfiguration,
            inbox,
            agreement,
            local_members: evidence.local_members.into_iter().collect(),
            lent: evidence.lent.higher,
        };
        let receiving = driver.reconfiguration.clone();
        spawn_in(
            &mut driver.tasks,
            receiving.receive_all(evidence.lent.lower),
        );
        // It may wait for longer than its certificate lasts.
        spawn_in(&mut driver.tasks, self.clone().renew());
        let reconfiguration = driver.reconfiguration.clone();
        let outcome = tokio::select! {
            outcome = driver.run(evidence.lost) => outcome,
            // Members call whom the agreement says.
            hopeless = reconfiguration.clone().ask(), if reconfiguration.asks() => {
                return Err(hopeless.into());
            }
        };
        let decision = outcome.map_err(|end| reconfiguration.explain(end, &previous_epoch))?;
        self.view(decision).ok_or(OperationError::Excluded {
            epoch: previous_epoch.epoch,
        })
    }

    /// What it says first, as one that was in this epoch last.
    async fn join_request(&self, epoch: u64) -> JoinRequest {
        JoinRequest {
            epoch,
            newcomer: self.newcomer(),
            program: match epoch {
                0 => self.program().await,
                // Members know each other.
                _ => [0; 16],
            },
            restarts: self.config.restarts(),
        }
    }

    fn timeouts(&self) -> AgreementTimeouts {
        let join = self.config.timeouts().join();
        AgreementTimeouts {
            gather: join / 2,
            retry: RETRY,
            limit: join,
        }
    }
}

/// The way to what speaks with one member.
struct Speaker {
    instructions: mpsc::Sender<Instruction>,
    /// Lines of its calls.
    lines: mpsc::Sender<Line>,
}

/// One agreement under way.
struct ReconfigurationDriver {
    /// With whom this process speaks.
    speakers: BTreeMap<MemberId, Speaker>,
    /// Ends when this is dropped, but for lines, which say their last messages.
    tasks: JoinSet<()>,
    reconfiguration: Arc<Reconfiguration>,
    inbox: mpsc::Receiver<Arrival>,
    agreement: Agreement,
    /// Members on this host, and their process ids.
    local_members: BTreeMap<MemberId, u32>,
    /// Connections of the epoch before with members that were not called by them.
    lent: Vec<LentConnection>,
}

impl ReconfigurationDriver {
    /// Feeds the agreement with events and the time, and does what it says, until it has come to an
    /// end: the decision, or why there is none.
    async fn run(&mut self, lost: Vec<(MemberId, Proof)>) -> Result<Decision, Action> {
        let mut out = Vec::new();
        for (member_id, proof) in lost {
            let lost = Event::Lost(member_id, proof);
            self.agreement.handle(Instant::now(), lost, &mut out);
        }
        loop {
            self.agreement.handle(Instant::now(), Event::Tick, &mut out);
            let decides = |action: &&Action| matches!(action, Action::Decided(_));
            if let Some(Action::Decided(decision)) = out.iter().find(decides) {
                // Those that it admits are told of it.
                self.reconfiguration.node.directory().hear(decision);
            }
            let mut end = None;
            for action in out.drain(..) {
                match action {
                    Action::Call(member_id) => self.charge(member_id, Instruction::Call),
                    Action::Send(member_id, message) => {
                        self.charge(member_id, Instruction::Say(message));
                    }
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
                Some(arrival) = self.inbox.recv() => match arrival {
                    Arrival::Event(event) => event,
                    Arrival::Called(line) => {
                        self.called(line);
                        continue;
                    }
                },
                () = tokio::time::sleep_until(wake.into()) => Event::Tick,
            };
            if self.can_follow(&event) {
                self.agreement.handle(Instant::now(), event, &mut out);
            }
        }
    }

    /// False for a decision that a newcomer hears which does not know where all others are, as
    /// where it comes before the answer that tells: it asks on, and hears both.
    fn can_follow(&self, event: &Event) -> bool {
        let (Event::Decided(decision)
        | Event::Said {
            message: AgreementMessage::Decided(decision),
            ..
        }) = event
        else {
            return true;
        };
        let reconfiguration = &self.reconfiguration;
        !reconfiguration.asks() || reconfiguration.node.knows_all(decision)
    }

    fn charge(&mut self, member_id: MemberId, instruction: Instruction) {
        if let Some(speaker) = self.speaker(member_id) {
            let _ = speaker.instructions.try_send(instruction);
        }
    }

    /// A member has called, and can be answered. Of several lines one is enough.
    fn called(&mut self, line: Line) {
        if let Some(speaker) = self.speaker(line.with.member_id) {
            let _ = speaker.lines.try_send(line);
        }
    }

    /// What speaks with another member, from now on if it has not yet.
    fn speaker(&mut self, member_id: MemberId) -> Option<&Speaker> {
        if member_id == self.reconfiguration.node.me.member_id {
            return None;
        }
        if !self.speakers.contains_key(&member_id) {
            let (instructions, charged) = mpsc::channel(MESSAGES);
            let (lines, called) = mpsc::channel(1);
            let process = self.local_members.get(&member_id).copied();
            let lent = self
                .lent
                .extract_if(.., |lent| lent.with == member_id)
                .next();
            let speaking = self.reconfiguration.clone().speak(
                Callee::new(member_id, process),
                Instructions::new(charged, called),
                lent,
            );
            spawn(speaking);
            self.watch(member_id);
            self.speakers.insert(
                member_id,
                Speaker {
                    instructions,
                    lines,
                },
            );
        }
        self.speakers.get(&member_id)
    }

    /// Hears from the kernel when a member ends that it speaks with, if it runs on this host.
    fn watch(&mut self, member_id: MemberId) {
        if let Some(process) = self.local_members.get(&member_id).copied() {
            let own = self.reconfiguration.clone();
            spawn_in(&mut self.tasks, async move {
                if host::process_ended(process).await.is_ok() {
                    let _ = own.tell(Event::Lost(member_id, Proof::Ended)).await;
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
