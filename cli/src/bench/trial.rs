//! One operation on one set of buffers, and whether its values are right.

use std::ops::{Deref, DerefMut, Range};

use memmap2::MmapMut;
use meshwork_collectives::{Error, Group, Rank, ReduceOp, Registered};

use super::args::{Bench, Buffers, Operation};

/// The buffers of one rank: what it gives, and what it gets where that is another.
pub(super) struct Trial {
    operation: Operation,
    input: Memory,
    output: Memory,
}

enum Memory {
    Registered(Registered<f32>),
    Private(Paged),
}

const HUGE_PAGE: usize = 2 << 20;

/// Elements on pages of their own, huge ones where the system has them: so the programs with which
/// this is compared are told to allocate.
struct Paged {
    memory: MmapMut,
    range: Range<usize>,
}

impl Trial {
    /// Buffers of which the larger has `elements`, rounded to whole blocks.
    pub(super) fn new(wanted: &Bench, elements: usize, group: &mut Group) -> Result<Self, Error> {
        let world = group.world() as usize;
        let block = elements.div_ceil(world);
        let (input, output) = match wanted.operation() {
            Operation::AllReduce | Operation::Broadcast | Operation::SendRecv => (elements, 0),
            Operation::AllGather => (block, block * world),
            Operation::ReduceScatter => (block * world, block),
            Operation::AllToAll => (block * world, block * world),
        };
        Ok(Self {
            operation: wanted.operation(),
            input: Memory::new(wanted.buffers(), input, group)?,
            output: Memory::new(wanted.buffers(), output, group)?,
        })
    }

    pub(super) fn clear(&mut self) {
        self.input.fill(0.0);
        self.output.fill(0.0);
    }

    pub(super) fn run(&mut self, group: &mut Group) -> Result<(), Error> {
        let (input, output) = (&mut *self.input, &mut *self.output);
        match self.operation {
            Operation::AllReduce => group.all_reduce(input, ReduceOp::Sum),
            Operation::AllGather => group.all_gather(input, output),
            Operation::ReduceScatter => group.reduce_scatter(input, output, ReduceOp::Sum),
            Operation::Broadcast => group.broadcast(input, Rank::CHIEF),
            Operation::AllToAll => group.all_to_all(input, output),
            Operation::SendRecv => send_and_receive(group, input),
        }
    }

    /// Runs the operation once on a pattern, and counts the elements that are wrong.
    pub(super) fn errors(&mut self, group: &mut Group) -> Result<usize, Error> {
        let (me, world) = (group.rank().index(), group.world() as usize);
        for (at, element) in self.input.iter_mut().enumerate() {
            *element = pattern(me, at);
        }
        self.run(group)?;
        let block = self.input.len() / world;
        let sum = |at: usize| (0..world).map(|rank| pattern(rank, at)).sum::<f32>();
        let expected = |at: usize| match self.operation {
            Operation::AllReduce => sum(at),
            Operation::AllGather => pattern(at / self.input.len(), at % self.input.len()),
            Operation::ReduceScatter => sum(me * block + at),
            Operation::Broadcast => pattern(0, at),
            Operation::AllToAll => pattern(at / block, me * block + at % block),
            Operation::SendRecv if me == 1 => pattern(0, at),
            Operation::SendRecv => pattern(me, at),
        };
        let got = match self.operation {
            Operation::AllReduce | Operation::Broadcast | Operation::SendRecv => &self.input,
            Operation::AllGather | Operation::ReduceScatter | Operation::AllToAll => &self.output,
        };
        let wrong = |(at, got): &(usize, &f32)| got.to_bits() != expected(*at).to_bits();
        Ok(got.iter().enumerate().filter(wrong).count())
    }
}

/// From rank 0 to rank 1; the others look on.
fn send_and_receive(group: &mut Group, buffer: &mut [f32]) -> Result<(), Error> {
    match group.rank().number() {
        0 if group.world() > 1 => group.send(buffer, Rank::new(1)),
        1 => group.receive(buffer, Rank::CHIEF),
        _ => Ok(()),
    }
}

/// Small whole numbers, so that sums are exact.
fn pattern(rank: usize, at: usize) -> f32 {
    (at % 1000 + rank) as f32
}

impl Paged {
    fn new(elements: usize) -> Result<Self, Error> {
        let bytes = elements * size_of::<f32>();
        let memory = MmapMut::map_anon(bytes + HUGE_PAGE).map_err(|error| Error::System {
            what: "taking memory for the buffers",
            kind: error.kind(),
        })?;
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_PAGE {
            // Without them it is slower, and no less right.
            memory.advise(memmap2::Advice::HugePage).ok();
        }
        let start = memory.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        Ok(Self {
            range: start..start + bytes,
            memory,
        })
    }
}

impl Memory {
    fn new(buffers: Buffers, elements: usize, group: &mut Group) -> Result<Self, Error> {
        Ok(match buffers {
            Buffers::Registered => Self::Registered(group.alloc(elements)?),
            Buffers::Private => Self::Private(Paged::new(elements)?),
        })
    }
}

impl Deref for Memory {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Registered(buffer) => buffer,
            Self::Private(Paged { memory, range }) => bytemuck::cast_slice(&memory[range.clone()]),
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Registered(buffer) => buffer,
            Self::Private(Paged { memory, range }) => {
                bytemuck::cast_slice_mut(&mut memory[range.clone()])
            }
        }
    }
}
