//! In which order a long transfer is cut into chunks that go through a few slots: pure.

use std::ops::Range;

/// One thing to do with a slot and a piece of the transfer, in bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Step {
    pub(crate) what: What,
    pub(crate) slot: usize,
    pub(crate) bytes: Range<usize>,
}

/// One step of a transfer through pinned slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    /// Copy the piece into the slot and let the GPU fetch it.
    Send,
    /// Let the GPU put the piece into the slot.
    Request,
    /// Wait for the piece that was requested, and copy it out of the slot.
    Take,
}

/// How a transfer of `bytes` is cut, through `slots` slots of `each` bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cut {
    bytes: usize,
    each: usize,
    slots: usize,
}

impl Cut {
    /// At least one slot, of at least one byte.
    pub(crate) fn new(bytes: usize, each: usize, slots: usize) -> Self {
        Self {
            bytes,
            each: each.max(1),
            slots: slots.max(1),
        }
    }

    /// To a GPU: it fetches one piece while the next is copied into another slot.
    pub(crate) fn upload(self) -> impl Iterator<Item = Step> {
        (0..self.pieces()).map(move |piece| self.step(What::Send, piece))
    }

    /// From a GPU: as many chunks are on their way as there are slots, while one is copied out.
    pub(crate) fn download(self) -> impl Iterator<Item = Step> {
        let pieces = self.pieces();
        let ahead = (0..pieces.min(self.slots)).map(move |piece| self.step(What::Request, piece));
        let rest = (0..pieces).flat_map(move |piece| {
            let next = Some(piece + self.slots).filter(|next| *next < pieces);
            let refill = next.map(|next| self.step(What::Request, next));
            std::iter::once(self.step(What::Take, piece)).chain(refill)
        });
        ahead.chain(rest)
    }

    fn pieces(self) -> usize {
        self.bytes.div_ceil(self.each)
    }

    fn step(self, what: What, piece: usize) -> Step {
        let start = piece * self.each;
        Step {
            what,
            slot: piece % self.slots,
            bytes: start..self.bytes.min(start.saturating_add(self.each)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every cut of a small transfer.
    fn cuts() -> impl Iterator<Item = Cut> {
        (0..40).flat_map(|bytes| {
            (1..10).flat_map(move |each| (1..5).map(move |slots| Cut::new(bytes, each, slots)))
        })
    }

    #[test]
    fn uploads_cover_every_byte_once_and_in_order() {
        for cut in cuts() {
            let sent: Vec<usize> = cut.upload().flat_map(|step| step.bytes).collect();
            assert!(sent.into_iter().eq(0..cut.bytes), "{cut:?}");
        }
    }

    #[test]
    fn downloads_take_what_was_requested_into_that_slot_and_overwrite_nothing() {
        for cut in cuts() {
            let mut slots = vec![None; cut.slots];
            let mut taken = Vec::new();
            for Step { what, slot, bytes } in cut.download() {
                assert!(!bytes.is_empty() && bytes.len() <= cut.each, "{cut:?}");
                match what {
                    What::Request => assert_eq!(slots[slot].replace(bytes), None, "{cut:?}"),
                    _ => {
                        assert_eq!(slots[slot].take(), Some(bytes.clone()), "{cut:?}");
                        taken.extend(bytes);
                    }
                }
            }
            assert!(taken.into_iter().eq(0..cut.bytes), "{cut:?}");
        }
    }

    #[test]
    fn as_many_pieces_as_there_are_slots_are_on_their_way_before_one_is_waited_for() {
        for cut in cuts() {
            let ahead = cut.download().take_while(|step| step.what == What::Request);
            assert_eq!(ahead.count(), cut.slots.min(cut.pieces()), "{cut:?}");
        }
    }
}
