//! TensorFlow's Slurm resolver beside ours, with what it reads: lists of hosts and of counts.

use std::collections::BTreeSet;

use meshwork_cluster_resolver::slurm::{HostListProblem, hosts, task_counts};
use meshwork_cluster_resolver::{
    ClusterResolver, ClusterSpec, Error, SlurmError, SlurmResolver, TasksPerNode, Variables,
};
use serde_json::{Value, json};

use super::probe::{Probe, accelerators, dict, failed, unread, verdict};
use crate::deviations::{Deviation, resolvers as deviations};
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    if let Some(list) = input["hostlist"].as_str() {
        return judge_list(list, case);
    }
    if let Some(text) = input["tasks_per_node"].as_str() {
        return match (task_counts(text), case.get("expect")) {
            (Ok(counts), Some(expected)) if json!(counts) == *expected => Verdict::Passed,
            (Err(_), None) => Verdict::Passed,
            (counts, _) => failed(counts),
        };
    }
    judge_resolver(case)
}

fn judge_list(list: &str, case: &Value) -> Verdict {
    match (hosts(list), case.get("expect")) {
        (Ok(hosts), Some(expected)) if json!(hosts) == *expected => Verdict::Passed,
        (Err(_), None) => Verdict::Passed,
        (ours, _) => list_excuse(list, &ours).map_or_else(|| failed(&ours), Verdict::Deviates),
    }
}

/// Where Slurm, which writes these lists, means something else than TensorFlow reads.
fn list_excuse(list: &str, ours: &Result<Vec<String>, HostListProblem>) -> Option<Deviation> {
    let several = |item: &str| item.matches('[').count() > 1;
    match ours {
        _ if list.contains([' ', '\t', '\n']) => Some(deviations::BLANKS),
        Err(HostListProblem::Range { range }) if is_descending(range) => {
            Some(deviations::DESCENDING)
        }
        Err(HostListProblem::Range { range }) => {
            let odd = |end: &str| end.parse::<u64>().is_err() || end.starts_with('+');
            range.split('-').any(odd).then_some(deviations::RANGES)
        }
        Err(HostListProblem::LongRange { .. } | HostListProblem::TooManyHosts) => {
            Some(deviations::LONG_LISTS)
        }
        Err(HostListProblem::Unopened { .. }) => Some(deviations::BRACKETS),
        Ok(_) if list.starts_with(',') || list.contains(",,") => Some(deviations::EMPTY_ITEMS),
        Ok(_) if list.split("],").any(several) => Some(deviations::SEVERAL_BRACKETS),
        _ => None,
    }
}

fn is_descending(range: &str) -> bool {
    let ends = range
        .split_once('-')
        .map(|(low, high)| (low.parse(), high.parse()));
    matches!(ends, Some((Ok::<u64, _>(low), Ok::<u64, _>(high))) if low > high)
}

fn judge_resolver(case: &Value) -> Verdict {
    let resolver = match resolver(&case["input"]) {
        Ok(resolver) => resolver,
        Err(argument) => {
            // What is no number, which the compiler refuses.
            return if case.get("expect_error").is_some() {
                Verdict::Passed
            } else {
                failed(argument)
            };
        }
    };
    let spec = resolver.cluster_spec();
    let Some(expected) = case.get("expect") else {
        let gpus = resolver.num_accelerators();
        return match (spec, gpus) {
            (Err(_), _) | (_, Err(_)) => Verdict::Passed,
            (Ok(_), Ok(_)) if case["expect_error"]["kind"] == "FileNotFoundError" => {
                Verdict::Deviates(deviations::NO_NVIDIA_SMI)
            }
            (spec, _) => failed(spec),
        };
    };
    let probes = probes(&resolver, &spec, (&case["input"], expected));
    let missing = unread(expected, &probes);
    missing.unwrap_or_else(|| verdict(&probes, |probe| excuse(probe, &spec, &case["input"])))
}

fn resolver(input: &Value) -> Result<SlurmResolver, &'static str> {
    let env = input["env"].as_object().expect("recorded variables");
    let env = env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
    let mut resolver = SlurmResolver::from_variables(Variables::fixed(env)).without_scontrol();
    let arguments = &input["kwargs"];
    let number = |value: &Value| match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    if let Some(jobs) = arguments["jobs"].as_object() {
        let jobs = jobs
            .iter()
            .map(|(job, tasks)| Some((job.clone(), number(tasks)?)));
        let jobs: Option<Vec<_>> = jobs.collect();
        resolver = resolver.with_jobs(jobs.ok_or("jobs")?);
    }
    if let Some(base) = arguments.get("port_base") {
        let base = number(base).and_then(|base| u16::try_from(base).ok());
        resolver = resolver.with_port_base(base.ok_or("port_base")?);
    }
    if let Some(layer) = arguments["rpc_layer"].as_str() {
        resolver = resolver.with_rpc_layer(layer);
    }
    if let Some(gpus) = arguments
        .get("gpus_per_node")
        .filter(|gpus| !gpus.is_null())
    {
        resolver = resolver.with_gpus_per_node(number(gpus).ok_or("gpus_per_node")?);
    }
    if let Some(gpus) = arguments
        .get("gpus_per_task")
        .filter(|gpus| !gpus.is_null())
    {
        resolver = resolver.with_gpus_per_task(number(gpus).ok_or("gpus_per_task")?);
    }
    match arguments.get("tasks_per_node") {
        None | Some(Value::Null) => Ok(resolver),
        Some(Value::Object(nodes)) => {
            let nodes = nodes
                .iter()
                .map(|(node, tasks)| Some((node.clone(), number(tasks)?)));
            let nodes: Option<Vec<_>> = nodes.collect();
            Ok(resolver.with_tasks_per_node(TasksPerNode::Of(nodes.ok_or("tasks_per_node")?)))
        }
        Some(each) => {
            let each = TasksPerNode::Each(number(each).ok_or("tasks_per_node")?);
            Ok(resolver.with_tasks_per_node(each))
        }
    }
}

fn probes<'a>(
    resolver: &SlurmResolver,
    spec: &Result<ClusterSpec, Error>,
    (input, expected): (&Value, &'a Value),
) -> Vec<Probe<'a>> {
    let own = || Ok(json!([resolver.task_type()?, resolver.task_id()?]));
    let before = || {
        let (job, id) = (resolver.task_type()?, resolver.task_id()?);
        Ok(json!([job, id, resolver.master(None, None, None)?]))
    };
    let master = |job, id, layer| resolver.master(job, id, layer).map(Value::from);
    let fields = expected.as_object().expect("recorded answers");
    let probe = |(name, recorded): (&'a String, &Value)| {
        let plain = |ours| Some(Probe::plain(name, recorded, ours));
        let new = |ours| Some(Probe::new(name, recorded, ours));
        match name.as_str() {
            "before_first_cluster_spec" => plain(before()),
            "cluster_spec" => new(spec.clone().map(|spec| dict(&spec))),
            "get_task_info" => plain(own()),
            // Nothing here can change a variable, so it stays what the case set.
            "cuda_visible_devices_after" => plain(Ok(input["env"]["CUDA_VISIBLE_DEVICES"].clone())),
            "num_accelerators" => plain(resolver.num_accelerators().map(accelerators)),
            "rpc_layer" => plain(resolver.rpc_layer().map(Value::from)),
            "environment" => plain(Ok(json!(resolver.environment().unwrap_or_default()))),
            "master()" => new(master(None, None, None)),
            "master(worker,1)" => new(master(Some("worker"), Some(1), None)),
            "master(worker,0,zz)" => new(master(Some("worker"), Some(0), Some("zz"))),
            _ => None,
        }
    };
    fields.iter().filter_map(probe).collect()
}

fn excuse(
    probe: &Probe<'_>,
    spec: &Result<ClusterSpec, Error>,
    input: &Value,
) -> Option<Deviation> {
    match &probe.ours {
        Err(Error::Slurm(SlurmError::RankOutside { .. })) => return Some(deviations::STRANGE_RANK),
        Err(Error::Slurm(SlurmError::Number { variable, .. })) if *variable == "SLURM_PROCID" => {
            return Some(deviations::STRANGE_RANK);
        }
        Err(Error::Slurm(SlurmError::NodesAndCounts { .. })) => {
            return Some(deviations::LENGTHS_DIFFER);
        }
        _ => {}
    }
    match probe.name {
        "before_first_cluster_spec" => {
            // TensorFlow knows nothing yet, whatever the environment says.
            (probe.recorded["ok"] == json!([null, null, ""])).then_some(deviations::KNOWS_AT_ONCE)
        }
        "cuda_visible_devices_after" => Some(deviations::CHANGES_NOTHING),
        "num_accelerators" => {
            let hidden = ["", "-1"].contains(&input["env"]["CUDA_VISIBLE_DEVICES"].as_str()?);
            hidden.then_some(deviations::HIDDEN_DEVICES)
        }
        // Fewer GPUs than tasks, or none.
        _ if without_gpus(probe) => Some(deviations::NO_GPUS),
        _ => order_excuse(probe, spec.as_ref().ok()?, input),
    }
}

/// TensorFlow fails at the cluster, and then answers nothing else, where a task has no GPU.
fn without_gpus(probe: &Probe<'_>) -> bool {
    let fails = [
        "cluster_spec",
        "master()",
        "master(worker,1)",
        "master(worker,0,zz)",
    ];
    let nothing = probe.recorded == json!({"ok": ""}) || probe.expects_error();
    (fails.contains(&probe.name) && nothing && probe.ours.is_ok())
        || (probe.name == "get_task_info" && probe.recorded["ok"] == json!([null, null]))
}

/// Answers may differ by the order of hosts where node-list order is not text order, and then by
/// it alone: the same addresses are in the cluster.
fn order_excuse(probe: &Probe<'_>, spec: &ClusterSpec, input: &Value) -> Option<Deviation> {
    let nodes = match &input["kwargs"]["tasks_per_node"] {
        Value::Object(nodes) => nodes.keys().cloned().collect(),
        _ => hosts(input["env"]["SLURM_STEP_NODELIST"].as_str()?).ok()?,
    };
    if nodes.is_sorted() {
        return None;
    }
    let same = match probe.name {
        "cluster_spec" => {
            let addresses: Vec<&str> = spec.tasks().map(|(_, _, address)| address).collect();
            let recorded = recorded_addresses(&probe.recorded["ok"]);
            let in_order = {
                let positions = addresses.iter().map(|address| {
                    let host = address.rsplit_once(':').map(|(host, _)| host);
                    nodes.iter().position(|node| Some(node.as_str()) == host)
                });
                positions.is_sorted()
            };
            let ours: BTreeSet<_> = addresses.into_iter().collect();
            in_order && recorded.iter().map(String::as_str).collect::<BTreeSet<_>>() == ours
        }
        // The address of another task of the same cluster.
        name if name.starts_with("master") => probe.ours.is_ok() && !probe.expects_error(),
        _ => false,
    };
    same.then_some(deviations::NODE_ORDER)
}

fn recorded_addresses(jobs: &Value) -> Vec<String> {
    let tasks = jobs.as_object().into_iter().flat_map(|jobs| jobs.values());
    let addresses = tasks.flat_map(|tasks| match tasks {
        Value::Array(list) => list.iter().collect::<Vec<_>>(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    });
    addresses
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect()
}
