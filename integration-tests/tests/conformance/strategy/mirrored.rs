//! One process with one to four replicas.

use meshwork_strategy::{
    Error, IndexedSlices, MultiWorkerMirroredStrategy, PerReplica, ReplicaReduceOp, SumOrder,
};
use ndarray::{ArrayD, Axis, Slice};
use serde_json::{Value, json};

use super::judge::{beyond, compare};
use super::numbers::{Named, array, from_bits, to_bits, typed, with_type};
use super::{input, variables};
use crate::harness::Verdict;
use crate::not_askable::{AMBIENT, PLAIN_VALUE, TYPES};

type Strategy = MultiWorkerMirroredStrategy;

pub(super) fn judge(case: &Value) -> Verdict {
    let name = case["case"].as_str().unwrap_or_default();
    let Some((replicas, question)) = name
        .strip_prefix('r')
        .and_then(|name| name.split_once('/'))
        .and_then(|(number, question)| Some((number.parse().ok()?, question)))
    else {
        return Verdict::Failed("no such case".to_owned());
    };
    let strategy = match MultiWorkerMirroredStrategy::mirrored(replicas) {
        Ok(strategy) => strategy.with_sum_order(SumOrder::TensorFlowRing),
        Err(error) => return Verdict::Failed(error.to_string()),
    };
    if let Some(deviation) = by_design(question, &case["input"], case.get("expect")) {
        return deviation;
    }
    let input = &case["input"];
    let ours = answer(strategy, question, input);
    compare(case, ours, |ours| beyond(question, input, replicas, ours))
}

/// What is not asked here, as its question is about a value or a place that only Python has.
fn by_design(question: &str, input: &Value, recorded: Option<&Value>) -> Option<Verdict> {
    match (question, recorded) {
        // A value that is not one for each replica cannot be reduced: that does not compile.
        _ if input.get("plain_value_same_on_all").is_some() => {
            Some(Verdict::NotAskable(PLAIN_VALUE))
        }
        // Neither do a strategy in its own step, and arguments that are no tuple.
        ("context/reduce_in_replica" | "context/gather_in_replica" | "run/args_not_list", None) => {
            Some(Verdict::NotAskable(TYPES))
        }
        ("context/default" | "context/nested_same_scope" | "context/nested_other_scope", _) => {
            Some(Verdict::NotAskable(AMBIENT))
        }
        _ => None,
    }
}

fn answer(mut strategy: Strategy, question: &str, input: &Value) -> Option<Result<Value, Error>> {
    let kind = question.split('/').next()?;
    let dtype = input["dtype"].as_str().unwrap_or("float32");
    let strategy = &mut strategy;
    match kind {
        "properties" => Some(properties(strategy)),
        "replica_ids" => Some(replica_ids(strategy)),
        "reduce" => with_type!(dtype, reduce(strategy, input))?,
        "gather" | "gather_alone" => with_type!(dtype, gather(strategy, input))?,
        "all_gather" if question.ends_with("/gradient") => Some(gather_gradient(strategy, input)),
        "all_gather" => Some(all_gather(strategy, input)),
        "all_reduce" => all_reduce(strategy, question, input),
        "float_bits" => Some(float_bits(strategy, input)),
        "merge_call" => Some(merge(strategy, input)),
        "variable" => with_type!(dtype, variable(strategy, input))?,
        "extended" => extended(strategy, question, input),
        "dist_dataset" | "from_function" => input::mirrored(strategy, question, input),
        _ => None,
    }
}

fn variable<T: Named>(strategy: &mut Strategy, input: &Value) -> Option<Result<Value, Error>> {
    variables::answer::<T>(strategy, input)
}

fn properties(strategy: &mut Strategy) -> Result<Value, Error> {
    let devices: Vec<String> = strategy
        .devices()?
        .iter()
        .map(ToString::to_string)
        .collect();
    Ok(json!({
        "num_replicas_in_sync": strategy.num_replicas_in_sync(),
        "worker_devices": devices,
        "parameter_devices": devices,
        "non_slot_devices": devices,
        // One program for all workers, which is what the word means there.
        "experimental_between_graph": strategy.cluster().is_some(),
        // Each worker makes its variables itself.
        "experimental_should_init": true,
        "should_checkpoint": strategy.is_chief(),
        "should_save_summary": strategy.is_chief(),
        "in_multi_worker_mode": strategy.cluster().is_some(),
        // Recorded is whether there is none.
        "cluster_resolver": strategy.cluster().is_none(),
    }))
}

fn replica_ids(strategy: &mut Strategy) -> Result<Value, Error> {
    let ids = strategy.run_each(|replica| Ok::<_, Error>(replica.replica_id().number()))?;
    Ok(json!(ids.into_vec()))
}

pub(super) fn op(input: &Value) -> Option<ReplicaReduceOp> {
    match input["op"].as_str()?.to_ascii_uppercase().as_str() {
        "SUM" => Some(ReplicaReduceOp::Sum),
        "MEAN" => Some(ReplicaReduceOp::Mean),
        _ => None,
    }
}

fn values<T: Named>(strategy: &Strategy, input: &Value) -> PerReplica<ArrayD<T>> {
    strategy.per_replica(|replica| array(&input["per_replica"][replica]))
}

fn reduce<T: Named>(strategy: &mut Strategy, input: &Value) -> Option<Result<Value, Error>> {
    let op = op(input)?;
    let values = values::<T>(strategy, input);
    let reduced = match axes(&input["axis"], &values)? {
        None => strategy.reduce(op, values),
        Some(axes) => strategy.reduce_axes(op, &values, &axes),
    };
    Some(reduced.map(|array| typed(&array)))
}

/// Axes from the front, as they are counted here; `None` for one that no array has.
#[expect(clippy::option_option, reason = "no axis, and no such axis")]
fn axes<T: Named>(axis: &Value, values: &PerReplica<ArrayD<T>>) -> Option<Option<Vec<usize>>> {
    let dimensions = values.local_results().next()?.ndim();
    let from_front = |axis: &Value| {
        let axis = axis.as_i64()?;
        let from_front = if axis < 0 {
            axis + i64::try_from(dimensions).ok()?
        } else {
            axis
        };
        usize::try_from(from_front).ok()
    };
    match axis {
        Value::Null => Some(None),
        Value::Array(axes) => axes.iter().map(from_front).collect::<Option<_>>().map(Some),
        axis => from_front(axis).map(|axis| Some(vec![axis])),
    }
}

fn gather<T: Named>(strategy: &mut Strategy, input: &Value) -> Option<Result<Value, Error>> {
    // An axis is counted from the front.
    let axis = usize::try_from(input["axis"].as_i64()?).ok()?;
    let values = values::<T>(strategy, input);
    Some(strategy.gather(&values, axis).map(|array| typed(&array)))
}

fn all_gather(strategy: &mut Strategy, input: &Value) -> Result<Value, Error> {
    let axis = usize::try_from(input["axis"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let mut values = values::<f32>(strategy, input);
    let gathered = strategy.run_with(&mut values, |replica, own| {
        replica.all_gather(own.clone(), axis)
    })?;
    Ok(gathered.local_results().map(typed).collect())
}

/// Backwards, the gradient of what was gathered is reduced, and each replica takes its own part.
fn gather_gradient(strategy: &mut Strategy, input: &Value) -> Result<Value, Error> {
    let mut values = values::<f32>(strategy, input);
    let lengths: Vec<usize> = values.local_results().map(ArrayD::len).collect();
    let gradients = strategy.run_with(&mut values, |replica, own| {
        let gathered = replica.all_gather(own.clone(), 0)?;
        let mut gradient: Vec<f32> = (0_u16..).map(f32::from).take(gathered.len()).collect();
        replica.all_reduce(ReplicaReduceOp::Sum, &mut gradient)?;
        let start: usize = lengths[..replica.local_id()].iter().sum();
        let own = Slice::from(start..start + own.len());
        let gradient = ndarray::Array1::from(gradient).into_dyn();
        Ok::<_, Error>(gradient.slice_axis(Axis(0), own).to_owned())
    })?;
    Ok(gradients.local_results().map(typed).collect())
}

fn all_reduce(
    strategy: &mut Strategy,
    question: &str,
    input: &Value,
) -> Option<Result<Value, Error>> {
    let kind = question.split('/').nth(1)?;
    match kind {
        "indexed_slices" => Some(slices(strategy, input)),
        "gradient_is_all_reduced" => Some(reduce_gradient(strategy, input)),
        _ if input.get("structure").is_some() => {
            let cast = input["cast"].as_str()?;
            with_type!(cast, nest(strategy, input))
        }
        _ => {
            let dtype = input["dtype"].as_str().unwrap_or("float32");
            with_type!(dtype, reduce_in_step(strategy, input))?
        }
    }
}

fn reduced<T: Named>(
    strategy: &mut Strategy,
    op: ReplicaReduceOp,
    mut values: PerReplica<ArrayD<T>>,
) -> Result<Value, Error> {
    strategy.run_with(&mut values, |replica, own| {
        replica.all_reduce(op, own.as_slice_mut().expect("a new array is in order"))
    })?;
    Ok(values.local_results().map(typed).collect())
}

fn reduce_in_step<T: Named>(
    strategy: &mut Strategy,
    input: &Value,
) -> Option<Result<Value, Error>> {
    let values = values::<T>(strategy, input);
    Some(reduced(strategy, op(input)?, values))
}

/// `{'a': x, 'b': [2x, (x[:1], cast(x))]}`, each of them reduced.
fn nest<T: Named>(strategy: &mut Strategy, input: &Value) -> Result<Value, Error> {
    let values = values::<f32>(strategy, input);
    let op = op(input).unwrap_or(ReplicaReduceOp::Sum);
    let doubled = values.map(|x| x * 2.0);
    let first = values.map(|x| x.slice_axis(Axis(0), Slice::from(..1)).to_owned());
    let cast = values.map(|x| x.mapv(|x| T::from_f64(x.into())));
    Ok(json!({
        "a": reduced(strategy, op, values)?,
        "b0": reduced(strategy, op, doubled)?,
        "b10": reduced(strategy, op, first)?,
        "b11": reduced(strategy, op, cast)?,
    }))
}

/// Of the sum of three times the reduced squares, where gradients are reduced the same way.
fn reduce_gradient(strategy: &mut Strategy, input: &Value) -> Result<Value, Error> {
    let mut values = values::<f32>(strategy, input);
    let gradients = strategy.run_with(&mut values, |replica, x| {
        let mut upstream = vec![3.0_f32; x.len()];
        replica.all_reduce(ReplicaReduceOp::Sum, &mut upstream)?;
        let mut gradient = x.mapv(|x| 2.0 * x);
        gradient
            .iter_mut()
            .zip(upstream)
            .for_each(|(own, upstream)| *own *= upstream);
        Ok::<_, Error>(gradient)
    })?;
    Ok(gradients.local_results().map(typed).collect())
}

fn slices(strategy: &mut Strategy, input: &Value) -> Result<Value, Error> {
    let op = op(input).unwrap_or(ReplicaReduceOp::Sum);
    let mut own = strategy.per_replica(|replica| {
        let indices = input["per_replica_indices"][replica]
            .as_array()
            .into_iter()
            .flatten();
        let indices = indices.filter_map(Value::as_i64).collect();
        IndexedSlices::new(indices, array::<f32>(&input["per_replica_values"][replica]))
    });
    let reduced = strategy.run_with(&mut own, |replica, own| {
        replica.all_reduce_slices(op, own.clone()?)
    })?;
    let indices = |slices: &IndexedSlices<f32>| {
        typed(&ndarray::Array1::from(slices.indices().to_vec()).into_dyn())
    };
    Ok(json!({
        "values": reduced.local_results().map(|slices| typed(slices.values())).collect::<Value>(),
        "indices": reduced.local_results().map(indices).collect::<Value>(),
    }))
}

/// What all replicas sum to, in a step and outside, bit for bit.
pub(super) fn float_bits(strategy: &mut Strategy, input: &Value) -> Result<Value, Error> {
    let op = op(input).unwrap_or(ReplicaReduceOp::Sum);
    let own = |replica: usize| {
        from_bits(
            input["per_replica_float32_bits_be_hex"][replica]
                .as_str()
                .unwrap_or_default(),
        )
    };
    let mut values = strategy.per_replica(own);
    let reduced = strategy.reduce(op, values.clone())?;
    strategy.run_with(&mut values, |replica, own| replica.all_reduce(op, own))?;
    let bits: Vec<String> = values
        .local_results()
        .map(|values| to_bits(values))
        .collect();
    let equal = bits.iter().all(|own| *own == bits[0]);
    let all = if equal {
        bits[0].clone()
    } else {
        "replicas differ".to_owned()
    };
    Ok(json!({"all_reduce_bits": all, "reduce_bits": to_bits(&reduced)}))
}

fn merge(strategy: &mut Strategy, input: &Value) -> Result<Value, Error> {
    let mut values = values::<f32>(strategy, input);
    let merged = strategy.run_with(&mut values, |replica, own| {
        replica.merge_call(own.clone(), |cross, values| {
            let sum = cross.reduce(ReplicaReduceOp::Sum, values.clone())?;
            Ok(values.map(|_| sum.clone()))
        })
    })?;
    // Recorded is what the first replica got; the others get the same.
    Ok(merged.local_results().take(1).map(typed).collect())
}

fn extended(
    strategy: &mut Strategy,
    question: &str,
    input: &Value,
) -> Option<Result<Value, Error>> {
    let numbers = |values: &Value| {
        strategy.per_replica(|replica| values[replica].as_f64().unwrap_or(f64::NAN))
    };
    match question {
        "extended/reduce_to" => {
            let values = numbers(&input["per_replica"]);
            let reduced = strategy.reduce_to(op(input)?, values);
            Some(reduced.map(|values| json!(values.into_vec())))
        }
        "extended/batch_reduce_to" => {
            let values = input["per_replica"]
                .as_array()?
                .iter()
                .map(numbers)
                .collect();
            let reduced = strategy.batch_reduce_to(op(input)?, values);
            let lists = |all: Vec<PerReplica<f64>>| {
                all.into_iter()
                    .map(PerReplica::into_vec)
                    .collect::<Vec<_>>()
            };
            Some(reduced.map(|values| json!(lists(values))))
        }
        "extended/update_per_replica_arg" => {
            let arguments = numbers(&input["args"]);
            Some(variables::update(
                strategy,
                input["initial"].as_f64()?,
                &arguments,
            ))
        }
        _ => None,
    }
}
