use std::ops::Range;

/// Which cores the workers run on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Cores {
    /// All workers run on all cores that the launcher may use; the system moves them about.
    #[default]
    Shared,
    /// Each worker has its own share of those cores, of equal size or one more, and keeps it. The
    /// system then never stacks two workers on one core while another is idle. Where there are
    /// fewer cores than workers each has one, and as many workers share a core as have to. On
    /// systems other than Linux this is as [`Cores::Shared`].
    Split,
}

/// The share of worker `rank` among `cores` cores, as a range of them.
#[cfg(any(all(target_os = "linux", not(meshwork_portable)), test))]
fn share(cores: usize, workers: usize, rank: usize) -> Range<usize> {
    if cores >= workers {
        return rank * cores / workers..(rank + 1) * cores / workers;
    }
    let core = rank % cores.max(1);
    core..core + 1
}

/// Runs `start` so that a process it starts has the cores of worker `rank` among `workers`.
///
/// A child inherits the cores of the thread that starts it, so this thread borrows them meanwhile.
#[cfg(all(target_os = "linux", not(meshwork_portable)))]
pub(crate) fn within<T>(cores: Cores, rank: usize, workers: usize, start: impl FnOnce() -> T) -> T {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let Ok(own) = sched_getaffinity(None) else {
        return start();
    };
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|core| own.is_set(*core))
        .collect();
    let share = match cores {
        Cores::Shared => None,
        Cores::Split => allowed.get(share(allowed.len(), workers, rank)),
    };
    let Some(share) = share else { return start() };
    let mut set = CpuSet::new();
    share.iter().for_each(|core| set.set(*core));
    // A system that refuses leaves the worker where any worker may run: slower, but right.
    let _ = sched_setaffinity(None, &set);
    let started = start();
    let _ = sched_setaffinity(None, &own);
    started
}

#[cfg(any(not(target_os = "linux"), meshwork_portable))]
pub(crate) fn within<T>(_: Cores, _: usize, _: usize, start: impl FnOnce() -> T) -> T {
    start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_tile_the_cores_and_are_one_core_where_there_are_too_few() {
        for cores in 1..20 {
            for workers in 1..=cores {
                let mut covered = 0;
                for rank in 0..workers {
                    let share = share(cores, workers, rank);
                    assert_eq!(share.start, covered);
                    assert!(
                        share.len() == cores / workers || share.len() == cores.div_ceil(workers)
                    );
                    covered = share.end;
                }
                assert_eq!(covered, cores);
            }
            assert_eq!(share(cores, cores + 1, cores), 0..1);
        }
    }
}
