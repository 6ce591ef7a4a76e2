//! Workers as threads, for tests.

use meshwork_collectives::Group;
use meshwork_testing::in_threads;

use crate::MultiWorkerMirroredStrategy;

/// Runs a program on so many workers that meet in memory.
pub(crate) fn each<R: Send>(
    world: u32,
    program: impl Fn(MultiWorkerMirroredStrategy) -> R + Sync,
) -> Vec<R> {
    in_threads(Group::local(world).unwrap(), |group| {
        program(MultiWorkerMirroredStrategy::from_group(group).unwrap())
    })
}
