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

use super::communicator::ShmCommunicator;
use super::control_block::MESSAGE_SLOT;
use super::descriptor::{self, BufferDescriptor, BufferLocation};
use super::flag::Atomic;
use super::span::Span;
use super::wait::Waiter;
use crate::failure::Failure;
use crate::operation::Request;

/// What two ranks have sent each other so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageCounters {
    sent: Progress,
    received: Progress,
    /// The call site that the peer channel shows.
    shown: Option<&'static Location<'static>>,
}

/// Messages, and the slots that they took.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    messages: u32,
    ticks: u32,
}

impl<A: Atomic> ShmCommunicator<A> {
    /// Sends to the rank at this place; returns when it has received all.
    pub(crate) fn send<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        input: &[T],
        to: usize,
    ) -> Result<(), Failure> {
        let progress = &mut self.messages[to].sent;
        progress.messages = progress.messages.wrapping_add(1);
        let (number, first) = (progress.messages, progress.ticks);
        let peer_channel = self.control_blocks[self.me].peer_channel(to);
        let contract_words = descriptor::contract_words(&request.contract, 0);
        let buffer_descriptor = BufferDescriptor {
            place: BufferLocation::Private,
            pieces: pieces(input),
        };
        let shown = &mut self.messages[to].shown;
        if shown.is_none_or(|shown| !ptr::eq(shown, request.caller)) {
            descriptor::write_site(&peer_channel.site, request.caller);
            *shown = Some(request.caller);
        }
        buffer_descriptor.write(&contract_words, &peer_channel.messages);
        peer_channel.messages.flag.set(number);
        let taken = &self.control_blocks[to].peer_channel(self.me).taken.0;
        let until = |tick: u32| self.wait(waiter, taken, tick, to);
        #[expect(clippy::cast_possible_truncation, reason = "a few slots")]
        let depth = self.shape.depth() as u32;
        let mut tick = first;
        for piece in cut(input) {
            tick = tick.wrapping_add(1);
            until(tick.wrapping_sub(depth))?;
            let slot = part(self.control_blocks[self.me].message_slot(tick), piece);
            // SAFETY: the receiver is done with what was in the slot, and nobody else reads it.
            unsafe { slot.write() }.copy_from_slice(piece);
            peer_channel.published.0.set(tick);
        }
        until(tick)?;
        self.messages[to].sent.ticks = tick;
        Ok(())
    }

    /// Receives what the rank at this place sends.
    pub(crate) fn receive<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        output: &mut [T],
        from: usize,
    ) -> Result<(), Failure> {
        let progress = &mut self.messages[from].received;
        progress.messages = progress.messages.wrapping_add(1);
        let (number, mut tick) = (progress.messages, progress.ticks);
        let theirs = self.control_blocks[from].peer_channel(self.me);
        self.wait(waiter, &theirs.messages.flag, number, from)?;
        if !theirs
            .messages
            .has(&descriptor::contract_words(&request.contract, 0))
        {
            let site = descriptor::read_site(&theirs.site);
            return Err(self.other_call(from, &theirs.messages.contract_words(), site));
        }
        let taken = &self.control_blocks[self.me].peer_channel(from).taken.0;
        for piece in cut_mut(output) {
            tick = tick.wrapping_add(1);
            self.wait(waiter, &theirs.published.0, tick, from)?;
            let slot = part(self.control_blocks[from].message_slot(tick), piece);
            // SAFETY: the sender leaves the slot until this rank says that it has taken it.
            piece.copy_from_slice(unsafe { slot.read() });
            taken.set(tick);
        }
        self.messages[from].received.ticks = tick;
        Ok(())
    }
}

/// The pieces of a message. An empty one has an empty piece: its sender, too, waits until it was
/// seen, as the next message is announced in the same place.
fn cut<T: Element>(input: &[T]) -> impl Iterator<Item = &[T]> {
    let empty = input.is_empty().then_some(input);
    let pieces = input.chunks(MESSAGE_SLOT / size_of::<T>());
    empty.into_iter().chain(pieces)
}

fn cut_mut<T: Element>(output: &mut [T]) -> impl Iterator<Item = &mut [T]> {
    let empty = output.is_empty().then_some::<&mut [T]>(&mut []);
    let pieces = output.chunks_mut(MESSAGE_SLOT / size_of::<T>());
    empty.into_iter().chain(pieces)
}

pub(super) fn pieces<T: Element>(input: &[T]) -> u64 {
    cut(input).count() as u64
}

fn part<T: Element>(slot: Span, piece: &[T]) -> Span {
    slot.part(0..size_of_val(piece))
        .expect("a piece is no longer than a slot")
}
