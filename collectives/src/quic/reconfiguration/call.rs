//! Calling another member of the epoch that is over, until it answers or its end is certain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Connecting, Connection, ConnectionError, TransportErrorCode};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::Reconfiguration;
use super::callee::{self, Callee, Life, Silence};
use crate::agreement::{Event, MemberId, Proof};
use crate::identity::Role;
use crate::quic::control::{self, NoMessage};
use crate::quic::streams::Stream;
use crate::quic::ways::Way;
use crate::quic::{TURNED_AWAY, endpoint, resolve};
use crate::wire::{AgreementMessage, Message, Spoken};

/// How long the first call may take to be answered; it doubles each time, up to the patience with
/// a silent member, for a machine may be so busy that no answer comes sooner.
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
    /// Calls a member until it listens, and says what there is to say, until nobody has more.
    pub(super) async fn speak(
        self: Arc<Self>,
        mut callee: Callee,
        mut messages: mpsc::Receiver<AgreementMessage>,
    ) {
        let patience = self.node.config.timeouts().silence();
        let (mut heard, mut pause, mut attempt) = (Instant::now(), PAUSE, ATTEMPT);
        let mut unsaid = None;
        let mut way = Way::Direct;
        while !(messages.is_closed() && messages.is_empty() && unsaid.is_none()) {
            way = self.node.ways.next(callee.member_id, heard.elapsed(), way);
            let called = timeout(attempt, self.call(callee.member_id, way)).await;
            let mut is_lost = false;
            match called.unwrap_or(CallOutcome::Unreached) {
                CallOutcome::Answered(connection, line) => {
                    if way == Way::Direct {
                        callee.answered(&connection, &self.node.refusals);
                    }
                    let line = Line {
                        connection,
                        stream: line,
                    };
                    let end = self
                        .converse(line, &callee, &mut messages, &mut unsaid)
                        .await;
                    is_lost = end == End::Silent;
                    (heard, pause, attempt) = (Instant::now(), PAUSE, ATTEMPT);
                }
                CallOutcome::Alive => heard = Instant::now(),
                CallOutcome::Unreached => {
                    attempt = patience.max(ATTEMPT).min(2 * attempt);
                    is_lost = match callee.look().await {
                        Life::Certain => false,
                        Life::Unknown => heard.elapsed() >= patience,
                        Life::Over => true,
                    };
                }
            }
            if is_lost {
                let lost = Event::Lost(callee.member_id, Proof::Unreached);
                if self.events.send(lost).await.is_err() {
                    return;
                }
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
        let config = &self.node.config;
        let signs = callee::pause_of_looks(config.timeouts().silence()) / 2;
        let client = endpoint::attentive_client(&self.node.identity, config.network(), signs);
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

    /// Passes messages on until there are none left, or the connection is gone, or nothing has come
    /// over it for too long.
    async fn converse(
        &self,
        mut line: Line,
        callee: &Callee,
        messages: &mut mpsc::Receiver<AgreementMessage>,
        unsaid: &mut Option<AgreementMessage>,
    ) -> End {
        let pause = callee::pause_of_looks(self.node.config.timeouts().silence());
        let mut silence = Silence::on(&line.connection);
        loop {
            let message = match unsaid.take() {
                Some(message) => Some(message),
                None => tokio::select! {
                    message = messages.recv() => message,
                    _ = line.connection.closed() => return End::Over,
                    () = sleep(pause) => {
                        if silence.is_too_long(&line.connection, callee).await {
                            return End::Silent;
                        }
                        continue;
                    }
                },
            };
            let Some(message) = message else {
                line.finish().await;
                return End::Over;
            };
            let epoch = self.join_request.epoch;
            let spoken = Message::Spoken(Spoken {
                epoch,
                message: message.clone(),
            });
            if control::write(&mut line.stream.0, &spoken).await.is_err() {
                *unsaid = Some(message);
                return End::Over;
            }
        }
    }
}

/// The connection to a member that listens, and what is said over it.
struct Line {
    connection: Connection,
    stream: Stream,
}

impl Line {
    async fn finish(mut self) {
        let _ = self.stream.0.finish();
        // Answered when the other has it all.
        let _ = timeout(FAREWELL, self.stream.0.stopped()).await;
        self.connection.close(TURNED_AWAY, b"");
    }
}

/// How a conversation ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Over,
    Silent,
}
