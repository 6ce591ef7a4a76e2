//! Calling another member of the epoch that is over, until it answers or its end is certain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Connecting, Connection, ConnectionError, TransportErrorCode};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::Reconfiguration;
use crate::agreement::{Event, MemberId, Proof};
use crate::identity::Role;
use crate::quic::control::{self, NoMessage};
use crate::quic::streams::Stream;
use crate::quic::ways::Way;
use crate::quic::{TURNED_AWAY, endpoint, resolve};
use crate::wire::{AgreementMessage, Message, Spoken};

/// How long one call may take to be answered.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The pause before the second call; it doubles each time.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How long the last messages may take to arrive.
const FAREWELL: Duration = Duration::from_secs(1);

/// What became of a call.
enum CallOutcome {
    /// It is here, and listens.
    Answered(Connection, Stream),
    /// Its process lives, but has not come here yet, or has gone on.
    Alive,
    Unreached,
}

impl Reconfiguration {
    /// Calls a member id until it listens, and says what there is to say, until nobody has more.
    pub(super) async fn speak(
        self: Arc<Self>,
        member_id: MemberId,
        mut messages: mpsc::Receiver<AgreementMessage>,
    ) {
        let mut unsaid = None;
        let (mut heard, mut pause) = (Instant::now(), PAUSE);
        let mut way = Way::Direct;
        while !(messages.is_closed() && messages.is_empty() && unsaid.is_none()) {
            way = self.node.ways.next(member_id, heard.elapsed(), way);
            let called = timeout(ATTEMPT, self.call(member_id, way)).await;
            match called.unwrap_or(CallOutcome::Unreached) {
                CallOutcome::Answered(connection, line) => {
                    self.converse(connection, line, &mut messages, &mut unsaid)
                        .await;
                    (heard, pause) = (Instant::now(), PAUSE);
                }
                CallOutcome::Alive => heard = Instant::now(),
                CallOutcome::Unreached
                    if heard.elapsed() >= self.node.config.timeouts().silence() =>
                {
                    let lost = Event::Lost(member_id, Proof::Unreached);
                    if self.events.send(lost).await.is_err() {
                        return;
                    }
                }
                CallOutcome::Unreached => {}
            }
            if self.events.is_closed() && heard.elapsed() >= FAREWELL {
                return;
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    async fn call(&self, member_id: MemberId, way: Way) -> CallOutcome {
        let connection = match self.connect(member_id, way).await {
            Ok(connection) => connection,
            Err(called) => return called,
        };
        match self.greet(member_id, &connection).await {
            Ok(Some(line)) => CallOutcome::Answered(connection, line),
            Ok(None) | Err(_) => {
                connection.close(TURNED_AWAY, b"");
                CallOutcome::Alive
            }
        }
    }

    async fn connect(&self, member_id: MemberId, way: Way) -> Result<Connection, CallOutcome> {
        let connecting = self.dial(member_id, way).await;
        let connecting = connecting.ok_or(CallOutcome::Unreached)?;
        let connection = connecting.await.map_err(|error| match error {
            // It has no room for callers at the moment.
            ConnectionError::ConnectionClosed(close)
                if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
            {
                CallOutcome::Alive
            }
            _ => CallOutcome::Unreached,
        })?;
        self.node.connection_counters.dialled();
        Ok(connection)
    }

    async fn dial(&self, member_id: MemberId, way: Way) -> Option<Connecting> {
        let endpoint = &self.node.endpoint;
        let own = endpoint.local_addr().ok()?;
        let address = match way {
            Way::Direct => resolve(&self.node.address(member_id)?, own).await.ok()??,
            Way::ByRelay(address) => address,
        };
        self.dial_at(address, self.node.role(member_id))
    }

    pub(super) fn dial_at(&self, address: SocketAddr, role: Role) -> Option<Connecting> {
        let endpoint = &self.node.endpoint;
        let name = self.node.identity.server_name(role).ok()?;
        let client = endpoint::client(&self.node.identity, self.node.config.network());
        endpoint.connect_with(client, address, &name.to_str()).ok()
    }

    /// Says who calls, and hears whether the other is here; `None` if it knows already how it
    /// ended.
    async fn greet(
        &self,
        member_id: MemberId,
        connection: &Connection,
    ) -> Result<Option<Stream>, NoMessage> {
        let mut line = connection.open_bi().await?;
        control::write(
            &mut line.0,
            &Message::JoinRequest(self.join_request.clone()),
        )
        .await?;
        match control::read(&mut line.1).await? {
            Message::JoinRequest(join_request)
                if join_request.newcomer.process.member_id == member_id =>
            {
                let event = match join_request.epoch {
                    // Whoever was there before is gone.
                    0 => Event::Lost(member_id, Proof::Unreached),
                    _ => Event::Reached(join_request.newcomer.process),
                };
                let _ = self.events.send(event).await;
                Ok(Some(line))
            }
            Message::Spoken(Spoken {
                message: AgreementMessage::Decided(decision),
                ..
            }) => {
                let _ = self.events.send(Event::Decided(decision)).await;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Passes messages on until there are none left, or the connection is gone.
    async fn converse(
        &self,
        connection: Connection,
        mut line: Stream,
        messages: &mut mpsc::Receiver<AgreementMessage>,
        unsaid: &mut Option<AgreementMessage>,
    ) {
        loop {
            let message = match unsaid.take() {
                Some(message) => Some(message),
                None => tokio::select! {
                    message = messages.recv() => message,
                    _ = connection.closed() => return,
                },
            };
            let Some(message) = message else {
                let _ = line.0.finish();
                // Answered when the other has it all.
                let _ = timeout(FAREWELL, line.0.stopped()).await;
                connection.close(TURNED_AWAY, b"");
                return;
            };
            let epoch = self.join_request.epoch;
            let spoken = Message::Spoken(Spoken {
                epoch,
                message: message.clone(),
            });
            if control::write(&mut line.0, &spoken).await.is_err() {
                *unsaid = Some(message);
                return;
            }
        }
    }
}
