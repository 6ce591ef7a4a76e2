//! Ranks whose posts say what cannot be: the others end with what is wrong, soon and unharmed.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use super::closing::{Alone, processes, request};
use crate::Rank;
use crate::failure::Failure;
use crate::shm::ShmCommunicator;
use crate::shm::descriptor::BufferLocation;
use crate::wire::WireError;

/// Elements that take two slots.
const LEN: usize = 100_000;
/// Longer than any of these takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

const LIAR: Rank = Rank::new(1);

fn registered(communicator: &ShmCommunicator) -> BufferLocation {
    let registered = communicator
        .registry()
        .clone()
        .allocate(LEN * 4 + 4)
        .unwrap();
    let place = communicator.registry().find(registered.bytes()).unwrap();
    // It stays where it is found.
    std::mem::forget(registered);
    place
}

/// What the other of two ranks makes of a broadcast in which one says so much of its bytes.
#[track_caller]
fn hears(
    root: usize,
    say: impl FnOnce(&mut ShmCommunicator) -> (BufferLocation, u64),
    then: impl FnOnce(&ShmCommunicator),
) -> Result<(), Failure> {
    let [mut honest, mut liar] = processes().unwrap();
    let (place, pieces) = say(&mut liar);
    let _ = liar.post_call(&request(LEN), place, pieces);
    then(&liar);
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let waiter = honest.waiter(LONG, &Alone);
        let mut buffer = vec![1.0_f32; LEN];
        let _ = done.send(honest.broadcast(&request(LEN), &waiter, &mut buffer, root));
    });
    ended
        .recv_timeout(LONG / 2)
        .expect("an end before the deadline")
}

#[test]
fn a_rank_whose_number_of_pieces_is_false_keeps_nobody() {
    let heard = hears(0, |_| (BufferLocation::Private, u64::MAX), |_| {});
    let said = "more pieces than there can be";
    assert!(
        matches!(
            heard,
            Err(Failure::Unreachable(LIAR, ErrorKind::InvalidData))
        ),
        "{said}: {heard:?}"
    );
    let heard = hears(0, |_| (BufferLocation::Private, 1 << 29), |_| {});
    assert!(
        heard.is_ok(),
        "pieces that are not for this rank: {heard:?}"
    );
    let heard = hears(1, |_| (BufferLocation::Private, 1), |_| {});
    let Err(Failure::Uneven {
        peer,
        offered,
        expected,
    }) = heard
    else {
        panic!("too few pieces: {heard:?}");
    };
    assert_eq!((peer, expected), (LIAR, LEN as u64));
    assert!(offered < expected, "{offered}");
}

#[test]
fn a_rank_whose_bytes_lie_where_no_element_can_is_named() {
    let beside = |liar: &mut ShmCommunicator| {
        let BufferLocation::Segment {
            index,
            generation,
            offset,
        } = registered(liar)
        else {
            panic!("registered memory is in a segment");
        };
        let place = BufferLocation::Segment {
            index,
            generation,
            offset: offset + 1,
        };
        (place, 2)
    };
    let heard = hears(1, beside, |_| {});
    assert!(
        matches!(
            heard,
            Err(Failure::Unreachable(LIAR, ErrorKind::InvalidData))
        ),
        "{heard:?}"
    );
}

#[test]
fn a_place_that_there_is_not_is_no_private_one() {
    let nowhere = |liar: &ShmCommunicator| liar.post(1).words[6].store(9, Ordering::Relaxed);
    let heard = hears(0, |_| (BufferLocation::Private, 0), nowhere);
    let Err(Failure::Protocol(peer, error)) = heard else {
        panic!("{heard:?}");
    };
    let expected = WireError::Code {
        field: "place of bytes",
        found: 9,
    };
    assert_eq!((peer, error), (LIAR, expected));
}
