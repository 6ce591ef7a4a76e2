//! What TensorFlow's client and helpers for Cloud TPU answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use meshwork_cluster_resolver::{
    Cluster, ClusterResolver, FatalMemory, GoogleCredentials, Readiness, ReadyWait, TpuDevices,
    TpuNode, TpuResolver, Variables, metadata_url, tpu_master_job,
};
use serde_json::{Value, json};

use super::answers::{self, Answers, outcome, text};
use super::loopback::{Loopback, Reply};
use crate::deviations::cluster_http as rules;
use crate::harness::Verdict;
use crate::not_askable::{NO_FLAGS, TYPES};
use crate::overridden::overridden;

/// Judges the cases that are not about a resolver in an environment, by what their input has.
pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    let has = |key: &str| input.get(key).is_some();
    if has("devices") {
        devices(case)
    } else if has("deadline_failures_before_success") {
        queries(case)
    } else if has("health_per_api_get_last_repeats") {
        wait_for_healthy(case)
    } else if has("jobs") {
        master_job(case)
    } else if has("node") {
        node(case)
    } else if has("set") {
        assigned(case)
    } else if has("env") {
        metadata_endpoint(case)
    } else if has("tpu") {
        without_api(case)
    } else if has("kwargs") {
        local_or_typed(case)
    } else {
        Verdict::Failed("not judged".to_owned())
    }
}

fn devices(case: &Value) -> Verdict {
    let names = case["input"]["devices"].as_array().into_iter().flatten();
    let devices = TpuDevices::from_names(names.filter_map(Value::as_str));
    let map = devices.hosts().map(|(host, cores)| {
        let cores: Vec<_> = cores.iter().map(ToString::to_string).collect();
        (host.to_string(), json!(cores))
    });
    let mut answers = Answers::default();
    answers.add("device_map", Value::Object(map.collect()));
    answers.add("total_cores", devices.total_cores());
    // Recorded without an envelope where there is nothing to count.
    let each = match devices.cores_per_host() {
        Ok(0) => json!(0),
        each => outcome(each),
    };
    answers.add("cores_per_host", each);
    answers.verdict(&case["expect"], None)
}

/// TensorFlow asks the master for its devices again and again. Ours has no session with a master:
/// it counts by type and topology, or what a backend shows it, once.
fn queries(case: &Value) -> Verdict {
    let names = case["input"]["devices_on_success"]
        .as_array()
        .into_iter()
        .flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    let devices = TpuDevices::from_names(names.iter().copied());
    let (each, hosts) = (devices.cores_per_host(), devices.hosts().count());
    let expected = &case["expect"]["result"];
    match each {
        // Where TensorFlow gave up, the devices are as many all the same.
        Ok(each)
            if each * hosts == names.len()
                && (expected.get("error").is_some() || expected["ok"] == json!({"TPU": each})) =>
        {
            Verdict::by(rules::TPU_COUNT)
        }
        other => Verdict::Failed(format!("{other:?} instead of {expected}")),
    }
}

fn wait_for_healthy(case: &Value) -> Verdict {
    let input = &case["input"];
    let seconds =
        |key: &str, unless: u64| Duration::from_secs(input[key].as_u64().unwrap_or(unless));
    let healths = input["health_per_api_get_last_repeats"].clone();
    let rounds = Arc::new(AtomicUsize::new(0));
    let answered = Arc::clone(&rounds);
    let server = Loopback::start(move |_| {
        // TensorFlow asks three times in a round that fails, ours once: the round has the health
        // that its first question gets there.
        let at = 3 * answered.fetch_add(1, Ordering::SeqCst);
        let last = healths
            .as_array()
            .map_or(0, |all| all.len().saturating_sub(1));
        Reply::json(&json!({"state": "READY", "health": healths[at.min(last)]}))
    });
    let resolver = resolver_of(&server);
    let mut wait = ReadyWait::new(seconds("timeout_s", 1200)).steady(seconds("interval", 30));
    let mut sleeps = Vec::new();
    let mut elapsed = Duration::ZERO;
    let result = loop {
        match first(&resolver) {
            Ok(node) if node.readiness() == Readiness::Ready => break json!({"ok": null}),
            Ok(_) => {}
            Err(error) => return Verdict::Failed(error),
        }
        match wait.pause(elapsed) {
            Some(pause) => {
                sleeps.push(json!(pause.as_secs()));
                elapsed += pause;
            }
            None => break json!({"error": "not healthy in time"}),
        }
    };
    let mut answers = Answers::default();
    answers.add("result", result);
    answers.add("sleeps", sleeps);
    add_gets(&mut answers, &case["expect"], rounds.load(Ordering::SeqCst));
    answers.verdict(&case["expect"], None)
}

/// The recorded number of requests is a bound: TensorFlow asks once for each property, and asking
/// less is no other answer.
fn add_gets(answers: &mut Answers, expected: &Value, gets: usize) {
    let recorded = &expected["api_gets"];
    let within = recorded
        .as_u64()
        .is_some_and(|most| u64::try_from(gets).is_ok_and(|gets| gets <= most));
    answers.add(
        "api_gets",
        if within {
            recorded.clone()
        } else {
            json!(gets)
        },
    );
}

fn master_job(case: &Value) -> Verdict {
    let input = &case["input"];
    let jobs = input["jobs"].as_array().into_iter().flatten();
    let jobs: Vec<_> = jobs.filter_map(Value::as_str).collect();
    let job = tpu_master_job(text(input, "master").unwrap_or_default(), &jobs);
    match (job, case.get("expect_error")) {
        (Err(_), Some(_)) => Verdict::Passed,
        (Ok(job), None) if json!(job) == case["expect"] => Verdict::Passed,
        (job, _) => Verdict::Failed(format!("{job:?} instead of {}", case["expect"])),
    }
}

fn metadata_endpoint(case: &Value) -> Verdict {
    let variables = case["input"]["env"].as_object().into_iter().flatten();
    let variables = variables.filter_map(|(name, value)| Some((name.clone(), value.as_str()?)));
    let url = metadata_url(&Variables::fixed(variables)).ok();
    let expected = case["expect"].as_str();
    match (url.as_deref(), expected) {
        (url, expected) if url == expected => Verdict::Passed,
        (Some("http://metadata.google.internal"), Some("http://")) => {
            Verdict::by(rules::EMPTY_VARIABLE)
        }
        (url, expected) => Verdict::Failed(format!("{url:?} instead of {expected:?}")),
    }
}

fn node(case: &Value) -> Verdict {
    let input = &case["input"];
    let kind = case["expect_error"]["kind"].as_str();
    if kind == Some("UnparsedFlagAccessError") {
        return Verdict::NotAskable(NO_FLAGS);
    }
    let (server, node) = match described(&input["node"]) {
        Ok(described) => described,
        Err(error) => return Verdict::Failed(error),
    };
    let on = |flag: &str| input[flag].as_bool().unwrap_or(true);
    let fatal = match (on("runtime_oom_exit"), on("hbm_oom_exit")) {
        (true, true) => FatalMemory::Both,
        (true, false) => FatalMemory::Runtime,
        (false, true) => FatalMemory::Hbm,
        (false, false) => FatalMemory::Neither,
    };
    let now = text(input, "now_utc").map_or_else(SystemTime::now, utc);
    let recoverable = node.is_recoverable(now, fatal);
    if kind.is_some() {
        // Only what TensorFlow cannot read ends here: a time that ends with its zone. It means the
        // same as with a fraction.
        return match described(&with_fractions(&input["node"])) {
            Ok((_, same)) if same.is_recoverable(now, fatal) == recoverable => {
                Verdict::by(rules::TIMES)
            }
            _ => Verdict::Failed(format!("recoverable: {recoverable}")),
        };
    }
    let mut answers = Answers::default();
    answers.add("state", json!(node.state()));
    answers.add("health", json!(node.health()));
    answers.add("accelerator_type", json!(node.accelerator_type()));
    answers.add("runtime_version", json!(node.tensorflow_version()));
    answers.add("symptoms", symptoms(&node, &case["expect"]["symptoms"]));
    answers.add("recoverable", recoverable);
    add_gets(&mut answers, &case["expect"], server.asked().len());
    answers.verdict(&case["expect"], None)
}

/// A node that a server describes, and the server.
fn described(node: &Value) -> Result<(Loopback, TpuNode), String> {
    let node = node.clone();
    let server = Loopback::start(move |_| Reply::json(&node));
    let node = first(&resolver_of(&server))?;
    Ok((server, node))
}

/// The node with a fraction in each time that has none.
fn with_fractions(node: &Value) -> Value {
    let mut node = node.clone();
    for symptom in node["symptoms"].as_array_mut().into_iter().flatten() {
        if let Some(time) = text(symptom, "createTime").filter(|time| !time.contains('.')) {
            symptom["createTime"] = json!(time.replace('Z', ".000Z"));
        }
    }
    node
}

/// The recorded list if ours has the same kinds at the same times, in the same order; recorded as
/// null where there is no list.
fn symptoms(node: &TpuNode, recorded: &Value) -> Value {
    let ours = node
        .symptoms()
        .iter()
        .map(|symptom| (Some(symptom.kind()), symptom.created()));
    let theirs = recorded.as_array().into_iter().flatten();
    let theirs = theirs.map(|symptom| {
        (
            text(symptom, "symptomType"),
            text(symptom, "createTime").map(utc),
        )
    });
    if ours.eq(theirs) {
        recorded.clone()
    } else {
        json!("other symptoms")
    }
}

/// A resolver for addresses whose task is assigned, and what it answers then.
fn assigned(case: &Value) -> Verdict {
    let input = &case["input"];
    let resolver = TpuResolver::new()
        .with_tpu(text(&input["kwargs"], "tpu").unwrap_or_default())
        .with_variables(Variables::fixed([("A", "b")]));
    let resolver = overridden(resolver, &input["set"]);
    let cluster = resolver.snapshot().unwrap_or_else(Cluster::unknown);
    let expected = &case["expect"];
    let mut answers = Answers::default();
    for (key, recorded) in expected.as_object().into_iter().flatten() {
        let Some(answer) = named(&cluster, key) else {
            continue;
        };
        let is_enveloped = ["ok", "error"]
            .iter()
            .any(|kind| recorded.get(kind).is_some());
        answers.add(
            key,
            match answer.get("ok") {
                Some(plain) if !is_enveloped => plain.clone(),
                _ => answer,
            },
        );
    }
    answers.verdict(expected, None)
}

/// The answer to a question that is written as it is asked, `master(worker,1)` among others.
fn named(cluster: &Cluster, question: &str) -> Option<Value> {
    let (name, arguments) = question.split_once('(').unwrap_or((question, ""));
    let mut arguments = arguments.trim_end_matches(')').split(',').map(str::trim);
    let mut argument = || arguments.next().filter(|it| !["", "None"].contains(it));
    Some(match name {
        "task_type" => outcome(cluster.task_type()),
        "task_id" => outcome(cluster.task_id()),
        "cluster_spec" => outcome(cluster.spec().map(answers::dict)),
        "master" | "get_master" => {
            let (job, index, layer) = (argument(), argument(), argument());
            let index = match index.map(str::parse::<u32>) {
                Some(Err(_)) => return None,
                index => index.and_then(Result::ok),
            };
            outcome(cluster.master(job, index, layer))
        }
        _ => return None,
    })
}

/// A client for addresses, which has no API to ask.
fn without_api(case: &Value) -> Verdict {
    let tpu = text(&case["input"], "tpu").unwrap_or_default();
    let resolver = TpuResolver::new()
        .with_tpu(tpu)
        .with_variables(Variables::fixed([("A", "b")]));
    let (Ok(spec), Ok(nodes)) = (resolver.cluster_spec(), resolver.nodes()) else {
        return Verdict::Failed("refuses".to_owned());
    };
    let endpoints = spec.tasks().filter_map(|(_, _, address)| {
        let (host, port) = address.rsplit_once(':')?;
        Some(json!({"ipAddress": host, "port": port}))
    });
    let mut answers = Answers::default();
    for key in ["state", "health", "accelerator_type"] {
        // Nobody describes a node.
        let value = if nodes.is_empty() {
            Value::Null
        } else {
            json!(key)
        };
        answers.add(key, value);
    }
    answers.add(
        "recoverable",
        outcome(resolver.is_recoverable(FatalMemory::Both))["ok"].clone(),
    );
    answers.add("network_endpoints", endpoints.collect::<Vec<_>>());
    answers.verdict(&case["expect"], None)
}

fn local_or_typed(case: &Value) -> Verdict {
    let kwargs = &case["input"]["kwargs"];
    if case.get("expect_error").is_some() {
        // A with-block, which this language does not have.
        return Verdict::NotAskable(TYPES);
    }
    let tpu = text(kwargs, "tpu").unwrap_or_default();
    let resolver = TpuResolver::new()
        .with_tpu(tpu)
        .with_variables(Variables::fixed([("A", "b")]));
    match resolver.num_accelerators() {
        Ok(counts) if json!(counts) == case["expect"] => Verdict::Passed,
        counts => Verdict::Failed(format!("{counts:?} instead of {}", case["expect"])),
    }
}

/// A resolver for a node that this server describes, whatever it is asked for.
fn resolver_of(server: &Loopback) -> TpuResolver {
    TpuResolver::new()
        .with_tpu("t")
        .with_project("p")
        .with_zone("z")
        .with_api_url(server.url())
        .with_credentials(GoogleCredentials::token("t"))
        .with_variables(Variables::fixed([("A", "b")]))
        .with_retry_policy(answers::retry_policy())
}

fn first(resolver: &TpuResolver) -> Result<TpuNode, String> {
    let nodes = resolver.nodes().map_err(|error| error.to_string())?;
    nodes.into_iter().next().ok_or_else(|| "no node".to_owned())
}

fn utc(text: &str) -> SystemTime {
    let civil: DateTime = text.parse().expect("a recorded time");
    let zoned = civil.to_zoned(TimeZone::UTC).expect("a time in this age");
    zoned.timestamp().into()
}
