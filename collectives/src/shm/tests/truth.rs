//! Ranks that write other bytes than 0 and 1 where others expect truth values.

use std::ops::Range;
use std::slice;
use std::thread;
use std::time::Duration;

use meshwork_accel::{Element, ElementType, ReduceOp, Reduction};

use super::closing::{Alone, processes, request};
use crate::Rank;
use crate::failure::Failure;
use crate::medium::truth;
use crate::operation::{OnArrival, ReceiveBlock, SendBlocks, Transfer, Work};
use crate::wire::WireError;

/// Longer than any of these takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// Elements that are copied next to the post, and that go through several slots.
const LENGTHS: [usize; 2] = [5, 300_000];
const LIAR: Rank = Rank::new(1);

/// What rank 0 makes of its work while rank 1 does what it likes with the same call.
fn meets(
    len: usize,
    honest: impl FnOnce(&mut dyn FnMut(Work<'_, bool>) -> Result<(), Failure>) + Send,
    liar: impl FnOnce(&mut dyn FnMut(Work<'_, u8>) -> Result<(), Failure>),
) {
    let mut asked = request(len);
    asked.contract.element = ElementType::Bool;
    let [mut first, mut second] = processes().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let waiter = first.waiter(LONG, &Alone);
            honest(&mut |work| truth::carry_out(work, |bytes| first.run(&asked, &waiter, bytes)));
        });
        let waiter = second.waiter(LONG, &Alone);
        liar(&mut |work| second.run(&asked, &waiter, work));
    });
}

/// Bytes of which one in the middle is no truth value.
fn lie(len: usize) -> Vec<u8> {
    let mut bytes = vec![1; len];
    bytes[len / 2] = 2;
    bytes
}

#[track_caller]
fn names_the_liar(done: &Result<(), Failure>, buffer: &[bool]) {
    let expected = WireError::Value {
        element: bool::TYPE,
    };
    assert!(
        matches!(done, Err(Failure::Protocol(LIAR, error)) if *error == expected),
        "{done:?}"
    );
    assert!(buffer.iter().all(|value| !value), "what was there stays");
}

#[test]
fn a_broadcast_of_what_is_no_truth_value_names_the_root() {
    for len in LENGTHS {
        meets(
            len,
            |run| {
                let mut buffer = vec![false; len];
                let (root, place) = (LIAR, &mut buffer);
                let done = run(Work::Broadcast {
                    buffer: place,
                    root,
                });
                names_the_liar(&done, &buffer);
            },
            |run| {
                let (root, mut buffer) = (LIAR, lie(len));
                let buffer = &mut buffer;
                run(Work::Broadcast { buffer, root }).unwrap();
            },
        );
    }
}

#[test]
fn a_message_of_what_is_no_truth_value_names_the_sender() {
    for len in LENGTHS {
        meets(
            len,
            |run| {
                let mut output = vec![false; len];
                let (from, place) = (LIAR, &mut output);
                let done = run(Work::Receive {
                    output: place,
                    from,
                });
                names_the_liar(&done, &output);
            },
            |run| {
                let (to, input) = (Rank::new(0), &lie(len)[..]);
                run(Work::Send { input, to }).unwrap();
            },
        );
    }
}

/// Each of two ranks hands its whole input to the other.
fn swap<'a, T: Element>(
    input: &'a [T],
    whole: &'a [Range<usize>],
    receives: &'a [ReceiveBlock],
    output: &'a mut [T],
) -> Work<'a, T> {
    Work::Exchange(Transfer {
        outgoing_blocks: SendBlocks::whole(input, whole),
        receives,
        output,
        then: OnArrival::Copy,
    })
}

#[test]
fn an_exchange_of_what_is_no_truth_value_names_who_offered_it() {
    for len in LENGTHS {
        let whole = 0..len;
        let from = |from| [ReceiveBlock::new(from, 0, 0, 0..len)];
        meets(
            len,
            |run| {
                let mut output = vec![false; len];
                let input = vec![true; len];
                let done = run(swap(&input, slice::from_ref(&whole), &from(1), &mut output));
                names_the_liar(&done, &output);
            },
            |run| {
                let (input, mut output) = (lie(len), vec![0; len]);
                run(swap(&input, slice::from_ref(&whole), &from(0), &mut output)).unwrap();
                assert!(output.iter().all(|byte| *byte == 1));
            },
        );
    }
}

#[test]
fn reductions_take_what_is_not_0_for_true_and_keep_the_rest() {
    for (op, len) in LENGTHS
        .into_iter()
        .flat_map(|len| [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor].map(|op| (op, len)))
    {
        meets(
            len,
            |run| {
                let own: Vec<bool> = (0..len).map(|at| at % 3 == 0).collect();
                let mut buffer = own.clone();
                run(reduce(&mut buffer, op)).unwrap();
                let of_truth = Reduction::<bool>::new(op).unwrap();
                let mut expected = own;
                of_truth.reduce(&mut expected, &vec![true; len]).unwrap();
                // What is true of the byte 2 alone is between the liar and its bits.
                expected[len / 2] = buffer[len / 2];
                assert!(buffer == expected, "{op} of {len}");
            },
            |run| run(reduce(&mut lie(len), op)).unwrap(),
        );
    }
}

fn reduce<T: Element>(buffer: &mut [T], op: ReduceOp) -> Work<'_, T> {
    Work::Reduce {
        buffer,
        reduction: Reduction::new(op).unwrap(),
        root: None,
    }
}
