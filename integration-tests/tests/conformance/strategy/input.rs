//! Steps over batches, on one worker and on several.

use meshwork_strategy::{AutoShard, Cursor, Error, Input, InputShard, MultiWorkerMirroredStrategy};
use serde_json::{Value, json};

use super::shard::policy;

type Strategy = MultiWorkerMirroredStrategy;

/// The steps of one process.
pub(super) fn mirrored(
    strategy: &mut Strategy,
    question: &str,
    input: &Value,
) -> Option<Result<Value, Error>> {
    if question == "from_function/context" {
        return Some(Ok(json!([contexts(strategy)])));
    }
    let n = number(input, "n")?;
    let made = match number(input, "per_replica_batch") {
        // Batches as a function gives them go to the replicas as they are.
        Some(batch) => return Some(distributed(strategy, chunks(0..n, batch))),
        None => memory(input)?,
    };
    Some(steps(strategy, &made, AutoShard::Auto))
}

/// The steps of one of several workers.
pub(super) fn of_worker(
    strategy: &mut Strategy,
    question: &str,
    input: &Value,
) -> Option<Result<Value, Error>> {
    let parts: Vec<&str> = question.split('/').collect();
    match parts[..] {
        ["input_context"] => Some(Ok(contexts(strategy))),
        ["dist_dataset", _] => {
            let made = memory(input)?;
            Some(steps(strategy, &made, policy(&input["policy"])?))
        }
        ["from_function", "uneven_lengths"] => {
            let own = 2 + 3 * strategy.rank().index();
            Some(distributed(strategy, chunks(0..own, 2)))
        }
        ["from_function", "user_shard"] => {
            let shard: InputShard = strategy.input_context().shard();
            let own: Vec<usize> = shard.of(0..12).collect();
            Some(distributed(strategy, chunks(own, 2)))
        }
        _ => None,
    }
}

fn contexts(strategy: &Strategy) -> Value {
    let context = strategy.input_context();
    json!([
        context.pipelines(),
        context.pipeline(),
        context.num_replicas_in_sync()
    ])
}

fn memory(input: &Value) -> Option<Input<Vec<usize>>> {
    let (n, batch) = (number(input, "n")?, number(input, "batch")?);
    let drops = input["drop_remainder"].as_bool()?;
    let mut batches = chunks(0..n, batch);
    if drops {
        batches.retain(|made| made.len() == batch);
    }
    Input::batches(move |_| batches.clone())
        .with_batch_size(batch)
        .ok()
}

fn steps(
    strategy: &mut Strategy,
    input: &Input<Vec<usize>>,
    policy: AutoShard,
) -> Result<Value, Error> {
    let mut batches = strategy.distribute_batches(input, policy, Cursor::start())?;
    let mut steps = Vec::new();
    while let Some(share) = batches.next_step(strategy)? {
        let pieces = share.into_shards().into_vec().into_iter();
        steps.push(json!(
            pieces.map(Option::unwrap_or_default).collect::<Vec<_>>()
        ));
    }
    Ok(json!(steps))
}

/// A worker's own batches, each for one replica.
fn distributed(strategy: &mut Strategy, batches: Vec<Vec<usize>>) -> Result<Value, Error> {
    let mut distributed = strategy.distribute_local_batches(batches);
    let mut steps = Vec::new();
    while let Some(share) = distributed.next_step(strategy)? {
        let pieces = share.into_shards().into_vec().into_iter();
        steps.push(json!(
            pieces.map(Option::unwrap_or_default).collect::<Vec<_>>()
        ));
    }
    Ok(json!(steps))
}

fn chunks(numbers: impl IntoIterator<Item = usize>, size: usize) -> Vec<Vec<usize>> {
    let numbers: Vec<usize> = numbers.into_iter().collect();
    numbers.chunks(size.max(1)).map(<[usize]>::to_vec).collect()
}

fn number(input: &Value, field: &str) -> Option<usize> {
    usize::try_from(input.get(field)?.as_u64()?).ok()
}
