//! Which TPU is meant, and who its workers are.

use std::net::Ipv6Addr;

use meshwork_cluster_resolver::{
    ClusterResolver, ClusterSpec, Error, GoogleCredentials, ServiceError, TpuResolver, TpuTarget,
    Variables,
};
use serde_json::{Value, json};

use super::answers::{self, Answers, MASTERS, model_master, outcome, text};
use super::loopback::{Asked, Loopback, Reply};
use super::tpu_client;
use crate::deviations::{Deviation, cluster_http as rules};
use crate::harness::Verdict;
use crate::not_askable::TYPES;
use crate::overridden::overridden;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    if input.get("env").is_none() || input.get("kwargs").is_none() {
        return tpu_client::judge(case);
    }
    if input["kwargs"].get("job_name") == Some(&Value::Null) {
        return Verdict::NotAskable(TYPES);
    }
    let server = server(input);
    let resolver = match resolver(input, &server) {
        Ok(resolver) => resolver,
        Err(error) => return refused(case, &error),
    };
    let spec = resolver.cluster_spec();
    if case.get("expect_error").is_some() {
        return match spec {
            Err(error) => refused(case, &error),
            Ok(spec) => Verdict::Failed(format!("answers {}", answers::dict(&spec))),
        };
    }
    let answers = answers(input, &resolver, &server, spec.clone());
    if let Some(rule) = rule(input, &resolver, spec.as_ref(), &answers) {
        return by_rule(&answers, &case["expect"], rule);
    }
    answers.verdict(&case["expect"], None)
}

/// All answers, and the requests of the first look.
fn answers(
    input: &Value,
    resolver: &TpuResolver,
    server: &Loopback,
    spec: Result<ClusterSpec, Error>,
) -> Answers {
    let asked = server.asked();
    with_client(ask(input, resolver, spec, &asked), resolver, input, &asked)
}

fn refused(case: &Value, error: &Error) -> Verdict {
    if case.get("expect_error").is_some() {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("refuses: {error}"))
    }
}

fn resolver(input: &Value, server: &Loopback) -> Result<TpuResolver, Error> {
    let given = &input["kwargs"];
    let mut resolver = match given.get("tpu") {
        Some(Value::Array(tpus)) => TpuResolver::of_list(tpus.iter().filter_map(Value::as_str))?,
        Some(Value::String(tpu)) => TpuResolver::new().with_tpu(tpu),
        _ => TpuResolver::new(),
    };
    let variables = input["env"].as_object().into_iter().flatten();
    let variables = variables.filter_map(|(name, value)| Some((name.clone(), value.as_str()?)));
    resolver = resolver
        .with_variables(Variables::fixed(variables))
        .with_metadata_url(server.url())
        .with_api_url(server.url())
        .with_credentials(GoogleCredentials::token("t"))
        .with_retry_policy(answers::retry_policy());
    type With = fn(TpuResolver, String) -> TpuResolver;
    let arguments: [(&str, With); 6] = [
        ("project", TpuResolver::with_project),
        ("zone", TpuResolver::with_zone),
        ("job_name", TpuResolver::with_job_name),
        ("coordinator_name", TpuResolver::with_coordinator_name),
        ("coordinator_address", TpuResolver::with_coordinator_address),
        ("discovery_url", TpuResolver::with_discovery_url),
    ];
    for (name, with) in arguments {
        if let Some(value) = text(given, name) {
            resolver = with(resolver, value.to_owned());
        }
    }
    Ok(resolver)
}

/// Plays the metadata server and the API.
fn server(input: &Value) -> Loopback {
    let (metadata, nodes) = (input["metadata"].clone(), input["nodes"].clone());
    Loopback::start(move |asked| {
        let known = match path_below(asked, METADATA) {
            Some(path) => text(&metadata, path).map(Reply::text),
            None => path_below(asked, API)
                .and_then(|path| nodes.get(path))
                .map(Reply::json),
        };
        known.unwrap_or_else(|| Reply::status(404, "{}"))
    })
}

fn path_below<'a>(asked: &'a Asked, base: &str) -> Option<&'a str> {
    asked.path.strip_prefix(base)
}

/// The answers, and the requests of the first look.
fn ask(
    input: &Value,
    resolver: &TpuResolver,
    spec: Result<ClusterSpec, Error>,
    asked: &[Asked],
) -> Answers {
    let below = |base: &str| -> Vec<_> {
        let paths = asked.iter().filter_map(|asked| path_below(asked, base));
        paths.map(str::to_owned).collect()
    };
    let mut answers = Answers::default();
    let assigned = overridden(resolver.clone(), &input["set"]);
    answers::common(&mut answers, assigned.as_ref());
    let master = answers.get("master()").clone();
    answers.add("get_master()", master);
    let job = answers.get("task_type").clone();
    answers.add("get_job_name()", job);
    // What TensorFlow asks for when it is made, ours asks for when it looks.
    answers.add("metadata_paths_read_by_ctor", json!(below(METADATA)));
    answers.add("nodes_asked", json!(below(API)));
    answers.add(
        "cluster_spec",
        outcome(spec.map(|spec| answers::dict(&spec))),
    );
    answers.add("coordination_leader", resolver.coordination_leader());
    let named = matches!(resolver.target(), Ok(TpuTarget::Named(_)));
    answers.add("api_available", named);
    // TensorFlow's class has no such property, so ours knows no layer.
    let layer = match answers.get("rpc_layer") {
        Value::Null => json!({"error": "none"}),
        layer => json!({"ok": layer}),
    };
    answers.add("rpc_layer", layer);
    // Always null: it speaks of devices that a session has initialised.
    answers.add("tpu_hardware_feature", Value::Null);
    answers
}

/// Adds what TensorFlow's client knows: the name in its project and zone, which the metadata server
/// may have told, and where the description of the API is.
fn with_client(
    mut answers: Answers,
    resolver: &TpuResolver,
    input: &Value,
    asked: &[Asked],
) -> Answers {
    let discovery = resolver.discovery_url().ok().flatten();
    let client = match resolver.target() {
        Ok(TpuTarget::Named(name)) => {
            let path = asked
                .iter()
                .find_map(|asked| path_below(asked, API))
                .unwrap_or_default();
            let parts: Vec<_> = path.splitn(6, '/').collect();
            let part =
                |at: usize, known: Option<&str>| json!(known.or_else(|| parts.get(at).copied()));
            json!({
                "project": part(1, name.project()), "zone": part(3, name.zone()),
                "discovery_url": discovery, "name": name.name(),
            })
        }
        Ok(TpuTarget::Addresses(_)) => {
            // The client keeps the text, ours what it means: the text that is meant is looked up
            // in the input, and has to mean the same.
            let tpu = &input["kwargs"]["tpu"];
            let said = tpu
                .as_str()
                .or(tpu[0].as_str())
                .filter(|tpu| !tpu.is_empty());
            let variables = ["KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"].into_iter();
            let mut set = variables.filter_map(|name| text(&input["env"], name));
            let in_variable = || set.find(|value| !value.is_empty());
            let said = said.or_else(in_variable).unwrap_or_default();
            let means = TpuResolver::new().with_tpu(said).target();
            let name = (means == resolver.target()).then_some(said);
            json!({"project": null, "zone": null, "discovery_url": null, "name": name})
        }
        _ => return answers,
    };
    answers.add("client", client);
    answers
}

/// The rule that this case falls under, from the input and from what ours says about it.
fn rule(
    input: &Value,
    resolver: &TpuResolver,
    spec: Result<&ClusterSpec, &Error>,
    answers: &Answers,
) -> Option<Rule> {
    let service = match spec {
        Err(Error::Service(error)) => Some(error),
        _ => None,
    };
    let refuses = |deviation, keys| Rule {
        deviation,
        keys,
        fits: refuses_all(answers),
    };
    Some(match (resolver.target(), service) {
        (Ok(TpuTarget::Local), _) if text(&input["kwargs"], "tpu") != Some("local") => Rule {
            deviation: rules::TPU_LOCAL,
            keys: &["api_available", "client", "metadata_paths_read_by_ctor"],
            fits: answers.get("api_available") == &json!(false)
                && answers.get("client").is_null()
                && answers.get("metadata_paths_read_by_ctor") == &json!([]),
        },
        (_, Some(ServiceError::TpuUnhealthy { .. })) => refuses(rules::TPU_HEALTH, ANSWERS),
        (_, Some(ServiceError::Coordinator { .. })) => refuses(rules::TPU_COORDINATOR, ANSWERS),
        (_, Some(ServiceError::TpuAddress { .. })) => refuses(rules::TPU_ADDRESS, MEANING),
        (Ok(TpuTarget::Addresses(_)), None) if is_mangled(input) => Rule {
            deviation: rules::TPU_ADDRESS,
            keys: ANSWERS,
            fits: read_whole(input).is_some_and(|model| answers.differing(&model).is_empty()),
        },
        _ if has_empty_variable(input) => Rule {
            deviation: rules::EMPTY_VARIABLE,
            keys: MEANING,
            fits: is_as_unset(input, answers),
        },
        _ => return None,
    })
}

/// A rule, the answers that it touches, and whether ours are what it makes of them.
struct Rule {
    deviation: Deviation,
    keys: &'static [&'static str],
    fits: bool,
}

fn by_rule(answers: &Answers, expected: &Value, rule: Rule) -> Verdict {
    let differing = answers.differing(expected);
    if differing.is_empty() {
        return Verdict::Passed;
    }
    let touched = differing.iter().all(|key| rule.keys.contains(key));
    if touched && rule.fits {
        return Verdict::by(rule.deviation);
    }
    answers.verdict(expected, None)
}

fn refuses_all(answers: &Answers) -> bool {
    let refused = |key: &str| answers.get(key).get("error").is_some();
    ["cluster_spec", "master()", "get_master()"]
        .into_iter()
        .all(refused)
}

/// Whether the answers are those that ours gives where empty variables are not set.
fn is_as_unset(input: &Value, answers: &Answers) -> bool {
    let mut without = input.clone();
    if let Some(variables) = without["env"].as_object_mut() {
        variables.retain(|_, value| value != "");
    }
    let server = server(&without);
    let Ok(resolver) = resolver(&without, &server) else {
        return false;
    };
    let spec = resolver.cluster_spec();
    let unset = self::answers(&without, &resolver, &server, spec);
    MEANING
        .iter()
        .all(|key| answers::same(unset.get(key), answers.get(key)))
}

/// The cluster and its masters, where each address of the list is read whole: it may have blanks
/// around it, and gets the usual port if it has none.
fn read_whole(input: &Value) -> Option<Value> {
    let (given, env) = (&input["kwargs"], &input["env"]);
    let variables = ["KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"];
    let mut texts = [given["tpu"].as_str(), given["tpu"][0].as_str()]
        .into_iter()
        .chain(variables.map(|name| text(env, name)))
        .flatten();
    let list = texts.find(|text| !text.is_empty())?;
    let addresses = list.split(',').map(|item| {
        let item = item.trim();
        let address = item.strip_prefix("grpc://").unwrap_or(item);
        let after_host = address.rsplit(']').next().unwrap_or_default();
        match address.parse::<Ipv6Addr>() {
            Ok(bare) => format!("[{bare}]:8470"),
            Err(_) if after_host.contains(':') => address.to_owned(),
            Err(_) => format!("{address}:8470"),
        }
    });
    let job = text(given, "job_name").unwrap_or("worker");
    let cluster = Ok(answers::jobs([(job.to_owned(), addresses.collect())]));
    let mut model = serde_json::Map::new();
    for (key, asked, index, _) in MASTERS {
        let task = asked.zip(index).unwrap_or((job, 0));
        let task = (Some(task.0), Some(task.1.into()));
        model.insert(key.to_owned(), model_master(&cluster, task, Some("grpc")));
    }
    model.insert("cluster_spec".to_owned(), outcome(cluster));
    Some(Value::Object(model))
}

/// Whether TensorFlow cuts the addresses of this case: it trims nothing, and takes what stands
/// between the first two colons for a port.
fn is_mangled(input: &Value) -> bool {
    let (given, env) = (&input["kwargs"], &input["env"]);
    let lists = [given["tpu"].as_str(), given["tpu"][0].as_str()]
        .into_iter()
        .flatten();
    let variables = env
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, value)| value.as_str());
    let mut items = lists.chain(variables).flat_map(|list| list.split(','));
    items.any(|item| {
        let address = item.strip_prefix("grpc://").unwrap_or(item);
        item.trim() != item || address.matches(':').count() > 1 || address.is_empty()
    })
}

fn has_empty_variable(input: &Value) -> bool {
    let mut variables = input["env"].as_object().into_iter().flatten();
    variables.any(|(_, value)| value == "")
}

const METADATA: &str = "/computeMetadata/v1/";
const API: &str = "/v1/";

/// What follows from who the workers are.
const ANSWERS: &[&str] = &[
    "cluster_spec",
    "master()",
    "get_master()",
    "master(worker,1)",
    "master(worker,1,zz)",
    "master(worker,0,zz)",
    "master(None,0)",
];

/// What follows from which TPU is meant.
const MEANING: &[&str] = &[
    "cluster_spec",
    "master()",
    "get_master()",
    "master(worker,1)",
    "master(worker,1,zz)",
    "nodes_asked",
    "metadata_paths_read_by_ctor",
    "api_available",
    "client",
];
