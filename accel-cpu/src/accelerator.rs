//! `CpuAccelerator`: the host as one device, as several logical ones, or as one per NUMA node, with
//! memory limits, copies and reductions. Collectives, compute and rearranging are in modules of
//! those names, the threads of NUMA devices in `device_threads`.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use meshwork_accel::{
    Accelerator, Device, DeviceBuffer, DeviceId, Element, ElementType, Error, LiveBuffers, Memory,
    MemoryBudget, ReduceOp, Reduction, by_type,
};

use crate::device_threads::DeviceThreads;
use crate::{CpuBuffer, machine, numa};

/// The CPU backend; see the crate's documentation for an example.
#[derive(Debug)]
pub struct CpuAccelerator {
    devices: Vec<Device>,
    sites: Vec<LogicalDevice>,
}

/// The memory budget and threads of one device.
#[derive(Debug)]
struct LogicalDevice {
    memory_budget: Arc<MemoryBudget>,
    device_threads: DeviceThreads,
    /// The NUMA node that it is bound to.
    node: Option<usize>,
}

impl CpuAccelerator {
    /// One device: the whole CPU.
    #[must_use]
    pub fn new() -> Self {
        Self::with_logical_devices(NonZeroUsize::MIN)
    }

    /// `count` logical devices, which share the cores and the memory.
    #[must_use]
    pub fn with_logical_devices(count: NonZeroUsize) -> Self {
        let sites = (0..count.get()).map(|_| LogicalDevice {
            memory_budget: MemoryBudget::new(None),
            device_threads: DeviceThreads::Shared,
            node: None,
        });
        Self {
            devices: (0..count.get()).map(described).collect(),
            sites: sites.collect(),
        }
    }

    /// One device for each NUMA node on whose cores this process may run.
    ///
    /// Each reduces large buffers by threads of its own on those cores, and its memory is first
    /// touched by them, so that it comes from that node. A machine that does not report its nodes
    /// counts as one.
    #[must_use]
    pub fn on_numa_nodes() -> Self {
        let nodes = numa::nodes();
        let describe = |(index, node): (usize, &numa::Node)| {
            let address = format!("node {}, cores {}", node.number, node.cores);
            described(index).with_address(address)
        };
        Self {
            devices: nodes.iter().enumerate().map(describe).collect(),
            sites: nodes.into_iter().map(LogicalDevice::on).collect(),
        }
    }

    /// The same devices, each of which allocates at most `bytes` at a time.
    ///
    /// Buffers that were allocated before do not count.
    ///
    /// ```
    /// use meshwork_accel::{Accelerator, DeviceId, ElementType};
    /// use meshwork_accel_cpu::CpuAccelerator;
    ///
    /// let cpu = CpuAccelerator::new().with_memory_limit(4096);
    /// let half = cpu.allocate(DeviceId::new(0), ElementType::F64, 256)?;
    /// assert_eq!(cpu.memory(DeviceId::new(0))?.free(), Some(2048));
    /// assert!(cpu.allocate(DeviceId::new(0), ElementType::F64, 257).is_err());
    /// # drop(half);
    /// # Ok::<(), meshwork_accel::Error>(())
    /// ```
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: u64) -> Self {
        for site in &mut self.sites {
            site.memory_budget = MemoryBudget::new(Some(bytes));
        }
        self
    }

    fn site(&self, device: DeviceId) -> Result<&LogicalDevice, Error> {
        let available = self.sites.len();
        self.sites
            .get(device.index())
            .ok_or(Error::UnknownDevice { device, available })
    }
}

impl LogicalDevice {
    fn on(node: numa::Node) -> Self {
        Self {
            memory_budget: MemoryBudget::new(None),
            device_threads: DeviceThreads::on(node.cores),
            node: Some(node.number),
        }
    }
}

fn described(index: usize) -> Device {
    let device = Device::new(DeviceId::new(index), "CPU");
    match machine::processor() {
        Some(name) => device.with_name(name),
        None => device,
    }
}

impl Default for CpuAccelerator {
    fn default() -> Self {
        Self::new()
    }
}

impl Accelerator for CpuAccelerator {
    type Buffer = CpuBuffer;

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The limit and what is left of it; without one that of the node, or of the machine, which all
    /// its devices share.
    fn memory(&self, device: DeviceId) -> Result<Memory, Error> {
        let LogicalDevice {
            memory_budget,
            node,
            ..
        } = self.site(device)?;
        Ok(match (memory_budget.limit(), memory_budget.free(), node) {
            (Some(limit), Some(free), _) => Memory::of(limit).with_free(free),
            (_, _, Some(node)) => machine::memory_of_node(*node),
            _ => machine::memory(),
        })
    }

    fn allocate(
        &self,
        device: DeviceId,
        element: ElementType,
        len: usize,
    ) -> Result<CpuBuffer, Error> {
        let LogicalDevice {
            memory_budget,
            device_threads,
            ..
        } = self.site(device)?;
        let free = memory_budget.free();
        let booked = || {
            let bytes = len.checked_mul(element.size())?;
            let reservation = memory_budget.reserve(u64::try_from(bytes).ok()?)?;
            let words = bytes.div_ceil(size_of::<u64>());
            // Pages that nobody writes to take no memory.
            let mut memory = bytemuck::allocation::try_zeroed_vec(words).ok()?;
            device_threads.touch(&mut memory);
            Some(CpuBuffer::new(device, element, len, memory, reservation))
        };
        booked().ok_or(Error::OutOfMemory {
            device,
            element,
            len,
            free,
        })
    }

    fn upload<T: Element>(&self, from: &[T], to: &mut CpuBuffer, at: usize) -> Result<(), Error> {
        to.part_mut(at, from.len())?.copy_from_slice(from);
        Ok(())
    }

    fn download<T: Element>(&self, from: &CpuBuffer, at: usize, to: &mut [T]) -> Result<(), Error> {
        to.copy_from_slice(from.part(at, to.len())?);
        Ok(())
    }

    fn copy(
        &self,
        from: &CpuBuffer,
        range: Range<usize>,
        to: &mut CpuBuffer,
        at: usize,
    ) -> Result<(), Error> {
        to.check_element(from.element_type())?;
        let len = from.check_range(&range)?;
        to.bytes_mut(at, len)?
            .copy_from_slice(from.bytes(range.start, len)?);
        Ok(())
    }

    fn fill<T: Element>(
        &self,
        buffer: &mut CpuBuffer,
        range: Range<usize>,
        value: T,
    ) -> Result<(), Error> {
        buffer.check_element(T::TYPE)?;
        let len = buffer.check_range(&range)?;
        buffer.part_mut(range.start, len)?.fill(value);
        Ok(())
    }

    fn reduce(&self, op: ReduceOp, into: &mut CpuBuffer, from: &CpuBuffer) -> Result<(), Error> {
        into.check_device(from.device())?;
        into.check_element(from.element_type())?;
        let device_threads = &self.site(into.device())?.device_threads;
        into.check_len(from.len())?;
        by_type!(into.element_type(), T, {
            let reduction = Reduction::<T>::new(op)?;
            let work = |into: &mut [T], from: &[T]| reduction.reduce(into, from);
            device_threads.pairs(into.all_mut::<T>()?, from.all::<T>()?, work)
        })
    }

    fn synchronize(&self, device: DeviceId) -> Result<(), Error> {
        self.site(device).map(drop)
    }
}

impl LiveBuffers for CpuAccelerator {
    fn live_buffers(&self) -> usize {
        let sites = self.sites.iter();
        sites.map(|site| site.memory_budget.buffers()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> CpuAccelerator {
        CpuAccelerator::with_logical_devices(NonZeroUsize::new(2).unwrap())
    }

    #[test]
    fn devices_cannot_be_mixed_in_one_reduction() {
        let cpu = two();
        let mut left = cpu.allocate(DeviceId::new(0), ElementType::F32, 1).unwrap();
        let right = cpu.allocate(DeviceId::new(1), ElementType::F32, 1).unwrap();
        let mixed = Error::DeviceMismatch {
            left: DeviceId::new(0),
            right: DeviceId::new(1),
        };
        assert_eq!(cpu.reduce(ReduceOp::Sum, &mut left, &right), Err(mixed));
    }

    #[test]
    fn each_device_has_its_own_limit() {
        let cpu = two().with_memory_limit(100);
        let (first, second) = (DeviceId::new(0), DeviceId::new(1));
        let most = cpu.allocate(first, ElementType::U8, 100).unwrap();
        let refused = Error::OutOfMemory {
            device: first,
            element: ElementType::U8,
            len: 1,
            free: Some(0),
        };
        assert_eq!(cpu.allocate(first, ElementType::U8, 1).err(), Some(refused));
        assert!(cpu.allocate(first, ElementType::U8, 0).is_ok());
        assert!(cpu.allocate(second, ElementType::U8, 100).is_ok());
        drop(most);
        assert_eq!(cpu.memory(first).unwrap(), Memory::of(100).with_free(100));
        assert_eq!(cpu.live_buffers(), 0);
    }

    #[test]
    fn devices_of_nodes_say_which_cores_they_have_and_how_much_memory() {
        let cpu = CpuAccelerator::on_numa_nodes();
        for device in cpu.devices() {
            assert!(device.address().unwrap().contains(", cores "), "{device}");
            let buffer = cpu.allocate(device.id(), ElementType::F64, 10_000).unwrap();
            let mut values = [1.0_f64; 10_000];
            cpu.download(&buffer, 0, &mut values).unwrap();
            assert!(values.iter().all(|value| *value == 0.0));
        }
    }

    #[test]
    fn buffers_that_threads_share_are_reduced_like_others() {
        let (cpu, device, len) = (CpuAccelerator::on_numa_nodes(), DeviceId::new(0), 2_200_001);
        let mut into = cpu.allocate(device, ElementType::F64, len).unwrap();
        let mut from = cpu.allocate(device, ElementType::F64, len).unwrap();
        cpu.fill(&mut into, 0..len, 1.5_f64).unwrap();
        cpu.fill(&mut from, len / 2..len, 2.0_f64).unwrap();
        cpu.reduce(ReduceOp::Sum, &mut into, &from).unwrap();
        let mut sums = vec![0.0_f64; len];
        cpu.download(&into, 0, &mut sums).unwrap();
        assert!(sums[..len / 2].iter().all(|sum| *sum == 1.5));
        assert!(sums[len / 2..].iter().all(|sum| *sum == 3.5));
    }

    #[test]
    fn without_a_limit_the_memory_is_that_of_the_machine() {
        let memory = CpuAccelerator::new().memory(DeviceId::new(0)).unwrap();
        if cfg!(all(target_os = "linux", not(meshwork_portable))) {
            assert!(memory.total() >= memory.free() && memory.free() > Some(0));
        }
    }
}
