//! Sources that are asked over the network, and what has to be said about them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::ResolveError;
use super::source::Source;
use crate::seconds::seconds;

#[cfg(feature = "services")]
mod ask;

/// What to ask the services for.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Services")]
pub(super) struct Services {
    /// gce, tpu: the project [tpu default: this machine's]
    #[arg(long)]
    project: Option<String>,

    /// gce, tpu: the zone [tpu default: this machine's]
    #[arg(long)]
    zone: Option<String>,

    /// gce: the instance group
    #[arg(long)]
    instance_group: Option<String>,

    /// gce, kubernetes: the port on which every task listens [kubernetes default: 8470]
    #[arg(long)]
    port: Option<u16>,

    /// kubernetes: a job and the labels of its pods, such as worker:app=train; may be repeated
    /// [default: worker:job-name=tensorflow]
    #[arg(long, value_name = "JOB:LABELS", value_parser = selector)]
    selector: Vec<(String, String)>,

    /// kubernetes: the namespace of the pods [default: this pod's; outside a cluster, all]
    #[arg(long)]
    namespace: Option<String>,

    /// kubernetes: the kubeconfig, also inside a cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// tpu: local, grpc://HOST:PORT,…, a node or queuedResources/NAME [default: TPU_NAME and
    /// others]
    #[arg(long)]
    tpu: Option<String>,

    /// gce, kubernetes, tpu: how long each answer may take [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    deadline: Option<Duration>,
}

impl Services {
    /// Refuses what was said and this source would not hear.
    pub(super) fn check_for(&self, asked: Source) -> Result<(), ResolveError> {
        let misplaced = self
            .said()
            .into_iter()
            .find(|(said, _, takers)| *said && !takers.contains(&asked));
        match misplaced {
            None => Ok(()),
            Some((_, argument, takers)) => Err(ResolveError::ArgumentMisplaced {
                asked,
                argument,
                takers,
            }),
        }
    }

    /// Whether each argument was given, and the sources that take it.
    fn said(&self) -> [(bool, &'static str, &'static [Source]); 9] {
        use Source::{Gce, Kubernetes, Tpu};
        [
            (self.project.is_some(), "--project", &[Gce, Tpu]),
            (self.zone.is_some(), "--zone", &[Gce, Tpu]),
            (self.instance_group.is_some(), "--instance-group", &[Gce]),
            (self.port.is_some(), "--port", &[Gce, Kubernetes]),
            (!self.selector.is_empty(), "--selector", &[Kubernetes]),
            (self.namespace.is_some(), "--namespace", &[Kubernetes]),
            (self.kubeconfig.is_some(), "--kubeconfig", &[Kubernetes]),
            (self.tpu.is_some(), "--tpu", &[Tpu]),
            (
                self.deadline.is_some(),
                "--deadline",
                &[Gce, Kubernetes, Tpu],
            ),
        ]
    }
}

fn selector(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once(':') {
        Some((job, labels)) if !job.is_empty() && !labels.is_empty() => {
            Ok((job.to_owned(), labels.to_owned()))
        }
        _ => Err("write a job, a colon and labels, such as worker:app=train"),
    }
}

#[cfg(test)]
mod tests {
    use clap::{FromArgMatches, ValueEnum};

    use super::*;

    #[test]
    fn every_argument_says_for_whom_it_is() {
        let command = Services::augment_args(clap::Command::new("services"));
        let services = Services::default();
        let said = services.said();
        for argument in command.get_arguments() {
            let long = format!("--{}", argument.get_long().unwrap());
            let (_, _, takers) = said.iter().find(|(_, name, _)| *name == long).unwrap();
            let help = argument.get_help().unwrap().to_string();
            let mut expected: Vec<_> = takers.iter().map(|taker| taker.name()).collect();
            expected.sort();
            assert_eq!(help.split(':').next().unwrap(), expected.join(", "));
        }
        assert_eq!(said.len(), command.get_arguments().count());
    }

    #[test]
    fn an_argument_for_another_source_is_refused() {
        let command = Services::augment_args(clap::Command::new("services"));
        let matches = command.get_matches_from(["services", "--zone", "z"]);
        let services = Services::from_arg_matches(&matches).unwrap();
        for &source in Source::value_variants() {
            let taken = matches!(source, Source::Gce | Source::Tpu);
            assert_eq!(services.check_for(source).is_ok(), taken, "{source}");
        }
        assert_eq!(
            services.check_for(Source::Slurm).unwrap_err().to_string(),
            "--zone says nothing to slurm: leave it out, or name the source that it is for \
             (gce, tpu)"
        );
    }

    #[test]
    fn a_selector_is_a_job_and_labels() {
        let expected = ("w".to_owned(), "app in (a,b),t!=x:y".to_owned());
        assert_eq!(selector("w:app in (a,b),t!=x:y"), Ok(expected));
        for wrong in ["", ":", "w", "w:", ":app=a"] {
            assert!(selector(wrong).is_err(), "{wrong}");
        }
    }
}
