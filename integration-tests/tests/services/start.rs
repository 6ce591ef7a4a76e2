//! How often a service is asked for the start of a job: once, whatever the start wants to know.

use meshwork_cluster_resolver::{ClusterResolver, KubernetesAccess, KubernetesResolver, Variables};
use meshwork_strategy::{CommunicationOptions, JobSecret, MultiWorkerMirroredStrategy};
use serde_json::json;

use crate::google::cloud::{self, Cloud};
use crate::loopback::{Loopback, Reply, kubeconfig};

/// Starts a job of one worker, and checks what it cost to find that out.
#[track_caller]
fn check(resolver: &dyn ClusterResolver, server: &Loopback, requests: &[&str]) {
    let (secret, options) = (JobSecret::generate().unwrap(), CommunicationOptions::new());
    let strategy = MultiWorkerMirroredStrategy::new(resolver, secret, options).unwrap();
    assert_eq!(strategy.num_replicas_in_sync(), 1);
    let asked = server.asked();
    let paths: Vec<_> = asked.iter().map(|asked| asked.path.as_str()).collect();
    assert_eq!(paths, requests);
}

#[test]
fn a_start_asks_compute_engine_once() {
    let cloud = Cloud {
        machines: vec![("w10", "RUNNING", "10.0.0.1")],
        ..Cloud::default()
    };
    let server = cloud.start();
    let resolver = cloud::group(&server).with_own_task_id();
    let requests = [
        "/computeMetadata/v1/instance/name",
        "/computeMetadata/v1/instance/service-accounts/default/token",
        "/compute/v1/projects/p/zones/z/instanceGroups/g/listInstances",
        "/compute/v1/projects/p/zones/z/instances/w10",
    ];
    check(&resolver, &server, &requests);
}

#[test]
fn a_start_asks_the_tpu_api_once() {
    let node = json!({
        "state": "READY", "health": "HEALTHY", "acceleratorType": "v2-8",
        "networkEndpoints": [{"ipAddress": "10.2.0.2", "port": 8470}],
    });
    let cloud = Cloud {
        nodes: vec![("t", node)],
        ..Cloud::default()
    };
    let server = cloud.start();
    let requests = [
        "/computeMetadata/v1/project/project-id",
        "/computeMetadata/v1/instance/zone",
        "/computeMetadata/v1/instance/service-accounts/default/token",
        "/v1/projects/p/locations/z/nodes/t",
    ];
    check(&cloud::tpu(&server, "t"), &server, &requests);
}

#[test]
fn a_start_asks_the_api_server_once() {
    let pod = json!({
        "metadata": {"name": "w", "namespace": "ns"},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    });
    let server = Loopback::start(move |_| Reply::json(&json!({"items": [pod]})));
    let folder = tempfile::tempdir().unwrap();
    let config = kubeconfig(folder.path(), &server.url(), "t");
    let resolver = KubernetesResolver::new()
        .with_access(KubernetesAccess::kubeconfig(config))
        .with_variables(Variables::fixed([("POD_NAME", "w")]));
    check(&resolver, &server, &["/api/v1/pods"]);
}
