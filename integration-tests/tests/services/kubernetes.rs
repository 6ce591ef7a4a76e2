//! Kubernetes: a stand-in for what a real server does too rarely, and the real server.

#[path = "kubernetes/apiserver.rs"]
mod apiserver;
#[path = "kubernetes/real.rs"]
mod real;

use std::fs;
use std::mem;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use meshwork_cluster_resolver::{
    AccessProblem, ClusterResolver, Error, KubernetesAccess, KubernetesResolver, RetryPolicy,
    ServiceError, ServiceErrorKind, Stop, Variables,
};
use serde_json::{Value, json};

use crate::loopback::{Asked, Loopback, Reply, kubeconfig};

/// How long a question to the server may take.
const PATIENCE: Duration = Duration::from_secs(30);

struct Rig {
    server: Loopback,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            server: Loopback::start(answer),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn resolver(&self) -> KubernetesResolver {
        let config = kubeconfig(self.folder.path(), &self.server.url(), "t");
        let millis = Duration::from_millis;
        let policy = RetryPolicy::new(PATIENCE).with_backoff(millis(1), millis(4));
        KubernetesResolver::new()
            .with_access(KubernetesAccess::kubeconfig(config))
            .with_variables(Variables::fixed([("A", "b")]))
            .with_retry_policy(policy)
    }
}

fn pod(name: &str, ip: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns"},
        "status": {"phase": "Running", "podIP": ip, "hostIP": "192.168.0.1"},
    })
}

fn status(code: u16, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("no: {reason}"), "reason": reason, "code": code,
    })
}

fn refusal(code: u16, reason: &str) -> Reply {
    Reply::status(code, &status(code, reason).to_string())
}

#[test]
fn all_pages_of_a_list_make_one_job() {
    let rig = Rig::new(|asked| match asked.parameter("continue") {
        None => Reply::json(&json!({
            "metadata": {"continue": "more"}, "items": [pod("w10", "10.0.0.1")],
        })),
        Some(_) => Reply::json(&json!({"metadata": {}, "items": [pod("w9", "10.0.0.2")]})),
    });
    let spec = rig.resolver().cluster_spec().unwrap();
    let addresses: Vec<_> = spec.tasks().map(|(_, _, address)| address).collect();
    assert_eq!(addresses, ["10.0.0.2:8470", "10.0.0.1:8470"]);
    let limits: Vec<_> = rig
        .server
        .asked()
        .iter()
        .map(|asked| asked.parameter("limit").is_some())
        .collect();
    assert_eq!(limits, [true, true]);
}

#[test]
fn a_list_whose_rest_has_expired_is_asked_for_again() {
    let expired = Mutex::new(false);
    let rig = Rig::new(move |asked| {
        let mut expired = expired.lock().unwrap();
        match (asked.parameter("continue"), *expired) {
            (None, _) => Reply::json(&json!({
                "metadata": {"continue": "more"}, "items": [pod("a", "10.0.0.1")],
            })),
            (Some(_), false) => {
                *expired = true;
                refusal(410, "Expired")
            }
            (Some(_), true) => Reply::json(&json!({"items": [pod("b", "10.0.0.2")]})),
        }
    });
    let spec = rig.resolver().cluster_spec().unwrap();
    assert_eq!(spec.num_tasks("worker"), Ok(2));
    assert_eq!(rig.server.asked().len(), 4);
}

#[test]
fn refusals_are_quoted_and_not_repeated() {
    for (code, reason) in [(401, "Unauthorized"), (403, "Forbidden"), (404, "NotFound")] {
        let rig = Rig::new(move |_| refusal(code, reason));
        let Err(Error::Service(error)) = rig.resolver().cluster_spec() else {
            panic!("accepted");
        };
        let url = format!("{}/api/v1/pods", rig.server.url());
        let said = format!("no: {reason}");
        assert_eq!(
            error,
            ServiceError::Refused {
                url,
                status: code,
                said
            }
        );
        assert_eq!(rig.server.asked().len(), 1);
    }
}

#[test]
fn a_busy_server_is_asked_again() {
    let refusals = Mutex::new(vec![429, 500, 503]);
    let rig = Rig::new(move |_| match refusals.lock().unwrap().pop() {
        Some(code) => refusal(code, "Busy"),
        None => Reply::json(&json!({"items": []})),
    });
    assert_eq!(
        rig.resolver().cluster_spec().unwrap().num_tasks("worker"),
        Ok(0)
    );
}

#[test]
fn a_silent_server_is_asked_again_until_the_deadline() {
    let silent = Mutex::new(2);
    let rig = Rig::new(move |_| {
        let mut silent = silent.lock().unwrap();
        if *silent == 0 {
            return Reply::json(&json!({"items": []}));
        }
        *silent -= 1;
        Reply::Silence
    });
    let millis = Duration::from_millis;
    let resolver = rig.resolver();
    let persistent = RetryPolicy::default()
        .with_attempt_timeout(millis(200))
        .with_backoff(millis(1), millis(4));
    let answer = resolver.with_retry_policy(persistent).cluster_spec();
    assert_eq!(answer.unwrap().num_tasks("worker"), Ok(0));
    let rig = Rig::new(|_| Reply::Silence);
    let resolver = rig
        .resolver()
        .with_retry_policy(RetryPolicy::new(millis(200)));
    let error = resolver.cluster_spec().unwrap_err();
    let Error::Service(ServiceError::Unreachable { problem, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(problem, ServiceErrorKind::TooSlow);
}

#[test]
fn wrong_answers_are_named() {
    for (answer, part) in [
        ("<html>", "\"<html>\" instead of JSON"),
        ("[]", "is [], not an object"),
        (
            "{\"items\": [{\"metadata\": {}}]}",
            "items[0].metadata.name",
        ),
    ] {
        let rig = Rig::new(move |_| Reply::text(answer));
        let error = rig.resolver().cluster_spec().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_process_finds_its_task_by_the_name_of_its_pod() {
    let rig =
        Rig::new(|_| Reply::json(&json!({"items": [pod("a", "10.0.0.1"), pod("b", "10.0.0.2")]})));
    let named = |variables: &[(&str, &str)]| {
        rig.resolver()
            .with_variables(Variables::fixed(variables.iter().copied()))
    };
    let resolver = named(&[("HOSTNAME", "b")]);
    assert_eq!(resolver.task_type().unwrap().as_deref(), Some("worker"));
    assert_eq!(resolver.task_id(), Ok(Some(1)));
    assert_eq!(
        resolver.master(None, None, None).as_deref(),
        Ok("grpc://10.0.0.2:8470")
    );
    let text = resolver.explain().to_string();
    assert!(
        text.contains("task: worker:1\n    variable HOSTNAME: b"),
        "{text}"
    );
    let first = named(&[("HOSTNAME", "b"), ("POD_NAME", "a")]);
    assert_eq!(first.task_id(), Ok(Some(0)));
    for strange in [
        &[("HOSTNAME", "c")][..],
        &[("POD_NAME", "a"), ("POD_NAMESPACE", "other")],
    ] {
        assert_eq!(named(strange).task_id(), Ok(None));
    }
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named_with_what_is_wrong() {
    let rig = Rig::new(|_| Reply::text("{}"));
    let problem = |access: KubernetesAccess| match rig.resolver().with_access(access).cluster_spec()
    {
        Err(Error::Service(ServiceError::ClusterAccess { problem, .. })) => problem,
        other => panic!("{other:?}"),
    };
    let missing = rig.folder.path().join("none");
    let unreadable = AccessProblem::Unreadable(std::io::ErrorKind::NotFound);
    assert_eq!(problem(KubernetesAccess::kubeconfig(&missing)), unreadable);
    let config = kubeconfig(rig.folder.path(), &rig.server.url(), "kube-token");
    let access = || KubernetesAccess::kubeconfig(&config);
    assert_eq!(
        problem(access().with_context("other")),
        AccessProblem::NoContext
    );
    assert_eq!(
        problem(access().with_context("broken")),
        AccessProblem::NoContext
    );
    let odd = rig.folder.path().join("odd");
    fs::write(&odd, "clusters: 7").unwrap();
    assert_eq!(
        problem(KubernetesAccess::kubeconfig(&odd)),
        AccessProblem::Malformed
    );
}

/// A server that tells of these lines once it is asked to watch, and has one pod, then another.
fn telling(line: Value) -> Rig {
    let told = Mutex::new(false);
    Rig::new(move |asked| {
        let mut told = told.lock().unwrap();
        if asked.parameter("watch").is_some() {
            *told = true;
            return Reply::text(&format!("{line}\n"));
        }
        let ip = if *told { "10.0.0.2" } else { "10.0.0.1" };
        Reply::json(&json!({"metadata": {"resourceVersion": "7"}, "items": [pod("a", ip)]}))
    })
}

#[test]
fn a_change_that_the_server_tells_of_is_looked_at_at_once() {
    let expired = json!({"type": "ERROR", "object": status(410, "Expired")});
    let moved = json!({"type": "MODIFIED", "object": pod("a", "10.0.0.2")});
    let gone = json!({"type": "DELETED", "object": pod("a", "10.0.0.1")});
    for line in [moved, gone, expired] {
        let rig = telling(line);
        let resolver = rig.resolver();
        // An interval that no test waits for.
        let mut watch = resolver.watch(Duration::from_secs(3600));
        assert_eq!(
            watch.next().unwrap().unwrap().spec().num_tasks("worker"),
            Ok(1)
        );
        let update = watch.next().unwrap().unwrap();
        assert_eq!(update.spec().task_address("worker", 0), Ok("10.0.0.2:8470"));
        assert_eq!(update.difference().moved().len(), 1);
        let asked = rig.server.asked();
        let from = asked
            .iter()
            .find_map(|asked| asked.parameter("resourceVersion"));
        assert_eq!(from, Some("7"));
    }
}

/// A server that lists its pods once and is silent from then on, and does this in silence.
fn falling_silent(then: impl Fn() + Send + Sync + 'static) -> Rig {
    let listed = Mutex::new(false);
    Rig::new(move |_| {
        if mem::replace(&mut *listed.lock().unwrap(), true) {
            then();
            return Reply::Silence;
        }
        Reply::json(&json!({"metadata": {"resourceVersion": "7"}, "items": [pod("a", "10.0.0.1")]}))
    })
}

#[test]
fn a_silent_server_holds_no_watch_past_its_time_or_its_stop() {
    let begun = Instant::now();
    let rig = falling_silent(|| ());
    let resolver = rig.resolver();
    let mut watch = resolver.watch(Duration::from_secs(3600));
    assert!(watch.next().unwrap().is_ok());
    let quiet = watch.next_within(Duration::from_millis(200));
    assert!(quiet.is_none(), "{quiet:?}");

    let stop = Stop::default();
    let stopping = stop.clone();
    let rig = falling_silent(move || stopping.stop());
    let resolver = rig.resolver();
    let mut watch = resolver.watch(Duration::from_secs(3600)).until(&stop);
    assert!(watch.next().unwrap().is_ok());
    let ended = watch.next();
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(rig.server.asked().len(), 2);

    // An attempt of a request would have waited for longer, and so would its question.
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}
