//! Spans of a worker, for a collector of OpenTelemetry.

use meshwork_cluster_resolver::{Cluster, ClusterResolver, EnvironmentResolver};
use meshwork_status::{SpanExport, SpanOrigin};

use crate::Error;

/// Sends the spans of this worker to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names; `None`
/// where the variable is not set. Rank, number of workers and job, by the address of its first
/// worker, are as [`from_env`](crate::MultiWorkerMirroredStrategy::from_env) is going to find them.
///
/// It comes first in a program, so that joining is seen as well, and is dropped last:
///
/// ```
/// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, SpanExport, export_spans};
/// use tracing_subscriber::prelude::*;
///
/// let export = export_spans()?;
/// tracing_subscriber::registry().with(export.as_ref().map(SpanExport::layer)).init();
/// let strategy = MultiWorkerMirroredStrategy::from_env()?;
/// # strategy.leave()?;
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Cluster`] where a variable of the cluster cannot be read; [`Error::Status`].
pub fn export_spans() -> Result<Option<SpanExport>, Error> {
    let cluster = EnvironmentResolver::from_env().snapshot()?;
    Ok(SpanExport::from_env(&origin(&cluster))?)
}

/// Nothing is known of a worker that is alone, or that asks to be let in.
fn origin(cluster: &Cluster) -> SpanOrigin {
    if let Some(endpoint) = cluster.rendezvous() {
        return SpanOrigin {
            rank: Some(endpoint.rank()),
            world: Some(endpoint.world()),
            job: Some(endpoint.address().to_owned()),
        };
    }
    match cluster.placement() {
        Ok(placement) => SpanOrigin {
            rank: Some(placement.rank()),
            world: Some(placement.world()),
            job: placement.addresses().first().cloned(),
        },
        // Whoever joins is told what is wrong with it.
        Err(_) => SpanOrigin::default(),
    }
}

#[cfg(test)]
mod tests {
    use meshwork_cluster_resolver::Variables;

    use super::*;

    #[track_caller]
    fn assert_origin(variables: &[(&str, &str)], rank: Option<u32>, job: Option<&str>) {
        let variables = Variables::fixed(variables.iter().copied());
        let cluster = EnvironmentResolver::from_variables(variables).snapshot();
        let expected = SpanOrigin {
            rank,
            world: rank.map(|_| 2),
            job: job.map(str::to_owned),
        };
        assert_eq!(origin(&cluster.unwrap()), expected);
    }

    #[test]
    fn spans_are_of_the_rank_that_the_environment_names() {
        let task =
            r#"{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}"#;
        assert_origin(&[("TF_CONFIG", task)], Some(1), Some("a:1"));
        let torchrun = [
            ("RANK", "1"),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "a"),
            ("MASTER_PORT", "29500"),
        ];
        assert_origin(&torchrun, Some(1), Some("a:29500"));
        assert_origin(&[], None, None);
    }
}
