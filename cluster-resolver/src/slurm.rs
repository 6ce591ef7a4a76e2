//! Slurm steps: the tasks that `srun` started, and the lists in which Slurm names nodes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::cluster::{Accelerators, Cluster, MasterRule};
use crate::error::Error;
use crate::ports::PortBase;
use crate::resolver::ClusterResolver;
use crate::spec::{ClusterSpec, Tasks};
use crate::task::Task;
use crate::variables::Variables;

mod counts;
mod evidence;
mod gpus;
mod hostlist;
mod layout;
mod placement;
mod scontrol;
mod step;

pub use crate::error::{HostListProblem, ScontrolProblem, SlurmError, Summed};
pub use counts::task_counts;
pub use hostlist::hosts;
pub use step::TasksPerNode;

use gpus::Gpus;
use placement::Placement;
use scontrol::Scontrol;
use step::Step;

/// The tasks of a Slurm step, as `srun` tells each of them by environment variables.
///
/// Ranks are where Slurm puts them: in block, cyclic and plane distributions over the nodes of the
/// step in its order, in an arbitrary one as the host file says. The `k`-th task of a node listens
/// on the port base plus `k`. Two steps that share a node need port bases of their own, which
/// [`EnvironmentResolver`](crate::EnvironmentResolver) gives them.
///
/// All tasks are workers unless [`with_jobs`](Self::with_jobs) names other jobs; then jobs take
/// ranks in the order of their names. Without arguments, [`master`](ClusterResolver::master)
/// answers the address of this task. The protocol put before addresses is `grpc` if not given.
///
/// Where the variables leave two answers, `scontrol show step` is asked, and without an answer the
/// resolver refuses. This concerns heterogeneous jobs: each part has a distribution of its own, of
/// which the environment tells one.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, SlurmResolver, Variables};
///
/// let resolver = SlurmResolver::from_variables(Variables::fixed([
///     ("SLURM_PROCID", "3"),
///     ("SLURM_STEP_NUM_TASKS", "4"),
///     ("SLURM_STEP_NODELIST", "n[8-10]"),
///     ("SLURM_STEP_TASKS_PER_NODE", "2,1(x2)"),
/// ]));
/// assert_eq!(resolver.cluster_spec()?.task_address("worker", 1)?, "n8:8889");
/// assert_eq!(resolver.master(None, None, None)?, "grpc://n10:8888");
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
///
/// # Where TensorFlow differs
///
/// - It sorts hosts as text (`n10` before `n8`) and places ranks in that order, in block order
///   whatever the distribution.
/// - It cannot describe a step without GPUs, and runs `nvidia-smi`. Here devices are counted from
///   the environment, and a step without any is fine.
/// - It overwrites `CUDA_VISIBLE_DEVICES`, and knows its task only after a first call of
///   `cluster_spec`. Here nothing is changed, and every call stands alone.
/// - Lists of nodes and of counts that do not fit each other are cut to the shorter one; a node
///   named twice is taken once. Here they are refused.
#[doc(alias = "SlurmClusterResolver")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SlurmResolver {
    variables: Variables,
    jobs: Option<BTreeMap<String, u32>>,
    port_base: PortBase,
    tasks_per_node: Option<TasksPerNode>,
    gpus_per_node: Option<u32>,
    gpus_per_task: Option<u32>,
    addresses: BTreeMap<String, String>,
    scontrol: Scontrol,
}

impl SlurmResolver {
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
            jobs: None,
            port_base: PortBase::default(),
            tasks_per_node: None,
            gpus_per_node: None,
            gpus_per_task: None,
            addresses: BTreeMap::new(),
            scontrol: Scontrol::program("scontrol"),
        }
    }

    /// The jobs of the cluster and how many tasks each has; together they are the tasks of the
    /// step, and take its ranks in the order of their names. A repeated job keeps its last count.
    #[must_use]
    pub fn with_jobs(mut self, jobs: impl IntoIterator<Item = (impl Into<String>, u32)>) -> Self {
        let jobs = jobs.into_iter();
        self.jobs = Some(jobs.map(|(job, tasks)| (job.into(), tasks)).collect());
        self
    }

    /// The port of the first task of each node, 8888 if not given.
    #[must_use]
    pub fn with_port_base(mut self, port: u16) -> Self {
        self.port_base = PortBase::Given(port);
        self
    }

    /// Ports that other steps on these nodes do not have, unless the environment says which.
    pub(crate) fn with_ports_of_job(mut self) -> Self {
        self.port_base = PortBase::OfJob;
        self
    }

    /// How many tasks run on each node, whatever the environment says.
    #[must_use]
    pub fn with_tasks_per_node(mut self, tasks: TasksPerNode) -> Self {
        self.tasks_per_node = Some(tasks);
        self
    }

    /// How many GPUs each node has, whatever the environment says.
    #[must_use]
    pub fn with_gpus_per_node(mut self, gpus: u32) -> Self {
        self.gpus_per_node = Some(gpus);
        self
    }

    /// How many GPUs each task has, whatever the environment says.
    #[must_use]
    pub fn with_gpus_per_task(mut self, gpus: u32) -> Self {
        self.gpus_per_task = Some(gpus);
        self
    }

    /// The hosts to connect to, by node name, for nodes whose names do not resolve. An IPv6 address
    /// is written without brackets.
    #[must_use]
    pub fn with_hosts(
        mut self,
        hosts: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Self {
        let hosts = hosts.into_iter();
        self.addresses = hosts
            .map(|(node, host)| (node.into(), host.into()))
            .collect();
        self
    }

    /// The `scontrol` command, looked up on the `PATH` if not given.
    #[must_use]
    pub fn with_scontrol(mut self, program: impl Into<PathBuf>) -> Self {
        self.scontrol = Scontrol::program(program);
        self
    }

    /// Refuses rather than asks `scontrol`.
    #[must_use]
    pub fn without_scontrol(mut self) -> Self {
        self.scontrol = Scontrol::not_asked();
        self
    }

    fn step(&self, variables: &Variables) -> Result<Step, Error> {
        let jobs = self.jobs.as_ref();
        let wanted = jobs.map(|jobs| jobs.values().copied().map(u64::from).sum());
        Step::read(variables, self.tasks_per_node.as_ref(), wanted)
    }

    fn spec_of(
        &self,
        variables: &Variables,
        step: &Step,
        placement: &Placement,
    ) -> Result<ClusterSpec, Error> {
        let most = step.most_on_a_node();
        let base = self.port_base.first(variables, step::NAMES, most)?;
        let mut addresses = self.addresses(step, placement, base)?.into_iter();
        let shares = self.shares(step).into_iter();
        ClusterSpec::new(shares.map(|(job, _, tasks)| {
            let addresses: Vec<_> = addresses.by_ref().take(tasks as usize).collect();
            (job, Tasks::List(addresses))
        }))
    }

    /// The address of each rank.
    fn addresses(
        &self,
        step: &Step,
        placement: &Placement,
        base: u16,
    ) -> Result<Vec<String>, SlurmError> {
        let mut used = vec![0_u32; step.nodes.len()];
        let mut addresses = Vec::new();
        for &node in &placement.nodes {
            let (name, tasks) = (&step.nodes[node], step.counts[node]);
            let local = u16::try_from(used[node]).ok();
            let port = local.and_then(|local| base.checked_add(local));
            let port = port.ok_or_else(|| SlurmError::Ports {
                node: name.clone(),
                tasks,
                base,
            })?;
            used[node] += 1;
            let host = self.addresses.get(name).unwrap_or(name);
            addresses.push(if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            });
        }
        Ok(addresses)
    }

    /// The jobs with their first rank and the number of their ranks.
    fn shares(&self, step: &Step) -> Vec<(&str, u32, u32)> {
        let Some(jobs) = &self.jobs else {
            return vec![(WORKER, 0, step.tasks)];
        };
        let mut first = 0;
        let shares = jobs.iter().map(|(job, &tasks)| {
            let share = (job.as_str(), first, tasks);
            // The sum over all jobs is known to be that of the step.
            first += tasks;
            share
        });
        shares.collect()
    }

    fn task_in(&self, step: &Step) -> Task {
        let shares = self.shares(step);
        let own = shares
            .iter()
            .find(|(_, first, tasks)| step.rank - first < *tasks);
        let (job, first, _) = own.expect("the jobs share out all ranks, in ascending order");
        Task::new(*job, step.rank - first)
    }

    fn accelerators(&self, step: &Step, variables: &Variables) -> Result<Accelerators, Error> {
        let gpus = Gpus {
            per_task: self.gpus_per_task,
            per_node: self.gpus_per_node,
            ..Gpus::read(variables)?
        };
        let each = gpus.of_each_task(step.most_on_a_node())?;
        Ok(each
            .map(|gpus| ("GPU".to_owned(), gpus))
            .into_iter()
            .collect())
    }
}

impl ClusterResolver for SlurmResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let variables = &self.variables.snapshot();
        let mut evidence = evidence::of(self, variables);
        let cluster = match self.step(variables) {
            Err(error) => Cluster::unknown(error),
            Ok(step) => {
                let placement = placement::place(&step, &self.scontrol);
                if let Ok(placement) = &placement {
                    evidence::add_asked(&mut evidence, &placement.asked);
                }
                let spec = placement.map_err(Error::from);
                Cluster {
                    spec: spec.and_then(|placement| self.spec_of(variables, &step, &placement)),
                    accelerators: Some(self.accelerators(&step, variables)),
                    ..Cluster::default().with_task(&self.task_in(&step))
                }
            }
        };
        Ok(Cluster {
            rpc_layer: Ok(Some("grpc".to_owned())),
            master: MasterRule::OwnTaskEvenAlone,
            evidence,
            ..cluster
        })
    }
}

const WORKER: &str = "worker";

#[cfg(test)]
mod tests;
