use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Connecting, Connection, ConnectionError, TransportErrorCode};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::Assembly;
use crate::agreement::{Event, Proof, Seat};
use crate::quic::control::{self, NoMessage};
use crate::quic::streams::Stream;
use crate::quic::{TURNED_AWAY, endpoint, resolve};
use crate::wire::{Message, Spoken, Word};

/// How long one call may take to be answered.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The pause before the second call; it doubles each time.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How long the last words may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What became of a call.
enum Called {
    /// It is here, and listens.
    Answered(Connection, Stream),
    /// Its process lives, but has not come here yet, or has gone on.
    Alive,
    Unreached,
}

impl Assembly {
    /// Calls a seat until it listens, and says what there is to say, until nobody has more.
    pub(super) async fn speak(self: Arc<Self>, seat: Seat, mut words: mpsc::Receiver<Word>) {
        let mut unsaid = None;
        let (mut heard, mut pause) = (Instant::now(), PAUSE);
        while !(words.is_closed() && words.is_empty() && unsaid.is_none()) {
            let called = timeout(ATTEMPT, self.call(seat)).await;
            match called.unwrap_or(Called::Unreached) {
                Called::Answered(connection, line) => {
                    self.converse((connection, line), &mut words, &mut unsaid)
                        .await;
                    (heard, pause) = (Instant::now(), PAUSE);
                }
                Called::Alive => heard = Instant::now(),
                Called::Unreached
                    if heard.elapsed() >= self.station.config.timeouts().silence() =>
                {
                    let lost = Event::Lost(seat, Proof::Unreached);
                    if self.events.send(lost).await.is_err() {
                        return;
                    }
                }
                Called::Unreached => {}
            }
            if self.events.is_closed() && heard.elapsed() >= LAST_WORDS {
                return;
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    async fn call(&self, seat: Seat) -> Called {
        let connection = match self.connect(seat).await {
            Ok(connection) => connection,
            Err(called) => return called,
        };
        match self.greet(seat, &connection).await {
            Ok(Some(line)) => Called::Answered(connection, line),
            Ok(None) | Err(_) => {
                connection.close(TURNED_AWAY, b"");
                Called::Alive
            }
        }
    }

    async fn connect(&self, seat: Seat) -> Result<Connection, Called> {
        let connecting = self.dial(seat).await.ok_or(Called::Unreached)?;
        connecting.await.map_err(|error| match error {
            // It has no room for callers at the moment.
            ConnectionError::ConnectionClosed(close)
                if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
            {
                Called::Alive
            }
            _ => Called::Unreached,
        })
    }

    async fn dial(&self, seat: Seat) -> Option<Connecting> {
        let endpoint = &self.station.endpoint;
        let own = endpoint.local_addr().ok()?;
        let address = resolve(self.station.address(seat)?, own).await.ok()??;
        let name = self
            .station
            .identity
            .server_name(self.station.role(seat))
            .ok()?;
        let client = endpoint::client(&self.station.identity, self.station.config.network());
        endpoint.connect_with(client, address, &name.to_str()).ok()
    }

    /// Says who calls, and hears whether the other is here; `None` if it knows already how it ended.
    async fn greet(
        &self,
        seat: Seat,
        connection: &Connection,
    ) -> Result<Option<Stream>, NoMessage> {
        let mut line = connection.open_bi().await?;
        control::write(&mut line.0, &Message::Knock(self.knock)).await?;
        match control::read(&mut line.1).await? {
            Message::Knock(knock) if knock.newcomer.seat == seat => {
                let event = match knock.epoch {
                    // Whoever was there before is gone.
                    0 => Event::Lost(seat, Proof::Unreached),
                    _ => Event::Reached(knock.newcomer),
                };
                let _ = self.events.send(event).await;
                Ok(Some(line))
            }
            Message::Spoken(Spoken {
                word: Word::Decided(decision),
                ..
            }) => {
                let _ = self.events.send(Event::Decided(decision)).await;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Passes words on until there are none left, or the line is gone.
    async fn converse(
        &self,
        (connection, mut line): (Connection, Stream),
        words: &mut mpsc::Receiver<Word>,
        unsaid: &mut Option<Word>,
    ) {
        loop {
            let word = match unsaid.take() {
                Some(word) => Some(word),
                None => tokio::select! {
                    word = words.recv() => word,
                    _ = connection.closed() => return,
                },
            };
            let Some(word) = word else {
                let _ = line.0.finish();
                // Answered when the other has it all.
                let _ = timeout(LAST_WORDS, line.0.stopped()).await;
                connection.close(TURNED_AWAY, b"");
                return;
            };
            let epoch = self.knock.epoch;
            let spoken = Message::Spoken(Spoken {
                epoch,
                word: word.clone(),
            });
            if control::write(&mut line.0, &spoken).await.is_err() {
                *unsaid = Some(word);
                return;
            }
        }
    }
}
