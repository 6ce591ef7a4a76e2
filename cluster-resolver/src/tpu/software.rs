//! The software of TPU workers, which each of them answers for.

use std::panic;

use tokio::task::JoinSet;

use super::{TpuResolver, TpuTarget};
use crate::error::{Error, ServiceError};
use crate::google::Session;
use crate::resolver::ClusterResolver;
use crate::service::answer::{self, Answer};
use crate::service::call;
use crate::service::http::{Request, base_url, below, shown};

/// When workers restart with another version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RestartType {
    /// In any case.
    #[default]
    Always,
    /// If they run another version now.
    IfNeeded,
}

impl RestartType {
    fn parameter(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::IfNeeded => "ifNeeded",
        }
    }
}

impl TpuResolver {
    /// The version that the TPU runs: TensorFlow's on a node that the API describes, else what the
    /// first worker says; `None` where nobody knows.
    ///
    /// # Errors
    /// Those of [`nodes`](Self::nodes), and whatever keeps the worker from answering.
    #[doc(alias = "runtime_version")]
    pub fn software_version(&self) -> Result<Option<String>, Error> {
        match self.target()? {
            TpuTarget::Local => Ok(None),
            TpuTarget::Named(_) => {
                let nodes = self.nodes()?;
                let first = nodes.first().and_then(|node| node.tensorflow_version());
                Ok(first.map(str::to_owned))
            }
            TpuTarget::Addresses(workers) => {
                let session = self.settings.begin()?;
                let Some(worker) = workers.first() else {
                    return Ok(None);
                };
                let request = Request::get(below(&self.base(worker)?, [PATH])?);
                Ok(call::run(current(session, request))?)
            }
        }
    }

    /// Makes all workers run this version, at the same time.
    ///
    /// # Errors
    /// Those of `cluster_spec`; [`Error::UnknownJob`] for the TPU of this machine, and
    /// [`Error::UnknownTask`] for one without workers. [`ServiceError::TpuVersion`] for a version
    /// that a worker does not know, and whatever keeps one from answering: other workers may have
    /// changed by then.
    #[doc(alias = "configure_tpu_version")]
    pub fn configure_version(&self, version: &str, restart: RestartType) -> Result<(), Error> {
        let spec = self.cluster_spec()?;
        // Where nobody can be asked, nothing would change.
        spec.task_address(&self.job_name, 0)?;
        let workers = spec.tasks().filter(|(job, ..)| *job == self.job_name);
        let mut requests = Vec::new();
        for (_, _, worker) in workers {
            let url = below(&self.base(worker)?, [PATH, version])?;
            let url_shown = shown(&url);
            let request = Request::post(url).with_query("restartType", restart.parameter());
            requests.push((url_shown, request));
        }
        let session = self.settings.begin()?;
        Ok(call::run(change(session, requests, version))?)
    }

    /// Where the worker at this address answers for its software.
    fn base(&self, worker: &str) -> Result<reqwest::Url, ServiceError> {
        let host = worker.rsplit_once(':').map_or(worker, |(host, _)| host);
        base_url(&format!("http://{host}:{}", self.software_port))
    }
}

async fn current(session: Session, request: Request<'_>) -> Result<Option<String>, ServiceError> {
    let reply = match session.local_http().ask(&session.call, &request).await {
        Err(ServiceError::Refused { status: 404, .. }) => return Ok(None),
        reply => reply?,
    };
    let value = answer::parse(&reply.url, &reply.body, None)?;
    let version = Answer::new(&reply.url, &value).at("currentVersion");
    Ok(version.optional_text()?.map(str::to_owned))
}

async fn change(
    session: Session,
    requests: Vec<(String, Request<'static>)>,
    version: &str,
) -> Result<(), ServiceError> {
    let mut asked = JoinSet::new();
    for (worker, request) in requests {
        let (session, version) = (session.clone(), version.to_owned());
        asked.spawn(async move {
            let reply = session.local_http().ask(&session.call, &request).await;
            match reply {
                Err(ServiceError::Refused { status: 404, .. }) => {
                    Err(ServiceError::TpuVersion { worker, version })
                }
                reply => reply.map(drop),
            }
        });
    }
    while let Some(changed) = asked.join_next().await {
        match changed {
            Ok(changed) => changed?,
            Err(panicked) => panic::resume_unwind(panicked.into_panic()),
        }
    }
    Ok(())
}

/// Where workers answer for their software.
pub(super) const DEFAULT_PORT: u16 = 8475;

const PATH: &str = "requestversion";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variables::Variables;

    #[test]
    fn a_version_for_no_worker_is_refused() {
        let resolver = TpuResolver::new()
            .with_tpu("local")
            .with_variables(Variables::fixed([("A", "b")]));
        let refused = resolver.configure_version("2.20", RestartType::Always);
        let (job, known) = ("worker".to_owned(), Vec::new());
        assert_eq!(refused, Err(Error::UnknownJob { job, known }));
    }
}
