//! Whoever started this process, as its variables show.

use crate::cluster::Cluster;
use crate::error::Error;
use crate::explanation::{Origin, Question};
use crate::launcher::{Launcher, LauncherResolver};
use crate::resolver::ClusterResolver;
use crate::schedulers::{FluxResolver, LsfResolver};
use crate::skypilot::SkyPilotResolver;
use crate::tf_config::TfConfigResolver;
use crate::variables::Variables;

/// The cluster that the environment describes, whoever set it: `TF_CONFIG` if it is set, else
/// torchrun, Open MPI, Flux, LSF or SkyPilot, the first one that a variable shows. Without any, the
/// cluster is empty.
///
/// The explanation names those that were not asked. Slurm and PBS are never asked: a batch script
/// has their variables as well as its tasks, so these do not show that a process is a task.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, EnvironmentResolver, Variables};
///
/// let resolver = EnvironmentResolver::from_variables(Variables::fixed([
///     ("TF_CONFIG", r#"{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}"#),
///     ("WORLD_SIZE", "4"),
/// ]));
/// let cluster = resolver.snapshot()?;
/// assert_eq!(cluster.placement()?.addresses(), ["a:1"]);
/// assert!(cluster.explanation().to_string().contains("not variable WORLD_SIZE: 4"));
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EnvironmentResolver {
    variables: Variables,
}

impl EnvironmentResolver {
    /// A resolver that reads the variables of this process for each snapshot.
    #[must_use]
    pub fn from_env() -> Self {
        Self::default()
    }

    /// A resolver that reads these variables.
    #[must_use]
    pub fn from_variables(variables: Variables) -> Self {
        Self { variables }
    }

    /// Whether any of the variables is there: for a program that starts workers itself where nobody
    /// else has started it as one.
    #[must_use]
    pub fn is_described(&self) -> bool {
        let variables = self.variables.snapshot();
        let is_set = |name: &str| !matches!(variables.read(name), Ok(None));
        // Templates of jobs leave variables of launchers empty where there is none.
        let is_filled = |name: &str| !matches!(variables.read_nonempty(name), Ok(None));
        is_set("TF_CONFIG") || STARTERS.iter().any(|starter| is_filled(starter.sign()))
    }
}

impl ClusterResolver for EnvironmentResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let variables = self.variables.snapshot();
        let mut shown = Vec::new();
        for starter in STARTERS {
            if let Some(value) = variables.read_nonempty(starter.sign())? {
                shown.push((starter, value));
            }
        }
        let mut shown = shown.into_iter();
        // One that cannot be read is for its own resolver to refuse.
        let has_tf_config = !matches!(variables.read("TF_CONFIG"), Ok(None));
        let first = if has_tf_config { None } else { shown.next() };
        let mut cluster = match first {
            Some((starter, _)) => starter.ask(variables)?,
            None => TfConfigResolver::from_variables(variables).snapshot()?,
        };
        for (starter, value) in shown {
            let from = Origin::variable(starter.sign());
            cluster
                .evidence
                .ignore(Question::Cluster, from, value, EARLIER);
        }
        Ok(cluster)
    }
}

/// What may have started this process, other than whoever set `TF_CONFIG`.
#[derive(Clone, Copy)]
enum Starter {
    Launcher(Launcher),
    Lsf,
    Flux,
    SkyPilot,
}

impl Starter {
    /// The variable that shows it.
    const fn sign(self) -> &'static str {
        match self {
            Self::Launcher(launcher) => launcher.sign(),
            Self::Lsf => LsfResolver::SIGN,
            Self::Flux => FluxResolver::SIGN,
            Self::SkyPilot => SkyPilotResolver::SIGN,
        }
    }

    fn ask(self, variables: Variables) -> Result<Cluster, Error> {
        match self {
            Self::Launcher(launcher) => {
                LauncherResolver::from_variables(launcher, variables).snapshot()
            }
            Self::Lsf => LsfResolver::from_variables(variables).snapshot(),
            Self::Flux => FluxResolver::from_variables(variables).snapshot(),
            Self::SkyPilot => SkyPilotResolver::from_variables(variables).snapshot(),
        }
    }
}

/// In the order in which they are believed: schedulers and SkyPilot start a program on each node,
/// which may be the launcher of others, and Flux may run as a job of LSF.
const STARTERS: [Starter; 5] = [
    Starter::Launcher(Launcher::Torchrun),
    Starter::Launcher(Launcher::OpenMpi),
    Starter::Flux,
    Starter::Lsf,
    Starter::SkyPilot,
];

const EARLIER: &str = "another source comes first";

#[cfg(test)]
mod tests {
    use super::*;

    const TORCH: [(&str, &str); 5] = [
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "n1"),
        ("MASTER_PORT", "29500"),
    ];

    fn resolver(variables: &[(&str, &str)]) -> EnvironmentResolver {
        EnvironmentResolver::from_variables(Variables::fixed(variables.iter().copied()))
    }

    fn snapshot(variables: &[(&str, &str)]) -> Cluster {
        resolver(variables).snapshot().unwrap()
    }

    #[test]
    fn without_any_variable_the_process_is_alone() {
        assert!(snapshot(&[]).spec().unwrap().is_empty());
        assert!(snapshot(&[("WORLD_SIZE", "")]).spec().unwrap().is_empty());
        assert!(!resolver(&[("WORLD_SIZE", "")]).is_described());
        assert!(resolver(&TORCH).is_described());
        assert!(resolver(&[("TF_CONFIG", "")]).is_described());
    }

    #[test]
    fn the_earlier_of_two_launchers_is_believed_and_the_other_named() {
        let both: Vec<_> = TORCH
            .into_iter()
            .chain([("OMPI_COMM_WORLD_SIZE", "9"), ("SKYPILOT_NODE_IPS", "a b")])
            .collect();
        let cluster = snapshot(&both);
        assert_eq!(cluster.placement().unwrap().addresses(), ["n1:63284"]);
        let shown = cluster.explanation().to_string();
        let expected = "not variable OMPI_COMM_WORLD_SIZE: 9 (another source comes first)";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn a_task_of_a_scheduler_comes_after_launchers_and_before_the_node_that_it_is_on() {
        let lsf = [("LSF_PM_TASKID", "2"), ("LSB_HOSTS", "a b")];
        let cluster = snapshot(&[lsf[0], lsf[1], ("SKYPILOT_NODE_IPS", "c d")]);
        assert_eq!(cluster.placement().unwrap().addresses()[1], "b:8888");
        let shown = cluster.explanation().to_string();
        assert!(shown.contains("not variable SKYPILOT_NODE_IPS"), "{shown}");
        let both: Vec<_> = TORCH.into_iter().chain(lsf).collect();
        let shown = snapshot(&both).explanation().to_string();
        assert!(shown.contains("not variable LSF_PM_TASKID: 2"), "{shown}");
        // The batch script itself has these.
        assert!(!resolver(&[("PBS_NODEFILE", "/f"), ("LSB_HOSTS", "a")]).is_described());
    }

    #[test]
    fn an_empty_tf_config_is_refused_rather_than_passed_over() {
        let set: Vec<_> = TORCH.into_iter().chain([("TF_CONFIG", "")]).collect();
        assert!(matches!(
            resolver(&set).cluster_spec(),
            Err(Error::Json { .. })
        ));
    }
}
