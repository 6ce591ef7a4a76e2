//! What ranks of one host must have alike to read each other's memory.

use std::mem::offset_of;

use crate::shm::control_block::{DescriptorCell, Head, MESSAGE_SLOT, PeerChannel, Shape};
use crate::shm::peer_channel::pieces;

/// Where things are, how large they are, and how messages are cut.
pub(crate) fn shared_layout() -> Vec<u64> {
    let offsets = [
        offset_of!(DescriptorCell, words),
        offset_of!(Head, published),
        offset_of!(Head, combined),
        offset_of!(Head, consumed),
        offset_of!(Head, done),
        offset_of!(Head, gathered),
        offset_of!(Head, agreed),
        offset_of!(Head, inside),
        offset_of!(Head, closed),
        offset_of!(Head, sites),
        offset_of!(Head, segments),
        offset_of!(PeerChannel, published),
        offset_of!(PeerChannel, taken),
        offset_of!(PeerChannel, site),
        offset_of!(PeerChannel, counts),
    ];
    let shapes = [1, 2, 4, 5, 16, 17, 2048, 4096].map(Shape::for_ranks);
    let sizes = shapes.into_iter().flat_map(|shape| {
        let gathers = usize::from(shape.gathers());
        let [small, slot, depth] = [shape.small(), shape.slot(), shape.depth()];
        [small, slot, depth, gathers, shape.bytes()]
    });
    let numbers = offsets.into_iter().chain(sizes);
    let cut = [0, 1, MESSAGE_SLOT, MESSAGE_SLOT + 1].map(|length| pieces(&vec![0_u8; length]));
    numbers.map(|number| number as u64).chain(cut).collect()
}
