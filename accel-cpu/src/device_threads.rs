//! The threads that share the work on one large buffer.

use std::sync::OnceLock;

use meshwork_accel::Error;
use rayon::ThreadPool;
use rayon::prelude::*;

use crate::numa::Cores;

/// The threads of one device.
#[derive(Debug)]
pub(crate) enum DeviceThreads {
    /// Those of the whole process.
    Shared,
    /// Some of its own on these cores, started when first needed. If the system refuses them, those
    /// of the whole process do the work.
    Bound(Cores, OnceLock<Option<ThreadPool>>),
}

impl DeviceThreads {
    pub(crate) fn on(cores: Cores) -> Self {
        Self::Bound(cores, OnceLock::new())
    }

    /// Does `work` with equal parts of both slices, which are equally long. Where they are short,
    /// the calling thread does it alone.
    pub(crate) fn pairs<T: Send + Sync>(
        &self,
        into: &mut [T],
        from: &[T],
        work: impl Fn(&mut [T], &[T]) -> Result<(), Error> + Send + Sync,
    ) -> Result<(), Error> {
        let Some(part) = self.part::<T>(into.len()) else {
            return work(into, from);
        };
        self.inside(|| {
            let parts = into.par_chunks_mut(part).zip(from.par_chunks(part));
            parts.try_for_each(|(into, from)| work(into, from))
        })
    }

    /// Writes to each page of new memory from the cores of this device, so that it comes from their
    /// node. The memory is zero, and stays so.
    pub(crate) fn touch(&self, memory: &mut [u64]) {
        if let Self::Bound(..) = self {
            let pages = PAGE / size_of::<u64>();
            self.inside(|| memory.par_chunks_mut(pages).for_each(|page| page[0] = 0));
        }
    }

    /// How many elements a thread gets at a time; `None` where one thread is as fast.
    fn part<T>(&self, len: usize) -> Option<usize> {
        let threads = match self {
            Self::Shared => rayon::current_num_threads(),
            Self::Bound(cores, _) => cores.count(),
        };
        if threads < 2 || size_of::<T>().checked_mul(len)? < WORTH_SHARING {
            return None;
        }
        // Several parts for each thread: whoever is held up leaves some to the others.
        Some(len.div_ceil(4 * threads))
    }

    fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Shared => work(),
            Self::Bound(cores, pool) => match pool.get_or_init(|| start(cores)) {
                Some(pool) => pool.install(work),
                None => work(),
            },
        }
    }
}

fn start(cores: &Cores) -> Option<ThreadPool> {
    let own = cores.clone();
    let builder = rayon::ThreadPoolBuilder::new()
        .num_threads(cores.count())
        .thread_name(|index| format!("accel-cpu {index}"))
        .start_handler(move |_| own.bind_this_thread());
    builder.build().ok()
}

/// Bytes from which several threads are faster than one: by the bench `kernels`, two cores gain
/// nothing below it, as one already takes most of what the memory gives.
const WORTH_SHARING: usize = 16 << 20;

/// The smallest page that systems have.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::nodes;

    fn doubled(device_threads: &DeviceThreads, len: usize) {
        let from: Vec<u32> = (0..).take(len).collect();
        let mut into = vec![1; len];
        let work = |into: &mut [u32], from: &[u32]| {
            into.iter_mut()
                .zip(from)
                .for_each(|(into, from)| *into += from);
            Ok(())
        };
        device_threads.pairs(&mut into, &from, work).unwrap();
        assert!(into.iter().zip(from).all(|(into, from)| *into == from + 1));
    }

    #[test]
    fn every_element_is_worked_on_once_however_long_the_slices_are() {
        for device_threads in [
            DeviceThreads::Shared,
            DeviceThreads::on(nodes().remove(0).cores),
        ] {
            for len in [
                0,
                1,
                1000,
                WORTH_SHARING / 4,
                WORTH_SHARING / 4 + 1,
                1_000_003,
            ] {
                doubled(&device_threads, len);
            }
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    fn bound_threads_stay_on_their_cores() {
        let all = nodes().remove(0).cores.to_string();
        let first = all.split([',', '-']).next().unwrap();
        let one = Cores::parse(first).unwrap();
        assert_eq!(DeviceThreads::on(one.clone()).inside(Cores::allowed), one);
    }

    #[test]
    fn an_error_of_any_part_is_told() {
        let (mut into, mut from) = (vec![0_u8; WORTH_SHARING], vec![0_u8; WORTH_SHARING]);
        from[WORTH_SHARING - 1] = 1;
        let refused = Error::ReversedRange { start: 1, end: 0 };
        let work = |_: &mut [u8], from: &[u8]| match from.contains(&1) {
            true => Err(refused.clone()),
            false => Ok(()),
        };
        assert_eq!(
            DeviceThreads::Shared.pairs(&mut into, &from, work),
            Err(refused.clone())
        );
    }

    #[test]
    fn memory_stays_zero_when_it_is_touched() {
        let mut memory = vec![0_u64; 10_000];
        DeviceThreads::on(nodes().remove(0).cores).touch(&mut memory);
        assert!(memory.iter().all(|word| *word == 0));
    }
}
