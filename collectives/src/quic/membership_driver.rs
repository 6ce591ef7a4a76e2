use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot, watch};

use super::admission::Admission;
use crate::flight_recorder::FlightRecorder;
use crate::membership::{Action, Event, Membership, tell};
use crate::notice::say;
use crate::wire::MemberRecord;
use crate::{LossCause, OperationError};

/// Where the driver's results go.
pub(super) struct Outbox {
    pub(super) admission: Arc<Admission>,
    pub(super) recorder: Arc<FlightRecorder>,
    /// Answered when everybody is in, dropped when the group fails before.
    pub(super) ready: Option<oneshot::Sender<()>>,
    pub(super) failed: watch::Sender<Option<OperationError>>,
    pub(super) ended: watch::Sender<bool>,
}

/// Feeds the membership with events and the time, and does what it says, until the group is over.
pub(super) async fn drive(
    mut membership: Membership,
    mut inbox: mpsc::Receiver<Event>,
    mut outbox: Outbox,
) {
    let mut actions = Vec::new();
    while let Some(wake) = membership.wake() {
        let event = tokio::select! {
            // Once nobody is left who could say something, only time passes.
            Some(event) = inbox.recv() => event,
            () = tokio::time::sleep_until(wake.into()) => Event::Tick,
        };
        membership.handle(Instant::now(), event, &mut actions);
        for action in actions.drain(..) {
            outbox.act(action);
        }
    }
}

impl Outbox {
    /// Everybody is there.
    pub(super) fn begin(&mut self, records: Arc<[MemberRecord]>) {
        self.recorder.met(&records);
        if let Some(rank) = self.admission.settle(records) {
            let lost = OperationError::lost(self.admission.member(rank), LossCause::Died);
            // A full queue has another reason to end the group.
            let _ = self.admission.events().try_send(Event::GiveUp(lost));
            return;
        }
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(());
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send(rank, message) => self.admission.tell(rank, message),
            Action::Examine { rank, heard } => self.admission.look_for(rank, heard),
            Action::Say(awaited) => say(awaited),
            Action::Ready(records) => self.begin(records),
            Action::Fail(error) => {
                tracing::debug!(%error, "the group is over");
                // Before anybody hears of it, who may end the process.
                self.recorder.fail(&error);
                let me = self.admission.me();
                self.admission.fail(tell(&error, me));
                self.failed.send_replace(Some(error));
                self.ready = None;
            }
            Action::Over => {
                self.admission.close_all();
                self.ended.send_replace(true);
            }
        }
    }
}
