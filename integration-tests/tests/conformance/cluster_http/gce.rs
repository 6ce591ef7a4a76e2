//! Recorded cases of TensorFlow's Compute Engine resolver, played against a local HTTP server. A
//! model of both orders of instances says where ours may differ from the recording.

use meshwork_cluster_resolver::{ClusterResolver, GceResolver, GoogleCredentials, Variables};
use serde_json::{Value, json};

use super::answers::{self, Answers, MASTERS, model_master, number, outcome, text};
use super::loopback::{Asked, Loopback, Reply};
use crate::deviations::{Deviation, cluster_http as rules};
use crate::harness::Verdict;
use crate::not_askable::{BUILT_ONCE, LINKED, TYPES};
use crate::overridden::overridden;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &assigned(&case["input"]);
    if case.get("expect_error").is_some() {
        return match (input.get("set"), input.get("pages")) {
            (Some(_), _) => Verdict::NotAskable(BUILT_ONCE),
            (None, None) => Verdict::NotAskable(LINKED),
            (None, Some(_)) => match resolver(input, &server(input)).cluster_spec() {
                Ok(spec) => Verdict::Failed(format!("answers {}", answers::dict(&spec))),
                Err(_) => Verdict::Passed,
            },
        };
    }
    if input["kwargs"]["port"].is_string() {
        return Verdict::NotAskable(TYPES);
    }
    let (ours, rule) = (ask(input), rule(input));
    let model = model(input, Whose::Ours);
    if let Some(wrong) = unexplained(&case["expect"], &self::model(input, Whose::Tensorflow)) {
        return Verdict::Failed(wrong);
    }
    ours.verdict(&case["expect"], rule.map(|rule| (rule, &model)))
}

/// The input where what is assigned after construction is an argument, which comes to the same.
fn assigned(input: &Value) -> Value {
    let mut input = input.clone();
    for name in ["task_id", "rpc_layer"] {
        if let Some(value) = input["set"].get(name).cloned() {
            input["kwargs"][name] = value;
        }
    }
    input
}

/// What differs between the recorded answers and TensorFlow's rule: nothing, or the rule of ours
/// that stands against it would explain the wrong thing.
fn unexplained(expected: &Value, tensorflow: &Answers) -> Option<String> {
    let off = tensorflow.differing(expected);
    // Only what the order of addresses decides is modelled.
    let off: Vec<_> = off
        .into_iter()
        .filter(|key| !tensorflow.get(key).is_null())
        .collect();
    (!off.is_empty()).then(|| format!("recorded otherwise than TensorFlow's rule: {off:?}"))
}

fn ask(input: &Value) -> Answers {
    let server = server(input);
    let resolver = resolver(input, &server);
    let mut answers = Answers::default();
    let spec = resolver.cluster_spec();
    answers.add("api_calls", calls(&server.asked(), input));
    answers.add(
        "cluster_spec",
        outcome(spec.map(|spec| answers::dict(&spec))),
    );
    answers::common(&mut answers, resolver.as_ref());
    answers
}

fn resolver(input: &Value, server: &Loopback) -> Box<dyn ClusterResolver> {
    let given = &input["kwargs"];
    let port = number(given, "port").and_then(|port| u16::try_from(port).ok());
    let name = |key| text(given, key).unwrap_or_default();
    let resolver = GceResolver::new(
        name("project"),
        name("zone"),
        name("instance_group"),
        port.unwrap_or_default(),
    )
    .with_compute_url(format!("{}/compute/v1", server.url()))
    .with_credentials(GoogleCredentials::token("t"))
    .with_variables(Variables::fixed([("A", "b")]))
    .with_retry_policy(answers::retry_policy());
    let resolver = match text(given, "task_type") {
        Some(job) => resolver.with_job_name(job),
        None => resolver,
    };
    let mut set = given.clone();
    if let Some(set) = set.as_object_mut() {
        set.retain(|name, _| ["task_id", "rpc_layer"].contains(&name.as_str()));
    }
    overridden(resolver, &set)
}

/// Plays the Compute API; the pages are linked by their numbers.
fn server(input: &Value) -> Loopback {
    let (pages, instances) = (input["pages"].clone(), input["instances"].clone());
    Loopback::start(move |asked| {
        if asked.path.ends_with("/listInstances") {
            let number = asked.parameter("pageToken").unwrap_or("0").parse();
            let number: usize = number.unwrap_or_default();
            let mut page = pages[number].clone();
            if pages.get(number + 1).is_some() {
                page["nextPageToken"] = json!((number + 1).to_string());
            }
            return Reply::json(&page);
        }
        let name = asked.path.rsplit('/').next().unwrap_or_default();
        match instances.get(name).and_then(Value::as_array) {
            Some(ips) => {
                let interfaces = ips.iter().map(|ip| json!({"networkIP": ip}));
                Reply::json(&json!({"networkInterfaces": interfaces.collect::<Vec<_>>()}))
            }
            None => Reply::status(404, "{}"),
        }
    })
}

/// The requests of one look in the recorded form. Further pages are not recorded. Machines are
/// asked about several at a time, so they are put into the order of the list, and those after the
/// first one that makes the look fail may have been asked about or not.
fn calls(asked: &[Asked], input: &Value) -> Value {
    let mut calls = Vec::new();
    let mut machines: Vec<(&str, Value)> = Vec::new();
    for asked in asked {
        let path: Vec<_> = asked
            .path
            .trim_start_matches("/compute/v1/")
            .split('/')
            .collect();
        match path[..] {
            [
                "projects",
                project,
                "zones",
                zone,
                "instanceGroups",
                group,
                "listInstances",
            ] => {
                if asked.parameter("pageToken").is_none() {
                    let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
                    calls.push(json!(["list", {
                        "body": body, "instanceGroups": group, "project": project, "zone": zone,
                        "orderBy": asked.parameter("orderBy"),
                    }]));
                }
            }
            ["projects", project, "zones", zone, "instances", name] => {
                machines.push((name, json!(["get", project, zone, name])));
            }
            _ => calls.push(json!(asked.path)),
        }
    }
    let listed = names(input);
    machines.sort_by_key(|(name, _)| listed.iter().position(|listed| listed == name));
    let failing = machines
        .iter()
        .position(|(name, _)| !has_address(input, name));
    machines.truncate(failing.map_or(machines.len(), |at| at + 1));
    calls.extend(machines.into_iter().map(|(_, call)| call));
    json!(calls)
}

fn has_address(input: &Value, machine: &str) -> bool {
    input["instances"][machine][0].is_string()
}

/// The requests of one look: one page after the other, up to a page or a machine that makes it
/// fail.
fn expected_calls(input: &Value, whose: Whose) -> Value {
    let given = &input["kwargs"];
    let (project, zone) = (&given["project"], &given["zone"]);
    let list = json!({
        "body": {"instanceState": "RUNNING"}, "instanceGroups": given["instance_group"],
        "project": project, "zone": zone, "orderBy": "name",
    });
    let mut calls = vec![json!(["list", list])];
    for page in input["pages"].as_array().into_iter().flatten() {
        if whose == Whose::Tensorflow && page.get("items").is_none() {
            break;
        }
        for name in names_of(page) {
            calls.push(json!(["get", project, zone, name]));
            if !has_address(input, &name) {
                return json!(calls);
            }
        }
    }
    json!(calls)
}

/// The machines in the order of the pages.
fn names(input: &Value) -> Vec<String> {
    let pages = input["pages"].as_array().into_iter().flatten();
    pages.flat_map(names_of).collect()
}

fn names_of(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().into_iter().flatten();
    let links = items.filter_map(|item| text(item, "instance"));
    links
        .map(|link| link.rsplit('/').next().unwrap_or_default().to_owned())
        .collect()
}

/// Whose rule a model follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Whose {
    /// By name, counting numbers; a page without a list is an empty one.
    Ours,
    /// By address as text; a page without a list is an error.
    Tensorflow,
}

/// What is asked, and what depends on the order of the addresses, by a rule for it.
fn model(input: &Value, whose: Whose) -> Answers {
    let given = &input["kwargs"];
    let first = |name: &String| input["instances"][name][0].as_str().map(str::to_owned);
    let machines = names(input).into_iter().map(|name| {
        let address = format!("{}:{}", first(&name)?, given["port"]);
        Some((name, address))
    });
    let machines: Option<Vec<_>> = machines.collect();
    let mut answers = Answers::default();
    answers.add("api_calls", expected_calls(input, whose));
    let job = text(given, "task_type").unwrap_or("worker");
    let cluster = machines.map(|mut machines| {
        match whose {
            Whose::Ours => machines.sort_by_key(|(name, _)| answers::counted(name)),
            Whose::Tensorflow => machines.sort_by(|(_, left), (_, right)| left.cmp(right)),
        }
        let addresses = machines.into_iter().map(|(_, address)| address).collect();
        answers::jobs([(job.to_owned(), addresses)])
    });
    let broken = whose == Whose::Tensorflow && lacks_items(input);
    let cluster = cluster.filter(|_| !broken).ok_or_else(String::new);
    let own = match given.get("task_id") {
        Some(id) => id.as_u64(),
        None => Some(0),
    };
    let own_layer = given.get("rpc_layer").map_or(Some("grpc"), Value::as_str);
    for (key, asked, index, layer) in MASTERS {
        let task = (asked.or(Some(job)), index.map(u64::from).or(own));
        answers.add(key, model_master(&cluster, task, layer.or(own_layer)));
    }
    answers.add("cluster_spec", outcome(cluster));
    answers
}

fn lacks_items(input: &Value) -> bool {
    let mut pages = input["pages"].as_array().into_iter().flatten();
    pages.any(|page| page.get("items").is_none())
}

fn rule(input: &Value) -> Option<Deviation> {
    Some(if lacks_items(input) {
        rules::GCE_EMPTY_PAGE
    } else {
        rules::GCE_ORDER
    })
}
