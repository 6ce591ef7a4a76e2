//! Google's own Python clients judge the stand-in, and have to see what the resolvers see.

use std::path::Path;
use std::process::Command;

use meshwork_cluster_resolver::ClusterResolver;
use meshwork_testing::Need;
use serde_json::{Value, json};

use super::cloud::{five_machines, group, tpu};

#[test]
fn google_s_own_clients_see_the_same_cluster() {
    let mut cloud = five_machines();
    let endpoint = json!({"ipAddress": "10.2.0.2", "port": 8470});
    let node = json!({
        "name": "projects/p/locations/z/nodes/t", "state": "READY", "health": "HEALTHY",
        "acceleratorType": "v2-8", "networkEndpoints": [endpoint],
    });
    cloud.nodes = vec![("t", node)];
    let server = cloud.start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services/google/clients.py");
    let python = std::env::var_os("MESHWORK_PYTHON").unwrap_or_else(|| "python3".into());
    let asked = Command::new(&python)
        .arg(script)
        .arg(server.address())
        .output();
    let judged = asked.map_err(|error| format!("{python:?} does not start: {error}"));
    let judged = judged.and_then(|judged| match judged.status.code() {
        Some(MISSING) => Err(String::from_utf8_lossy(&judged.stderr).into_owned()),
        _ => Ok(judged),
    });
    let Some(judged) = Need::Google.or_skip(judged) else {
        return;
    };
    let said = String::from_utf8_lossy(&judged.stderr);
    assert!(
        judged.status.success(),
        "the clients refuse the stand-in:\n{said}"
    );
    let seen: Value = serde_json::from_slice(&judged.stdout).unwrap();

    let spec = group(&server).cluster_spec().unwrap();
    let mut ours: Vec<_> = spec
        .tasks()
        .map(|(_, _, address)| address.to_owned())
        .collect();
    ours.sort();
    let hosts = seen["machines"].as_object().unwrap().values();
    let mut theirs: Vec<_> = hosts
        .map(|ip| format!("{}:2222", ip.as_str().unwrap()))
        .collect();
    theirs.sort();
    assert_eq!(ours, theirs);

    let spec = tpu(&server, "t").cluster_spec().unwrap();
    let workers: Vec<_> = spec
        .tasks()
        .map(|(_, _, address)| address.to_owned())
        .collect();
    assert_eq!(json!(workers), seen["workers"]);
}

/// The exit status of the script where a module is missing.
const MISSING: i32 = 77;
