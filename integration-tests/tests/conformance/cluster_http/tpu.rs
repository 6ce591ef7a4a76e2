//! Which TPU is meant, and who its workers are.

use std::net::Ipv6Addr;

use meshwork_cluster_resolver::{
    ClusterResolver, Error, GoogleCredentials, ServiceError, TpuResolver, TpuTarget, Variables,
};
use serde_json::{Value, json};

use super::answers::{self, Answers, outcome, text};
use super::loopback::{Asked, Loopback, Reply};
use super::tpu_client;
use crate::deviations::{Deviation, cluster_http as rules};
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    if input.get("env").is_none() || input.get("kwargs").is_none() {
        return tpu_client::judge(case);
    }
    if input["kwargs"].get("job_name") == Some(&Value::Null) {
        return Verdict::Deviates(rules::TYPED);
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
    let asked = server.asked();
    let answers = ask(&resolver, spec.clone(), &asked);
    let answers = with_client(answers, &resolver, input, &asked);
    if let Some(rule) = rule(input, &resolver, spec.as_ref()) {
        return by_rule(&answers, &case["expect"], rule);
    }
    answers.verdict(&case["expect"], None)
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
        .with_patience(answers::patience());
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
    resolver: &TpuResolver,
    spec: Result<meshwork_cluster_resolver::ClusterSpec, Error>,
    asked: &[Asked],
) -> Answers {
    let below = |base: &str| -> Vec<_> {
        let paths = asked.iter().filter_map(|asked| path_below(asked, base));
        paths.map(str::to_owned).collect()
    };
    let mut answers = Answers::default();
    answers::common(&mut answers, resolver);
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
            let mut variables = ["KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"].into_iter();
            let in_variable = || variables.find_map(|name| text(&input["env"], name));
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
    spec: Result<&meshwork_cluster_resolver::ClusterSpec, &Error>,
) -> Option<Rule> {
    let given = &input["kwargs"];
    let service = match spec {
        Err(Error::Service(error)) => Some(error),
        _ => None,
    };
    let refuses = |deviation| {
        Some(Rule {
            deviation,
            keys: ANSWERS,
            fits: refuses_all,
        })
    };
    match (resolver.target(), service) {
        (Ok(TpuTarget::Local), _) if text(given, "tpu") != Some("local") => Some(Rule {
            deviation: rules::TPU_LOCAL,
            keys: &["api_available", "client", "metadata_paths_read_by_ctor"],
            fits: |answers| answers.get("api_available") == &json!(false),
        }),
        (_, Some(ServiceError::TpuUnhealthy { .. })) => refuses(rules::TPU_HEALTH),
        (_, Some(ServiceError::Coordinator { .. })) => refuses(rules::TPU_COORDINATOR),
        (_, Some(ServiceError::TpuAddress { .. })) => Some(Rule {
            deviation: rules::TPU_ADDRESS,
            keys: MEANING,
            fits: refuses_all,
        }),
        (Ok(TpuTarget::Addresses(addresses)), None) if is_mangled(input) => Some(Rule {
            deviation: rules::TPU_ADDRESS,
            keys: ANSWERS,
            fits: if addresses.iter().all(|address| is_address(address)) {
                |_| true
            } else {
                |_| false
            },
        }),
        (_, Some(ServiceError::TpuUnnamed)) if has_empty_variable(input) => Some(Rule {
            deviation: rules::EMPTY_VARIABLE,
            keys: MEANING,
            fits: refuses_all,
        }),
        (Ok(_), _) if has_empty_variable(input) => Some(Rule {
            deviation: rules::EMPTY_VARIABLE,
            keys: MEANING,
            fits: |_| true,
        }),
        _ => None,
    }
}

/// A rule, the answers that it touches, and what it makes of them.
struct Rule {
    deviation: Deviation,
    keys: &'static [&'static str],
    fits: fn(&Answers) -> bool,
}

fn by_rule(answers: &Answers, expected: &Value, rule: Rule) -> Verdict {
    let differing = answers.differing(expected);
    if differing.is_empty() {
        return Verdict::Passed;
    }
    let touched = differing.iter().all(|key| rule.keys.contains(key));
    if touched && (rule.fits)(answers) {
        return Verdict::Deviates(rule.deviation);
    }
    answers.verdict(expected, None)
}

fn refuses_all(answers: &Answers) -> bool {
    let refused = |key: &str| answers.get(key).get("error").is_some();
    ["cluster_spec", "master()", "get_master()"]
        .into_iter()
        .all(refused)
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

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let good_host = match bracketed {
        Some(host) => host.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', ' ', '/']),
    };
    good_host && port.parse::<u16>().is_ok_and(|port| port > 0)
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
