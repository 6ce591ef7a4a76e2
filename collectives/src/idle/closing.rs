//! One end of a connection that may be closed while nothing needs it: a state machine without
//! sockets and clocks.
//!
//! ```text
//!   higher rank                                lower rank
//!                      <── Unneeded ─────────    if it is the lower that has too many
//!   Asked: operations wait
//!       ── Request: sent, received so far ──>    nothing needs it here, and all bytes that either
//!                                                end sent were read at the other: Agreed
//!   Agreed             <── Close ────────────
//!   Open               <── Keep ─────────────    otherwise
//! ```
//!
//! From its request to the answer the higher rank sends nothing, so when the lower one finds that
//! no byte is under way, none will be: closing loses nothing. An operation that begins meanwhile
//! waits for the answer, and goes on over this connection or a new one.

use std::time::Instant;

use crate::wire::{CloseRequest, ClosingMessage};

/// Which end this is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum End {
    /// That of the higher rank, which asks.
    Asks,
    /// That of the lower rank, which decides.
    Decides,
}

/// Bytes of operations that one end has sent, and those that its operations have read.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct ByteCounts {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// One end of a connection that may be closed.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Closing {
    end: End,
    phase: Phase,
    /// Operations that need the connection.
    users: usize,
    /// When the last of them ended, or closing was last tried.
    since: Instant,
    /// Of the last request that was made, or refused.
    number: u64,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Phase {
    Open,
    /// This end has asked whether the connection may be closed.
    Asked,
    /// It may, and is being closed.
    Agreed,
    Closed,
}

/// What comes of an operation's need.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Begin {
    /// The connection stays open for it.
    Begun,
    /// It depends on an answer that is awaited.
    Wait,
    /// The connection is closed: another is needed.
    Closed,
}

/// What is to be done about what the other end says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reaction {
    Nothing,
    Say(ClosingMessage),
    /// Both ends have agreed: the connection is to be closed, with a last message if there is one.
    Close(Option<ClosingMessage>),
}

/// What the end of a connection without a reason means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Break {
    /// Nobody has asked for it.
    Lost,
    /// The answer that was awaited: whoever cannot be told any more has closed it, or has ended,
    /// which its neighbours notice.
    Agreed,
    /// It was agreed on before.
    Known,
}

impl Closing {
    /// Of a connection that was made at `now`.
    pub(crate) fn new(end: End, now: Instant) -> Self {
        Self {
            end,
            phase: Phase::Open,
            users: 0,
            since: now,
            number: 0,
        }
    }

    /// An operation needs the connection.
    pub(crate) fn begin(&mut self) -> Begin {
        match self.phase {
            Phase::Open => {
                self.users += 1;
                Begin::Begun
            }
            Phase::Asked | Phase::Agreed => Begin::Wait,
            Phase::Closed => Begin::Closed,
        }
    }

    /// One that had begun needs it no more.
    pub(crate) fn end(&mut self, now: Instant) {
        self.users = self.users.saturating_sub(1);
        self.since = now;
    }

    /// Since when nothing has needed it, if it could be closed.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.is_idle().then_some(self.since)
    }

    /// Whether it is about to be closed, or may be.
    pub(crate) fn is_closing(&self) -> bool {
        self.phase != Phase::Open
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    fn is_idle(&self) -> bool {
        self.phase == Phase::Open && self.users == 0
    }

    /// Tries to close it; again if an answer is awaited, as the first question may be lost. It
    /// counts as used now, so that another has its turn next if this one has to stay.
    pub(crate) fn propose(&mut self, now: Instant, counts: ByteCounts) -> Option<ClosingMessage> {
        let asked_before = self.phase == Phase::Asked;
        if !asked_before && !self.is_idle() {
            return None;
        }
        self.since = now;
        if self.end == End::Decides {
            return Some(ClosingMessage::Unneeded);
        }
        self.number += u64::from(!asked_before);
        self.phase = Phase::Asked;
        Some(ClosingMessage::Request(CloseRequest {
            number: self.number,
            sent: counts.sent,
            received: counts.received,
        }))
    }

    /// Takes in what the other end says; what is out of place says nothing.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        message: ClosingMessage,
        counts: ByteCounts,
    ) -> Reaction {
        match (self.end, message) {
            (End::Asks, ClosingMessage::Unneeded) if self.is_idle() => {
                let request = self.propose(now, counts);
                request.map_or(Reaction::Nothing, Reaction::Say)
            }
            (End::Asks, ClosingMessage::Keep(number)) if self.awaits(number) => {
                self.phase = Phase::Open;
                self.since = now;
                Reaction::Nothing
            }
            (End::Asks, ClosingMessage::Close(number)) if self.awaits(number) => {
                self.phase = Phase::Agreed;
                Reaction::Close(None)
            }
            (End::Decides, ClosingMessage::Request(request)) => self.decide(request, counts),
            (
                End::Asks | End::Decides,
                ClosingMessage::Unneeded
                | ClosingMessage::Request(_)
                | ClosingMessage::Keep(_)
                | ClosingMessage::Close(_),
            ) => Reaction::Nothing,
        }
    }

    fn awaits(&self, number: u64) -> bool {
        self.phase == Phase::Asked && self.number == number
    }

    /// Each request is decided once: whoever has made it and heard that the connection stays may
    /// have sent bytes since.
    fn decide(&mut self, request: CloseRequest, counts: ByteCounts) -> Reaction {
        let none_under_way = request.sent == counts.received && request.received == counts.sent;
        match self.phase {
            Phase::Open if request.number > self.number && self.users == 0 && none_under_way => {
                self.phase = Phase::Agreed;
                Reaction::Close(Some(ClosingMessage::Close(request.number)))
            }
            Phase::Open => {
                self.number = self.number.max(request.number);
                Reaction::Say(ClosingMessage::Keep(request.number))
            }
            Phase::Asked | Phase::Agreed | Phase::Closed => Reaction::Nothing,
        }
    }

    /// The connection has ended without a reason.
    pub(crate) fn breaks(&mut self) -> Break {
        match self.phase {
            Phase::Open => Break::Lost,
            Phase::Asked => {
                self.phase = Phase::Agreed;
                Break::Agreed
            }
            Phase::Agreed | Phase::Closed => Break::Known,
        }
    }

    /// The connection has ended with the group: whoever waits for an answer finds its streams so.
    pub(crate) fn give_up(&mut self) {
        if self.phase == Phase::Asked {
            self.phase = Phase::Open;
        }
    }

    /// The connection is closed, as was agreed.
    pub(crate) fn close(&mut self) {
        self.phase = Phase::Closed;
    }
}

#[cfg(test)]
mod tests;
