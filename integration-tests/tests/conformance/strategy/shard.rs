//! Which samples each worker's replicas take, from batches in memory and from files.

use std::collections::VecDeque;
use std::path::PathBuf;

use meshwork_strategy::{AutoShard, Error, Input, InputContext, Prefetch, replica_batch_sizes};
use serde_json::{Value, json};

use crate::deviations::strategy;
use crate::harness::Verdict;
use crate::not_askable::TYPES;

pub(super) fn judge(case: &Value) -> Verdict {
    let name = case["case"].as_str().unwrap_or_default();
    let input = &case["input"];
    let workers = number(input, "num_workers");
    let local = number(input, "replicas_per_worker");
    if name.starts_with("batch_sizes/") {
        let global = number(input, "global_batch");
        let sizes = |worker| replica_batch_sizes(global, workers, local, worker);
        return equal(
            &case["expect"],
            &json!((0..workers).map(sizes).collect::<Vec<_>>()),
        );
    }
    let recorded = &case["expect"]["minibatches_per_worker"];
    let Some(policy) = policy(&input["policy"]) else {
        return Verdict::Failed("no such policy".to_owned());
    };
    // What has no rows is no batch: such an input does not compile.
    if input["pipeline"] == "range (no batch)" {
        let mut workers = recorded.as_array().into_iter().flatten();
        let all = workers.all(|worker| worker.get("error").is_some());
        return match all {
            true => Verdict::NotAskable(TYPES),
            false => Verdict::Failed("a batch".to_owned()),
        };
    }
    let made = match input["source"].as_str() {
        Some("text files") => files(input),
        _ => memory(input),
    };
    let Some(made) = made else {
        return Verdict::Failed("an input that this cannot make".to_owned());
    };
    let worker = |worker| {
        let context = InputContext::new(workers, worker, workers * local)?;
        let pieces = made.replica_shards(policy, &context, 0)?;
        Ok(pieces.map(Option::unwrap_or_default).collect())
    };
    let ours: Vec<Result<Vec<Vec<Value>>, Error>> = (0..workers).map(worker).collect();
    against(recorded, &ours, &made, policy, workers)
}

fn against(
    recorded: &Value,
    ours: &[Result<Vec<Vec<Value>>, Error>],
    input: &Input<Vec<Value>>,
    policy: AutoShard,
    workers: usize,
) -> Verdict {
    let recorded: Vec<&Value> = recorded.as_array().into_iter().flatten().collect();
    let met = |(recorded, ours): (&&Value, &Result<Vec<Vec<Value>>, Error>)| match ours {
        Ok(pieces) => recorded.get("ok") == Some(&json!(pieces)),
        Err(_) => recorded.get("error").is_some(),
    };
    if recorded.len() == ours.len() && recorded.iter().zip(ours).all(met) {
        return Verdict::Passed;
    }
    let recorded_fails = recorded.iter().any(|worker| worker.get("error").is_some());
    let too_few = |error: &Error| matches!(error, Error::TooFewFiles { .. });
    if recorded_fails && ours.iter().all(|it| it.as_ref().is_err_and(too_few)) {
        return Verdict::by(strategy::TOO_FEW_FILES);
    }
    if recorded_fails && policy == AutoShard::Auto && by_data(input, ours, workers) {
        return Verdict::by(strategy::FEW_FILES_BY_DATA);
    }
    Verdict::Failed(format!("{ours:?} for {recorded:?}"))
}

/// Whether the workers took what they take when the input is shared by data.
fn by_data(
    input: &Input<Vec<Value>>,
    ours: &[Result<Vec<Vec<Value>>, Error>],
    workers: usize,
) -> bool {
    let taken = ours.iter().flatten().flatten().flatten();
    let mut taken: Vec<String> = taken.map(Value::to_string).collect();
    taken.sort_unstable();
    let whole =
        InputContext::new(1, 0, 1).and_then(|one| input.replica_shards(AutoShard::Off, &one, 0));
    let all = whole.into_iter().flatten().flatten().flatten();
    let mut all: Vec<String> = all.map(|sample| sample.to_string()).collect();
    all.sort_unstable();
    ours.len() == workers && taken == all
}

pub(super) fn policy(name: &Value) -> Option<AutoShard> {
    Some(match name.as_str()? {
        "OFF" => AutoShard::Off,
        "AUTO" => AutoShard::Auto,
        "FILE" => AutoShard::File,
        "DATA" => AutoShard::Data,
        "HINT" => AutoShard::Hint,
        _ => return None,
    })
}

/// Numbers in memory, by the text of the pipeline where there is one.
fn memory(input: &Value) -> Option<Input<Vec<Value>>> {
    let batch = number(input, "batch");
    let drops = input["drop_remainder"].as_bool().unwrap_or(false);
    let numbers = |range: std::ops::Range<usize>| range.map(Value::from).collect::<Vec<_>>();
    match input["pipeline"].as_str() {
        None => {
            let values = input["values"].as_array().cloned();
            let samples = values.unwrap_or_else(|| numbers(0..number(input, "n")));
            let mut batches = batches(&samples, batch);
            if drops {
                batches.retain(|made| made.len() == batch);
            }
            Input::batches(move |_| batches.clone())
                .with_batch_size(batch)
                .ok()
        }
        Some("range -> shard(HINT) -> batch") => {
            let all = numbers(0..number(input, "n"));
            let open = move |shard: meshwork_strategy::InputShard, _| {
                let own: Vec<Value> = shard.of(all.iter().cloned()).collect();
                batches(&own, batch)
            };
            Input::sharded(open).with_batch_size(batch).ok()
        }
        Some(pipeline) => {
            let made = pipeline
                .split(" then ")
                .map(|part| part_of(part, number(input, "n")))
                .collect::<Option<Vec<_>>>()?
                .concat();
            let reads_ahead = pipeline.contains("prefetch");
            Some(Input::batches(
                move |_| -> Box<dyn Iterator<Item = _> + Send> {
                    let batches = made.clone();
                    if reads_ahead {
                        Box::new(Prefetch::new(batches, 2).expect("a thread"))
                    } else {
                        Box::new(batches.into_iter())
                    }
                },
            ))
        }
    }
}

/// The batches of `range(a,b).batch(c)` or `range -> batch(c) -> repeat(d)`, of any such steps.
fn part_of(text: &str, n: usize) -> Option<Vec<Vec<Value>>> {
    let mut samples: Vec<Value> = Vec::new();
    let mut batched: Option<Vec<Vec<Value>>> = None;
    for step in text.replace(" -> ", ".").split('.') {
        let (name, arguments) = step
            .trim()
            .split_once('(')
            .unwrap_or_else(|| (step.trim(), ""));
        let arguments: Vec<usize> = arguments
            .trim_end_matches(')')
            .split(',')
            .filter_map(|number| number.trim().parse().ok())
            .collect();
        match (name, &arguments[..], &mut batched) {
            ("range", [], _) => samples = (0..n).map(Value::from).collect(),
            ("range", [end], _) => samples = (0..*end).map(Value::from).collect(),
            ("range", [start, end], _) => samples = (*start..*end).map(Value::from).collect(),
            ("batch", [size], _) => batched = Some(batches(&samples, *size)),
            ("repeat", [times], Some(batches)) => *batches = vec![batches.clone(); *times].concat(),
            ("repeat", [times], None) => samples = vec![samples; *times].concat(),
            ("take", [count], Some(batches)) => batches.truncate(*count),
            ("take", [count], None) => samples.truncate(*count),
            ("prefetch", ..) => {}
            _ => return None,
        }
    }
    batched
}

fn files(input: &Value) -> Option<Input<Vec<Value>>> {
    let lines = input["lines_per_file"].as_array()?;
    let lines: Vec<usize> = lines
        .iter()
        .map(|lines| usize::try_from(lines.as_u64()?).ok())
        .collect::<Option<_>>()?;
    let pipeline = input["pipeline"].as_str()?.to_owned();
    let batch = number(input, "batch");
    let count = if pipeline == "single_path" {
        1
    } else {
        lines.len()
    };
    let read = move |files: &[PathBuf], _| {
        let lines_of = |file: &PathBuf| {
            let file: usize = file
                .to_str()
                .and_then(|name| name.parse().ok())
                .unwrap_or(0);
            (0..lines[file])
                .map(|line| json!(format!("{file}.{line}")))
                .collect::<VecDeque<_>>()
        };
        let contents: Vec<_> = files.iter().map(lines_of).collect();
        let at_once = match pipeline.as_str() {
            "interleave2" | "map_then_interleave" => 2,
            _ => 1,
        };
        batches(&interleaved(contents, at_once), batch)
    };
    let input = Input::files((0..count).map(|file| file.to_string()), read);
    input.and_then(|input| input.with_batch_size(batch)).ok()
}

/// Lines of `at_once` files in turn; a file that ends leaves its turn, and another one has it the
/// next time.
fn interleaved(files: Vec<VecDeque<Value>>, at_once: usize) -> Vec<Value> {
    let mut waiting: VecDeque<_> = files.into();
    let mut open: Vec<Option<VecDeque<Value>>> = vec![None; at_once.max(1)];
    let mut lines = Vec::new();
    let mut turn = 0;
    while !waiting.is_empty() || open.iter().any(Option::is_some) {
        let slot = &mut open[turn];
        if slot.is_none() {
            *slot = waiting.pop_front();
        }
        match slot.as_mut().and_then(VecDeque::pop_front) {
            Some(line) => lines.push(line),
            None => *slot = None,
        }
        turn = (turn + 1) % open.len();
    }
    lines
}

fn batches(samples: &[Value], size: usize) -> Vec<Vec<Value>> {
    samples.chunks(size.max(1)).map(<[Value]>::to_vec).collect()
}

fn number(input: &Value, field: &str) -> usize {
    input[field]
        .as_u64()
        .and_then(|number| usize::try_from(number).ok())
        .unwrap_or(0)
}

fn equal(recorded: &Value, ours: &Value) -> Verdict {
    if recorded == ours {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("{ours} for {recorded}"))
    }
}
