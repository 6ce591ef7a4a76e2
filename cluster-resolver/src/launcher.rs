//! Launchers that tell each process its rank, and nobody the addresses: torchrun, Open MPI, MPICH.

use crate::address;
use crate::cluster::{Cluster, RendezvousEndpoint};
use crate::error::{Error, LauncherError};
use crate::explanation::{Explanation, Question};
use crate::ports::{self, Ports};
use crate::resolver::ClusterResolver;
use crate::spec::ClusterSpec;
use crate::task::Task;
use crate::variables::{SetBy, Variables};

/// A launcher that numbers processes by variables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Launcher {
    /// `torchrun` and those that set its variables: `RANK`, `WORLD_SIZE`, `MASTER_ADDR`,
    /// `MASTER_PORT`, and `LOCAL_WORLD_SIZE` if all are on one host.
    Torchrun,
    /// `mpirun` of Open MPI: `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`,
    /// `OMPI_COMM_WORLD_LOCAL_SIZE`, `PMIX_NAMESPACE`, and for several hosts `MASTER_ADDR` and
    /// `MASTER_PORT`, which it hands on by `-x`.
    OpenMpi,
    /// `mpiexec` of MPICH and of those that have its process manager, such as Intel MPI: `PMI_RANK`,
    /// `PMI_SIZE`, `MPI_LOCALNRANKS`, and from whoever calls it `MASTER_PORT`, for several hosts
    /// `MASTER_ADDR` too.
    Mpich,
}

impl Launcher {
    /// All of them, in the order in which they are believed: `mpirun` may start one `torchrun` on
    /// each host.
    pub const ALL: &[Self] = &[Self::Torchrun, Self::OpenMpi, Self::Mpich];

    /// The variable that shows that this launcher started the process, if it is not empty.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        self.names().sign
    }

    const fn names(self) -> &'static Names {
        match self {
            Self::Torchrun => &TORCHRUN,
            Self::OpenMpi => &OPEN_MPI,
            Self::Mpich => &MPICH,
        }
    }
}

/// The processes that a launcher started, all of them workers.
///
/// These launchers tell a process how many there are and which of them it is. Where all are on one
/// host, that is enough: each worker listens on a port of its own above 61000, outside the range
/// from which Linux hands ports out. Which ones follows from `MASTER_PORT` or `PMIX_NAMESPACE`, so
/// that jobs side by side on one host have different ones, unless `MESHWORK_PORT_BASE` says that of
/// rank 0. On several hosts nobody knows the others' addresses before they meet, at `MASTER_ADDR`
/// and the UDP port of the number `MASTER_PORT`, which the cluster's
/// [`rendezvous`](Cluster::rendezvous) tells.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, Launcher, LauncherResolver, Variables};
///
/// let variables = Variables::fixed([
///     ("RANK", "1"),
///     ("WORLD_SIZE", "2"),
///     ("LOCAL_WORLD_SIZE", "2"),
///     ("MASTER_ADDR", "127.0.0.1"),
///     ("MASTER_PORT", "29500"),
/// ]);
/// let cluster = LauncherResolver::from_variables(Launcher::Torchrun, variables).snapshot()?;
/// assert_eq!(cluster.task()?.to_string(), "worker:1");
/// assert_eq!(cluster.placement()?.addresses(), ["127.0.0.1:61045", "127.0.0.1:61046"]);
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LauncherResolver {
    launcher: Launcher,
    variables: Variables,
}

impl LauncherResolver {
    /// A resolver that reads the variables of this process for each snapshot.
    #[must_use]
    pub fn from_env(launcher: Launcher) -> Self {
        Self::from_variables(launcher, Variables::of_process())
    }

    /// A resolver that reads these variables.
    #[must_use]
    pub fn from_variables(launcher: Launcher, variables: Variables) -> Self {
        Self {
            launcher,
            variables,
        }
    }

    fn cluster(&self, variables: &Variables) -> Result<Cluster, Error> {
        let names = self.launcher.names();
        let launcher = names.launcher;
        let read = variables.set_by(launcher);
        let world = read.number(names.world, 1, MOST_PROCESSES)?;
        let rank = read.number(names.rank, 0, MOST_PROCESSES)?;
        if rank >= world {
            let (variable, world_variable) = (names.rank, names.world);
            return Err(LauncherError::Rank {
                variable,
                rank,
                world_variable,
                world,
            }
            .into());
        }
        let task = Task::new("worker", rank);
        let is_on_one_host = match variables.read_nonempty(names.local_world)? {
            Some(_) => read.number(names.local_world, 1, world)? == world,
            // Those who set torchrun's variables without being torchrun leave it out.
            None => false,
        };
        if !is_on_one_host {
            let endpoint = self.endpoint(&read, rank, world)?;
            let address = endpoint.address.clone();
            let not_met = LauncherError::NotMet {
                launcher,
                world,
                address,
            };
            return Ok(Cluster {
                spec: Err(not_met.into()),
                rendezvous: Some(endpoint),
                ..Cluster::default().with_task(&task)
            });
        }
        let host = match names.host {
            Some(variable) => read.text(variable)?,
            None => LOOPBACK.to_owned(),
        };
        let addresses = self.ports(&read, world)?;
        let addresses = addresses.map(|port| address::join(&host, port));
        let cluster = Cluster::new(ClusterSpec::from_addresses(addresses)?);
        Ok(cluster.with_task(&task))
    }

    /// Ports for as many processes on one host.
    fn ports(&self, read: &SetBy<'_>, world: u32) -> Result<Ports, Error> {
        if let Some(base) = ports::set_base(read, world)? {
            return Ok(Ports::new(base, world));
        }
        Ok(match self.launcher {
            Launcher::Torchrun | Launcher::Mpich => {
                Ports::of_number(self.master_port(read)?.into(), world)
            }
            Launcher::OpenMpi => Ports::of_name(&read.text(self.launcher.names().job)?, world),
        })
    }

    fn master_port(&self, read: &SetBy<'_>) -> Result<u16, Error> {
        let launcher = self.launcher.names().launcher;
        let is_set = read.variables.read_nonempty(MASTER_PORT)?.is_some();
        if !is_set && self.launcher != Launcher::Torchrun {
            return Err(LauncherError::NoPort { launcher }.into());
        }
        read.port(MASTER_PORT, u16::MAX)
    }

    /// Where the processes of several hosts meet.
    fn endpoint(
        &self,
        read: &SetBy<'_>,
        rank: u32,
        world: u32,
    ) -> Result<RendezvousEndpoint, Error> {
        let names = self.launcher.names();
        let Some(host) = read.variables.read_nonempty(MASTER_ADDR)? else {
            return Err(LauncherError::SeveralHosts {
                launcher: names.launcher,
                world,
            }
            .into());
        };
        let port = self.master_port(read)?;
        // By rank, so that it does not matter who is on this host too.
        let own = self.ports(read, world)?.nth(rank as usize);
        Ok(RendezvousEndpoint {
            address: address::join(&host, port),
            rank,
            world,
            port: own.expect("there is a port for each process"),
        })
    }

    fn evidence(&self, variables: &Variables) -> Explanation {
        let names = self.launcher.names();
        let mut evidence = Explanation::default();
        ports::note_set(&mut evidence, variables);
        let of_cluster = [names.host, Some(names.job), Some(names.local_world)];
        let of_cluster = of_cluster.into_iter().flatten();
        let of_cluster = of_cluster.chain([names.world]);
        let places = of_cluster.map(|variable| (Question::Cluster, variable));
        for (question, variable) in places.chain([(Question::Task, names.rank)]) {
            evidence.look(variables, question, variable);
        }
        evidence
    }
}

impl ClusterResolver for LauncherResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let variables = self.variables.snapshot();
        let found = self.cluster(&variables);
        Ok(Cluster::without_accelerators(found).with_evidence(self.evidence(&variables)))
    }
}

/// What the variables of a launcher are called.
struct Names {
    launcher: &'static str,
    /// Nobody else sets it.
    sign: &'static str,
    rank: &'static str,
    world: &'static str,
    local_world: &'static str,
    /// What jobs side by side on one host have different values of.
    job: &'static str,
    /// The host of rank 0; without it, the loopback address.
    host: Option<&'static str>,
}

/// The host of rank 0.
const MASTER_ADDR: &str = "MASTER_ADDR";
const MASTER_PORT: &str = "MASTER_PORT";

const TORCHRUN: Names = Names {
    launcher: "torchrun",
    sign: "WORLD_SIZE",
    rank: "RANK",
    world: "WORLD_SIZE",
    local_world: "LOCAL_WORLD_SIZE",
    job: MASTER_PORT,
    host: Some(MASTER_ADDR),
};

const OPEN_MPI: Names = Names {
    launcher: "mpirun",
    sign: "OMPI_COMM_WORLD_SIZE",
    rank: "OMPI_COMM_WORLD_RANK",
    world: "OMPI_COMM_WORLD_SIZE",
    local_world: "OMPI_COMM_WORLD_LOCAL_SIZE",
    job: "PMIX_NAMESPACE",
    host: None,
};

const MPICH: Names = Names {
    launcher: "mpiexec",
    // Flux and Slurm have the others as well.
    sign: "MPI_LOCALNRANKS",
    rank: "PMI_RANK",
    world: "PMI_SIZE",
    local_world: "MPI_LOCALNRANKS",
    job: MASTER_PORT,
    host: None,
};

const LOOPBACK: &str = "127.0.0.1";

/// As many as there are ports to share out.
const MOST_PROCESSES: u32 = ports::COUNT;

#[cfg(test)]
mod tests;
