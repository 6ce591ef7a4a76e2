//! What goes over the wire: which requests, with which headers, in which order.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwork_cluster_resolver::{
    ClusterResolver, Error, GceResolver, GoogleCredentials, KubernetesAccess, RestartType,
    ServiceError, TpuResolver, Variables,
};
use meshwork_testing::pem;
use serde_json::{Value, json};

use super::answers::{self, Answers, number, outcome, recorded, same, text};
use super::kubernetes::resolver;
use super::loopback::{Asked, Loopback, Reply, kubeconfig};
use crate::deviations::cluster_http as rules;
use crate::harness::Verdict;
use crate::not_askable::TYPES;

/// Judges by what the input has.
pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    let has = |key: &str| input.get(key).is_some();
    if has("TPU_API_DISCOVERY_URL") {
        tpu_node(case)
    } else if has("metadata_status") {
        metadata_fails(case)
    } else if has("version") {
        configure_version(case)
    } else if has("tpu") && has("status") {
        runtime_version(case)
    } else if has("instance_group") {
        gce(case)
    } else if has("kwargs") {
        kubernetes(case)
    } else if has("body") {
        metadata_text(case)
    } else {
        Verdict::Failed("not judged".to_owned())
    }
}

/// Metadata server, description of the API and the API itself, on one server.
fn tpu_node(case: &Value) -> Verdict {
    let (name, expected) = (
        text(&case["input"], "tpu").unwrap_or_default(),
        &case["expect"],
    );
    let server = google(name, &expected["cluster_spec"]);
    let discovery = text(&case["input"], "TPU_API_DISCOVERY_URL").unwrap_or_default();
    let discovery = discovery.replace("HOST:PORT", &server.address());
    let resolver = TpuResolver::new()
        .with_tpu(name)
        .with_variables(Variables::fixed([
            ("TPU_API_DISCOVERY_URL", discovery),
            ("GCE_METADATA_HOST", server.address()),
        ]))
        .with_retry_policy(answers::retry_policy());
    let spec = resolver.cluster_spec();
    let asked: Vec<Value> = server.asked().iter().map(with_its_headers).collect();
    // TensorFlow's client looks for a metadata server and for the account before it asks for a
    // token; ours asks for the token. What else there is has to be the same, in the same order.
    let is_sign_in = |request: &&Value| {
        let path = request["path"].as_str().unwrap_or_default();
        path == "/" || path.contains("/service-accounts/")
    };
    let steps = ["http_in_ctor", "http_in_cluster_spec"].into_iter();
    let steps = steps.flat_map(|key| expected[key].as_array().into_iter().flatten());
    let theirs: Vec<Value> = steps
        .filter(|request| !is_sign_in(request))
        .cloned()
        .collect();
    let ours: Vec<Value> = asked
        .iter()
        .filter(|request| !is_sign_in(request))
        .cloned()
        .collect();
    let retried = ours.len() > theirs.len();
    let mut once = ours.clone();
    once.dedup();
    if once != theirs {
        return Verdict::Failed(format!("asks {once:?} instead of {theirs:?}"));
    }
    let sign_in: Vec<_> = asked
        .iter()
        .filter(is_sign_in)
        .map(|request| &request["path"])
        .collect();
    if sign_in != [TOKEN] {
        return Verdict::Failed(format!("signs in by {sign_in:?}"));
    }
    let answer = outcome(spec.map(|spec| answers::dict(&spec)));
    match same(&expected["cluster_spec"], &answer) {
        true => Verdict::by(rules::TOKEN),
        false if retried && answer["ok"] == node_jobs() => Verdict::by(rules::RETRY),
        false => Verdict::Failed(format!("answers {answer}")),
    }
}

/// The request with the headers that are recorded for its kind.
fn with_its_headers(asked: &Asked) -> Value {
    if asked.path.starts_with("/computeMetadata/") {
        recorded(asked, &["metadata-flavor"])
    } else if asked.path.starts_with("/disc/") {
        recorded(asked, &["authorization"])
    } else {
        recorded(asked, &["accept", "authorization"])
    }
}

/// A server whose node has what the recorded cluster says, or fails as its name says.
fn google(name: &str, cluster: &Value) -> Loopback {
    let addresses = cluster["ok"]["worker"].as_array().into_iter().flatten();
    let endpoints: Vec<_> = addresses
        .filter_map(|address| address.as_str()?.rsplit_once(':'))
        .map(|(host, port)| json!({"ipAddress": host, "port": port}))
        .collect();
    let good = json!({"state": "READY", "networkEndpoints": endpoints});
    let (name, looks) = (name.to_owned(), AtomicUsize::new(0));
    let fails = cluster.get("error").is_some();
    Loopback::start(move |asked| {
        let host = asked.header("host").unwrap_or_default();
        match asked.path.as_str() {
            "/computeMetadata/v1/project/project-id" => Reply::text("meta-proj"),
            "/computeMetadata/v1/instance/zone" => Reply::text("projects/1/zones/eu-west4-a"),
            TOKEN => Reply::json(&json!({
                "access_token": "tok-123", "expires_in": 3600, "token_type": "Bearer",
            })),
            path if path.starts_with("/disc/") => {
                Reply::json(&json!({"rootUrl": format!("http://{host}/"), "servicePath": ""}))
            }
            _ if !fails => Reply::json(&good),
            _ => failing(&name, looks.fetch_add(1, Ordering::SeqCst)),
        }
    })
}

fn failing(name: &str, looks: usize) -> Reply {
    match name {
        "missing" => Reply::status(404, "{}"),
        "forbidden" => Reply::status(403, "{}"),
        "badjson" => Reply::text("{\"state\": "),
        "flaky" if looks < 2 => Reply::status(503, "{}"),
        "flaky" => Reply::json(&json!({
            "state": "READY", "networkEndpoints": [{"ipAddress": "10.1.0.1", "port": 8470}],
        })),
        _ => Reply::status(400, "{}"),
    }
}

fn node_jobs() -> Value {
    json!({"worker": ["10.1.0.1:8470"]})
}

fn metadata_fails(case: &Value) -> Verdict {
    let status =
        number(&case["input"], "metadata_status").and_then(|status| status.try_into().ok());
    let server = Loopback::start(move |_| Reply::status(status.unwrap_or(500), ""));
    let resolver = TpuResolver::new()
        .with_tpu(text(&case["input"], "tpu").unwrap_or_default())
        .with_variables(Variables::fixed([("GCE_METADATA_HOST", server.address())]))
        .with_retry_policy(answers::short_retry_policy());
    error_wanted(case, resolver.cluster_spec().map(drop))
}

fn metadata_text(case: &Value) -> Verdict {
    let body = text(&case["input"], "body").unwrap_or_default().to_owned();
    let answered = body.clone();
    let server = Loopback::start(
        move |asked| match asked.path.ends_with("/project/project-id") {
            true => Reply::text(&answered),
            false => Reply::status(404, "{}"),
        },
    );
    let resolver = TpuResolver::new()
        .with_tpu("x")
        .with_zone("z")
        .with_api_url(server.url())
        .with_credentials(GoogleCredentials::token("t"))
        .with_variables(Variables::fixed([("GCE_METADATA_HOST", server.address())]))
        .with_retry_policy(answers::retry_policy());
    drop(resolver.cluster_spec());
    let asked = server.asked();
    let names: Vec<_> = asked
        .iter()
        .filter_map(|asked| asked.path.strip_prefix("/v1/"))
        .collect();
    let name = |project: &str| format!("projects/{project}/locations/z/nodes/x");
    if case["expect"]["full_name"] != name(&body) {
        return Verdict::Failed("not judged".to_owned());
    }
    match names == [name(body.trim())] {
        true if body.trim() == body => Verdict::Passed,
        true => Verdict::by(rules::TRIMMED),
        false => Verdict::Failed(format!("asks for {names:?}")),
    }
}

fn runtime_version(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expect"]);
    let status = number(input, "status").and_then(|status| status.try_into().ok());
    let body = match text(expected, "version") {
        Some(version) => json!({"currentVersion": version}),
        None => json!({}),
    };
    let server = Loopback::start(move |_| Reply::status(status.unwrap_or(500), &body.to_string()));
    let policy = match case.get("expect_error") {
        Some(_) => answers::short_retry_policy(),
        None => answers::retry_policy(),
    };
    let resolver = TpuResolver::new()
        .with_tpu(text(input, "tpu").unwrap_or_default())
        .with_software_port(server.port())
        .with_variables(Variables::fixed([("A", "b")]))
        .with_retry_policy(policy);
    let version = resolver.software_version();
    if case.get("expect_error").is_some() {
        return error_wanted(case, version.map(drop));
    }
    let mut answers = Answers::default();
    answers.add("version", json!(version.ok().flatten()));
    let http = server
        .asked()
        .iter()
        .map(|asked| recorded(asked, &["authorization"]))
        .collect::<Vec<_>>();
    answers.add("http", http);
    answers.verdict(expected, None)
}

fn configure_version(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expect"]);
    // Both workers are on this machine, so that one server takes what both are asked.
    let workers = number(input, "workers").unwrap_or(2);
    let refused = case.get("expect_error").is_some();
    let server = Loopback::start(move |_| Reply::status(if refused { 404 } else { 200 }, ""));
    let tpus = (1..=workers).map(|port| format!("grpc://127.0.0.1:{port}"));
    let resolver = TpuResolver::new()
        .with_tpu(tpus.collect::<Vec<_>>().join(","))
        .with_software_port(server.port())
        .with_variables(Variables::fixed([("A", "b")]))
        .with_retry_policy(answers::retry_policy());
    let restart = match text(input, "restart_type") {
        None | Some("always") => RestartType::Always,
        Some("ifNeeded") => RestartType::IfNeeded,
        Some(_) => return Verdict::NotAskable(TYPES),
    };
    let changed = resolver.configure_version(text(input, "version").unwrap_or_default(), restart);
    if refused {
        return error_wanted(case, changed);
    }
    let http = server.asked().into_iter().map(|asked| {
        let mut request = recorded(&asked, &[]);
        // Not recorded here.
        if let Some(request) = request.as_object_mut() {
            request.remove("headers");
        }
        request
    });
    let mut answers = Answers::default();
    answers.add("http", http.collect::<Vec<_>>());
    answers.add(
        "result",
        if changed.is_ok() {
            Value::Null
        } else {
            json!("refused")
        },
    );
    answers.verdict(expected, None)
}

fn error_wanted(case: &Value, result: Result<(), Error>) -> Verdict {
    let token = text(&case["expect_error"], "message_contains").unwrap_or_default();
    match result {
        Err(error) if error.to_string().contains(token) => Verdict::Passed,
        other => Verdict::Failed(format!("{other:?}, not an error that names {token:?}")),
    }
}

/// TensorFlow fails with Google's own client, since it has a parameter that there is none of.
fn gce(case: &Value) -> Verdict {
    let input = &case["input"];
    let name = |key| text(input, key).unwrap_or_default();
    let server = Loopback::start(|asked| match asked.path.ends_with("/listInstances") {
        true => Reply::json(&json!({"items": [{"instance": "a"}]})),
        false => Reply::json(&json!({"networkInterfaces": [{"networkIP": "10.0.0.1"}]})),
    });
    let port = number(input, "port")
        .and_then(|port| port.try_into().ok())
        .unwrap_or_default();
    let resolver = GceResolver::new(name("project"), name("zone"), name("instance_group"), port)
        .with_compute_url(server.url())
        .with_credentials(GoogleCredentials::token("t"))
        .with_variables(Variables::fixed([("A", "b")]))
        .with_retry_policy(answers::retry_policy());
    let answer = outcome(resolver.cluster_spec().map(|spec| answers::dict(&spec)));
    let group = format!(
        "/projects/{}/zones/{}/instanceGroups/{}/listInstances",
        name("project"),
        name("zone"),
        name("instance_group"),
    );
    let asked = server.asked().first().map(|asked| asked.path.clone());
    match answer["ok"] == json!({"worker": [format!("10.0.0.1:{port}")]}) && asked == Some(group) {
        true => Verdict::by(rules::GCE_REAL),
        false => Verdict::Failed(format!("answers {answer}")),
    }
}

fn kubernetes(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expect"]);
    let given = &input["kwargs"];
    if case.get("expect_error").is_some() {
        return match given.get("executable_location").map(Value::as_str) {
            None | Some(Some("WITHIN_CLUSTER" | "OFF_CLUSTER")) => within_cluster(),
            Some(_) => Verdict::NotAskable(TYPES),
        };
    }
    let pods = input["pods"].clone();
    let forbidden = expected["cluster_spec"].get("error").is_some();
    let server = Loopback::start(move |_| match forbidden {
        true => Reply::status(403, "{}"),
        false => Reply::json(&pods),
    });
    let folder = tempfile::tempdir().expect("a folder for a kubeconfig");
    let config = kubeconfig(folder.path(), &server.url(), "kube-tok");
    let resolver = resolver(given, KubernetesAccess::kubeconfig(config));
    let made = server.asked().len();
    let spec = resolver.cluster_spec();
    let asked = server.asked().into_iter().map(|mut asked| {
        // Asking for pages is no other question where there is one page.
        asked.query.retain(|(name, _)| name != "limit");
        recorded(&asked, &["accept", "authorization"])
    });
    let mut answers = Answers::default();
    answers.add("http_in_ctor", vec![Value::Null; made]);
    answers.add("http_in_cluster_spec", asked.collect::<Vec<_>>());
    answers.add(
        "cluster_spec",
        outcome(spec.map(|spec| answers::dict(&spec))),
    );
    // By name, as TensorFlow does, with the pod's own IP.
    let mut pods: Vec<_> = input["pods"]["items"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    pods.sort_by_key(|pod| answers::counted(text(&pod["metadata"], "name").unwrap_or_default()));
    let ips = pods.iter().filter_map(|pod| text(&pod["status"], "podIP"));
    let mut model = Answers::default();
    let port = number(given, "tf_server_port").unwrap_or(8470);
    let addresses: Vec<_> = ips.map(|ip| format!("{ip}:{port}")).collect();
    // The server has the same pods for every selector.
    let jobs = given["job_to_label_mapping"].as_object();
    let jobs = jobs.filter(|jobs| !jobs.is_empty());
    let names = jobs.map_or_else(
        || vec!["worker".to_owned()],
        |jobs| jobs.keys().cloned().collect(),
    );
    let jobs = answers::jobs(names.into_iter().map(|job| (job, addresses.clone())));
    model.add("cluster_spec", json!({"ok": jobs}));
    answers.verdict(expected, Some((rules::K8S_POD_IP, &model)))
}

/// TensorFlow then looks for a kubeconfig, which no pod has. Ours asks the API server that the pod
/// is told of: nothing listens there, and this is what it says.
fn within_cluster() -> Verdict {
    let folder = tempfile::tempdir().expect("a folder for a service account");
    let authority = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let authority = authority.expect("a certificate for this machine");
    let authority = pem("CERTIFICATE", authority.cert.der());
    for (file, content) in [
        ("token", "t"),
        ("ca.crt", authority.as_str()),
        ("namespace", "n"),
    ] {
        fs::write(folder.path().join(file), content).expect("a writable folder");
    }
    let unused = Loopback::start(|_| Reply::Silence).port().to_string();
    let variables = [
        ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
        ("KUBERNETES_SERVICE_PORT", &unused),
    ];
    let access = KubernetesAccess::within_cluster_at(folder.path());
    let resolver = resolver(&json!({}), access)
        .with_variables(Variables::fixed(variables))
        .with_retry_policy(answers::short_retry_policy());
    match resolver.cluster_spec() {
        Err(Error::Service(ServiceError::Unreachable { .. })) => Verdict::by(rules::K8S_WITHIN),
        other => Verdict::Failed(format!("{other:?}")),
    }
}

const TOKEN: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
