//! PBS jobs, whose node file has a line for each task.

use super::{Job, MOST_TASKS, hosts_in_file};
use crate::cluster::Cluster;
use crate::error::{Error, SchedulerError};
use crate::explanation::{Explanation, Question};
use crate::ports::TENSORFLOW;
use crate::resolver::ClusterResolver;
use crate::variables::Variables;

/// The tasks that `pbsdsh` started in a job of OpenPBS, PBS Professional or TORQUE, one for each
/// line of the node file.
///
/// PBS sets `PBS_NODEFILE` where the batch script runs and nowhere else, and the file is on that
/// host: the script copies it to a folder that all hosts share, and hands the name on. Which line a
/// task is of, TORQUE says by `PBS_VNODENUM`. OpenPBS says by `PBS_NODENUM` on which host it is,
/// which is as much where each host has one task (`select=2:mpiprocs=1`), and is refused otherwise.
/// The `k`-th task of a host listens on the port base plus `k`.
///
/// ```sh
/// cp "$PBS_NODEFILE" "$PBS_O_WORKDIR/hosts"
/// pbsdsh -- env PBS_NODEFILE="$PBS_O_WORKDIR/hosts" MESHWORK_JOB_SECRET_FILE="$HOME/key" program
/// ```
///
/// Formats: pbsdsh(1B) and `src/resmom/start_exec.c` of OpenPBS 23, pbsdsh(1) of TORQUE 2.4.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, PbsResolver, Variables};
///
/// # let folder = tempfile::tempdir()?;
/// # let hosts = folder.path().join("hosts");
/// # let path = hosts.to_str().ok_or("no text")?;
/// std::fs::write(&hosts, "n1\nn2\n")?;
/// let resolver = PbsResolver::from_variables(Variables::fixed([
///     ("PBS_NODEFILE", path),
///     ("PBS_NODENUM", "1"),
/// ]));
/// let placement = resolver.snapshot()?.placement()?;
/// assert_eq!(placement.rank(), 1);
/// assert_eq!(placement.addresses(), ["n1:8888", "n2:8888"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PbsResolver {
    variables: Variables,
    port_base: u16,
}

impl PbsResolver {
    /// The variable that shows that a process runs in a job of PBS, if it is not empty. The batch
    /// script has it as well as what it starts, so it does not make a process a task.
    pub const SIGN: &'static str = FILE;

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
            port_base: TENSORFLOW,
        }
    }

    /// The port of the first task of each host, 8888 if not given.
    #[must_use]
    pub fn with_port_base(mut self, port: u16) -> Self {
        self.port_base = port;
        self
    }

    fn job(variables: &Variables) -> Result<Job, Error> {
        let read = variables.set_by("pbsdsh");
        let path = read.text(FILE)?;
        let hosts = hosts_in_file(FILE, &path)?;
        let rank = match variables.read_nonempty(LINE)? {
            Some(_) => Self::of_line(read.number(LINE, 0, MOST_TASKS)?, &hosts)?,
            None => Self::of_host(read.number(HOST, 0, MOST_TASKS)?, &hosts)?,
        };
        Ok(Job { hosts, rank })
    }

    fn of_line(line: u32, hosts: &[String]) -> Result<u32, SchedulerError> {
        let is_there = (line as usize) < hosts.len();
        is_there.then_some(line).ok_or(SchedulerError::Task {
            variable: LINE,
            task: line,
            list: FILE,
            listed: hosts.len(),
        })
    }

    /// The only task of a host, of which hosts are numbered as they first come in the list.
    fn of_host(number: u32, hosts: &[String]) -> Result<u32, SchedulerError> {
        let mut firsts = Vec::new();
        for (rank, host) in (0..).zip(hosts) {
            if !firsts.iter().any(|(_, other)| *other == host) {
                firsts.push((rank, host));
            }
        }
        let Some(&(rank, host)) = firsts.get(number as usize) else {
            return Err(SchedulerError::Task {
                variable: HOST,
                task: number,
                list: FILE,
                listed: firsts.len(),
            });
        };
        match hosts.iter().filter(|other| *other == host).count() {
            1 => Ok(rank),
            tasks => {
                let host = host.clone();
                Err(SchedulerError::WhichTask { host, tasks })
            }
        }
    }
}

impl ClusterResolver for PbsResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let variables = self.variables.snapshot();
        let mut evidence = Explanation::default();
        evidence.port("port base", self.port_base, TENSORFLOW);
        evidence.look(&variables, Question::Cluster, FILE);
        evidence.look(&variables, Question::Task, LINE);
        evidence.look(&variables, Question::Task, HOST);
        let cluster = Self::job(&variables).and_then(|job| job.cluster(self.port_base));
        Ok(Cluster::without_accelerators(cluster).with_evidence(evidence))
    }
}

const FILE: &str = "PBS_NODEFILE";
/// Of TORQUE: the line of the node file, from 0.
const LINE: &str = "PBS_VNODENUM";
/// The host among those of the job, from 0.
const HOST: &str = "PBS_NODENUM";

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[track_caller]
    fn placed(hosts: &str, told: &[(&str, &str)]) -> Result<(u32, Vec<String>), Error> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(hosts.as_bytes()).unwrap();
        let path = file.path().to_str().unwrap();
        let variables = told.iter().copied().chain([(FILE, path)]);
        let resolver = PbsResolver::from_variables(Variables::fixed(variables));
        let placement = resolver.snapshot()?.placement()?;
        Ok((placement.rank(), placement.addresses().to_vec()))
    }

    #[track_caller]
    fn refused(hosts: &str, told: &[(&str, &str)], message: &str) {
        assert_eq!(placed(hosts, told).unwrap_err().to_string(), message);
    }

    #[test]
    fn openpbs_numbers_hosts_and_torque_lines() {
        let hosts = "n2\nn1\n\nn3\n";
        let expected = ["n2:8888", "n1:8888", "n3:8888"].map(str::to_owned);
        let (rank, addresses) = placed(hosts, &[(HOST, "2")]).unwrap();
        assert_eq!((rank, &addresses[..]), (2, &expected[..]));
        let told = [(HOST, "0"), (LINE, "1")];
        let (rank, addresses) = placed("n1\nn1\nn2\n", &told).unwrap();
        assert_eq!((rank, addresses[1].as_str()), (1, "n1:8889"));
        // The hosts before may have several tasks.
        assert_eq!(placed("n1\nn1\nn2\n", &[(HOST, "1")]).unwrap().0, 2);
    }

    #[test]
    fn a_task_that_cannot_be_told_apart_is_refused() {
        refused(
            "n1\nn2\nn1\n",
            &[(HOST, "0")],
            "PBS does not say which of the 2 tasks of host \"n1\" this process is: ask for one task \
             on each host, such as select=2:mpiprocs=1",
        );
        refused(
            "n1\nn1\n",
            &[(HOST, "1")],
            "PBS_NODENUM is 1, but PBS_NODEFILE lists 1: unset what is left over from another job",
        );
        refused(
            "n1\n",
            &[(LINE, "1")],
            "PBS_VNODENUM is 1, but PBS_NODEFILE lists 1: unset what is left over from another job",
        );
        refused(
            "n1\n",
            &[],
            "PBS_NODENUM is not set: start this process by pbsdsh, or set it as pbsdsh does",
        );
    }

    #[test]
    fn a_file_that_is_on_another_host_is_named() {
        let told = [(FILE, "/nowhere/7.server"), (HOST, "0")];
        let resolver = PbsResolver::from_variables(Variables::fixed(told));
        assert_eq!(
            resolver.cluster_spec().unwrap_err().to_string(),
            "PBS_NODEFILE names \"/nowhere/7.server\", which cannot be read (entity not found): copy \
             it where every task sees it, and hand that name on"
        );
        let shown = resolver.explain().to_string();
        assert!(shown.contains("variable PBS_NODENUM: 0"), "{shown}");
    }
}
