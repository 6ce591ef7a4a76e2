//! Both ways of each operation, for every element type and op, and lengths around whole chunks.

use std::num::NonZeroUsize;

use meshwork_accel::{Accelerator, DeviceId, Element, ElementTask, ElementType, ReduceOp};
use meshwork_accel_cpu::{CpuAccelerator, CpuBuffer};
use meshwork_collectives::{Group, Rank};

/// Why both ways are not one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Mismatch {
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] meshwork_collectives::OperationError),
    /// There is no group.
    #[error(transparent)]
    Group(#[from] meshwork_collectives::Error),
    /// The accelerator failed.
    #[error(transparent)]
    Device(#[from] meshwork_accel::Error),
    /// Results differ.
    #[error("{operation} of {len} {element} differs from that of host memory")]
    Bits {
        /// The operation.
        operation: String,
        /// Elements on this rank.
        len: usize,
        /// Their type.
        element: ElementType,
    },
}

/// Bytes of a chunk.
const CHUNK: NonZeroUsize = NonZeroUsize::new(800).expect("more than nothing");

/// Compares all operations; returns how many results were the same.
pub(crate) fn compare(group: &mut Group) -> Result<usize, Mismatch> {
    let mut compared = 0;
    for element in ElementType::ALL {
        let of_a_portion = CHUNK.get() / element.size();
        for len in [0, 1, of_a_portion, of_a_portion + 1, 7 * of_a_portion + 3] {
            compared += element.run(OfType {
                group: &mut *group,
                len,
            })?;
        }
    }
    Ok(compared)
}

struct OfType<'a> {
    group: &'a mut Group,
    len: usize,
}

impl ElementTask for OfType<'_> {
    type Output = Result<usize, Mismatch>;

    fn run<T: Element>(self) -> Result<usize, Mismatch> {
        let mut bench = Bench::<T>::new(self.group, self.len);
        for op in ReduceOp::ALL {
            if op.supports(T::TYPE) {
                bench.all_reduce(op)?;
                bench.reduce(op)?;
                bench.reduce_scatter(op)?;
            }
        }
        bench.broadcast()?;
        bench.all_gather()?;
        Ok(bench.compared)
    }
}

struct Bench<'a, T> {
    group: &'a mut Group,
    cpu: CpuAccelerator,
    /// This rank's values; as many as the world for each of its own.
    own: Vec<T>,
    len: usize,
    compared: usize,
}

impl<'a, T: Element> Bench<'a, T> {
    fn new(group: &'a mut Group, len: usize) -> Self {
        let own = values(group.rank().number(), len * group.world() as usize);
        Self {
            group,
            cpu: CpuAccelerator::new(),
            own,
            len,
            compared: 0,
        }
    }

    fn all_reduce(&mut self, op: ReduceOp) -> Result<(), Mismatch> {
        let mut host = self.own[..self.len].to_vec();
        let mut device = self.put(&host)?;
        self.group.all_reduce(&mut host, op)?;
        let mut devices = self.group.staged_on(&self.cpu);
        devices.set_chunk(CHUNK);
        devices.all_reduce(&mut device, op)?;
        self.same(&format!("all_reduce, {op}"), &device, &host)
    }

    /// Those who are not the root keep what they gave.
    fn reduce(&mut self, op: ReduceOp) -> Result<(), Mismatch> {
        let mut host = self.own[..self.len].to_vec();
        let mut device = self.put(&host)?;
        let root = self.last();
        self.group.reduce(&mut host, op, root)?;
        let mut devices = self.group.staged_on(&self.cpu);
        devices.set_chunk(CHUNK);
        devices.reduce(&mut device, op, root)?;
        self.same(&format!("reduce, {op}"), &device, &host)
    }

    fn reduce_scatter(&mut self, op: ReduceOp) -> Result<(), Mismatch> {
        let input = self.put(&self.own)?;
        let mut host = self.own[..self.len].to_vec();
        let mut output = self.put(&host)?;
        self.group.reduce_scatter(&self.own, &mut host, op)?;
        let mut devices = self.group.staged_on(&self.cpu);
        devices.set_chunk(CHUNK);
        devices.reduce_scatter(&input, &mut output, op)?;
        self.same(&format!("reduce_scatter, {op}"), &output, &host)?;
        self.same("the input of reduce_scatter", &input, &self.own.clone())
    }

    fn broadcast(&mut self) -> Result<(), Mismatch> {
        let mut host = self.own.clone();
        let mut device = self.put(&host)?;
        let root = self.last();
        self.group.broadcast(&mut host, root)?;
        let mut devices = self.group.staged_on(&self.cpu);
        devices.set_chunk(CHUNK);
        devices.broadcast(&mut device, root)?;
        self.same("broadcast", &device, &host)
    }

    fn all_gather(&mut self) -> Result<(), Mismatch> {
        let given = self.own[..self.len].to_vec();
        let input = self.put(&given)?;
        let mut host = self.own.clone();
        let mut output = self.put(&host)?;
        self.group.all_gather(&given, &mut host)?;
        let mut devices = self.group.staged_on(&self.cpu);
        devices.set_chunk(CHUNK);
        devices.all_gather(&input, &mut output)?;
        self.same("all_gather", &output, &host)
    }

    fn last(&self) -> Rank {
        Rank::new(self.group.world() - 1)
    }

    fn put(&self, values: &[T]) -> Result<CpuBuffer, Mismatch> {
        let device = DeviceId::new(0);
        let mut buffer = self.cpu.allocate(device, T::TYPE, values.len())?;
        self.cpu.upload(values, &mut buffer, 0)?;
        Ok(buffer)
    }

    fn same(&mut self, operation: &str, device: &CpuBuffer, host: &[T]) -> Result<(), Mismatch> {
        let mut found = vec![T::default(); host.len()];
        self.cpu.download(device, 0, &mut found)?;
        let bytes = |values: &[T]| bytemuck::cast_slice::<T, u8>(values).to_vec();
        if bytes(&found) != bytes(host) {
            return Err(Mismatch::Bits {
                operation: operation.to_owned(),
                len: self.len,
                element: T::TYPE,
            });
        }
        self.compared += 1;
        Ok(())
    }
}

/// Values of this rank: any bits that are values, NaN and infinities of floats among them.
fn values<T: Element>(rank: u32, len: usize) -> Vec<T> {
    let mut state = u64::from(rank) + 1;
    let mut next = |_| {
        // The generator of Knuth's MMIX.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let [byte, ..] = state.to_be_bytes();
        match T::TYPE {
            ElementType::Bool => byte & 1,
            _ => byte,
        }
    };
    let mut value = |_| {
        let bytes: Vec<u8> = (0..size_of::<T>()).map(&mut next).collect();
        bytemuck::checked::pod_read_unaligned(&bytes)
    };
    (0..len).map(&mut value).collect()
}
