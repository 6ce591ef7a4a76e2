//! Schedulers that list a host for each task: PBS, LSF and Flux. Slurm, which says more and in
//! other ways, has a module of its own.

use std::collections::BTreeMap;
use std::fs;

use crate::address;
use crate::cluster::Cluster;
use crate::error::{Error, SchedulerError};
use crate::spec::ClusterSpec;
use crate::task::Task;

mod flux;
mod lists;
mod lsf;
mod pbs;

pub use flux::FluxResolver;
pub use lsf::LsfResolver;
pub use pbs::PbsResolver;

/// The tasks of a job, all of them workers, and which one this process is.
struct Job {
    /// The host of each task.
    hosts: Vec<String>,
    rank: u32,
}

impl Job {
    /// The cluster in which the `k`-th task of a host listens on the port base plus `k`.
    fn cluster(&self, port_base: u16) -> Result<Cluster, Error> {
        let mut used = BTreeMap::new();
        let address = |host: &String| {
            let before: &mut u16 = used.entry(host.clone()).or_insert(0);
            let port = port_base.checked_add(*before);
            let port = port.ok_or_else(|| self.too_many_on(host, port_base))?;
            // As many as there are ports, at most.
            *before += 1;
            Ok(address::join(host, port))
        };
        let addresses: Result<Vec<_>, SchedulerError> = self.hosts.iter().map(address).collect();
        let cluster = Cluster::new(ClusterSpec::from_addresses(addresses?)?);
        Ok(cluster.with_task(&Task::new("worker", self.rank)))
    }

    /// How many tasks the host with the most has.
    fn most_on_a_host(&self) -> u32 {
        let mut tasks: BTreeMap<_, usize> = BTreeMap::new();
        for host in &self.hosts {
            *tasks.entry(host).or_default() += 1;
        }
        let most = tasks.into_values().max().unwrap_or_default();
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    fn too_many_on(&self, host: &str, base: u16) -> SchedulerError {
        let tasks = self.hosts.iter().filter(|other| *other == host).count();
        let host = host.to_owned();
        SchedulerError::Ports { host, tasks, base }
    }
}

/// The hosts in the file that a variable names, one on each line.
fn hosts_in_file(variable: &'static str, path: &str) -> Result<Vec<String>, SchedulerError> {
    let text = fs::read_to_string(path).map_err(|error| SchedulerError::HostFile {
        variable,
        path: path.into(),
        kind: error.kind(),
    })?;
    Ok(lists::lines(&text))
}

/// More than any group has ranks.
const MOST_TASKS: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(hosts: &[&str]) -> Job {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        Job { hosts, rank: 0 }
    }

    #[test]
    fn tasks_of_a_host_have_ports_of_their_own_wherever_they_are_in_the_order() {
        let cluster = job(&["b", "a", "b", "fd00::1"]).cluster(70).unwrap();
        let placement = cluster.placement().unwrap();
        assert_eq!(
            placement.addresses(),
            ["b:70", "a:70", "b:71", "[fd00::1]:70"]
        );
    }

    #[test]
    fn more_tasks_than_ports_are_refused() {
        assert!(job(&["a", "b"]).cluster(65535).is_ok());
        assert_eq!(
            job(&["a", "b", "a"])
                .cluster(65535)
                .unwrap_err()
                .to_string(),
            "host \"a\" has 2 tasks, so ports from 65535 on do not suffice: choose a lower base"
        );
    }
}
