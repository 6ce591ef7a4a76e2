//! Workers that are threads, for tests of several modules: some that meet in memory, and some that
//! can be lost.

use std::thread;

use meshwork_collectives::{Group, TwoMemberPolicy};
use meshwork_strategy::{
    CommunicationOptions, JobSecret, JoinMode, MultiWorkerMirroredStrategy, TfConfigResolver,
};
use meshwork_testing::free_addresses;

/// Runs a program on so many workers that meet in memory.
pub(crate) fn each<R: Send>(
    world: u32,
    program: impl Fn(MultiWorkerMirroredStrategy) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let program = &program;
        let start = |group: Group| {
            scope.spawn(move || program(MultiWorkerMirroredStrategy::from_group(group).unwrap()))
        };
        let groups = Group::local(world).unwrap().into_iter();
        let ranks: Vec<_> = groups.map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// How workers find each other.
pub(crate) struct Job {
    addresses: Vec<String>,
    secret: JobSecret,
}

impl Job {
    pub(crate) fn join(&self, worker: usize, entry: JoinMode) -> MultiWorkerMirroredStrategy {
        let addresses = &self.addresses;
        let resolver = TfConfigResolver::from_json(format!(
            r#"{{"cluster":{{"worker":{addresses:?}}},"task":{{"type":"worker","index":{worker}}}}}"#
        ));
        let options = CommunicationOptions::new().with_pair(TwoMemberPolicy::Chief);
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
    let run = |worker: usize| program(&job, job.join(worker, JoinMode::Founding));
    thread::scope(|scope| {
        let run = &run;
        let threads = (0..workers).map(|worker| scope.spawn(move || run(worker)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    })
}
