//! Recorded cases of TensorFlow's Kubernetes resolver, played against a local HTTP server. A model
//! of both rules for pods says where ours may differ from the recording.

use meshwork_cluster_resolver::{
    Cluster, ClusterResolver, KubernetesAccess, KubernetesResolver, Variables,
};
use serde_json::{Value, json};

use super::answers::{self, Answers, MASTERS, model_master, number, outcome, text};
use super::loopback::{Loopback, Reply, kubeconfig};
use crate::deviations::{Deviation, cluster_http as rules};
use crate::harness::Verdict;
use crate::not_askable::{LINKED, TYPES};
use crate::overridden::{overridden, said};

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    if let Some(error) = case.get("expect_error") {
        return match text(error, "kind") {
            Some("ImportError") => Verdict::NotAskable(LINKED),
            Some("ValueError" | "TypeError") => Verdict::NotAskable(TYPES),
            _ => Verdict::Failed("not judged".to_owned()),
        };
    }
    if selectors(input).is_none() || input["kwargs"]["tf_server_port"].is_string() {
        return Verdict::NotAskable(TYPES);
    }
    let ours = ask(input);
    let mut tensorflow = model(input, tensorflow);
    tensorflow.add("selectors_asked", asked_by_tensorflow(input));
    let off = tensorflow.differing(&case["expect"]);
    let off: Vec<_> = off
        .into_iter()
        .filter(|key| !tensorflow.get(key).is_null())
        .collect();
    if !off.is_empty() {
        return Verdict::Failed(format!(
            "recorded otherwise than TensorFlow's rule: {off:?}"
        ));
    }
    let mut model = model(input, pod_rule);
    model.add("selectors_asked", json!(all_selectors(input)));
    ours.verdict(&case["expect"], Some((rule(input), &model)))
}

fn ask(input: &Value) -> Answers {
    let folder = tempfile::tempdir().expect("a folder for a kubeconfig");
    let pods = input["pods_by_selector"].clone();
    let server = Loopback::start(move |asked| {
        let selector = asked.parameter("labelSelector").unwrap_or_default();
        let pods = pods[selector].as_array().into_iter().flatten();
        Reply::json(&json!({"items": pods.map(pod).collect::<Vec<_>>()}))
    });
    let config = kubeconfig(folder.path(), &server.url(), "t");
    let layer = [&input["set"], &input["kwargs"]];
    let layer = layer.into_iter().find_map(|given| given.get("rpc_layer"));
    let layer = layer.map_or(Value::Null, |layer| json!({"rpc_layer": layer}));
    let given = resolver(&input["kwargs"], KubernetesAccess::kubeconfig(config));
    let mut set = said(&input["set"]);
    if let Some(set) = set.as_object_mut() {
        set.remove("rpc_layer");
    }
    let before = given.clone();
    let given = overridden(overridden(given, &layer), &set);
    let mut answers = Answers::default();
    let spec = given.cluster_spec();
    let asked = server.asked();
    let asked: Vec<_> = asked
        .iter()
        .map(|asked| asked.parameter("labelSelector"))
        .collect();
    let before = before.snapshot().unwrap_or_else(Cluster::unknown);
    let master = before.master(None, None, None);
    answers.add(
        "before",
        json!([before.task_type().ok(), before.task_id().ok(), master.ok()]),
    );
    answers.add("selectors_asked", json!(asked));
    answers.add(
        "cluster_spec",
        outcome(spec.map(|spec| answers::dict(&spec))),
    );
    answers::common(&mut answers, given.as_ref());
    answers
}

/// A resolver of these arguments in an empty environment.
pub(super) fn resolver(given: &Value, access: KubernetesAccess) -> KubernetesResolver {
    let mut resolver = KubernetesResolver::new()
        .with_access(access)
        .with_variables(Variables::fixed([("A", "b")]))
        .with_retry_policy(answers::retry_policy());
    if let Some(jobs) = given.get("job_to_label_mapping").and_then(Value::as_object) {
        for (job, selectors) in jobs {
            let selectors = selectors.as_array().into_iter().flatten();
            resolver = resolver.with_job(job, selectors.filter_map(Value::as_str));
        }
    }
    if let Some(port) = number(given, "tf_server_port").and_then(|port| port.try_into().ok()) {
        resolver = resolver.with_port(port);
    }
    resolver
}

fn pod(recorded: &Value) -> Value {
    json!({
        "metadata": {"name": recorded["name"]},
        "status": {
            "phase": recorded["phase"], "hostIP": recorded["host_ip"], "podIP": recorded["pod_ip"],
        },
    })
}

/// Each job with its selectors; nothing for a text in place of a list, which TensorFlow walks
/// character by character.
fn selectors(input: &Value) -> Option<Vec<(String, Vec<String>)>> {
    let jobs = input["kwargs"]
        .get("job_to_label_mapping")
        .and_then(Value::as_object);
    let Some(jobs) = jobs.filter(|jobs| !jobs.is_empty()) else {
        return Some(vec![(
            "worker".to_owned(),
            vec!["job-name=tensorflow".to_owned()],
        )]);
    };
    let jobs = jobs.iter().map(|(job, selectors)| {
        let selectors = selectors.as_array()?.iter();
        let selectors = selectors.map(|selector| selector.as_str().map(str::to_owned));
        Some((job.clone(), selectors.collect::<Option<_>>()?))
    });
    jobs.collect()
}

fn all_selectors(input: &Value) -> Vec<String> {
    let jobs = selectors(input).unwrap_or_default().into_iter();
    jobs.flat_map(|(_, selectors)| selectors).collect()
}

/// TensorFlow asks for one selector after the other until a pod of one does not run.
fn asked_by_tensorflow(input: &Value) -> Value {
    let mut asked = all_selectors(input);
    let stands = |selector: &String| {
        let pods = input["pods_by_selector"][selector].as_array();
        let mut pods = pods.into_iter().flatten();
        pods.any(|pod| pod["phase"] != "Running")
    };
    if let Some(last) = asked.iter().position(stands) {
        asked.truncate(last + 1);
    }
    json!(asked)
}

/// The hosts of one job out of the pods of its selectors.
type Rule = fn(Vec<Vec<Value>>) -> Result<Vec<String>, String>;

/// Host IPs, by name as text; any pod that does not run is an error.
fn tensorflow(groups: Vec<Vec<Value>>) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for mut group in groups {
        group.sort_by_key(|pod| pod["name"].as_str().map(str::to_owned));
        for pod in group {
            if pod["phase"] != "Running" {
                return Err("a pod does not run".to_owned());
            }
            hosts.push(pod["host_ip"].as_str().unwrap_or("None").to_owned());
        }
    }
    Ok(hosts)
}

/// Pod IPs, by name with numbers counted; finished pods have no part, and no pod has two.
fn pod_rule(groups: Vec<Vec<Value>>) -> Result<Vec<String>, String> {
    let mut seen = Vec::new();
    let mut hosts = Vec::new();
    for mut group in groups {
        group.sort_by_key(|pod| answers::counted(pod["name"].as_str().unwrap_or_default()));
        for pod in group {
            match pod["phase"].as_str() {
                Some("Succeeded" | "Failed") => continue,
                Some("Running") => {}
                _ => return Err("a pod does not run".to_owned()),
            }
            if !seen.contains(&pod["name"]) {
                seen.push(pod["name"].clone());
                hosts.push(pod["pod_ip"].as_str().ok_or("a pod has no IP")?.to_owned());
            }
        }
    }
    Ok(hosts)
}

/// What depends on which hosts there are, by a rule for them.
fn model(input: &Value, rule: Rule) -> Answers {
    let (given, set) = (&input["kwargs"], &input["set"]);
    let port = number(given, "tf_server_port").unwrap_or(8470);
    let pods = |selector: &String| -> Vec<Value> {
        let pods = input["pods_by_selector"][selector].as_array();
        pods.cloned().unwrap_or_default()
    };
    let jobs = selectors(input)
        .unwrap_or_default()
        .into_iter()
        .map(|(job, selectors)| {
            let hosts = rule(selectors.iter().map(pods).collect())?;
            let addresses = hosts.into_iter().map(|host| format!("{host}:{port}"));
            Ok::<_, String>((job, addresses.collect::<Vec<_>>()))
        });
    let cluster = jobs.collect::<Result<Vec<_>, _>>().map(answers::jobs);
    let layer = set.get("rpc_layer").or_else(|| given.get("rpc_layer"));
    let own_layer = layer.map_or(Some("grpc"), Value::as_str);
    let mut answers = Answers::default();
    for (key, job, index, layer) in MASTERS {
        let job = job.or_else(|| text(set, "task_type"));
        let index = index.map(u64::from).or_else(|| set["task_id"].as_u64());
        answers.add(
            key,
            model_master(&cluster, (job, index), layer.or(own_layer)),
        );
    }
    answers.add("cluster_spec", outcome(cluster));
    answers
}

fn rule(input: &Value) -> Deviation {
    let pods = input["pods_by_selector"].as_object().into_iter().flatten();
    let mut pods = pods.flat_map(|(_, pods)| pods.as_array().into_iter().flatten());
    if pods.any(|pod| matches!(pod["phase"].as_str(), Some("Succeeded" | "Failed"))) {
        rules::K8S_FINISHED
    } else {
        rules::K8S_POD_IP
    }
}
