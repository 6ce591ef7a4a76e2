//! Calling another member of the epoch that is over, until it answers or its end is certain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Connecting, Connection, ConnectionError, TransportErrorCode};
use tokio::time::{sleep, timeout};

use super::Reconfiguration;
use super::callee::{self, Callee, Life};
use super::line::{Carrier, End, FAREWELL, Instructions, Line, Next};
use crate::agreement::{Event, MemberId, Proof};
use crate::identity::Role;
use crate::quic::admission::LentConnection;
use crate::quic::control::{self, NoMessage};
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
/// What became of a call.
enum CallOutcome {
    /// It is here, and listens.
    Answered(Line),
    /// Its process lives, but has not come here yet, or has gone on.
    Alive,
    Unreached,
}

impl Reconfiguration {
    /// Calls a member until it listens, and says what there is to say, until nobody has more. To
    /// one that has called nothing is said but by its line, as long as that lasts.
    /// The first call goes over the connection that is lent, if there is one.
    pub(super) async fn speak(
        self: Arc<Self>,
        mut callee: Callee,
        mut instructions: Instructions,
        mut lent: Option<LentConnection>,
    ) {
        let patience = self.node.config.timeouts().silence();
        let (mut heard, mut pause, mut attempt) = (Instant::now(), PAUSE, ATTEMPT);
        let mut way = Way::Direct;
        loop {
            let called = match instructions.next().await {
                Next::Over => return,
                Next::Answer(line) => {
                    let _ = self.tell(Event::Reached(line.with)).await;
                    CallOutcome::Answered(line)
                }
                Next::Call => match self.call_by(lent.take()).await {
                    Some(line) => CallOutcome::Answered(line),
                    None => {
                        way = self.node.ways.next(callee.member_id, heard.elapsed(), way);
                        let called = timeout(attempt, self.call(callee.member_id, way)).await;
                        called.unwrap_or(CallOutcome::Unreached)
                    }
                },
            };
            let is_lost = match called {
                CallOutcome::Answered(line) => {
                    let end = self.converse(line, &mut callee, &mut instructions).await;
                    (heard, pause, attempt) = (Instant::now(), PAUSE, ATTEMPT);
                    end == End::Silent
                }
                CallOutcome::Alive => {
                    heard = Instant::now();
                    false
                }
                CallOutcome::Unreached => {
                    attempt = patience.max(ATTEMPT).min(2 * attempt);
                    match callee.look(heard).await {
                        Life::Certain => false,
                        Life::Unknown => heard.elapsed() >= patience,
                        Life::Over => true,
                    }
                }
            };
            if is_lost {
                let lost = Event::Lost(callee.member_id, Proof::Unreached);
                if self.tell(lost).await.is_err() {
                    return;
                }
            }
            if self.inbox.is_closed() && heard.elapsed() >= FAREWELL {
                return;
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    /// Calls a member over a connection of the epoch before. It may not be here yet, or gone on.
    async fn call_by(self: &Arc<Self>, lent: Option<LentConnection>) -> Option<Line> {
        let lent = lent?;
        let greeting = self.greet(lent.with, Carrier::Lent(lent.clone()));
        timeout(ATTEMPT, greeting).await.ok()?.ok()?
    }

    async fn call(self: &Arc<Self>, member_id: MemberId, way: Way) -> CallOutcome {
        let connection = match self.connect(member_id, way).await {
            Ok(connection) => connection,
            Err(called) => return called,
        };
        match self
            .greet(member_id, Carrier::Own(connection.clone()))
            .await
        {
            Ok(Some(line)) => CallOutcome::Answered(line),
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
        self: &Arc<Self>,
        member_id: MemberId,
        carrier: Carrier,
    ) -> Result<Option<Line>, NoMessage> {
        let (mut send, mut receive) = carrier.connection().open_bi().await?;
        let greeting = Message::JoinRequest(self.join_request.clone());
        control::write(&mut send, &greeting).await?;
        match control::read(&mut receive).await? {
            Message::JoinRequest(join_request)
                if join_request.newcomer.process.member_id == member_id =>
            {
                let process = join_request.newcomer.process;
                let event = match join_request.epoch {
                    // Whoever was there before is gone.
                    0 => Event::Lost(member_id, Proof::Unreached),
                    _ => Event::Reached(process),
                };
                let _ = self.tell(event).await;
                let line = Line::of_caller(process, carrier, send);
                Ok(Some(line.hearing(self.clone(), receive)))
            }
            Message::Spoken(Spoken {
                message: AgreementMessage::Decided(decision),
                ..
            }) => {
                let _ = self.tell(Event::Decided(decision)).await;
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}
