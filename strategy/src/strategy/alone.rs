//! A worker that trains alone where several seem to be meant.

use std::env;
use std::io::{self, Write};

use meshwork_collectives::{Certificates, GroupConfig, JobSecret};

/// Says so in a line of the program's log, or else of standard error, where the environment has
/// what only jobs of several workers use. It is no error: a shell may hand a secret to all that it
/// starts.
pub(super) fn warn_where_others_are_meant() {
    let Some(line) = sign_of_others(|name| env::var(name).ok()) else {
        return;
    };
    match tracing::enabled!(tracing::Level::WARN) {
        true => tracing::warn!("{line}"),
        // Whoever has closed it does not want to know.
        false => drop(writeln!(io::stderr(), "meshwork: {line}")),
    }
}

/// What in these variables speaks of others, though they describe no cluster.
fn sign_of_others(read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_set = |name: &str| read(name).is_some_and(|value| !value.is_empty());
    if is_set(GroupConfig::SEEDS_ENV) {
        return Some(format!(
            "this worker trains alone: {} names workers of a running job, and programs that begin \
             by elastic_from_env join one",
            GroupConfig::SEEDS_ENV
        ));
    }
    // A batch script, which is no task, does not have it.
    let tasks = read("SLURM_STEP_NUM_TASKS").and_then(|number| number.parse::<usize>().ok());
    if let Some(tasks) = tasks.filter(|tasks| *tasks > 1) {
        return Some(format!(
            "this worker trains alone, as one of {tasks} tasks of Slurm that are not told to train \
             together: start them by 'srun --mpi=pmi2' or '--mpi=pmix', or set TF_CONFIG in each"
        ));
    }
    let names = [JobSecret::ENV, JobSecret::FILE_ENV, Certificates::JOB_ENV];
    names.into_iter().find(|name| is_set(name)).map(|name| {
        format!(
            "this worker trains alone: {name} is set, but neither TF_CONFIG nor a launcher says \
             who the others are; 'meshwork resolve --explain' shows what was looked at"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(variables: &[(&str, &str)]) -> Option<String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        sign_of_others(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn nothing_is_said_to_who_trains_alone_on_purpose() {
        assert_eq!(sign(&[]), None);
        assert_eq!(sign(&[(JobSecret::FILE_ENV, "")]), None);
        // A batch script, a task that is the only one, and a pod.
        assert_eq!(sign(&[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4")]), None);
        assert_eq!(sign(&[("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(sign(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]), None);
    }

    #[test]
    fn a_secret_or_certificate_without_others_is_named_and_not_shown() {
        for name in [JobSecret::ENV, JobSecret::FILE_ENV, Certificates::JOB_ENV] {
            let line = sign(&[(name, "hunter2")]).unwrap();
            assert!(line.contains(&format!("{name} is set")), "{line}");
            assert!(!line.contains("hunter2"), "{line}");
        }
    }

    #[test]
    fn a_program_that_cannot_join_a_running_job_says_so() {
        let line = sign(&[(JobSecret::ENV, "5a"), (GroupConfig::SEEDS_ENV, "a:1")]).unwrap();
        assert!(line.contains("elastic_from_env"), "{line}");
    }

    #[test]
    fn tasks_of_slurm_that_do_not_train_together_are_counted() {
        let line = sign(&[("SLURM_STEP_NUM_TASKS", "4"), (JobSecret::FILE_ENV, "/s")]).unwrap();
        assert!(line.contains("one of 4 tasks"), "{line}");
        assert!(line.contains("srun --mpi=pmi2"), "{line}");
    }
}
