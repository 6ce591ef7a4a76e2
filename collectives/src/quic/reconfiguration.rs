//! Where the members of an epoch that is over agree on the next one.
//!
//! ```text
//!   member id 1 ── join request(epoch, incarnation) ──> member id 2     a connection each way:
//!               <── join request: it is here, too ────                  who dials it speaks
//!               ── messages ─────────────────────────>
//! ```
//!
//! The connections of the last epoch are closed, or kept for the next, so whom the agreement needs
//! is called on others, until those who are called have come here as well. Somebody who has no
//! answer for a while, or is still at work and does not know yet, is alive as long as its process
//! takes calls.

mod accept;
mod ask;
mod call;
mod callee;
mod denials;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::EVENTS;
use super::node::{Node, View};
use crate::agreement::{
    Action, Agreement, AgreementRules, AgreementTimeouts, Event, MemberId, PreviousEpoch, Proof,
};
use crate::tasks::{spawn, spawn_in};
use crate::wire::{AgreementMessage, Decision, JoinRequest, MemberState};
use crate::{JoinError, OperationError, host};

use callee::Callee;

/// Messages that may wait for a slow connection; those beyond it are lost, and said again with the
/// next ballot.
const MESSAGES: usize = 64;
/// How long a ballot waits for answers of members that it has not reached.
const RETRY: Duration = Duration::from_secs(1);

/// What all calls have in common.
struct Reconfiguration {
    node: Arc<Node>,
    join_request: JoinRequest,
    events: mpsc::Sender<Event>,
}

impl Reconfiguration {
    /// Whether this process was in no epoch, and asks to be let in.
    fn asks(&self) -> bool {
        self.join_request.epoch == 0
    }
}

/// What is known of the members of the last epoch.
#[derive(Default)]
pub(crate) struct Evidence {
    pub(crate) lost: Vec<(MemberId, Proof)>,
    /// Members on this host, and their process ids.
    pub(crate) local_members: Vec<(MemberId, u32)>,
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
        let (events, inbox) = mpsc::channel(EVENTS);
        let reconfiguration = Arc::new(Reconfiguration {
            node: self.clone(),
            join_request: self.join_request(previous_epoch.epoch).await,
            events,
        });
        let rules = AgreementRules {
            pair: self.config.pair(),
            timeouts: self.timeouts(),
        };
        let agreement = Agreement::new(self.me, previous_epoch.clone(), rules, own, Instant::now());
        let mut driver = ReconfigurationDriver {
            senders: BTreeMap::new(),
            tasks: JoinSet::new(),
            reconfiguration,
            inbox,
            agreement,
            local_members: evidence.local_members.into_iter().collect(),
        };
        spawn_in(
            &mut driver.tasks,
            driver.reconfiguration.clone().receive_all(),
        );
        let reconfiguration = driver.reconfiguration.clone();
        let outcome = tokio::select! {
            outcome = driver.run(evidence.lost) => outcome,
            // Members call whom the agreement says.
            hopeless = reconfiguration.clone().ask(), if reconfiguration.asks() => {
                return Err(hopeless.into());
            }
        };
        let decision = outcome.map_err(|end| self.explain(end, &previous_epoch))?;
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

    fn explain(&self, end: Action, previous_epoch: &PreviousEpoch) -> OperationError {
        match (end, previous_epoch.epoch) {
            (Action::NoMajority(_), 0) => {
                let waited = self.config.timeouts().join();
                let directory = self.directory();
                let most = directory.most();
                OperationError::Join(match directory.is_full_without(self.me.member_id) {
                    true => JoinError::Full { most, waited },
                    false => JoinError::NotAdmitted { waited },
                })
            }
            (Action::NoMajority(present), epoch) => OperationError::NoMajority {
                epoch,
                present: present.len(),
                members: previous_epoch.members.len(),
            },
            (_, epoch) => OperationError::Excluded { epoch },
        }
    }
}

/// One agreement under way.
struct ReconfigurationDriver {
    /// To whom this process speaks.
    senders: BTreeMap<MemberId, mpsc::Sender<AgreementMessage>>,
    /// Ends when this is dropped, but for lines, which say their last messages.
    tasks: JoinSet<()>,
    reconfiguration: Arc<Reconfiguration>,
    inbox: mpsc::Receiver<Event>,
    agreement: Agreement,
    /// Members on this host, and their process ids.
    local_members: BTreeMap<MemberId, u32>,
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
            let mut end = None;
            for action in out.drain(..) {
                match action {
                    Action::Call(member_id) => self.line(member_id),
                    Action::Send(member_id, message) => self.say(member_id, message),
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
                Some(event) = self.inbox.recv() => event,
                () = tokio::time::sleep_until(wake.into()) => Event::Tick,
            };
            if self.can_follow(&event) {
                self.agreement.handle(Instant::now(), event, &mut out);
            }
        }
    }

    /// Notes where those are that a decision admits. False for a newcomer that does not know where
    /// all others are, as where a decision comes before the answer that tells: it asks on, and
    /// hears both.
    fn can_follow(&self, event: &Event) -> bool {
        let (Event::Decided(decision)
        | Event::Said {
            message: AgreementMessage::Decided(decision),
            ..
        }) = event
        else {
            return true;
        };
        let (node, asks) = (&self.reconfiguration.node, self.reconfiguration.asks());
        if asks && !node.knows_all(decision) {
            return false;
        }
        node.directory().hear(decision);
        true
    }

    fn say(&mut self, member_id: MemberId, message: AgreementMessage) {
        self.line(member_id);
        if let Some(line) = self.senders.get(&member_id) {
            let _ = line.try_send(message);
        }
    }

    /// Begins to call a member id, unless that is being done.
    fn line(&mut self, member_id: MemberId) {
        if member_id != self.reconfiguration.node.me.member_id
            && !self.senders.contains_key(&member_id)
        {
            let (messages, said) = mpsc::channel(MESSAGES);
            let process = self.local_members.get(&member_id).copied();
            let callee = Callee::new(member_id, process);
            spawn(self.reconfiguration.clone().speak(callee, said));
            self.senders.insert(member_id, messages);
            self.watch(member_id);
        }
    }

    /// Hears from the kernel when a member that is called ends, if it runs on this host.
    fn watch(&mut self, member_id: MemberId) {
        if let Some(process) = self.local_members.get(&member_id).copied() {
            let events = self.reconfiguration.events.clone();
            spawn_in(&mut self.tasks, async move {
                if host::process_ended(process).await.is_ok() {
                    let _ = events.send(Event::Lost(member_id, Proof::Ended)).await;
                }
            });
        }
    }
}
