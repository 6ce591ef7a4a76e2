//! TensorFlow's Slurm resolver beside ours, with what it reads: lists of hosts and of counts.

use meshwork_cluster_resolver::slurm::{HostListProblem, hosts, task_counts};
use meshwork_cluster_resolver::{
    Cluster, ClusterResolver, Error, SlurmError, SlurmResolver, TasksPerNode, Variables,
};
use serde_json::{Value, json};

use super::naive::{self, Step};
use super::probe::{Probe, accelerators, dict, failed, unread, verdict};
use crate::deviations::{Deviation, resolvers as deviations};
use crate::harness::Verdict;
use crate::not_askable::TYPES;
use crate::overridden::overridden;

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
        (ours, _) => list_excuse(list, &ours).map_or_else(|| failed(&ours), Verdict::by),
    }
}

/// Where Slurm, which writes these lists, means something else than TensorFlow reads.
fn list_excuse(list: &str, ours: &Result<Vec<String>, HostListProblem>) -> Option<Deviation> {
    let several = |item: &str| item.matches('[').count() > 1;
    let rule = match ours {
        _ if list.contains([' ', '\t', '\n']) => deviations::BLANKS,
        Err(HostListProblem::Range { range }) if is_descending(range) => {
            return Some(deviations::DESCENDING);
        }
        Err(HostListProblem::Range { range }) => {
            let odd = |end: &str| end.parse::<u64>().is_err() || end.starts_with('+');
            return range.split('-').any(odd).then_some(deviations::RANGES);
        }
        Err(HostListProblem::LongRange { .. } | HostListProblem::TooManyHosts) => {
            return Some(deviations::LONG_LISTS);
        }
        Err(HostListProblem::Unopened { .. }) => return Some(deviations::BRACKETS),
        Ok(_) if list.starts_with(',') || list.contains(",,") => deviations::EMPTY_ITEMS,
        Ok(_) if list.split("],").any(several) => deviations::SEVERAL_BRACKETS,
        _ => return None,
    };
    (ours.clone().ok() == naive::hosts(list)).then_some(rule)
}

fn is_descending(range: &str) -> bool {
    let ends = range
        .split_once('-')
        .map(|(low, high)| (low.parse(), high.parse()));
    matches!(ends, Some((Ok::<u64, _>(low), Ok::<u64, _>(high))) if low > high)
}

fn judge_resolver(case: &Value) -> Verdict {
    let input = &case["input"];
    let Ok(resolver) = resolver(input) else {
        // What is no number, which the compiler refuses.
        return Verdict::unsayable(case, TYPES);
    };
    let before = std::env::var_os(VISIBLE);
    let cluster = resolver.snapshot().unwrap_or_else(Cluster::unknown);
    let (spec, gpus) = (cluster.spec(), cluster.num_accelerators());
    let Some(expected) = case.get("expect") else {
        let own = Step::of(input).and_then(|step| step.answer("cluster_spec"));
        return match (spec, gpus) {
            (Err(_), _) | (_, Err(_)) => Verdict::Passed,
            (Ok(spec), Ok(gpus))
                if case["expect_error"]["kind"] == "FileNotFoundError"
                    && Some(dict(spec)) == own
                    && gpus.is_empty() =>
            {
                Verdict::by(deviations::NO_NVIDIA_SMI)
            }
            (spec, _) => failed(spec),
        };
    };
    let probes = probes(&cluster, input, expected);
    if std::env::var_os(VISIBLE) != before {
        return failed("a variable of this process was changed");
    }
    let missing = unread(expected, &probes);
    missing.unwrap_or_else(|| verdict(&probes, |probe| excuse(probe, input)))
}

fn resolver(input: &Value) -> Result<Box<dyn ClusterResolver>, &'static str> {
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
    if arguments
        .get("rpc_layer")
        .is_some_and(|layer| !layer.is_string() && !layer.is_null())
    {
        return Err("rpc_layer");
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
    let resolver = match arguments.get("tasks_per_node") {
        None | Some(Value::Null) => resolver,
        Some(Value::Object(nodes)) => {
            let nodes = nodes
                .iter()
                .map(|(node, tasks)| Some((node.clone(), number(tasks)?)));
            let nodes: Option<Vec<_>> = nodes.collect();
            resolver.with_tasks_per_node(TasksPerNode::Of(nodes.ok_or("tasks_per_node")?))
        }
        Some(each) => {
            let each = TasksPerNode::Each(number(each).ok_or("tasks_per_node")?);
            resolver.with_tasks_per_node(each)
        }
    };
    let layer = arguments
        .get("rpc_layer")
        .map(|layer| json!({"rpc_layer": layer}));
    Ok(overridden(resolver, &layer.unwrap_or_default()))
}

fn probes<'a>(cluster: &Cluster, input: &Value, expected: &'a Value) -> Vec<Probe<'a>> {
    let own = || Ok(json!([cluster.task_type()?, cluster.task_id()?]));
    let before = || {
        let (job, id) = (cluster.task_type()?, cluster.task_id()?);
        Ok(json!([job, id, cluster.master(None, None, None)?]))
    };
    let master = |job, id, layer| cluster.master(job, id, layer).map(Value::from);
    let fields = expected.as_object().expect("recorded answers");
    let probe = |(name, recorded): (&'a String, &Value)| {
        let plain = |ours| Some(Probe::plain(name, recorded, ours));
        let new = |ours| Some(Probe::new(name, recorded, ours));
        match name.as_str() {
            "before_first_cluster_spec" => plain(before()),
            "cluster_spec" => new(cluster.spec().map(dict)),
            "get_task_info" => plain(own()),
            // Nothing here can change a variable, so it stays what the case set.
            "cuda_visible_devices_after" => plain(Ok(input["env"]["CUDA_VISIBLE_DEVICES"].clone())),
            "num_accelerators" => plain(cluster.num_accelerators().map(accelerators)),
            "rpc_layer" => plain(cluster.rpc_layer().map(Value::from)),
            "environment" => plain(Ok(json!(cluster.environment().unwrap_or_default()))),
            "master()" => new(master(None, None, None)),
            "master(worker,1)" => new(master(Some("worker"), Some(1), None)),
            "master(worker,0,zz)" => new(master(Some("worker"), Some(0), Some("zz"))),
            _ => None,
        }
    };
    fields.iter().filter_map(probe).collect()
}

fn excuse(probe: &Probe<'_>, input: &Value) -> Option<Deviation> {
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
        // Ours is what the case set, which TensorFlow overwrites.
        "cuda_visible_devices_after" => return Some(deviations::CHANGES_NOTHING),
        "num_accelerators" => {
            let hidden = ["", "-1"].contains(&input["env"][VISIBLE].as_str()?);
            return (hidden && probe.ours == Ok(json!({"GPU": 0})))
                .then_some(deviations::HIDDEN_DEVICES);
        }
        _ => {}
    }
    // All else follows from where Slurm runs each rank.
    let step = Step::of(input)?;
    if probe.ours.clone().ok() != step.answer(probe.name) {
        return None;
    }
    match probe.name {
        // TensorFlow knows nothing yet, whatever the environment says.
        "before_first_cluster_spec" => {
            (probe.recorded["ok"] == json!([null, null, ""])).then_some(deviations::KNOWS_AT_ONCE)
        }
        // Fewer GPUs than tasks, or none: TensorFlow fails at the cluster, and then knows nothing.
        _ if is_silent(probe) => Some(deviations::NO_GPUS),
        _ => (!step.is_in_text_order()).then_some(deviations::NODE_ORDER),
    }
}

fn is_silent(probe: &Probe<'_>) -> bool {
    let nothing = [json!({"ok": ""}), json!({"ok": [null, null]})];
    probe.expects_error() || nothing.contains(&probe.recorded)
}

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
