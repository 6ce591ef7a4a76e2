//! Whoever started this process, as its variables show.

use crate::cluster::Cluster;
use crate::error::Error;
use crate::explanation::{Origin, Question};
use crate::launcher::{Launcher, LauncherResolver};
use crate::resolver::ClusterResolver;
use crate::schedulers::{FluxResolver, LsfResolver};
use crate::skypilot::SkyPilotResolver;
use crate::slurm::SlurmResolver;
use crate::tf_config::TfConfigResolver;
use crate::variables::Variables;

/// The cluster that the environment describes, whoever set it: `TF_CONFIG` if it is set, else
/// torchrun, Open MPI, MPICH, Flux, LSF, SkyPilot or Slurm, the first one that a variable shows.
/// Without any, the cluster is empty.
///
/// Of these, only `TF_CONFIG` lists ports. The tasks of a host listen from `MESHWORK_PORT_BASE` on,
/// else from a port above 61000 that follows from the number of the job and of its step, so that
/// jobs side by side on a host seldom take each other's ports, or meet.
///
/// The explanation names those that were not asked. A batch script of Slurm or PBS has the
/// variables of a task, so these do not show that a process is one: PBS is never asked, and Slurm
/// where `srun --mpi=pmi2` or `pmix` has told its tasks that they belong together.
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

    /// Whether any of the variables is there, or `MESHWORK_SEEDS`, which a process has that joins
    /// workers whom it has no list of: for a program that starts workers itself where nobody else
    /// has started it as one.
    #[must_use]
    pub fn is_described(&self) -> bool {
        let variables = self.variables.snapshot();
        let is_set = |name: &str| !matches!(variables.read(name), Ok(None));
        let is_shown = |starter: &Starter| !matches!(starter.shown(&variables), Ok(None));
        is_set("TF_CONFIG") || is_set("MESHWORK_SEEDS") || STARTERS.iter().any(is_shown)
    }
}

impl ClusterResolver for EnvironmentResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let variables = self.variables.snapshot();
        let mut shown = Vec::new();
        for starter in STARTERS {
            if let Some(sign) = starter.shown(&variables)? {
                shown.push((starter, sign));
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
        for (_, (sign, value)) in shown {
            let from = Origin::variable(sign);
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
    Slurm,
}

impl Starter {
    /// The variable that shows it, and its value. Templates of jobs leave variables of launchers
    /// empty where there is none.
    fn shown(self, variables: &Variables) -> Result<Option<(&'static str, String)>, Error> {
        let sign = match self {
            Self::Launcher(launcher) => launcher.sign(),
            Self::Lsf => LsfResolver::SIGN,
            Self::Flux => FluxResolver::SIGN,
            Self::SkyPilot => SkyPilotResolver::SIGN,
            Self::Slurm => return of_slurm(variables),
        };
        let value = variables.read_nonempty(sign)?;
        Ok(value.map(|value| (sign, value)))
    }

    fn ask(self, variables: Variables) -> Result<Cluster, Error> {
        let resolver: Box<dyn ClusterResolver> = match self {
            Self::Launcher(launcher) => {
                Box::new(LauncherResolver::from_variables(launcher, variables))
            }
            Self::Lsf => Box::new(LsfResolver::from_variables(variables).with_ports_of_job()),
            Self::Flux => Box::new(FluxResolver::from_variables(variables).with_ports_of_job()),
            Self::SkyPilot => {
                Box::new(SkyPilotResolver::from_variables(variables).with_ports_of_job())
            }
            Self::Slurm => Box::new(SlurmResolver::from_variables(variables).with_ports_of_job()),
        };
        resolver.snapshot()
    }
}

/// What `srun` sets besides where it serves MPI: the name of the step, in a form of its own for
/// each of its two ways. Other servers of PMIx have other names, and may run as tasks of a step.
fn of_slurm(variables: &Variables) -> Result<Option<(&'static str, String)>, Error> {
    for (sign, begin) in [("PMI_JOBID", ""), ("PMIX_NAMESPACE", "slurm.pmix.")] {
        let value = variables.read_nonempty(sign)?;
        let is_step = variables.read_nonempty("SLURM_STEP_ID")?.is_some();
        if let Some(value) = value.filter(|value| is_step && value.starts_with(begin)) {
            return Ok(Some((sign, value)));
        }
    }
    Ok(None)
}

/// In the order in which they are believed: schedulers and SkyPilot start a program on each node,
/// which may be the launcher of others, Flux may run as a job of LSF, and all of them on nodes of
/// Slurm.
const STARTERS: [Starter; 7] = [
    Starter::Launcher(Launcher::Torchrun),
    Starter::Launcher(Launcher::OpenMpi),
    Starter::Launcher(Launcher::Mpich),
    Starter::Flux,
    Starter::Lsf,
    Starter::SkyPilot,
    Starter::Slurm,
];

const EARLIER: &str = "another source comes first";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports;

    const TORCH: [(&str, &str); 5] = [
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "n1"),
        ("MASTER_PORT", "29500"),
    ];

    /// Of two hosts.
    const LSF: [(&str, &str); 3] = [
        ("LSF_PM_TASKID", "2"),
        ("LSB_HOSTS", "a b"),
        ("LSB_JOBID", "7"),
    ];

    /// Of two tasks on one node.
    const STEP: [(&str, &str); 6] = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_STEP_NODELIST", "n8"),
        ("SLURM_STEP_TASKS_PER_NODE", "2"),
    ];

    const MPI: (&str, &str) = ("PMI_JOBID", "7.0");

    const SKYPILOT: [(&str, &str); 4] = [
        ("SKYPILOT_NODE_IPS", "a\nb"),
        ("SKYPILOT_NODE_RANK", "1"),
        ("SKYPILOT_NUM_NODES", "2"),
        ("SKYPILOT_TASK_ID", "sky-1_a_1"),
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
        assert!(resolver(&[("MESHWORK_SEEDS", "a:1")]).is_described());
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
        let cluster = snapshot(&[&LSF[..], &[("SKYPILOT_NODE_IPS", "c d")]].concat());
        assert_eq!(cluster.placement().unwrap().addresses()[1], "b:64278");
        let shown = cluster.explanation().to_string();
        assert!(shown.contains("not variable SKYPILOT_NODE_IPS"), "{shown}");
        let both: Vec<_> = TORCH.into_iter().chain(LSF).collect();
        let shown = snapshot(&both).explanation().to_string();
        assert!(shown.contains("not variable LSF_PM_TASKID: 2"), "{shown}");
        // The batch script itself has these.
        assert!(!resolver(&[("PBS_NODEFILE", "/f"), ("LSB_HOSTS", "a")]).is_described());
    }

    #[test]
    fn a_task_of_slurm_is_one_where_srun_serves_mpi_and_nobody_else_started_it() {
        let two = [
            ("SLURM_STEP_NODELIST", "n[8-9]"),
            ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
        ];
        let with =
            |more: &[(&'static str, &'static str)]| resolver(&[&STEP[..], &two, more].concat());
        for sign in [("PMI_JOBID", "7.0"), ("PMIX_NAMESPACE", "slurm.pmix.7.0")] {
            let placement = with(&[sign]).snapshot().unwrap().placement().unwrap();
            assert_eq!(placement.addresses(), ["n8:64278", "n9:64278"], "{sign:?}");
            assert_eq!(placement.rank(), 1);
        }
        // A step without MPI, and a daemon of another server of PMIx that is a task.
        for sign in [("PMI_JOBID", ""), ("PMIX_NAMESPACE", "prterun-n8-77@1")] {
            assert!(!with(&[sign]).is_described(), "{sign:?}");
        }
        assert!(!resolver(&[("PMI_JOBID", "7.0")]).is_described());
        let sky = with(&[("PMI_JOBID", "7.0"), ("SKYPILOT_NODE_IPS", "c")]);
        let shown = sky.snapshot().unwrap().explanation().to_string();
        assert!(shown.contains("not variable PMI_JOBID: 7.0"), "{shown}");
    }

    /// The addresses of these variables, with some of them set to something else.
    fn addresses(variables: &[(&str, &str)], changes: &[(&str, &str)]) -> Vec<String> {
        let cluster = snapshot(&[variables, changes].concat());
        cluster.placement().unwrap().addresses().to_vec()
    }

    #[track_caller]
    fn refused(variables: &[(&str, &str)], change: (&str, &str), message: &str) {
        let cluster = snapshot(&[variables, &[change]].concat());
        assert_eq!(cluster.placement().unwrap_err().to_string(), message);
    }

    #[test]
    fn steps_and_jobs_side_by_side_have_no_address_in_common() {
        let step = [&STEP[..], &[MPI]].concat();
        let array = [&LSF[..], &[("LSB_JOBINDEX", "1")]].concat();
        let others: [(&[(&str, &str)], _); 6] = [
            (&step, ("SLURM_STEP_ID", "1")),
            (&step, ("SLURM_JOB_ID", "8")),
            (&LSF, ("LSB_JOBID", "8")),
            (&array, ("LSB_JOBINDEX", "2")),
            (&array, ("LSB_JOBINDEX", "0")),
            (&SKYPILOT, ("SKYPILOT_TASK_ID", "sky-1_a_2")),
        ];
        for (variables, change) in others {
            let (one, other) = (addresses(variables, &[]), addresses(variables, &[change]));
            assert_eq!((one.len(), other.len()), (2, 2));
            assert!(
                one.iter().all(|taken| !other.contains(taken)),
                "{change:?}: {one:?}, {other:?}"
            );
        }
        // All tasks of one step have the same list.
        let rank = ("SLURM_PROCID", "0");
        assert_eq!(addresses(&step, &[rank]), ["n8:63236", "n8:63237"]);
        assert_eq!(addresses(&step, &[]), ["n8:63236", "n8:63237"]);
    }

    #[test]
    fn a_port_base_that_is_set_counts_wherever_nobody_lists_ports() {
        let base = (ports::VARIABLE, "4000");
        let step = [&STEP[..], &[MPI]].concat();
        let two = [("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")];
        let torch = [&TORCH[..], &two].concat();
        let mpi = [
            ("MPI_LOCALNRANKS", "2"),
            ("PMI_SIZE", "2"),
            ("PMI_RANK", "0"),
        ];
        let cases: [(&[(&str, &str)], _); 5] = [
            (&step, ["n8:4000", "n8:4001"]),
            (&LSF, ["a:4000", "b:4000"]),
            (&SKYPILOT, ["a:4000", "b:4000"]),
            (&torch, ["n1:4000", "n1:4001"]),
            (&mpi, ["127.0.0.1:4000", "127.0.0.1:4001"]),
        ];
        for (variables, expected) in cases {
            assert_eq!(addresses(variables, &[base]), expected);
            let shown = snapshot(&[variables, &[base]].concat()).explanation();
            let shown = shown.to_string();
            assert!(
                shown.contains("variable MESHWORK_PORT_BASE: 4000"),
                "{shown}"
            );
        }
        // Neither one that is empty, nor one beside a list.
        let empty = addresses(&step, &[(ports::VARIABLE, "")]);
        assert_eq!(empty, ["n8:63236", "n8:63237"]);
        let list = r#"{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}"#;
        assert_eq!(addresses(&[base], &[("TF_CONFIG", list)]), ["a:1"]);
        // A program that asks by name says itself which ones it wants.
        let set = Variables::fixed([&STEP[..], &[base]].concat());
        let named = SlurmResolver::from_variables(set).snapshot().unwrap();
        let placement = named.placement().unwrap();
        assert_eq!(placement.addresses(), ["n8:8888", "n8:8889"]);
    }

    #[test]
    fn ports_that_a_host_does_not_have_are_refused_by_the_name_of_the_variable() {
        let step = [&STEP[..], &[MPI]].concat();
        for wrong in ["0", "65536", "-1", "http"] {
            let message =
                format!("MESHWORK_PORT_BASE is {wrong}: make it a whole number from 1 to 65535");
            refused(&SKYPILOT, (ports::VARIABLE, wrong), &message);
        }
        let two = [("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")];
        let message = "MESHWORK_PORT_BASE is 65535: make it a whole number from 1 to 65534";
        refused(&step, (ports::VARIABLE, "65535"), message);
        let torch = [&TORCH[..], &two].concat();
        refused(&torch, (ports::VARIABLE, "65535"), message);
        assert_eq!(
            addresses(&step, &[(ports::VARIABLE, "65534")]),
            ["n8:65534", "n8:65535"]
        );
        let all = [("LSF_PM_TASKID", "1"), ("LSB_JOBID", "7")];
        let fits = addresses(&all, &[("LSB_MCPU_HOSTS", "a 4536")]);
        assert_eq!((&*fits[0], &*fits[4535]), ("a:61000", "a:65535"));
        refused(
            &all,
            ("LSB_MCPU_HOSTS", "a 4537"),
            "host \"a\" has 4537 tasks, so ports from 61000 on do not suffice: choose a lower base",
        );
    }

    #[test]
    fn a_job_without_a_number_is_refused_rather_than_given_the_ports_of_others() {
        refused(
            &LSF,
            ("LSB_JOBID", ""),
            "LSB_JOBID is not set: start this process by blaunch, or set it as blaunch does",
        );
        refused(
            &[&STEP[..], &[MPI]].concat(),
            ("SLURM_STEP_ID", "first"),
            "SLURM_STEP_ID is first: make it a whole number from 0 to 4294967295",
        );
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
