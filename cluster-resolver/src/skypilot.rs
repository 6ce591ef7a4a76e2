//! SkyPilot tasks, whose nodes are told each other's addresses by variables.

use crate::address;
use crate::cluster::Cluster;
use crate::error::{Error, LauncherError};
use crate::explanation::{Explanation, Question};
use crate::ports::{JobNames, PortBase};
use crate::resolver::ClusterResolver;
use crate::spec::ClusterSpec;
use crate::task::Task;
use crate::variables::Variables;

/// The nodes of a SkyPilot task, one worker on each, as `SKYPILOT_NODE_IPS` lists them and
/// `SKYPILOT_NODE_RANK` numbers them.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, SkyPilotResolver, Variables};
///
/// let resolver = SkyPilotResolver::from_variables(Variables::fixed([
///     ("SKYPILOT_NODE_IPS", "10.0.0.4\n10.0.0.9"),
///     ("SKYPILOT_NODE_RANK", "1"),
///     ("SKYPILOT_NUM_NODES", "2"),
/// ]));
/// let placement = resolver.snapshot()?.placement()?;
/// assert_eq!(placement.rank(), 1);
/// assert_eq!(placement.addresses(), ["10.0.0.4:8888", "10.0.0.9:8888"]);
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SkyPilotResolver {
    variables: Variables,
    port: PortBase,
}

impl SkyPilotResolver {
    /// The variable that shows that a process runs in a SkyPilot task, if it is not empty.
    pub const SIGN: &'static str = IPS;

    /// A resolver that reads the variables of this process for each snapshot.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(Variables::of_process())
    }

    /// A resolver that reads these variables.
    #[must_use]
    pub fn from_variables(variables: Variables) -> Self {
        Self {
            variables,
            port: PortBase::default(),
        }
    }

    /// The port of every worker, 8888 if not given.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = PortBase::Given(port);
        self
    }

    /// A port that other tasks on these nodes do not have, unless the environment says which.
    pub(crate) fn with_ports_of_job(mut self) -> Self {
        self.port = PortBase::OfJob;
        self
    }

    fn cluster(&self, variables: &Variables) -> Result<Cluster, Error> {
        let read = variables.set_by(NAMES.launcher);
        let listed = read.text(IPS)?;
        let nodes: Vec<_> = listed.split_whitespace().collect();
        let count = read.number(COUNT, 0, u32::MAX)?;
        if u32::try_from(nodes.len()) != Ok(count) {
            let (listed, nodes) = (nodes.len(), count);
            return Err(LauncherError::Nodes { listed, nodes }.into());
        }
        let rank = read.number(RANK, 0, u32::MAX)?;
        if rank >= count {
            let wrong = LauncherError::Rank {
                variable: RANK,
                rank,
                world_variable: COUNT,
                world: count,
            };
            return Err(wrong.into());
        }
        let port = self.port.first(variables, NAMES, 1)?;
        let addresses = nodes.iter().map(|node| address::join(node, port));
        let cluster = Cluster::new(ClusterSpec::from_addresses(addresses)?);
        Ok(cluster.with_task(&Task::new("worker", rank)))
    }

    fn evidence(&self, variables: &Variables) -> Explanation {
        let mut evidence = Explanation::default();
        self.port.note(&mut evidence, variables, NAMES);
        evidence.look(variables, Question::Cluster, IPS);
        evidence.look(variables, Question::Cluster, COUNT);
        evidence.look(variables, Question::Task, RANK);
        evidence
    }
}

impl ClusterResolver for SkyPilotResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let variables = self.variables.snapshot();
        let found = self.cluster(&variables);
        Ok(Cluster::without_accelerators(found).with_evidence(self.evidence(&variables)))
    }
}

const IPS: &str = "SKYPILOT_NODE_IPS";
const RANK: &str = "SKYPILOT_NODE_RANK";
const COUNT: &str = "SKYPILOT_NUM_NODES";
const NAMES: JobNames = JobNames {
    launcher: "SkyPilot",
    job: "SKYPILOT_TASK_ID",
    enclosing: None,
    part: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(change: (&str, &str), message: &str) {
        let right = [(IPS, "10.0.0.4\nfd00::9\n"), (RANK, "1"), (COUNT, "2")];
        let variables = Variables::fixed(right.into_iter().chain([change]));
        let resolver = SkyPilotResolver::from_variables(variables);
        let error = resolver.cluster_spec().unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn nodes_are_workers_in_their_order() {
        let right = [(IPS, "10.0.0.9\nfd00::4\n"), (RANK, "0"), (COUNT, "2")];
        let resolver = SkyPilotResolver::from_variables(Variables::fixed(right)).with_port(77);
        let placement = resolver.snapshot().unwrap().placement().unwrap();
        assert_eq!(placement.addresses(), ["10.0.0.9:77", "[fd00::4]:77"]);
        assert_eq!(placement.rank(), 0);
        let shown = resolver.explain().to_string();
        for (variable, _) in right {
            assert!(shown.contains(variable), "{shown}");
        }
    }

    #[test]
    fn variables_that_do_not_fit_each_other_are_refused() {
        refused(
            (COUNT, "3"),
            "SKYPILOT_NODE_IPS has 2 addresses, but SKYPILOT_NUM_NODES is 3: unset them where they \
             are left over from another task",
        );
        refused(
            (RANK, "2"),
            "SKYPILOT_NODE_RANK is 2, but SKYPILOT_NUM_NODES is 2: number the processes from 0 to \
             one less than SKYPILOT_NUM_NODES",
        );
        refused(
            (RANK, "first"),
            "SKYPILOT_NODE_RANK is first: make it a whole number from 0 to 4294967295",
        );
        refused(
            (RANK, ""),
            "SKYPILOT_NODE_RANK is not set: start this process by SkyPilot, or set it as SkyPilot \
             does",
        );
    }
}
