//! Who may describe the cluster, and what in the environment shows that it does.

use std::fmt::{self, Display};

use clap::ValueEnum;
use meshwork_cluster_resolver::{
    Error, FluxResolver, Launcher, LsfResolver, PbsResolver, SkyPilotResolver, Variables,
};

/// A source that describes clusters.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Source {
    /// The TF_CONFIG variable, as launchers and operators set it
    TfConfig,
    /// The torchrun that started this process, with all others on this host
    Torchrun,
    /// The mpirun of Open MPI that started this process, with all others on this host
    OpenMpi,
    /// The mpiexec of MPICH that started this process, with all others on this host
    Mpich,
    /// The Flux job whose task this process is
    Flux,
    /// The LSF job in which blaunch started this process
    Lsf,
    /// The SkyPilot task on whose node this process is
    #[value(name = "skypilot")]
    SkyPilot,
    /// The Slurm step whose task this process is
    Slurm,
    /// The PBS job in which pbsdsh started this process
    Pbs,
    /// The SageMaker training job whose container this is
    #[value(name = "sagemaker")]
    SageMaker,
    /// A Cloud TPU
    Tpu,
    /// The pods of a Kubernetes cluster
    Kubernetes,
    /// An instance group of Google Compute Engine
    Gce,
}

/// The source that is asked, and how it came to be chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Choice {
    pub(super) source: Source,
    /// The variables that show sources, the chosen one first; none if the user named it.
    pub(super) signs: Vec<(&'static str, Source)>,
}

impl Source {
    /// The word for it on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Variables of which one is set wherever this source describes the cluster.
    fn signs(self) -> &'static [&'static str] {
        match self {
            Self::TfConfig => &["TF_CONFIG"],
            Self::Torchrun => const { &[Launcher::Torchrun.sign()] },
            Self::OpenMpi => const { &[Launcher::OpenMpi.sign()] },
            Self::Mpich => const { &[Launcher::Mpich.sign()] },
            Self::Flux => &[FluxResolver::SIGN],
            Self::Lsf => &[LsfResolver::SIGN],
            Self::SkyPilot => &[SkyPilotResolver::SIGN],
            Self::Slurm => &["SLURM_STEP_ID", "SLURM_JOB_ID"],
            Self::Pbs => &[PbsResolver::SIGN],
            Self::SageMaker => &["SM_HOSTS"],
            Self::Tpu => &[
                "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS",
                "TPU_NAME",
                "TPU_CONFIG",
                "TPU_WORKER_HOSTNAMES",
            ],
            Self::Kubernetes => &["KUBERNETES_SERVICE_HOST"],
            // Only the user knows which group is meant.
            Self::Gce => &[],
        }
    }

    /// Whether this value of one of its signs shows the source. Launchers and services take an
    /// empty variable for none, as the templates of pods and machines set them.
    fn is_shown_by(self, value: &str) -> bool {
        match self {
            Self::TfConfig | Self::Slurm | Self::SageMaker => true,
            Self::Torchrun
            | Self::OpenMpi
            | Self::Mpich
            | Self::Flux
            | Self::Lsf
            | Self::SkyPilot
            | Self::Pbs
            | Self::Tpu
            | Self::Kubernetes
            | Self::Gce => !value.is_empty(),
        }
    }
}

impl Choice {
    pub(super) fn named(source: Source) -> Self {
        let signs = Vec::new();
        Self { source, signs }
    }

    /// The first source of which the environment has a sign: those that were set for this job come
    /// before those that tell on which service it runs.
    pub(super) fn detect(variables: &Variables) -> Result<Option<Self>, Error> {
        let mut signs = Vec::new();
        for &source in Source::value_variants() {
            for &sign in source.signs() {
                let value = variables.read(sign)?;
                if value.is_some_and(|value| source.is_shown_by(&value)) {
                    signs.push((sign, source));
                    break;
                }
            }
        }
        Ok(signs.first().map(|&(_, source)| Self {
            source,
            signs: signs.clone(),
        }))
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// The words for these sources.
pub(super) fn names(sources: &[Source]) -> String {
    let names: Vec<_> = sources.iter().map(|source| source.name()).collect();
    names.join(", ")
}

/// Every sign that is looked for.
pub(super) fn all_signs() -> String {
    let sources = Source::value_variants().iter();
    let signs: Vec<_> = sources.flat_map(|source| source.signs()).copied().collect();
    signs.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(set: &[&str], expected: &[(&str, Source)]) {
        let variables = Variables::fixed(set.iter().map(|&name| (name, "set")));
        let choice = Choice::detect(&variables).unwrap();
        let signs = choice.as_ref().map_or(&[][..], |choice| &choice.signs);
        assert_eq!(signs, expected);
        let chosen = choice.map(|choice| choice.source);
        assert_eq!(chosen, expected.first().map(|(_, source)| *source));
    }

    #[test]
    fn what_was_set_for_the_job_comes_before_where_it_runs() {
        check(&[], &[]);
        check(&["SLURM_JOB_ID"], &[("SLURM_JOB_ID", Source::Slurm)]);
        let both = ["SLURM_JOB_ID", "SLURM_STEP_ID", "TF_CONFIG"];
        let expected = [
            ("TF_CONFIG", Source::TfConfig),
            ("SLURM_STEP_ID", Source::Slurm),
        ];
        check(&both, &expected);
    }

    #[test]
    fn a_service_is_not_shown_by_an_empty_variable() {
        let shown = |value| {
            let variables =
                Variables::fixed([("TPU_NAME", value), ("KUBERNETES_SERVICE_HOST", "k")]);
            Choice::detect(&variables).unwrap().unwrap().source
        };
        assert_eq!((shown("t"), shown("")), (Source::Tpu, Source::Kubernetes));
    }

    #[test]
    fn every_source_has_a_name_and_most_have_a_sign() {
        for source in Source::value_variants() {
            let needs_sign = source.name() != "gce";
            assert!(!source.name().is_empty() && source.signs().is_empty() != needs_sign);
        }
        assert_eq!(Source::TfConfig.name(), "tf-config");
    }
}
