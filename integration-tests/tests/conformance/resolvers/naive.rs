//! Where Slurm runs each rank, said as plainly as can be.

use meshwork_cluster_resolver::slurm;
use serde_json::{Value, json};

/// A step in block distribution.
pub(super) struct Step {
    /// The nodes in Slurm's order, with the number of their tasks.
    nodes: Vec<(String, u64)>,
    /// The jobs in the order of their names, with the number of their tasks.
    jobs: Vec<(String, u64)>,
    rank: u64,
    port_base: u64,
    layer: String,
}

impl Step {
    /// The step that the variables and arguments of a case describe, if they describe one.
    pub(super) fn of(input: &Value) -> Option<Self> {
        let (env, given) = (&input["env"], &input["kwargs"]);
        let listed = || slurm::hosts(env["SLURM_STEP_NODELIST"].as_str()?).ok();
        let nodes: Vec<(String, u64)> = match &given["tasks_per_node"] {
            Value::Object(nodes) => nodes
                .iter()
                .map(|(node, tasks)| Some((node.clone(), number(tasks)?)))
                .collect::<Option<_>>()?,
            Value::Null => {
                let counts = slurm::task_counts(env["SLURM_STEP_TASKS_PER_NODE"].as_str()?).ok()?;
                let counts = counts.into_iter().map(u64::from);
                listed()?.into_iter().zip(counts).collect()
            }
            each => {
                let each = number(each)?;
                listed()?.into_iter().map(|node| (node, each)).collect()
            }
        };
        let tasks = nodes.iter().map(|(_, tasks)| tasks).sum();
        let mut jobs: Vec<(String, u64)> = match &given["jobs"] {
            Value::Object(jobs) => jobs
                .iter()
                .map(|(job, tasks)| Some((job.clone(), number(tasks)?)))
                .collect::<Option<_>>()?,
            _ => vec![("worker".to_owned(), tasks)],
        };
        jobs.sort();
        Some(Self {
            nodes,
            jobs,
            rank: number(&env["SLURM_PROCID"])?,
            port_base: given.get("port_base").map_or(Some(8888), number)?,
            layer: match given.get("rpc_layer") {
                None => "grpc".to_owned(),
                layer => layer?.as_str().unwrap_or_default().to_owned(),
            },
        })
    }

    /// Whether the nodes are in the order of their names as texts.
    pub(super) fn is_in_text_order(&self) -> bool {
        self.nodes.is_sorted_by_key(|(node, _)| node)
    }

    /// What a question of this name is answered.
    pub(super) fn answer(&self, question: &str) -> Option<Value> {
        let (job, index) = self.own()?;
        Some(match question {
            "cluster_spec" => {
                let jobs = self.jobs.iter().map(|(job, _)| job);
                let tasks = jobs.map(|job| (job.clone(), json!(self.addresses_of(job))));
                Value::Object(tasks.collect())
            }
            "get_task_info" => json!([job, index]),
            "before_first_cluster_spec" => {
                json!([job, index, self.master(job, index, &self.layer)?])
            }
            "master()" => json!(self.master(job, index, &self.layer)?),
            "master(worker,1)" => json!(self.master("worker", 1, &self.layer)?),
            "master(worker,0,zz)" => json!(self.master("worker", 0, "zz")?),
            _ => return None,
        })
    }

    /// The job and the index of this task.
    fn own(&self) -> Option<(&str, usize)> {
        let mut first = 0;
        for (job, tasks) in &self.jobs {
            if self.rank < first + tasks {
                return Some((job, usize::try_from(self.rank - first).ok()?));
            }
            first += tasks;
        }
        None
    }

    fn addresses_of(&self, wanted: &str) -> Vec<String> {
        let all = self.nodes.iter().flat_map(|(node, tasks)| {
            (0..*tasks).map(move |task| format!("{node}:{}", self.port_base + task))
        });
        let jobs = self
            .jobs
            .iter()
            .flat_map(|(job, tasks)| (0..*tasks).map(move |_| job));
        let own = all.zip(jobs).filter(|(_, job)| *job == wanted);
        own.map(|(address, _)| address).collect()
    }

    fn master(&self, job: &str, index: usize, layer: &str) -> Option<String> {
        let address = self.addresses_of(job).into_iter().nth(index)?;
        Some(match layer {
            "" => address,
            layer => format!("{layer}://{address}"),
        })
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    }
}

/// The hosts of a list as Slurm reads it: commas and blanks outside of brackets separate them,
/// nothing between two of those is no host, and each bracket stands for all that it lists.
pub(super) fn hosts(list: &str) -> Option<Vec<String>> {
    let mut depth = 0_usize;
    let mut items = vec![String::new()];
    for character in list.chars() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' | ' ' | '\t' | '\n' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            blank if blank.is_whitespace() => return None,
            _ => {}
        }
        items.last_mut()?.push(character);
    }
    let items = items.iter().filter(|item| !item.is_empty());
    let named: Option<Vec<Vec<String>>> = items.map(|item| expanded(item)).collect();
    named.map(|named| named.concat())
}

fn expanded(item: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = item.split_once('[') else {
        return Some(vec![item.to_owned()]);
    };
    let (inside, after) = rest.split_once(']')?;
    let after = expanded(after)?;
    let mut hosts = Vec::new();
    for range in inside.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let width = low.len();
        for number in low.parse::<u64>().ok()?..=high.parse::<u64>().ok()? {
            let named = after
                .iter()
                .map(|after| format!("{before}{number:0width$}{after}"));
            hosts.extend(named);
        }
    }
    Some(hosts)
}

#[test]
fn each_bracket_stands_for_all_that_it_lists() {
    let named = hosts("r[1-2]c[08-09],, n m[3]");
    let expected = ["r1c08", "r1c09", "r2c08", "r2c09", "n", "m3"];
    assert_eq!(named.as_deref(), Some(&expected.map(str::to_owned)[..]));
    assert_eq!(hosts("n[1 - 2]"), None);
}
