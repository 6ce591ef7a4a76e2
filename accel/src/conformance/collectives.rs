//! Collectives among devices, against the same work on host memory.

use super::bench::Bench;
use super::values::{Sample, samples};
use super::violation::{Found, Violation, refused};
use crate::{Error, NativeCollectives, ReduceOp, Reduction};

pub(super) fn all<A: NativeCollectives>(accelerator: &A) -> Result<(), Violation> {
    let most = accelerator.devices().len();
    let mut counts = vec![0, 1, 2, most];
    counts.retain(|count| *count <= most);
    counts.dedup();
    for count in counts {
        let devices = Devices { accelerator, count };
        devices.of_type::<bool>()?;
        devices.of_type::<i64>()?;
        devices.of_type::<u16>()?;
        devices.of_type::<half::bf16>()?;
        devices.of_type::<f32>()?;
        devices.means::<half::f16>()?;
        devices.means::<half::bf16>()?;
    }
    if most > 0 {
        let devices = Devices {
            accelerator,
            count: most,
        };
        let of = |found: Found| found.of("collectives refuse what does not fit", String::new());
        devices.refusals().map_err(of)?;
    }
    Ok(())
}

/// The first few devices.
struct Devices<'a, A> {
    accelerator: &'a A,
    count: usize,
}

impl<A: NativeCollectives> Devices<'_, A> {
    fn of_type<T: Sample>(&self) -> Result<(), Violation> {
        for len in [0, 1, 20_001] {
            let of = |claim, op: Option<ReduceOp>| {
                let op = op.map_or_else(String::new, |op| format!("{op}, "));
                let case = format!("{op}{} devices, {len} elements of {}", self.count, T::TYPE);
                move |found: Found| found.of(claim, case)
            };
            for op in ReduceOp::ALL {
                let claim = "an all-reduce leaves the reduction on every device";
                self.all_reduce::<T>(op, len).map_err(of(claim, Some(op)))?;
                let claim = "a reduce-scatter leaves each device its block";
                self.reduce_scatter::<T>(op, len)
                    .map_err(of(claim, Some(op)))?;
            }
            let claim = "a broadcast leaves the root's values on every device";
            self.broadcast::<T>(len).map_err(of(claim, None))?;
            let claim = "an all-gather leaves all inputs on every device, in order";
            self.all_gather::<T>(len).map_err(of(claim, None))?;
        }
        Ok(())
    }

    /// Means of what is too large, or too long, to be summed as elements of 16 bits.
    fn means<T: Sample>(&self) -> Result<(), Violation> {
        // Whole numbers, so that sums are exact in any order where they are not rounded.
        let whole = |place: usize, i: usize| (i * 37 + place * 101) % 120 * 512 + i % 3;
        let input = |place| (0..1_000).map(|i| T::whole(whole(place, i))).collect();
        let inputs: Vec<Vec<T>> = (0..self.count).map(input).collect();
        let case = || format!("{} devices, 1000 elements of {}", self.count, T::TYPE);
        let claim = "a mean of 16-bit floats is divided before it is rounded";
        self.all_reduces(ReduceOp::Mean, &inputs)
            .map_err(|found| found.of(claim, case()))?;
        // As many blocks as places, of equal lengths.
        let each = 1_000 / self.count.max(1) * self.count;
        let inputs: Vec<Vec<T>> = inputs.iter().map(|input| input[..each].to_vec()).collect();
        self.reduce_scatters(ReduceOp::Mean, &inputs)
            .map_err(|found| found.of(claim, case()))
    }

    fn all_reduce<T: Sample>(&self, op: ReduceOp, len: usize) -> Result<(), Found> {
        self.all_reduces(op, &self.inputs::<T>(len, op))
    }

    fn all_reduces<T: Sample>(&self, op: ReduceOp, inputs: &[Vec<T>]) -> Result<(), Found> {
        let mut buffers = self.put(inputs)?;
        let answer = {
            let mut all: Vec<_> = buffers.iter_mut().collect();
            self.accelerator.all_reduce(op, &mut all)
        };
        let Some(expected) = verdict(op, inputs, answer)? else {
            return self.hold(&buffers, inputs);
        };
        self.hold(&buffers, &vec![expected; self.count])
    }

    fn reduce_scatter<T: Sample>(&self, op: ReduceOp, len: usize) -> Result<(), Found> {
        self.reduce_scatters(op, &self.inputs::<T>(len * self.count, op))
    }

    fn reduce_scatters<T: Sample>(&self, op: ReduceOp, inputs: &[Vec<T>]) -> Result<(), Found> {
        let len = inputs.first().map_or(0, |input| input.len() / inputs.len());
        let sources = self.put(inputs)?;
        let before = vec![samples::<T>(99, len); self.count];
        let mut targets = self.put(&before)?;
        let answer = {
            let from: Vec<_> = sources.iter().collect();
            let mut to: Vec<_> = targets.iter_mut().collect();
            self.accelerator.reduce_scatter(op, &from, &mut to)
        };
        self.hold(&sources, inputs)?;
        let Some(expected) = verdict(op, inputs, answer)? else {
            return self.hold(&targets, &before);
        };
        let blocks = (0..self.count).map(|place| expected[place * len..(place + 1) * len].to_vec());
        self.hold(&targets, &blocks.collect::<Vec<_>>())
    }

    fn broadcast<T: Sample>(&self, len: usize) -> Result<(), Found> {
        let inputs = self.inputs::<T>(len, ReduceOp::Max);
        for root in 0..self.count {
            let mut buffers = self.put(&inputs)?;
            let mut all: Vec<_> = buffers.iter_mut().collect();
            self.accelerator.broadcast(root, &mut all)?;
            self.hold(&buffers, &vec![inputs[root].clone(); self.count])?;
        }
        Ok(())
    }

    fn all_gather<T: Sample>(&self, len: usize) -> Result<(), Found> {
        let inputs = self.inputs::<T>(len, ReduceOp::Max);
        let sources = self.put(&inputs)?;
        let mut targets = self.put(&vec![samples::<T>(99, len * self.count); self.count])?;
        {
            let from: Vec<_> = sources.iter().collect();
            let mut to: Vec<_> = targets.iter_mut().collect();
            self.accelerator.all_gather(&from, &mut to)?;
        }
        self.hold(&sources, &inputs)?;
        self.hold(&targets, &vec![inputs.concat(); self.count])
    }

    fn refusals(&self) -> Result<(), Found> {
        let (accelerator, first) = (self.accelerator, self.bench(0));
        let (mut a, mut b) = (first.with(&[1_u8, 2])?, first.with(&[3_u8, 4])?);
        let device = first.device;
        let twice = Error::DeviceRepeated { device };
        refused(
            accelerator.all_reduce(ReduceOp::Sum, &mut [&mut a, &mut b]),
            &twice,
        )?;
        refused(accelerator.broadcast(0, &mut [&mut a, &mut b]), &twice)?;
        let outside = Error::RootOutside {
            root: 1,
            buffers: 1,
        };
        refused(accelerator.broadcast(1, &mut [&mut a]), &outside)?;
        let counts = Error::CountMismatch {
            inputs: 1,
            outputs: 0,
        };
        refused(accelerator.all_gather(&[&a], &mut []), &counts)?;
        refused(
            accelerator.reduce_scatter(ReduceOp::Sum, &[&a], &mut []),
            &counts,
        )?;
        let mut one = first.with(&[9_u8])?;
        let lengths = Error::LengthMismatch { left: 1, right: 2 };
        refused(accelerator.all_gather(&[&a], &mut [&mut one]), &lengths)?;
        first.holds(&one, &[9_u8])?;
        first.holds(&a, &[1_u8, 2])?;
        if self.count < 2 {
            return Ok(());
        }
        let mut far = self.bench(1).with(&[5_u8, 6, 7])?;
        let lengths = Error::LengthMismatch { left: 2, right: 3 };
        refused(
            accelerator.all_reduce(ReduceOp::Sum, &mut [&mut a, &mut far]),
            &lengths,
        )?;
        let crossed = Error::DeviceMismatch {
            left: self.bench(1).device,
            right: device,
        };
        refused(accelerator.all_gather(&[&a], &mut [&mut far]), &crossed)?;
        self.bench(1).holds(&far, &[5_u8, 6, 7])
    }

    /// One input for each place. Floats are whole and small where the order of a sum would show.
    fn inputs<T: Sample>(&self, len: usize, op: ReduceOp) -> Vec<Vec<T>> {
        let of = |place| {
            if !op.depends_on_order(T::TYPE) {
                return samples(place, len);
            }
            let one = place.is_multiple_of(2);
            (0..len)
                .map(|i| {
                    if (i % 2 == 0) == one {
                        T::ONE
                    } else {
                        T::default()
                    }
                })
                .collect()
        };
        (0..self.count as u64).map(of).collect()
    }

    fn bench(&self, place: usize) -> Bench<'_, A> {
        let device = self.accelerator.devices()[place].id();
        Bench::new(self.accelerator, device)
    }

    fn put<T: Sample>(&self, values: &[Vec<T>]) -> Result<Vec<A::Buffer>, Found> {
        let places = values.iter().enumerate();
        places
            .map(|(place, values)| self.bench(place).with(values))
            .collect()
    }

    fn hold<T: Sample>(&self, buffers: &[A::Buffer], expected: &[Vec<T>]) -> Result<(), Found> {
        for (place, (buffer, expected)) in buffers.iter().zip(expected).enumerate() {
            self.bench(place).holds(buffer, expected)?;
        }
        Ok(())
    }
}

/// The expected results of all inputs; `None` where the op is refused, as `answer` must be.
fn verdict<T: Sample>(
    op: ReduceOp,
    inputs: &[Vec<T>],
    answer: Result<(), Error>,
) -> Result<Option<Vec<T>>, Found> {
    if inputs.is_empty() {
        answer?;
        return Ok(None);
    }
    let reduction = match Reduction::new(op) {
        Ok(reduction) => reduction,
        Err(error) => {
            refused(answer, &error)?;
            return Ok(None);
        }
    };
    answer?;
    let sources: Vec<&[T]> = inputs.iter().map(Vec::as_slice).collect();
    let mut expected = vec![T::default(); sources[0].len()];
    reduction.complete(&mut expected, &sources)?;
    Ok(Some(expected))
}
