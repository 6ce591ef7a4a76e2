//! Flux jobs, whose tasks are told their rank, and `flux` knows their hosts.

use std::path::PathBuf;

use super::{Job, MOST_TASKS, lists};
use crate::cluster::Cluster;
use crate::command::{Said, said_by};
use crate::error::{CommandProblem, Error, FluxProblem, LauncherError, SchedulerError};
use crate::explanation::{Explanation, Origin, Question};
use crate::ports::{JobNames, PortBase};
use crate::resolver::ClusterResolver;
use crate::variables::Variables;

/// The tasks of a Flux job, as `FLUX_TASK_RANK` and `FLUX_JOB_SIZE` number them and
/// `flux job taskmap --to=hosts` puts them on hosts, in any mapping.
///
/// The `k`-th task of a host listens on the port base plus `k`.
///
/// ```sh
/// flux run --nodes 2 --ntasks 4 program
/// ```
///
/// Formats: flux-environment(7) and `flux job taskmap` of flux-core, whose sets of tasks are those
/// of its RFC 22.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, FluxResolver, Variables};
///
/// let resolver = FluxResolver::from_variables(Variables::fixed([("FLUX_JOB_ID", "f7")]));
/// assert_eq!(
///     resolver.cluster_spec().unwrap_err().to_string(),
///     "FLUX_JOB_SIZE is not set: start this process by flux run, or set it as flux run does"
/// );
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FluxResolver {
    variables: Variables,
    port_base: PortBase,
    program: PathBuf,
}

impl FluxResolver {
    /// The variable that shows that a process is the task of a Flux job, if it is not empty.
    pub const SIGN: &'static str = RANK;

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
            program: "flux".into(),
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

    /// The `flux` command, looked up on the `PATH` if not given.
    #[must_use]
    pub fn with_flux(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    fn job(&self, variables: &Variables, evidence: &mut Explanation) -> Result<Job, Error> {
        let read = variables.set_by(NAMES.launcher);
        let size = read.number(SIZE, 1, MOST_TASKS)?;
        let rank = read.number(RANK, 0, MOST_TASKS)?;
        if rank >= size {
            return Err(LauncherError::Rank {
                variable: RANK,
                rank,
                world_variable: SIZE,
                world: size,
            }
            .into());
        }
        let job = read.text(JOB)?;
        let arguments = ["job", "taskmap", "--to=hosts", &job];
        let said = said_by(&self.program, &arguments).map_err(FluxProblem::from);
        let answer = said.and_then(answer).map_err(SchedulerError::flux)?;
        let asked = Origin::command(format!("flux {}", arguments.join(" ")));
        evidence.read(Question::Cluster, asked, answer.trim_end());
        let hosts = lists::mapped(&answer, size).map_err(SchedulerError::flux)?;
        Ok(Job { hosts, rank })
    }
}

/// What `flux` answers, if it does.
fn answer(said: Said) -> Result<String, FluxProblem> {
    if !said.output.trim().is_empty() {
        return Ok(said.output);
    }
    let is_final = FINAL.iter().any(|words| said.errors.contains(words));
    Err(match is_final {
        true => FluxProblem::Unknown,
        false => CommandProblem::Failed {
            said: said.last_words(),
        }
        .into(),
    })
}

/// What `flux` says of a job that it does not know, or that runs no longer, and an old one of what
/// it is asked for.
const FINAL: [&str; 6] = [
    "no such job",
    "No taskmap found",
    "error decoding taskmap",
    "nknown subcommand",
    "unrecognized option",
    "invalid value",
];

impl ClusterResolver for FluxResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let variables = self.variables.snapshot();
        let mut evidence = Explanation::default();
        self.port_base.note(&mut evidence, &variables, NAMES);
        evidence.look(&variables, Question::Cluster, JOB);
        evidence.look(&variables, Question::Cluster, SIZE);
        evidence.look(&variables, Question::Task, RANK);
        let job = self.job(&variables, &mut evidence);
        let cluster = job.and_then(|job| {
            let most = job.most_on_a_host();
            job.cluster(self.port_base.first(&variables, NAMES, most)?)
        });
        Ok(Cluster::without_accelerators(cluster).with_evidence(evidence))
    }
}

/// The job, in the form that `flux` itself prints.
const JOB: &str = "FLUX_JOB_ID";
const NAMES: JobNames = JobNames {
    launcher: "flux run",
    job: JOB,
    // Numbers are those of one instance.
    enclosing: Some("FLUX_ENCLOSING_ID"),
    part: None,
};
/// The number of its tasks.
const SIZE: &str = "FLUX_JOB_SIZE";
/// The task among them, from 0.
const RANK: &str = "FLUX_TASK_RANK";

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn flux_is_asked_for_this_job_and_named_in_the_explanation() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let flux = folder.path().join("flux");
        let script = "#!/bin/sh
case \"$*\" in
'job taskmap --to=hosts f7') echo 'n1: 0,2'; echo 'n2: 1' ;;
'job taskmap --to=hosts f8') echo 'flux-job: Unable to get job taskmap: no such job' >&2; exit 1 ;;
*) echo 'flux-job: flux_open: Connection refused' >&2; exit 1 ;;
esac\n";
        std::fs::write(&flux, script).unwrap();
        std::fs::set_permissions(&flux, PermissionsExt::from_mode(0o700)).unwrap();
        let told = [(JOB, "f7"), (SIZE, "3"), (RANK, "2")];
        let resolver = FluxResolver::from_variables(Variables::fixed(told)).with_flux(&flux);
        let cluster = resolver.snapshot().unwrap();
        let placement = cluster.placement().unwrap();
        assert_eq!(placement.addresses(), ["n1:8888", "n2:8888", "n1:8889"]);
        assert_eq!(placement.rank(), 2);
        let shown = cluster.explanation().to_string();
        assert!(
            shown.contains("`flux job taskmap --to=hosts f7`: n1"),
            "{shown}"
        );
        let cluster = resolver.with_ports_of_job().snapshot().unwrap();
        let placement = cluster.placement().unwrap();
        assert_eq!(placement.addresses(), ["n1:62105", "n2:62105", "n1:62106"]);
        let shown = cluster.explanation().to_string();
        assert_eq!(shown.matches("variable FLUX_JOB_ID: f7").count(), 1);
        for (job, is_transient, said) in [
            (
                "f8",
                false,
                "only flux can tell where the tasks of this job run, and it knows no such job: \
                 look whether it still runs, and whether this flux knows job taskmap --to=hosts",
            ),
            (
                "f9",
                true,
                "only flux can tell where the tasks of this job run, and it gave no answer but \
                 \"flux-job: flux_open: Connection refused\": look whether its broker is up",
            ),
        ] {
            let told = [(JOB, job), (SIZE, "3"), (RANK, "2")];
            let other = FluxResolver::from_variables(Variables::fixed(told)).with_flux(&flux);
            let error = other.cluster_spec().unwrap_err();
            assert_eq!(error.to_string(), said);
            assert_eq!(error.is_transient(), is_transient, "{error}");
        }
    }

    #[test]
    fn variables_that_do_not_fit_each_other_are_refused() {
        let told = [(JOB, "f7"), (SIZE, "2"), (RANK, "2")];
        let resolver = FluxResolver::from_variables(Variables::fixed(told));
        assert_eq!(
            resolver.cluster_spec().unwrap_err().to_string(),
            "FLUX_TASK_RANK is 2, but FLUX_JOB_SIZE is 2: number the processes from 0 to one less \
             than FLUX_JOB_SIZE"
        );
    }

    #[test]
    fn ports_follow_from_the_job_and_the_one_around_it_however_they_are_written() {
        let first = |job: &'static str, enclosing: &'static str| {
            let variables = Variables::fixed([(JOB, job), ("FLUX_ENCLOSING_ID", enclosing)]);
            PortBase::OfJob.first(&variables, NAMES, 2).unwrap()
        };
        assert_ne!(first("f7", "f1"), first("f7", "f2"));
        assert_ne!(first("f7", ""), first("f7", "f2"));
        assert_eq!(first("f7", "f1"), first("ƒ7", "ƒ1"));
    }
}
