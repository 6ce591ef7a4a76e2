//! Another rank of the host, on whose control block stands what it likes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use meshwork_accel::{Element, ReduceOp, Reduction};

use super::ShmCommunicator;
use super::control_block::{ControlBlock, Shape};
use super::descriptor::BufferLocation;
use super::mapping::Mapping;
use super::reduce::{Receiver, ReducePlan};
use super::span::Span;
use super::wait::{WaitObserver, Waiter};
use crate::contract::{Contract, Kind};
use crate::failure::Failure;
use crate::operation::{OnArrival, ReceiveBlock, Request, SendBlocks, Transfer};

/// What the adversary writes: one byte after the other, and zeros behind the last.
struct Orders<'a>(&'a [u8]);

/// Two ranks, which reach each other as processes do.
struct Host {
    honest: ShmCommunicator,
    adversary: ShmCommunicator,
}

/// A group that never fails.
struct Live;

/// Elements that are copied, that are handed over in one go, and that take several slots.
const LENGTHS: [usize; 4] = [0, 3, 9_000, 70_000];

/// Makes an operation with a rank whose post, segments, counts and flags are what these bytes say:
/// it ends at once, and what is this rank's alone stays as it was.
pub(crate) fn meddle(bytes: &[u8]) {
    let mut orders = Orders(bytes);
    let host = Host::new().expect("memory that processes share");
    match orders.byte() % 4 {
        0 => host.run::<u8>(&mut orders),
        1 => host.run::<u16>(&mut orders),
        2 => host.run::<f32>(&mut orders),
        _ => host.run::<u64>(&mut orders),
    }
}

impl Host {
    fn new() -> io::Result<Self> {
        let shape = Shape::for_ranks(2);
        let control_block = || {
            let (memory, _) = Mapping::segment(shape.bytes())?;
            let control_block = ControlBlock::new(Arc::new(memory), shape);
            control_block.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
        };
        let control_blocks = vec![control_block()?, control_block()?];
        let ids = vec![std::process::id(); 2];
        let rank =
            |me| ShmCommunicator::processes(me, control_blocks.clone(), ids.clone(), usize::MAX);
        let (mut honest, adversary) = (rank(0), rank(1));
        honest.fetch_long_buffers();
        Ok(Self { honest, adversary })
    }

    fn run<T: Element>(mut self, orders: &mut Orders<'_>) {
        let operation = orders.byte() % 4;
        let len = LENGTHS[usize::from(orders.byte() % 4)];
        let registered = self.adversary.registry().allocate(len * size_of::<T>() + 1);
        let _registered = registered.expect("memory that processes share");
        let room = vec![T::default(); len];
        self.meddle::<T>(Span::of(&room), orders);
        let (request, waiter) = (
            &request::<T>(len),
            &self.honest.waiter(Duration::ZERO, &Live),
        );
        let mut buffer = vec![T::default(); len];
        let before = buffer.clone();
        let done = match operation {
            0 => {
                let sum = Reduction::new(ReduceOp::Sum).expect("numbers have sums");
                let all = ReducePlan::new(sum, Receiver::All);
                self.honest.reduce(request, waiter, &mut buffer, &all)
            }
            1 => self.honest.broadcast(request, waiter, &mut buffer, 1),
            2 => {
                let done = self.honest.broadcast(request, waiter, &mut buffer, 0);
                assert_eq!(buffer, before, "what this rank hands over stays as it is");
                done
            }
            _ => self
                .honest
                .exchange_halves(request, waiter, &before, &mut buffer),
        };
        // One that was told otherwise would go through the next operation's slots with others.
        assert!(done.is_err() || self.honest.sequence == self.adversary.sequence);
    }

    /// Writes on the adversary's control block. What only the system could refuse is left out, as
    /// it is asked for a while whether the other process has ended.
    fn meddle<T: Element>(&mut self, room: Span, orders: &mut Orders<'_>) {
        let kind = orders.byte();
        let place = match kind {
            0 => BufferLocation::Nothing,
            1 => BufferLocation::Small,
            3 => BufferLocation::Segment {
                index: orders.byte().into(),
                generation: orders.byte().into(),
                offset: orders.long(),
            },
            4 => BufferLocation::Address(orders.long()),
            5 => BufferLocation::Foreign(room.address() as u64),
            2 | 6.. => BufferLocation::Private,
        };
        let said = request::<T>(room.bytes() / size_of::<T>());
        let _ = self.adversary.post_call(&said, place, orders.long());
        if kind > 5 {
            let word = &self.adversary.post(1).words[6];
            word.store(kind.into(), Ordering::Relaxed);
        }
        let peer_channel = self.adversary.own_peer_channel(0);
        for count in &peer_channel.counts {
            count.store(orders.long(), Ordering::Relaxed);
        }
        let head = self.adversary.own();
        let flags = [&head.published, &head.combined, &head.consumed, &head.done];
        for flag in flags {
            flag.0.set(orders.short());
        }
        let [generation, descriptor, bytes] = &head.segments[0];
        generation.fetch_xor(orders.byte().into(), Ordering::Relaxed);
        bytes.fetch_xor(orders.byte().into(), Ordering::Relaxed);
        if orders.byte() != 0 {
            descriptor.store(u64::MAX, Ordering::Relaxed);
        }
    }
}

impl ShmCommunicator {
    /// An all-to-all with uneven blocks, of which each rank knows its own only.
    fn exchange_halves<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), Failure> {
        let half = input.len() / 2;
        let (blocks, counts) = ([0..half, half..input.len()], [half, input.len() - half]);
        let outgoing_blocks = SendBlocks {
            counts: Some(&counts),
            ..SendBlocks::each(input, &blocks)
        };
        let take = ReceiveBlock {
            from: 1,
            block: 0,
            start: 0,
            into: 0..half,
        };
        let transfer = Transfer {
            outgoing_blocks,
            receives: &[take],
            output,
            then: OnArrival::Copy,
        };
        self.exchange(request, waiter, transfer)
    }
}

fn request<T: Element>(len: usize) -> Request {
    let contract = Contract {
        epoch: 1,
        group: 0,
        sequence: 1,
        kind: Kind::AllReduce,
        algorithm: None,
        element: T::TYPE,
        count: len as u64,
        op: None,
        root: None,
    };
    Request::unrecorded(contract)
}

impl WaitObserver for Live {
    fn over(&self) -> bool {
        false
    }

    fn waits(&self, _: usize) {}
}

impl Orders<'_> {
    fn byte(&mut self) -> u8 {
        let [byte] = self.next();
        byte
    }

    fn short(&mut self) -> u32 {
        u32::from_le_bytes(self.next())
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.next())
    }

    fn next<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let (now, later) = self.0.split_at(BYTES.min(self.0.len()));
        self.0 = later;
        let mut bytes = [0; BYTES];
        bytes[..now.len()].copy_from_slice(now);
        bytes
    }
}
