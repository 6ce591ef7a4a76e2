//! Workers that are threads, for tests of several modules: some that meet in memory, and some that
//! can be lost.

use std::time::Duration;

use meshwork_collectives::{Group, Timeouts, TwoMemberPolicy};
use meshwork_strategy::{
    CommunicationOptions, JobSecret, JoinMode, MultiWorkerMirroredStrategy, TfConfigResolver,
};
use meshwork_testing::{free_addresses, in_threads, tf_config};

/// Runs a program on so many workers that meet in memory.
pub(crate) fn each<R: Send>(
    world: u32,
    program: impl Fn(MultiWorkerMirroredStrategy) -> R + Sync,
) -> Vec<R> {
    in_threads(Group::local(world).unwrap(), |group| {
        program(MultiWorkerMirroredStrategy::from_group(group).unwrap())
    })
}

/// How workers find each other.
pub(crate) struct Job {
    addresses: Vec<String>,
    secret: JobSecret,
}

impl Job {
    pub(crate) fn join(&self, worker: usize, entry: JoinMode) -> MultiWorkerMirroredStrategy {
        let resolver = TfConfigResolver::from_json(tf_config(&self.addresses, worker));
        // Half of it is waited for who has left a group with an error, while its process lives.
        let timeouts = Timeouts::default().with_join(Duration::from_secs(10));
        let options = CommunicationOptions::new()
            .with_pair(TwoMemberPolicy::Chief)
            .with_timeouts(timeouts);
        let secret = self.secret.clone();
        MultiWorkerMirroredStrategy::elastic(&resolver, secret, options, entry).unwrap()
    }
}

/// Runs a program on workers that meet by their addresses: those of `Group::local` cannot go on
/// without one.
pub(crate) fn elastic<R: Send>(
    workers: usize,
    program: impl Fn(&Job, MultiWorkerMirroredStrategy) -> R + Sync,
) -> Vec<R> {
    let job = Job {
        addresses: free_addresses(workers),
        secret: JobSecret::generate().unwrap(),
    };
    in_threads(0..workers, |worker| {
        program(&job, job.join(worker, JoinMode::Founding))
    })
}
