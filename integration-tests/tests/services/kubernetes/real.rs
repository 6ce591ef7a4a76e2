//! The resolver against the real API server.

#[path = "forgotten.rs"]
mod forgotten;

use std::time::Duration;

use kube_client::Client;
use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::core::params::{DeleteParams, Patch, PatchParams, PostParams};
use kube_client::core::request::Request;
use meshwork_cluster_resolver::{ClusterResolver, Error, ServiceError};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::apiserver::{ADMIN, ApiServer, STRANGER};

/// Somebody who makes pods and says how they are, as controllers and nodes do.
struct Operator {
    runtime: Runtime,
    client: Client,
}

impl Operator {
    fn of(server: &ApiServer) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.enable_all().worker_threads(1).build().unwrap();
        let file = Kubeconfig::read_from(server.kubeconfig(ADMIN)).unwrap();
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options)
                .await
                .unwrap();
            Client::try_from(config).unwrap()
        });
        Self { runtime, client }
    }

    fn create(&self, path: &str, object: &Value) {
        let body = object.to_string().into_bytes();
        let request = Request::new(path)
            .create(&PostParams::default(), body)
            .unwrap();
        self.runtime
            .block_on(self.client.request_text(request))
            .unwrap();
    }

    fn namespace(&self, name: &str) {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": name}}));
    }

    fn pod(&self, namespace: &str, name: &str, labels: Value) {
        let pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        self.create(&pods(namespace), &pod);
    }

    fn status(&self, namespace: &str, name: &str, phase: &str, ip: &str) {
        let status = json!({"status": {
            "phase": phase, "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "192.168.0.1",
        }});
        let request = Request::new(pods(namespace)).patch_subresource(
            "status",
            name,
            &PatchParams::default(),
            &Patch::Merge(status),
        );
        self.runtime
            .block_on(self.client.request_text(request.unwrap()))
            .unwrap();
    }

    fn delete(&self, namespace: &str, name: &str) {
        let now = DeleteParams::default().grace_period(0);
        let request = Request::new(pods(namespace)).delete(name, &now).unwrap();
        self.runtime
            .block_on(self.client.request_text(request))
            .unwrap();
    }
}

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

#[test]
fn a_real_api_server_is_understood() {
    let Some(server) = ApiServer::start() else {
        return;
    };
    let operator = Operator::of(&server);
    indexed_pods_make_a_cluster(&server, &operator);
    selectors_and_namespaces_choose(&server, &operator);
    many_pods_come_in_pages(&server, &operator);
    changes_are_told(&server, &operator);
    accounts_without_rights_are_refused(&server);
    forgotten::is_asked_for_again(server, operator);
}

fn indexed_pods_make_a_cluster(server: &ApiServer, operator: &Operator) {
    operator.namespace("train");
    for index in [2, 0, 1] {
        let name = format!("t-{index}-x");
        let key = "batch.kubernetes.io/job-completion-index";
        let labels = json!({"job-name": "tensorflow", key: index.to_string()});
        operator.pod("train", &name, labels);
    }
    let resolver = server.resolver(ADMIN).with_port(2222);
    let waiting = resolver.cluster_spec();
    assert!(
        matches!(&waiting, Err(Error::Service(ServiceError::PodNotRunning { phase, .. })) if phase == "Pending"),
        "{waiting:?}"
    );
    for (index, ip) in [(0, "10.1.0.10"), (1, "fd00::1"), (2, "10.1.0.2")] {
        operator.status("train", &format!("t-{index}-x"), "Running", ip);
    }
    let addresses = |spec: &meshwork_cluster_resolver::ClusterSpec| -> Vec<_> {
        spec.tasks()
            .map(|(_, index, address)| (index, address.to_owned()))
            .collect()
    };
    let expected = [
        (0, "10.1.0.10:2222"),
        (1, "[fd00::1]:2222"),
        (2, "10.1.0.2:2222"),
    ];
    let expected = expected.map(|(index, address)| (index, address.to_owned()));
    assert_eq!(addresses(&resolver.cluster_spec().unwrap()), expected);

    let within = server.resolver_within("train", "t-1-x").with_port(2222);
    assert_eq!(addresses(&within.cluster_spec().unwrap()), expected);
    assert_eq!(within.task_id(), Ok(Some(1)));
    assert_eq!(
        within.master(None, None, None).as_deref(),
        Ok("grpc://[fd00::1]:2222")
    );

    // A pod that is gone leaves the others where they are.
    operator.status("train", "t-1-x", "Succeeded", "fd00::1");
    let rest = [expected[0].clone(), expected[2].clone()];
    assert_eq!(addresses(&resolver.cluster_spec().unwrap()), rest);
}

fn selectors_and_namespaces_choose(server: &ApiServer, operator: &Operator) {
    for namespace in ["east", "west"] {
        operator.namespace(namespace);
        for (name, app, tier) in [("a", "a", "y"), ("b", "b", "x"), ("c", "c", "y")] {
            let labels = json!({"app": app, "tier": tier});
            operator.pod(namespace, name, labels);
            operator.status(namespace, name, "Running", "10.2.0.1");
        }
    }
    let count = |selector: &str, namespace: Option<&str>| {
        let resolver = server.resolver(ADMIN).with_job("w", [selector]);
        let resolver = match namespace {
            Some(namespace) => resolver.with_namespace(namespace),
            None => resolver,
        };
        resolver.cluster_spec().unwrap().num_tasks("w").unwrap()
    };
    assert_eq!(count("app in (a,b),tier!=x", Some("east")), 1);
    assert_eq!(count("app in (a,b)", Some("east")), 2);
    assert_eq!(count("app in (a,b)", None), 4);
    assert_eq!(count("app=none", None), 0);
    let malformed = server
        .resolver(ADMIN)
        .with_job("w", ["app in (a"])
        .cluster_spec();
    let refused = matches!(
        &malformed,
        Err(Error::Service(ServiceError::Refused { status: 400, .. }))
    );
    assert!(refused, "{malformed:?}");
}

/// More pods than a page holds, all but one of them finished.
fn many_pods_come_in_pages(server: &ApiServer, operator: &Operator) {
    operator.namespace("many");
    for number in 0..510 {
        let name = format!("m{number}");
        operator.pod("many", &name, json!({"app": "many"}));
        let phase = if number == 509 {
            "Running"
        } else {
            "Succeeded"
        };
        operator.status("many", &name, phase, "10.3.0.9");
    }
    let resolver = server.resolver(ADMIN).with_job("w", ["app=many"]);
    let spec = resolver.cluster_spec().unwrap();
    assert_eq!(
        spec.tasks().collect::<Vec<_>>(),
        [("w", 0, "10.3.0.9:8470")]
    );
}

fn changes_are_told(server: &ApiServer, operator: &Operator) {
    operator.namespace("watched");
    for name in ["v0", "v1"] {
        operator.pod("watched", name, json!({"app": "watched"}));
        operator.status("watched", name, "Running", "10.4.0.1");
    }
    let resolver = server.resolver(ADMIN).with_job("w", ["app=watched"]);
    // An interval that no test waits for: changes are seen because the server tells of them.
    let mut watch = resolver.watch(Duration::from_secs(3600));
    let first = watch.next().unwrap().unwrap();
    assert_eq!(first.difference().added().len(), 2);
    operator.status("watched", "v1", "Running", "10.4.0.2");
    let moved = watch.next().unwrap().unwrap();
    assert_eq!(moved.spec().task_address("w", 1), Ok("10.4.0.2:8470"));
    std::thread::scope(|scope| {
        let next = scope.spawn(|| watch.next().unwrap().unwrap());
        operator.delete("watched", "v1");
        let gone = next.join().unwrap();
        assert_eq!(gone.difference().removed().len(), 1);
    });
}

fn accounts_without_rights_are_refused(server: &ApiServer) {
    for (token, code) in [("no-such-token", 401), (STRANGER, 403)] {
        let refused = server.resolver(token).cluster_spec();
        let Err(Error::Service(ServiceError::Refused { status, said, .. })) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(status, code);
        assert!(!said.contains(token), "{said}");
    }
}
