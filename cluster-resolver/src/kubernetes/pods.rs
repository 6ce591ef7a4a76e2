//! Pods as the API describes them, and which tasks they are.

use std::collections::BTreeMap;

use crate::address;
use crate::error::ServiceError;
use crate::service::answer::Answer;
use crate::service::order;

/// A pod, as far as it matters to a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Pod {
    namespace: String,
    name: String,
    phase: String,
    host: Option<String>,
    deletion: Deletion,
    index: Option<u32>,
}

/// Whether a pod has been told to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Deletion {
    Asked,
    NotAsked,
}

/// A pod that is a task.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Member {
    pub(super) index: u32,
    pub(super) pod: Pod,
    host: String,
}

impl Pod {
    /// Reads one pod of a list or of a watch.
    pub(super) fn read(pod: &Answer<'_>) -> Result<Self, ServiceError> {
        let (metadata, status) = (pod.at("metadata"), pod.at("status"));
        let name = metadata.at("name").full_text()?;
        let text = |field: Answer<'_>| {
            let text = field.optional_text()?;
            Ok::<_, ServiceError>(text.filter(|text| !text.is_empty()).map(str::to_owned))
        };
        // With host networking the pod's address is its host's, which may be known earlier.
        let host = match text(status.at("podIP"))? {
            None if pod.at("spec").at("hostNetwork").is_true() => text(status.at("hostIP"))?,
            host => host,
        };
        let deletion = match metadata.at("deletionTimestamp").is_present() {
            true => Deletion::Asked,
            false => Deletion::NotAsked,
        };
        Ok(Self {
            namespace: text(metadata.at("namespace"))?.unwrap_or_default(),
            phase: text(status.at("phase"))?.unwrap_or_default(),
            index: index(&metadata, name)?,
            name: name.to_owned(),
            host,
            deletion,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn phase(&self) -> &str {
        &self.phase
    }

    /// Namespace and name, as people write them.
    pub(super) fn label(&self) -> String {
        if self.namespace.is_empty() {
            return self.name.clone();
        }
        format!("{}/{}", self.namespace, self.name)
    }

    /// Where it is if it has a part in the cluster, `None` if it has none any more.
    pub(super) fn standing(&self) -> Result<Option<String>, ServiceError> {
        if self.deletion == Deletion::Asked || matches!(&*self.phase, "Succeeded" | "Failed") {
            return Ok(None);
        }
        let pod = self.label();
        if self.phase != "Running" {
            let phase = self.phase.clone();
            return Err(ServiceError::PodNotRunning { pod, phase });
        }
        match &self.host {
            Some(host) => Ok(Some(host.clone())),
            None => Err(ServiceError::PodWithoutAddress { pod }),
        }
    }
}

impl Member {
    pub(super) fn address(&self, port: u16) -> String {
        address::join(&self.host, port)
    }
}

/// The tasks of one job, by index: each selector's pods, in the order of the selectors.
pub(super) fn arrange(job: &str, groups: Vec<Vec<Pod>>) -> Result<Vec<Member>, ServiceError> {
    let mut members: Vec<Member> = Vec::new();
    for mut group in groups {
        group.sort_by(|a, b| {
            order::natural(&a.name, &b.name).then_with(|| a.namespace.cmp(&b.namespace))
        });
        for pod in group {
            let known = |member: &Member| member.pod.label() == pod.label();
            let Some(host) = pod.standing()? else {
                continue;
            };
            if !members.iter().any(known) {
                members.push(Member {
                    index: 0,
                    pod,
                    host,
                });
            }
        }
    }
    let carried = members.iter().map(|member| member.pod.index);
    let carried: Option<Vec<u32>> = carried.collect();
    let indices = carried.unwrap_or_else(|| (0..).take(members.len()).collect());
    let mut by_index: BTreeMap<u32, Member> = BTreeMap::new();
    for (mut member, index) in members.into_iter().zip(indices) {
        member.index = index;
        let second = member.pod.label();
        if let Some(first) = by_index.insert(index, member) {
            return Err(ServiceError::PodIndexTwice {
                job: job.to_owned(),
                index,
                first: first.pod.label(),
                second,
            });
        }
    }
    Ok(by_index.into_values().collect())
}

/// The index that a controller gave the pod.
fn index(metadata: &Answer<'_>, name: &str) -> Result<Option<u32>, ServiceError> {
    for place in ["labels", "annotations"] {
        for key in INDEX_KEYS {
            let field = metadata.at(place).at(key);
            if field.is_present() {
                return field.count().map(Some);
            }
        }
    }
    // Before Kubernetes 1.28 a StatefulSet told its ordinals in names only.
    let of_set = metadata
        .at("labels")
        .at("statefulset.kubernetes.io/pod-name")
        .is_present();
    let ordinal = name.rsplit_once('-').filter(|_| of_set);
    Ok(ordinal.and_then(|(_, ordinal)| ordinal.parse().ok()))
}

/// Labels and annotations that hold the index of a pod. Those of controllers that make sets or jobs
/// of Kubernetes come first: a LeaderWorkerSet's leader has the number of its group there.
const INDEX_KEYS: [&str; 5] = [
    "leaderworkerset.sigs.k8s.io/worker-index",
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "jobset.sigs.k8s.io/job-global-index",
];

#[cfg(test)]
mod tests;
