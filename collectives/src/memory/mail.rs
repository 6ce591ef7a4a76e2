//! Messages from one rank to another: through the sender's slots, piece by piece.
//!
//! The sender is done when the receiver has taken all, so its slots are free for whoever is next.

#![expect(
    unsafe_code,
    reason = "the slots of other ranks are reached by address; flags order who touches them"
)]

use std::panic::Location;
use std::ptr;

use meshwork_accel::Element;

use super::board::MAIL_SLOT;
use super::domain::{Domain, Halt, Task};
use super::flag::Atomic;
use super::post::{self, Notice, Place};
use super::span::Span;

/// What two ranks have sent each other so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Correspondence {
    sent: Progress,
    received: Progress,
    /// The call site that the desk shows.
    shown: Option<&'static Location<'static>>,
}

/// Messages, and the slots that they took.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    messages: u32,
    ticks: u32,
}

impl<A: Atomic> Domain<A> {
    /// Sends to the rank at this place; returns when it has received all.
    pub(crate) fn send<T: Element>(
        &mut self,
        task: &Task<'_>,
        input: &[T],
        to: usize,
    ) -> Result<(), Halt> {
        let progress = &mut self.mail[to].sent;
        progress.messages = progress.messages.wrapping_add(1);
        let (number, first) = (progress.messages, progress.ticks);
        let desk = self.boards[self.me].desk(to);
        let terms = post::terms(&task.contract, 0);
        let notice = Notice {
            place: Place::Private,
            pieces: pieces(input),
        };
        let shown = &mut self.mail[to].shown;
        if shown.is_none_or(|shown| !ptr::eq(shown, task.site)) {
            post::write_site(&desk.site, task.site);
            *shown = Some(task.site);
        }
        notice.write(&terms, &desk.mail);
        desk.mail.flag.set(number);
        let taken = &self.boards[to].desk(self.me).taken.0;
        let until = |tick: u32| self.wait(&task.patience, taken, tick, to);
        #[expect(clippy::cast_possible_truncation, reason = "a few slots")]
        let depth = self.shape.depth() as u32;
        let mut tick = first;
        for piece in cut(input) {
            tick = tick.wrapping_add(1);
            until(tick.wrapping_sub(depth))?;
            let slot = part(self.boards[self.me].mail_slot(tick), piece);
            // SAFETY: the receiver is done with what was in the slot, and nobody else reads it.
            unsafe { slot.write() }.copy_from_slice(piece);
            desk.mailed.0.set(tick);
        }
        until(tick)?;
        self.mail[to].sent.ticks = tick;
        Ok(())
    }

    /// Receives what the rank at this place sends.
    pub(crate) fn receive<T: Element>(
        &mut self,
        task: &Task<'_>,
        output: &mut [T],
        from: usize,
    ) -> Result<(), Halt> {
        let progress = &mut self.mail[from].received;
        progress.messages = progress.messages.wrapping_add(1);
        let (number, mut tick) = (progress.messages, progress.ticks);
        let theirs = self.boards[from].desk(self.me);
        self.wait(&task.patience, &theirs.mail.flag, number, from)?;
        if !theirs.mail.has(&post::terms(&task.contract, 0)) {
            let site = post::read_site(&theirs.site);
            return Err(self.other_call(from, &theirs.mail.terms(), site));
        }
        let taken = &self.boards[self.me].desk(from).taken.0;
        for piece in output.chunks_mut(MAIL_SLOT / size_of::<T>()) {
            tick = tick.wrapping_add(1);
            self.wait(&task.patience, &theirs.mailed.0, tick, from)?;
            let slot = part(self.boards[from].mail_slot(tick), piece);
            // SAFETY: the sender leaves the slot until this rank says that it has taken it.
            piece.copy_from_slice(unsafe { slot.read() });
            taken.set(tick);
        }
        self.mail[from].received.ticks = tick;
        Ok(())
    }
}

fn cut<T: Element>(input: &[T]) -> impl Iterator<Item = &[T]> {
    input.chunks(MAIL_SLOT / size_of::<T>())
}

fn pieces<T: Element>(input: &[T]) -> u64 {
    cut(input).count() as u64
}

fn part<T: Element>(slot: Span, piece: &[T]) -> Span {
    slot.part(0..size_of_val(piece))
        .expect("a piece is no longer than a slot")
}
