//! Collectives between processes, which are threads here, against the same work on host memory.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::bench::Bench;
use super::values::{Sample, samples};
use super::violation::{Found, Violation, equal};
use crate::{
    Accelerator, CommunicatorRank, DeviceCollective, DeviceCommunicator, DeviceCommunicators,
    DeviceId, Error, ReduceOp, Reduction,
};

pub(super) fn all<A: DeviceCommunicators>(devices: &[(&A, DeviceId)]) -> Result<(), Violation> {
    let case = || format!("{} ranks", devices.len());
    let mut ranks = join(devices)
        .map_err(|found| found.of("ranks with one library and one name join", case()))?;
    try_all(&mut ranks)?;
    let Some((first, others)) = ranks.split_first_mut() else {
        return Ok(());
    };
    if !others.is_empty() {
        first.waits_in_vain().map_err(|found| {
            found.of(
                "who does not want to wait any longer has its device back",
                case(),
            )
        })?;
    }
    Ok(())
}

/// The first violation of any rank.
type First = Mutex<Option<Violation>>;

/// One rank, with what its process has.
struct Rank<'a, A: Accelerator> {
    bench: Bench<'a, A>,
    place: CommunicatorRank,
    communicator: Box<dyn DeviceCommunicator<Buffer = A::Buffer>>,
}

fn join<'a, A: DeviceCommunicators>(
    devices: &[(&'a A, DeviceId)],
) -> Result<Vec<Rank<'a, A>>, Found> {
    let Some((first, _)) = devices.first() else {
        return Ok(Vec::new());
    };
    let name = first.name()?;
    let end = Instant::now() + PATIENCE;
    let join = |rank: usize, accelerator: &'a A, device: DeviceId| {
        equal("its library", accelerator.library()?, first.library()?)?;
        let place = CommunicatorRank::new(rank, devices.len())?;
        let communicator = accelerator.join(device, &name, place, &mut || until(end))?;
        let bench = Bench::new(accelerator, device);
        Ok(Rank {
            bench,
            place,
            communicator,
        })
    };
    thread::scope(|threads| {
        let started: Vec<_> = devices
            .iter()
            .enumerate()
            .map(|(rank, (accelerator, device))| {
                let join = &join;
                threads.spawn(move || join(rank, accelerator, *device))
            })
            .collect();
        let panicked = || Err(Found::new("a rank panicked"));
        let joined = started.into_iter().map(|rank| rank.join());
        joined
            .map(|rank| rank.unwrap_or_else(|_| panicked()))
            .collect()
    })
}

/// Lets every rank do its part at once. The first violation ends the wait of the others.
fn try_all<A: Accelerator>(ranks: &mut [Rank<'_, A>]) -> Result<(), Violation> {
    let first = First::default();
    thread::scope(|threads| {
        for rank in ranks {
            threads.spawn(|| {
                if let Err(violation) = rank.tries_all(&first) {
                    let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(violation);
                }
            });
        }
    });
    let first = first.into_inner().unwrap_or_else(PoisonError::into_inner);
    first.map_or(Ok(()), Err)
}

impl<A: Accelerator> Rank<'_, A> {
    fn tries_all(&mut self, over: &First) -> Result<(), Violation> {
        for len in [0, 1, 4_099] {
            self.of_type::<bool>(len, over)?;
            self.of_type::<i8>(len, over)?;
            self.of_type::<i16>(len, over)?;
            self.of_type::<i32>(len, over)?;
            self.of_type::<i64>(len, over)?;
            self.of_type::<u8>(len, over)?;
            self.of_type::<u16>(len, over)?;
            self.of_type::<u32>(len, over)?;
            self.of_type::<u64>(len, over)?;
            self.of_type::<half::f16>(len, over)?;
            self.of_type::<half::bf16>(len, over)?;
            self.of_type::<f32>(len, over)?;
            self.of_type::<f64>(len, over)?;
        }
        Ok(())
    }

    fn of_type<T: Sample>(&mut self, len: usize, over: &First) -> Result<(), Violation> {
        let place = self.place;
        let of = |claim, op: Option<ReduceOp>| {
            let op = op.map_or_else(String::new, |op| format!("{op}, "));
            let (rank, world) = (place.rank(), place.world());
            let case = format!("{op}rank {rank} of {world}, {len} elements of {}", T::TYPE);
            move |found: Found| found.of(claim, case)
        };
        for op in ReduceOp::ALL {
            if !self.communicator.supports(Some(op), T::TYPE) {
                continue;
            }
            let claim = "an all-reduce leaves the reduction on every rank";
            self.all_reduce::<T>(op, len, over)
                .map_err(of(claim, Some(op)))?;
            let claim = "a reduce leaves the reduction on its root, and the others as they were";
            self.reduce::<T>(op, len, over)
                .map_err(of(claim, Some(op)))?;
            let claim = "a reduce-scatter leaves each rank its block";
            self.reduce_scatter::<T>(op, len, over)
                .map_err(of(claim, Some(op)))?;
        }
        if !self.communicator.supports(None, T::TYPE) {
            return Ok(());
        }
        let claim = "a broadcast leaves the root's values on every rank";
        self.broadcast::<T>(len, over).map_err(of(claim, None))?;
        let claim = "an all-gather leaves all inputs on every rank, in order";
        self.all_gather::<T>(len, over).map_err(of(claim, None))
    }

    fn all_reduce<T: Sample>(
        &mut self,
        op: ReduceOp,
        len: usize,
        over: &First,
    ) -> Result<(), Found> {
        let inputs = self.inputs::<T>(len);
        let mut buffer = self.bench.with(&inputs[self.place.rank()])?;
        let values = &mut buffer;
        self.call(DeviceCollective::AllReduce { op, values }, over)?;
        self.bench.holds(&buffer, &reduced(op, &inputs)?)
    }

    fn reduce<T: Sample>(&mut self, op: ReduceOp, len: usize, over: &First) -> Result<(), Found> {
        let inputs = self.inputs::<T>(len);
        let (rank, root) = (self.place.rank(), self.place.world() - 1);
        let mut buffer = self.bench.with(&inputs[rank])?;
        let values = &mut buffer;
        self.call(DeviceCollective::Reduce { op, values, root }, over)?;
        match rank == root {
            true => self.bench.holds(&buffer, &reduced(op, &inputs)?),
            false => self.bench.holds(&buffer, &inputs[rank]),
        }
    }

    fn reduce_scatter<T: Sample>(
        &mut self,
        op: ReduceOp,
        len: usize,
        over: &First,
    ) -> Result<(), Found> {
        let (rank, world) = (self.place.rank(), self.place.world());
        let inputs = self.inputs::<T>(len * world);
        let (input, mut block) = (self.bench.with(&inputs[rank])?, self.bench.empty::<T>(len)?);
        let (input, output) = (&input, &mut block);
        self.call(DeviceCollective::ReduceScatter { op, input, output }, over)?;
        self.bench.holds(input, &inputs[rank])?;
        let expected = reduced(op, &inputs)?;
        self.bench
            .holds(&block, &expected[rank * len..(rank + 1) * len])
    }

    fn broadcast<T: Sample>(&mut self, len: usize, over: &First) -> Result<(), Found> {
        for root in 0..self.place.world() {
            let mut buffer = self
                .bench
                .with(&samples::<T>(self.place.rank() as u64, len))?;
            let values = &mut buffer;
            self.call(DeviceCollective::Broadcast { values, root }, over)?;
            self.bench.holds(&buffer, &samples::<T>(root as u64, len))?;
        }
        Ok(())
    }

    fn all_gather<T: Sample>(&mut self, len: usize, over: &First) -> Result<(), Found> {
        let world = self.place.world();
        let of = |rank: usize| samples::<T>(rank as u64, len);
        let (input, mut whole) = (
            self.bench.with(&of(self.place.rank()))?,
            self.bench.empty::<T>(len * world)?,
        );
        let (input, output) = (&input, &mut whole);
        self.call(DeviceCollective::AllGather { input, output }, over)?;
        let expected: Vec<T> = (0..world).flat_map(of).collect();
        self.bench.holds(&whole, &expected)
    }

    /// A call that the others never make.
    fn waits_in_vain(&mut self) -> Result<(), Found> {
        let op = ReduceOp::Max;
        let mut buffer = self.bench.with(&[1_u8, 2])?;
        let mut looks = 0;
        let mut cancel_check = || {
            looks += 1;
            match looks {
                ..5 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        };
        let values = &mut buffer;
        let alone = DeviceCollective::AllReduce { op, values };
        let answer = self.communicator.carry_out(alone, &mut cancel_check);
        if !matches!(answer, Err(Error::GivenUp { .. })) {
            return Err(Found::new(format!("{answer:?} instead of giving up")));
        }
        let values = &mut buffer;
        let again = DeviceCollective::AllReduce { op, values };
        let answer = self.communicator.carry_out(again, &mut cancel_check);
        equal(
            "the answer to a later call",
            answer,
            Err(Error::CommunicatorBroken),
        )?;
        self.bench.read::<u8>(&buffer).map(drop)
    }

    fn call(&mut self, work: DeviceCollective<'_, A::Buffer>, over: &First) -> Result<(), Found> {
        let end = Instant::now() + PATIENCE;
        let mut cancel_check = || match *over.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(_) => ControlFlow::Break(()),
            None => until(end),
        };
        Ok(self.communicator.carry_out(work, &mut cancel_check)?)
    }

    /// The input of each rank. Floats are 0 and 1, whose combinations are exact in any order.
    fn inputs<T: Sample>(&self, len: usize) -> Vec<Vec<T>> {
        let of = |rank: usize| {
            if !T::TYPE.is_float() {
                return samples(rank as u64, len);
            }
            let one = |i: usize| (i + rank).is_multiple_of(2);
            let value = |i| if one(i) { T::ONE } else { T::default() };
            (0..len).map(value).collect()
        };
        (0..self.place.world()).map(of).collect()
    }
}

fn reduced<T: Sample>(op: ReduceOp, inputs: &[Vec<T>]) -> Result<Vec<T>, Found> {
    let reduction = Reduction::new(op)?;
    let sources: Vec<&[T]> = inputs.iter().map(Vec::as_slice).collect();
    let mut expected = vec![T::default(); sources[0].len()];
    reduction.complete(&mut expected, &sources)?;
    Ok(expected)
}

fn until(end: Instant) -> ControlFlow<()> {
    match Instant::now() < end {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

/// Longer than any call takes that works at all.
const PATIENCE: Duration = Duration::from_secs(60);
