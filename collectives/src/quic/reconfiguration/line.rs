//! A line to another member: a stream on which both speak, whoever has called.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Reconfiguration;
use super::callee::{self, Callee, Silence};
use crate::agreement::Event;
use crate::quic::TURNED_AWAY;
use crate::quic::admission::LentConnection;
use crate::quic::control::{self, NoMessage};
use crate::tasks::spawn_in;
use crate::wire::{AgreementMessage, MemberProcess, Message, Spoken};

/// How long the last messages may take to arrive.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// Something to do about a member.
pub(super) enum Instruction {
    Call,
    Say(AgreementMessage),
}

/// What there is to do about a member, and lines of its calls.
pub(super) struct Instructions {
    charged: mpsc::Receiver<Instruction>,
    called: mpsc::Receiver<Line>,
    /// Whether it is called when there is no line to it: once there was anything to do.
    is_wanted: bool,
    /// What a line has ended with.
    unsaid: Option<AgreementMessage>,
}

/// What comes next where there is no line.
pub(super) enum Next {
    Call,
    /// It has called.
    Answer(Line),
    /// Nobody has anything to say any more.
    Over,
}

impl Instructions {
    pub(super) fn new(charged: mpsc::Receiver<Instruction>, called: mpsc::Receiver<Line>) -> Self {
        Self {
            charged,
            called,
            is_wanted: false,
            unsaid: None,
        }
    }

    pub(super) async fn next(&mut self) -> Next {
        if let Ok(line) = self.called.try_recv() {
            return Next::Answer(line);
        }
        if self.unsaid.is_none() && self.charged.is_closed() && self.charged.is_empty() {
            return Next::Over;
        }
        if self.is_wanted {
            return Next::Call;
        }
        tokio::select! {
            Some(line) = self.called.recv() => Next::Answer(line),
            instruction = self.charged.recv() => match instruction {
                Some(instruction) => {
                    self.unsaid = self.take(instruction);
                    Next::Call
                }
                None => Next::Over,
            },
        }
    }

    /// Takes one on: what is to be said, if it is that.
    fn take(&mut self, instruction: Instruction) -> Option<AgreementMessage> {
        self.is_wanted = true;
        match instruction {
            Instruction::Call => None,
            Instruction::Say(message) => Some(message),
        }
    }
}

/// The connection that a line is on.
#[derive(Clone)]
pub(super) enum Carrier {
    /// One that was dialled for it, and ends with it.
    Own(Connection),
    /// One of the epoch before, on which nobody asks for signs of life.
    Lent(LentConnection),
}

impl Carrier {
    pub(super) fn connection(&self) -> &Connection {
        match self {
            Self::Own(connection) => connection,
            Self::Lent(lent) => &lent.connection,
        }
    }
}

/// One end of a stream on which both speak.
pub(super) struct Line {
    pub(super) with: MemberProcess,
    carrier: Carrier,
    send: SendStream,
    /// Ends with the line.
    hearing: JoinSet<()>,
}

impl Line {
    /// To a member that has called, and is heard elsewhere.
    pub(super) fn of_caller(with: MemberProcess, carrier: Carrier, send: SendStream) -> Self {
        Self {
            with,
            carrier,
            send,
            hearing: JoinSet::new(),
        }
    }

    /// To a member that was called, whose answers come by this.
    pub(super) fn hearing(mut self, reconfiguration: Arc<Reconfiguration>, by: RecvStream) -> Self {
        let with = self.with;
        spawn_in(&mut self.hearing, async move {
            let epoch = reconfiguration.join_request.epoch;
            reconfiguration.hear(with, epoch, by).await;
        });
        self
    }

    async fn finish(mut self) {
        let _ = self.send.finish();
        // Answered when the other has it all.
        let _ = timeout(FAREWELL, self.send.stopped()).await;
        if let Carrier::Own(connection) = &self.carrier {
            connection.close(TURNED_AWAY, b"");
        }
    }

    /// Has the other end acknowledge something, where it gives no sign of life by itself.
    async fn ask_for_a_sign(&mut self) -> Result<(), NoMessage> {
        match &self.carrier {
            Carrier::Own(_) => Ok(()),
            Carrier::Lent(_) => control::write(&mut self.send, &Message::Heartbeat).await,
        }
    }
}

/// How a conversation ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Over,
    Silent,
}

impl Reconfiguration {
    /// Hears a member of this epoch out.
    pub(super) async fn hear(&self, by: MemberProcess, epoch: u64, mut receive: RecvStream) {
        loop {
            let spoken = match control::read(&mut receive).await {
                Ok(Message::Spoken(spoken)) => spoken,
                Ok(Message::Heartbeat) => continue,
                Ok(_) | Err(_) => return,
            };
            let said = Event::Said {
                by,
                message: spoken.message,
            };
            if spoken.epoch == epoch && self.tell(said).await.is_err() {
                return;
            }
        }
    }

    /// Says what there is to say until there is no more, or the line has ended, or nothing has come
    /// over its connection for too long.
    pub(super) async fn converse(
        &self,
        mut line: Line,
        callee: &mut Callee,
        instructions: &mut Instructions,
    ) -> End {
        let connection = line.carrier.connection().clone();
        if self.node.ways.is_direct(connection.remote_address()) {
            callee.answered(&connection, &self.node);
        }
        let pause = callee::pause_of_looks(self.node.config.timeouts().silence());
        let mut silence = Silence::on(&connection);
        // With the connection, or when the other listens no more.
        let mut ended = pin!(line.send.stopped());
        loop {
            let message = match instructions.unsaid.take() {
                Some(message) => Some(message),
                None => tokio::select! {
                    instruction = instructions.charged.recv() => match instruction {
                        Some(instruction) => instructions.take(instruction),
                        None => {
                            line.finish().await;
                            return End::Over;
                        }
                    },
                    _ = &mut ended => return End::Over,
                    () = sleep(pause) => {
                        if silence.is_too_long(&connection, callee).await {
                            return End::Silent;
                        }
                        if line.ask_for_a_sign().await.is_err() {
                            return End::Over;
                        }
                        None
                    }
                },
            };
            let Some(message) = message else {
                continue;
            };
            let epoch = self.join_request.epoch;
            let spoken = Message::Spoken(Spoken {
                epoch,
                message: message.clone(),
            });
            if control::write(&mut line.send, &spoken).await.is_err() {
                instructions.unsaid = Some(message);
                return End::Over;
            }
        }
    }
}
