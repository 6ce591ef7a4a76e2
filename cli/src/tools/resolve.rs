//! `meshwork resolve`: who is in the cluster, and why.

mod report;
mod services;
mod source;

use std::io::{self, Write};

use clap::Args;
use meshwork_cluster_resolver::{
    ClusterResolver, EnvironmentResolver, FluxResolver, Launcher, LauncherResolver, LsfResolver,
    PbsResolver, SageMakerResolver, SkyPilotResolver, SlurmResolver, TfConfigResolver, Variables,
};

use report::Report;
use services::Services;
use source::{Choice, Source};

/// What to resolve, and how to show it.
#[derive(Args, Debug)]
pub(crate) struct Resolve {
    /// Who describes the cluster [default: whoever the environment shows]
    #[arg(value_enum)]
    source: Option<Source>,

    /// Print one JSON object
    ///
    /// It has source, signs (the variables that showed sources), cluster (for each job its
    /// addresses in order, or by index where some are missing), task (type and index), rank, world,
    /// master, rpc_layer, environment, num_accelerators, errors (by the name of the answer that is
    /// missing), and explanation where asked for. What is not known is null.
    #[arg(long)]
    json: bool,

    /// Print what each answer comes from, what was ignored, and why
    #[arg(long)]
    explain: bool,

    #[command(flatten)]
    services: Services,
}

/// Why `meshwork resolve` fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    /// Nothing shows where the process runs.
    #[error(
        "nothing here describes a cluster: none of {} is set; name the source, or set TF_CONFIG",
        source::all_signs()
    )]
    NothingFound,
    /// This build has no client for the source.
    #[cfg(not(feature = "services"))]
    #[error(
        "this build of meshwork cannot ask {asked}: build meshwork-cli with --features services"
    )]
    NotBuilt {
        /// The source.
        asked: Source,
    },
    /// The source cannot be asked without this.
    #[cfg(feature = "services")]
    #[error("{asked} cannot be asked without {}: give all of them", arguments.join(", "))]
    ArgumentsMissing {
        /// The source.
        asked: Source,
        /// The arguments.
        arguments: Vec<&'static str>,
    },
    /// The source has no use for this.
    #[error(
        "{argument} says nothing to {asked}: leave it out, or name the source that it is for ({})",
        source::names(takers)
    )]
    ArgumentMisplaced {
        /// The source.
        asked: Source,
        /// The argument.
        argument: &'static str,
        /// The sources that take it.
        takers: &'static [Source],
    },
    /// An answer is missing; the report said which.
    #[error(transparent)]
    Unanswered(#[from] meshwork_cluster_resolver::Error),
    /// The report cannot be written.
    #[error("standard output cannot be written")]
    Output(#[from] io::Error),
}

impl Resolve {
    fn resolver(
        &self,
        source: Source,
        variables: Variables,
    ) -> Result<Box<dyn ClusterResolver>, ResolveError> {
        self.services.check_for(source)?;
        Ok(match source {
            Source::TfConfig => Box::new(TfConfigResolver::from_variables(variables)),
            Source::Torchrun => launched(Launcher::Torchrun, variables),
            Source::OpenMpi => launched(Launcher::OpenMpi, variables),
            Source::Mpich => launched(Launcher::Mpich, variables),
            Source::Flux => Box::new(FluxResolver::from_variables(variables)),
            Source::Lsf => Box::new(LsfResolver::from_variables(variables)),
            Source::SkyPilot => Box::new(SkyPilotResolver::from_variables(variables)),
            Source::Slurm => Box::new(SlurmResolver::from_variables(variables)),
            Source::Pbs => Box::new(PbsResolver::from_variables(variables)),
            Source::SageMaker => Box::new(SageMakerResolver::from_variables(variables)),
            #[cfg(feature = "services")]
            Source::Gce => self.services.gce(variables)?,
            #[cfg(feature = "services")]
            Source::Kubernetes => self.services.kubernetes(variables),
            #[cfg(feature = "services")]
            Source::Tpu => self.services.tpu(variables),
            #[cfg(not(feature = "services"))]
            Source::Gce | Source::Kubernetes | Source::Tpu => {
                return Err(ResolveError::NotBuilt { asked: source });
            }
        })
    }
}

fn launched(launcher: Launcher, variables: Variables) -> Box<dyn ClusterResolver> {
    Box::new(LauncherResolver::from_variables(launcher, variables))
}

/// Resolves and prints. What can be answered is printed even if something else cannot.
pub(crate) fn run(wanted: &Resolve) -> Result<(), ResolveError> {
    let variables = Variables::of_process();
    let choice = match wanted.source {
        Some(source) => Choice::named(source),
        None => Choice::detect(&variables)?.ok_or(ResolveError::NothingFound)?,
    };
    let resolver: Box<dyn ClusterResolver> = match (wanted.source, choice.source) {
        // With the ports of a program that begins by `from_env`.
        (None, Source::Flux | Source::Lsf | Source::SkyPilot | Source::Slurm)
            if EnvironmentResolver::from_variables(variables.clone()).is_described()
                && variables.read("MESHWORK_SEEDS")?.is_none() =>
        {
            wanted.services.check_for(choice.source)?;
            Box::new(EnvironmentResolver::from_variables(variables))
        }
        _ => wanted.resolver(choice.source, variables)?,
    };
    let mut report = Report::ask(&choice, resolver.as_ref());
    if wanted.explain {
        report = report.explained();
    }
    let mut output = io::stdout().lock();
    if wanted.json {
        writeln!(output, "{}", report.to_json())?;
    } else {
        write!(output, "{report}")?;
    }
    output.flush()?;
    report
        .into_error()
        .map_or(Ok(()), |error| Err(error.into()))
}
