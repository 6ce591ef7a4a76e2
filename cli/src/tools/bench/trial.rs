//! One operation on one set of buffers, and whether its values are right.

use std::io;
use std::ops::{Deref, DerefMut, Range};

use memmap2::MmapMut;
use meshwork_collectives::{Compression, Group, OperationError, Rank, ReduceOp, Registered};

use super::Failure;
use super::args::{Bench, Buffers, Operation};

/// The buffers of one rank: what it gives, and what it gets where that is another.
pub(super) struct Trial {
    operation: Operation,
    compression: Option<Compression>,
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
    pub(super) fn new(wanted: &Bench, elements: usize, group: &mut Group) -> Result<Self, Failure> {
        let world = group.world() as usize;
        let whole = elements.checked_next_multiple_of(world);
        let whole = whole.ok_or_else(out_of_memory)?;
        let block = whole / world;
        let (input, output) = match wanted.operation() {
            Operation::AllReduce | Operation::Broadcast | Operation::SendRecv => (elements, 0),
            Operation::AllGather => (block, whole),
            Operation::ReduceScatter => (whole, block),
            Operation::AllToAll => (whole, whole),
        };
        Ok(Self {
            operation: wanted.operation(),
            compression: wanted.compression()?,
            input: Memory::new(wanted.buffers(), input, group)?,
            output: Memory::new(wanted.buffers(), output, group)?,
        })
    }

    /// Bytes of the larger buffer.
    pub(super) fn bytes(&self) -> usize {
        self.input.len().max(self.output.len()) * size_of::<f32>()
    }

    pub(super) fn clear(&mut self) {
        self.input.fill(0.0);
        self.output.fill(0.0);
    }

    pub(super) fn run(&mut self, group: &mut Group) -> Result<(), OperationError> {
        let (input, output) = (&mut *self.input, &mut *self.output);
        match self.operation {
            Operation::AllReduce => match self.compression {
                Some(compression) => group.all_reduce_compressed(input, None, compression),
                None => group.all_reduce(input, ReduceOp::Sum),
            },
            Operation::AllGather => group.all_gather(input, output),
            Operation::ReduceScatter => group.reduce_scatter(input, output, ReduceOp::Sum),
            Operation::Broadcast => group.broadcast(input, Rank::CHIEF),
            Operation::AllToAll => group.all_to_all(input, output),
            Operation::SendRecv => send_and_receive(group, input),
        }
    }

    /// Runs the operation once on a pattern, and counts the elements that are wrong.
    pub(super) fn errors(&mut self, group: &mut Group) -> Result<usize, OperationError> {
        let (me, world) = (group.rank().index(), group.world() as usize);
        for (at, element) in self.input.iter_mut().enumerate() {
            *element = pattern(me, at);
        }
        self.run(group)?;
        Ok(self.wrong(me, world))
    }

    /// Elements of the result on this rank, of so many, that are not what the pattern leads to.
    fn wrong(&self, me: usize, world: usize) -> usize {
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
        let bounds = self.bounds(world);
        let differs = |at: usize, got: f32| match self.compression {
            Some(_) => {
                let off = f64::from(got) - f64::from(expected(at));
                off.abs() > bounds[at / Compression::BLOCK]
            }
            None => got.to_bits() != expected(at).to_bits(),
        };
        let wrong = |(at, got): &(usize, &f32)| differs(*at, **got);
        got.iter().enumerate().filter(wrong).count()
    }
}

impl Trial {
    /// How far compressing may have led off, in each block.
    fn bounds(&self, world: usize) -> Vec<f64> {
        let elements = self.input.len();
        let bound = |compression: Compression, first: usize| {
            let block = first..elements.min(first + Compression::BLOCK);
            let largest = |rank| {
                block
                    .clone()
                    .map(|at| pattern(rank, at))
                    .fold(0.0, f32::max)
            };
            compression.error_bound(&(0..world).map(largest).collect::<Vec<_>>())
        };
        let of = |compression| {
            let blocks = (0..elements).step_by(Compression::BLOCK);
            blocks.map(|first| bound(compression, first)).collect()
        };
        self.compression.map_or_else(Vec::new, of)
    }
}

/// From rank 0 to rank 1; the others look on.
fn send_and_receive(group: &mut Group, buffer: &mut [f32]) -> Result<(), OperationError> {
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
    fn new(elements: usize) -> io::Result<Self> {
        let bytes = elements.checked_mul(size_of::<f32>());
        let bytes = bytes.ok_or_else(out_of_memory)?;
        let all = bytes.checked_add(HUGE_PAGE).ok_or_else(out_of_memory)?;
        let memory = MmapMut::map_anon(all)?;
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

/// Of more bytes than can be counted.
fn out_of_memory() -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

impl Memory {
    fn new(buffers: Buffers, elements: usize, group: &mut Group) -> Result<Self, Failure> {
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

#[cfg(test)]
mod tests {
    use clap::{Parser, ValueEnum};
    use meshwork_testing::in_threads;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    /// Runs the operation on three ranks, and then says what is wrong with one element changed.
    fn with_one_changed(operation: Operation, me: Rank, group: &mut Group) {
        let name = operation.to_possible_value().unwrap();
        let line = Line::parse_from(["bench", name.get_name(), "--private"]);
        let mut trial = Trial::new(&line.bench, 600, group).unwrap();
        assert_eq!(trial.errors(group), Ok(0), "{operation:?}");
        let judge = |trial: &Trial| trial.wrong(me.index(), 3);
        for at in [0, 17, 199] {
            flip(&mut trial, at);
            assert_eq!(judge(&trial), 1, "{operation:?}, element {at}");
            flip(&mut trial, at);
        }
        assert_eq!(judge(&trial), 0, "{operation:?}");
    }

    #[test]
    fn a_compressed_sum_is_right_within_its_bound() {
        let group = &mut Group::local(1).unwrap()[0];
        let line = ["bench", "all-reduce", "--private", "--compress", "int8"];
        let line = Line::parse_from(line);
        let mut trial = Trial::new(&line.bench, 600, group).unwrap();
        assert_eq!(trial.errors(group), Ok(0));
        let bound = trial.bounds(1)[300 / Compression::BLOCK];
        // Of the largest of elements 256 to 383, 0.8 %.
        assert!((2.9..3.1).contains(&bound), "{bound}");
        trial.input[300] = pattern(0, 300) + 3.2;
        assert_eq!(trial.wrong(0, 1), 1);
    }

    #[test]
    fn private_buffers_of_more_bytes_than_can_be_counted_are_refused() {
        for (operation, ranks) in [("all-to-all", 4), ("all-reduce", 1)] {
            let group = &mut Group::local(ranks).unwrap()[0];
            let line = Line::parse_from(["bench", operation, "--private"]);
            let refused = Trial::new(&line.bench, usize::MAX / size_of::<f32>(), group);
            let refused = refused.err().unwrap().downcast::<io::Error>().unwrap();
            assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory, "{operation}");
        }
    }

    /// Changes the last bit of an element of the result.
    fn flip(trial: &mut Trial, at: usize) {
        let result = match trial.output.len() {
            0 => &mut trial.input,
            _ => &mut trial.output,
        };
        result[at] = f32::from_bits(result[at].to_bits() ^ 1);
    }

    #[test]
    fn one_element_that_is_wrong_in_one_bit_is_counted_after_every_operation() {
        for operation in Operation::value_variants() {
            let groups = Group::local(3).unwrap();
            in_threads(groups, |mut group| {
                let me = group.rank();
                with_one_changed(*operation, me, &mut group);
                group.leave().unwrap();
            });
        }
    }
}
