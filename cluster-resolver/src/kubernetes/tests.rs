//! Against a stand-in that does what a real server does too rarely.

use std::fs;

use serde_json::{Value, json};

use super::access::Way;
use super::*;
use crate::error::{ServiceError, ServiceErrorKind};
use crate::service::MOST_BYTES;
use crate::service::stand_in::StandIn;

fn pod(namespace: &str, name: &str, ip: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "status": {"phase": "Running", "podIP": ip},
    })
}

fn list(items: &[Value]) -> String {
    json!({"metadata": {"resourceVersion": "7"}, "items": items}).to_string()
}

/// A resolver that reaches this server by a kubeconfig in this folder.
fn resolver(server: &StandIn, folder: &tempfile::TempDir) -> KubernetesResolver {
    let path = folder.path().join("config");
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": server.url()}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    });
    fs::write(&path, content.to_string()).unwrap();
    KubernetesResolver::new()
        .with_access(KubernetesAccess::kubeconfig(path))
        .with_variables(Variables::fixed([("A", "b")]))
}

/// Pods of two namespaces that are called the same and have different jobs.
fn namesakes() -> StandIn {
    StandIn::start(|target| {
        let (namespace, ip) = match target.contains("worker") {
            true => ("a", "10.0.0.1"),
            false => ("b", "10.0.0.2"),
        };
        (200, list(&[pod(namespace, "node-0", ip)]))
    })
}

fn with_both_jobs(resolver: KubernetesResolver) -> KubernetesResolver {
    resolver
        .in_all_namespaces()
        .with_job("worker", ["role=worker"])
        .with_job("ps", ["role=ps"])
}

#[test]
fn a_pod_of_another_namespace_that_is_called_the_same_is_another_task() {
    let (server, folder) = (namesakes(), tempfile::tempdir().unwrap());
    for (name, content) in [("ca.crt", AUTHORITY), ("token", "t"), ("namespace", "b\n")] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let task = |variables: &[(&str, &str)]| {
        let inside = [("KUBERNETES_SERVICE_HOST", "h"), ("HOSTNAME", "node-0")];
        let variables = inside.into_iter().chain(variables.iter().copied());
        let resolver = with_both_jobs(KubernetesResolver::new())
            .with_access(KubernetesAccess::within_cluster_at(folder.path()))
            .with_variables(Variables::fixed(variables));
        let mut session = resolver.begin(&mut Explanation::default()).unwrap();
        // The stand-in speaks no TLS.
        if let Way::Inside { server: url, .. } = &mut session.way {
            *url = server.url();
        }
        let own = resolver.own_pod().unwrap();
        let asked = resolver.ask_once(session, own.as_ref(), &mut Explanation::default());
        asked.unwrap().1
    };
    assert_eq!(task(&[]), Some(Task::new("ps", 0)));
    let worker = Some(Task::new("worker", 0));
    assert_eq!(task(&[("POD_NAMESPACE", "a")]), worker);
    assert_eq!(task(&[("POD_NAMESPACE", "c")]), None);
}

#[test]
fn among_pods_of_several_namespaces_the_process_is_none_without_its_own() {
    let (server, folder) = (namesakes(), tempfile::tempdir().unwrap());
    let named = [("HOSTNAME", "node-0")];
    let resolver = with_both_jobs(resolver(&server, &folder));
    let resolver = resolver.with_variables(Variables::fixed(named));
    assert_eq!(resolver.task_type(), Ok(None));
    let text = resolver.explain().to_string();
    assert!(text.contains("POD_NAMESPACE is not set"), "{text}");
    let in_b = Variables::fixed(named.into_iter().chain([("POD_NAMESPACE", "b")]));
    let resolver = resolver.with_variables(in_b);
    assert_eq!(resolver.task_type(), Ok(Some("ps".to_owned())));
}

#[test]
fn a_server_whose_watches_end_at_once_is_not_asked_without_a_pause() {
    let expired = r#"{"type": "ERROR", "object": {"code": 410}}"#;
    for told in [String::new(), format!("{expired}\n")] {
        let server = StandIn::start(move |target| match target.contains("watch=") {
            true => (200, told.clone()),
            false => (200, list(&[pod("ns", "a", "10.0.0.1")])),
        });
        let folder = tempfile::tempdir().unwrap();
        let resolver = resolver(&server, &folder);
        let mut watch = resolver.watch(Duration::from_secs(3600));
        assert!(watch.next().unwrap().is_ok());
        let quiet = watch.next_within(Duration::from_millis(500));
        assert!(quiet.is_none(), "{quiet:?}");
        assert!(server.asked() < 20, "{}", server.asked());
    }
}

#[test]
fn a_list_whose_rest_always_expires_is_not_asked_for_without_a_pause() {
    let server = StandIn::start(|target| match target.contains("continue=") {
        true => (410, "{}".to_owned()),
        false => (200, r#"{"metadata": {"continue": "more"}}"#.to_owned()),
    });
    let folder = tempfile::tempdir().unwrap();
    let brief = RetryPolicy::new(Duration::from_millis(500));
    let resolver = resolver(&server, &folder).with_retry_policy(brief);
    let Err(Error::Service(error)) = resolver.cluster_spec() else {
        panic!("it was listed");
    };
    assert!(error.is_transient(), "{error}");
    assert!(server.asked() < 20, "{}", server.asked());
}

#[test]
fn an_answer_that_is_too_long_is_asked_for_once() {
    let server = StandIn::start(|_| (200, " ".repeat(MOST_BYTES + 1)));
    let folder = tempfile::tempdir().unwrap();
    let minute = Duration::from_secs(60);
    let patient = RetryPolicy::new(minute).with_attempt_timeout(minute);
    let resolver = resolver(&server, &folder).with_retry_policy(patient);
    let Err(Error::Service(error)) = resolver.cluster_spec() else {
        panic!("it was read to its end");
    };
    let problem = ServiceErrorKind::TooLong;
    assert!(
        matches!(&error, ServiceError::Unreachable { problem: found, .. } if *found == problem),
        "{error}"
    );
    assert!(!error.is_transient());
    assert_eq!(server.asked(), 1);
}

/// A certificate that none of these servers has, valid until 2126: a service account needs one.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIBcTCCARegAwIBAgIUQifo4x18tH9lx9J1sAWj5aMvF5AwCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTI5MDExNTMwWhgPMjEyNjExMDUwMTE1MzBa
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEZ5mdRlN4
abNFX7u+yKeauKaJ0oKs6ENMl1XtqndLxtz7Rz9For2gbn/1TvEjX+QW/mgeKSrb
k4W2yUFu7x0wLKNTMFEwHQYDVR0OBBYEFMbvpdOp1XzUMBBLqFszOp/9bZd7MB8G
A1UdIwQYMBaAFMbvpdOp1XzUMBBLqFszOp/9bZd7MA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSAAwRQIhANPTEBMsaoj7wGProlexQpmOGv2HK4hcFK6LXeMv
BKP5AiB0yuIU6vOvDsGYJ3oXIp31xBhZ9I2KROoTTYQ1fr+DuQ==
-----END CERTIFICATE-----
";
