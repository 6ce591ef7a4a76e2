//! Cloud TPU nodes and queued resources.

use std::time::{Duration, Instant};

use meshwork_cluster_resolver::{
    Accelerators, ClusterResolver, Error, FatalMemory, Readiness, ReadyWait, RetryPolicy,
    ServiceError, TpuResolver, Variables,
};
use serde_json::{Value, json};

use super::cloud::{Cloud, TOKEN, patient, tpu};
use crate::loopback::{Loopback, Reply};

fn node(state: &str, health: &str) -> Value {
    json!({
        "state": state, "health": health, "acceleratorType": "v3-32",
        "networkEndpoints": (2..6).map(|i| json!({"ipAddress": format!("10.2.0.{i}"), "port": 8470}))
            .collect::<Vec<_>>(),
    })
}

fn with_node(node: Value) -> Cloud {
    Cloud {
        nodes: vec![("t", node)],
        ..Cloud::default()
    }
}

fn wait() -> ReadyWait {
    let millis = Duration::from_millis;
    ReadyWait::new(millis(30_000)).with_backoff(millis(1), millis(2))
}

#[test]
fn a_node_is_found_in_the_project_and_zone_of_the_machine() {
    let server = with_node(node("READY", "HEALTHY")).start();
    let resolver = tpu(&server, "t");
    let spec = resolver.cluster_spec().unwrap();
    assert_eq!(spec.num_tasks("worker"), Ok(4));
    assert_eq!(spec.task_address("worker", 3), Ok("10.2.0.5:8470"));
    let asked = server.asked();
    let last = asked.last().unwrap();
    assert_eq!(last.path, "/v1/projects/p/locations/z/nodes/t");
    assert_eq!(
        last.header("authorization"),
        Some(format!("Bearer {TOKEN}").as_str())
    );
    let each = Accelerators::from([("TPU".to_owned(), 8)]);
    assert_eq!(resolver.num_accelerators(), Ok(each));
    let text = resolver.explain().to_string();
    for part in [
        "cluster: worker 4",
        "master: grpc://10.2.0.2:8470",
        "accelerators: 8 TPU",
        "acceleratorType in",
        "/computeMetadata/v1/instance/zone: projects/99/zones/z",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn the_environment_says_where_the_api_is() {
    let server = with_node(node("READY", "HEALTHY")).start();
    let (address, url) = (server.address(), server.url());
    let description = Reply::json(&json!({"rootUrl": format!("{url}/"), "servicePath": ""}));
    let described = Loopback::start(move |_| description.clone());
    let description = format!("{}/{{api}}/{{apiVersion}}", described.url());
    for (variable, value) in [
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", &url),
        ("TPU_API_DISCOVERY_URL", &description),
    ] {
        let variables = [("GCE_METADATA_HOST", &address), (variable, value)];
        let resolver = TpuResolver::new()
            .with_tpu("t")
            .with_retry_policy(patient())
            .with_variables(Variables::fixed(variables));
        assert_eq!(resolver.cluster_spec().unwrap().num_tasks("worker"), Ok(4));
        let text = resolver.explain().to_string();
        let note = format!("variable {variable}: {value}");
        assert!(text.contains(&note), "{note} in\n{text}");
    }
    assert_eq!(described.asked()[0].path, "/tpu/v1");
}

#[test]
fn a_local_tpu_has_neither_cluster_nor_master() {
    let resolver = TpuResolver::new().with_tpu("local");
    assert_eq!(resolver.master(None, None, None).as_deref(), Ok(""));
    let text = resolver.explain().to_string();
    for part in [
        "cluster: no jobs\n",
        "master: none\n",
        "file /sys/bus/pci/devices",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn a_worker_knows_its_number_from_the_environment() {
    let server = with_node(node("READY", "HEALTHY")).start();
    let resolver = |number: &str| {
        let host = server.address();
        let variables = [
            ("GCE_METADATA_HOST", host.as_str()),
            ("TPU_WORKER_ID", number),
        ];
        tpu(&server, "t").with_variables(Variables::fixed(variables))
    };
    assert_eq!(resolver("2").task_id(), Ok(Some(2)));
    let master = resolver("2").master(None, None, None);
    assert_eq!(master.as_deref(), Ok("grpc://10.2.0.4:8470"));
    let error = resolver("two").task_id().unwrap_err().to_string();
    assert!(error.contains("TPU_WORKER_ID is \"two\""), "{error}");
}

#[test]
fn waiting_ends_when_the_node_runs_and_is_healthy() {
    let path = "/nodes/t";
    let mut cloud = with_node(node("READY", "HEALTHY"));
    cloud.troubles = vec![
        (path, Reply::json(&node("CREATING", ""))),
        (path, Reply::status(503, "{}")),
        (path, Reply::json(&node("STARTING", ""))),
        (path, Reply::json(&node("READY", "TIMEOUT"))),
    ];
    let server = cloud.start();
    let resolver = tpu(&server, "t");
    assert_eq!(resolver.wait_until_ready(wait()), Ok(()));
    let looks = server
        .asked()
        .iter()
        .filter(|asked| asked.path.contains(path))
        .count();
    assert_eq!(looks, 5);
    assert_eq!(resolver.nodes().unwrap()[0].readiness(), Readiness::Ready);
}

#[test]
fn a_node_that_is_gone_is_not_waited_for() {
    let server = with_node(node("PREEMPTED", "")).start();
    let resolver = tpu(&server, "t");
    let refused = resolver.wait_until_ready(wait());
    let state = "PREEMPTED".to_owned();
    let (name, wanted) = ("t".to_owned(), "READY");
    assert_eq!(
        refused,
        Err(ServiceError::TpuNotReady {
            name,
            state,
            wanted
        }
        .into())
    );
    assert_eq!(resolver.is_recoverable(FatalMemory::Neither), Ok(false));
    let missing = tpu(&server, "other").wait_until_ready(wait());
    assert!(matches!(
        missing,
        Err(Error::Service(ServiceError::Refused { status: 404, .. }))
    ));
}

#[test]
fn waiting_ends_at_its_deadline_with_what_is_wrong() {
    let server = with_node(node("READY", "UNHEALTHY_MAINTENANCE")).start();
    let millis = Duration::from_millis;
    let brief = ReadyWait::new(millis(60)).steady(millis(10));
    let error = tpu(&server, "t").wait_until_ready(brief).unwrap_err();
    assert!(
        error.to_string().contains("UNHEALTHY_MAINTENANCE"),
        "{error}"
    );
    assert!(matches!(
        error,
        Error::Service(ServiceError::TpuUnhealthy { .. })
    ));
}

#[test]
fn a_silent_service_does_not_hold_up_the_end_of_waiting() {
    let (path, creating) = ("/nodes/t", Reply::json(&node("CREATING", "")));
    let begun = Instant::now();
    let brief = ReadyWait::new(Duration::from_millis(300)).steady(Duration::from_millis(1));
    // Attempts, and all of them together, could take much longer.
    let policy =
        RetryPolicy::new(Duration::from_secs(600)).with_attempt_timeout(Duration::from_secs(300));
    let silent = Cloud::default().start_broken(path, Reply::Silence);
    let unknown = tpu(&silent, "t").with_retry_policy(policy);
    let error = unknown.wait_until_ready(brief).unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Service(ServiceError::Unreachable { attempts: 1, .. })
        ),
        "{error}"
    );
    let cloud = Cloud {
        troubles: vec![(path, creating), (path, Reply::Silence)],
        ..Cloud::default()
    };
    let server = cloud.start();
    let known = tpu(&server, "t").with_retry_policy(policy);
    let error = known.wait_until_ready(brief).unwrap_err();
    assert!(error.to_string().contains("CREATING"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_queued_resource_has_the_workers_of_all_its_nodes() {
    let single = |host: &str| {
        let endpoint = json!({"ipAddress": host, "port": 8470});
        json!({"state": "READY", "health": "HEALTHY", "networkEndpoints": [endpoint],
            "acceleratorConfig": {"type": "V6E", "topology": "2x2"}})
    };
    let queued = json!({
        "state": {"state": "ACTIVE"},
        "tpu": {"nodeSpec": [{"multisliceParams": {"nodeCount": 2, "nodeIdPrefix": "s"}}]},
    });
    let cloud = Cloud {
        nodes: vec![("s-0", single("10.0.0.1")), ("s-1", single("fd20::2"))],
        queued: vec![
            ("q", queued),
            (
                "later",
                json!({"state": {"state": "WAITING_FOR_RESOURCES"}}),
            ),
        ],
        ..Cloud::default()
    };
    let server = cloud.start();
    let resolver = tpu(&server, "queuedResources/q");
    let spec = resolver.cluster_spec().unwrap();
    let addresses: Vec<_> = spec
        .tasks()
        .map(|(_, _, address)| address.to_owned())
        .collect();
    assert_eq!(addresses, ["10.0.0.1:8470", "[fd20::2]:8470"]);
    let each = Accelerators::from([("TPU".to_owned(), 4)]);
    assert_eq!(resolver.num_accelerators(), Ok(each));
    let waiting = tpu(&server, "queuedResources/later").with_retry_policy(patient());
    let error = waiting.cluster_spec().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("WAITING_FOR_RESOURCES, not ACTIVE"),
        "{error}"
    );
}
