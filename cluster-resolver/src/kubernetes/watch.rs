//! Waiting for the API server to tell of a change.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, pending, select, select_all};
use http_body_util::BodyExt;
use kube_client::core::params::WatchParams;
use kube_client::core::request::Request;
use serde_json::Value;

use super::KubernetesResolver;
use super::ask::Server;
use super::pods::{self, Pod};
use crate::error::{Error, ServiceError};
use crate::explanation::Explanation;
use crate::resolver::{Stop, WatchSignal};
use crate::service::answer::Answer;
use crate::service::call;
use crate::spec::ClusterSpec;

impl KubernetesResolver {
    /// Waits until pods differ from what made this cluster.
    pub(super) fn watch_pods(
        &self,
        previous: &ClusterSpec,
        time: Duration,
        stop: &Stop,
    ) -> Result<WatchSignal, Error> {
        let end = Instant::now().checked_add(time);
        let session = self.begin(&mut Explanation::default())?;
        Ok(call::run(async {
            let told = pin!(async {
                let server = session.connect().await?;
                let (mut jobs, mut watches) = (Vec::new(), Vec::new());
                for (job, selectors) in self.selectors() {
                    let mut groups = Vec::new();
                    for selector in selectors {
                        let (pods, version) = server.list_at(&selector).await?;
                        groups.push(pods.clone());
                        watches.push(Box::pin(change(&server, selector, pods, version)));
                    }
                    jobs.push((job, groups));
                }
                // What changed since the last look would not be told of any more.
                if self.spec_of(jobs).as_ref() != Ok(previous) {
                    return Ok(WatchSignal::Changed);
                }
                // Nobody tells of jobs that choose no pods.
                if watches.is_empty() {
                    return pending().await;
                }
                let (changed, ..) = select_all(watches).await;
                changed.map(|()| WatchSignal::Changed)
            });
            // Nor is a server that is silent waited for any longer.
            match select(told, pin!(until(end, stop))).await {
                Either::Left((told, _)) => told,
                Either::Right(_) => Ok(WatchSignal::Quiet),
            }
        })?)
    }

    fn spec_of(&self, jobs: Vec<(String, Vec<Vec<Pod>>)>) -> Result<ClusterSpec, Error> {
        let jobs = jobs.into_iter().map(|(job, groups)| {
            let members = pods::arrange(&job, groups)?;
            Ok((job, self.tasks(&members)))
        });
        ClusterSpec::new(jobs.collect::<Result<Vec<_>, Error>>()?)
    }
}

/// Ends when a pod that the selector chooses differs from those listed, or when the server says
/// nothing more, or that what it could say is too old: then too it is time to look.
async fn change(
    server: &Server,
    selector: String,
    pods: Vec<Pod>,
    version: String,
) -> Result<(), ServiceError> {
    let url = server.url();
    let known: BTreeMap<String, Pod> = pods.into_iter().map(|pod| (pod.label(), pod)).collect();
    let params = WatchParams::default().labels(&selector).timeout(LONGEST);
    let request = || Request::new(&server.path).watch(&params, &version);
    let opened = server.call.retry(&url, || server.send(request())).await;
    let mut body = match opened {
        Err(ServiceError::Refused { status: 410, .. }) => return Ok(()),
        opened => opened?,
    };
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        text.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            if !is_known(&server.read(&line)?, &url, &known)? {
                return Ok(());
            }
        }
        if text.len() > LONGEST_LINE {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether an event says nothing new.
fn is_known(event: &Value, url: &str, known: &BTreeMap<String, Pod>) -> Result<bool, ServiceError> {
    let event = Answer::new(url, event);
    match event.at("type").text()? {
        "BOOKMARK" => Ok(true),
        "ADDED" | "MODIFIED" => {
            let pod = Pod::read(&event.at("object"))?;
            Ok(known.get(&pod.label()) == Some(&pod))
        }
        // A pod is gone, or what could be told is too old.
        _ => Ok(false),
    }
}

/// Ends when the time is over or the watch is stopped.
async fn until(end: Option<Instant>, stop: &Stop) {
    while !stop.is_stopped() && end.is_none_or(|end| Instant::now() < end) {
        let left = end.map_or(BEAT, |end| end.saturating_duration_since(Instant::now()));
        tokio::time::sleep(left.min(BEAT)).await;
    }
}

/// How often the end is looked for.
const BEAT: Duration = Duration::from_millis(50);

/// For how long the server is asked to tell, in seconds; it ends sooner if the caller does.
const LONGEST: u32 = 280;

/// More bytes than any pod has.
const LONGEST_LINE: usize = 16 << 20;
