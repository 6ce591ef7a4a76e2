//! LSF jobs, whose hosts are in a file or a variable, with a slot for each task.

use super::{Job, MOST_TASKS, hosts_in_file, lists};
use crate::cluster::Cluster;
use crate::error::{Error, SchedulerError};
use crate::explanation::{Explanation, Origin, Question};
use crate::ports::{JobNames, PortBase};
use crate::resolver::ClusterResolver;
use crate::variables::{SetBy, Variables};

/// The tasks that `blaunch` started in a job of LSF, one for each slot of its hosts.
///
/// `LSF_PM_TASKID` numbers the tasks from 1. Their hosts are in the file that `LSB_DJOB_HOSTFILE`
/// names, else in `LSB_HOSTS` (`a a b`), else in `LSB_MCPU_HOSTS` (`a 2 b 1`): the first of them
/// that is set counts, as only the first two keep the order of tasks in every case. Given hosts by
/// `-z` or `-u`, `blaunch` starts one task on each of those; for that, ask for one slot on each
/// host (`bsub -n 2 -R "span[ptile=1]"`). The `k`-th task of a host listens on the port base plus
/// `k`.
///
/// ```sh
/// bsub -n 4 blaunch program
/// ```
///
/// Formats: blaunch(8) and the environment variables for job execution of Spectrum LSF 10.1; the
/// task's number, as Open MPI's and PRRTE's modules for LSF read it.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, LsfResolver, Variables};
///
/// let resolver = LsfResolver::from_variables(Variables::fixed([
///     ("LSF_PM_TASKID", "3"),
///     ("LSB_MCPU_HOSTS", "n1 2 n2 1"),
/// ]));
/// let placement = resolver.snapshot()?.placement()?;
/// assert_eq!(placement.rank(), 2);
/// assert_eq!(placement.addresses(), ["n1:8888", "n1:8889", "n2:8888"]);
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LsfResolver {
    variables: Variables,
    port_base: PortBase,
}

impl LsfResolver {
    /// The variable that shows that `blaunch` started the process, if it is not empty.
    pub const SIGN: &'static str = TASK;

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
            port_base: PortBase::default(),
        }
    }

    /// The port of the first task of each host, 8888 if not given.
    #[must_use]
    pub fn with_port_base(mut self, port: u16) -> Self {
        self.port_base = PortBase::Given(port);
        self
    }

    /// Ports that other jobs on these hosts do not have, unless the environment says which.
    pub(crate) fn with_ports_of_job(mut self) -> Self {
        self.port_base = PortBase::OfJob;
        self
    }

    fn job(variables: &Variables) -> Result<Job, Error> {
        let read = variables.set_by(NAMES.launcher);
        let task = read.number(TASK, 1, MOST_TASKS)?;
        let (list, hosts) = hosts(&read)?;
        let fits = |variable, task: u32, fits: bool| match fits {
            true => Ok(()),
            false => Err(SchedulerError::Task {
                variable,
                task,
                list,
                listed: hosts.len(),
            }),
        };
        if variables.read_nonempty(SLOTS)?.is_some() {
            let slots = read.number(SLOTS, 1, MOST_TASKS)?;
            fits(SLOTS, slots, slots as usize == hosts.len())?;
        }
        fits(TASK, task, task as usize <= hosts.len())?;
        let rank = task - 1;
        Ok(Job { hosts, rank })
    }
}

/// The host of each slot, and the variable that says so.
fn hosts(read: &SetBy<'_>) -> Result<(&'static str, Vec<String>), Error> {
    let variables = read.variables;
    if let Some(path) = variables.read_nonempty(FILE)? {
        return Ok((FILE, hosts_in_file(FILE, &path)?));
    }
    if let Some(hosts) = variables.read_nonempty(HOSTS)? {
        let hosts = hosts.split_whitespace().map(str::to_owned);
        return Ok((HOSTS, hosts.collect()));
    }
    let value = read.text(COUNTS)?;
    match lists::counted(&value) {
        Some(hosts) => Ok((COUNTS, hosts)),
        None => Err(SchedulerError::Counts { value }.into()),
    }
}

impl ClusterResolver for LsfResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let variables = self.variables.snapshot();
        let cluster = Self::job(&variables).and_then(|job| {
            let most = job.most_on_a_host();
            job.cluster(self.port_base.first(&variables, NAMES, most)?)
        });
        let mut evidence = Explanation::default();
        self.port_base.note(&mut evidence, &variables, NAMES);
        look_at_lists(&variables, &mut evidence);
        evidence.look(&variables, Question::Cluster, SLOTS);
        evidence.look(&variables, Question::Task, TASK);
        Ok(Cluster::without_accelerators(cluster).with_evidence(evidence))
    }
}

/// The first list that is set counts, and those after it do not.
fn look_at_lists(variables: &Variables, evidence: &mut Explanation) {
    let mut is_found = false;
    for list in [FILE, HOSTS, COUNTS] {
        match variables.read_nonempty(list) {
            Ok(Some(value)) if is_found => {
                evidence.ignore(Question::Cluster, Origin::variable(list), value, EARLIER);
            }
            read => {
                evidence.look(variables, Question::Cluster, list);
                is_found |= matches!(read, Ok(Some(_)));
            }
        }
    }
}

const NAMES: JobNames = JobNames {
    launcher: "blaunch",
    job: "LSB_JOBID",
    enclosing: None,
    // All elements of an array are one job.
    part: Some("LSB_JOBINDEX"),
};
/// Of tasks that `blaunch` started, from 1.
const TASK: &str = "LSF_PM_TASKID";
/// A file with a line for each slot.
const FILE: &str = "LSB_DJOB_HOSTFILE";
/// A word for each slot.
const HOSTS: &str = "LSB_HOSTS";
/// Each host with the number of its slots.
const COUNTS: &str = "LSB_MCPU_HOSTS";
/// How many slots there are.
const SLOTS: &str = "LSB_DJOB_NUMPROC";

const EARLIER: &str = "another list comes first";

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(told: &[(&str, &str)]) -> LsfResolver {
        LsfResolver::from_variables(Variables::fixed(told.iter().copied()))
    }

    #[track_caller]
    fn refused(told: &[(&str, &str)], message: &str) {
        let error = resolver(told).cluster_spec().unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn the_first_list_that_is_set_counts_and_the_others_are_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "n1\nn2\nn1\n").unwrap();
        let mut told = vec![
            (TASK, "2"),
            (COUNTS, "n8 3"),
            (HOSTS, "n1 n2 n2"),
            (FILE, file.path().to_str().unwrap()),
        ];
        let expected: [&[&str]; 3] = [
            &["n1:8888", "n2:8888", "n1:8889"],
            &["n1:8888", "n2:8888", "n2:8889"],
            &["n8:8888", "n8:8889", "n8:8890"],
        ];
        for addresses in expected {
            let placement = resolver(&told).snapshot().unwrap().placement().unwrap();
            assert_eq!(placement.addresses(), addresses);
            assert_eq!(placement.rank(), 1);
            let shown = resolver(&told).explain().to_string();
            let ignored = shown.matches("(another list comes first)").count();
            assert_eq!(ignored, told.len() - 2, "{shown}");
            told.pop();
        }
    }

    #[test]
    fn variables_that_do_not_fit_each_other_are_refused() {
        refused(
            &[(TASK, "4"), (HOSTS, "a b c")],
            "LSF_PM_TASKID is 4, but LSB_HOSTS lists 3: unset what is left over from another job",
        );
        refused(
            &[(TASK, "1"), (COUNTS, "a 2"), (SLOTS, "3")],
            "LSB_DJOB_NUMPROC is 3, but LSB_MCPU_HOSTS lists 2: unset what is left over from \
             another job",
        );
        refused(
            &[(TASK, "1"), (COUNTS, "a two")],
            "LSB_MCPU_HOSTS is \"a two\": make it each host with the number of its slots, such as \
             a 2 b 1",
        );
        refused(
            &[(TASK, "0"), (HOSTS, "a")],
            "LSF_PM_TASKID is 0: make it a whole number from 1 to 65536",
        );
        refused(
            &[(TASK, "1")],
            "LSB_MCPU_HOSTS is not set: start this process by blaunch, or set it as blaunch does",
        );
    }
}
