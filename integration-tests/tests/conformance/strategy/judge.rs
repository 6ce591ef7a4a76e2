//! Answers of a strategy beside recorded ones: by value, by what an error is about, and by rules.

use meshwork_strategy::{Error, ReplicaReduceOp};
use serde_json::{Value, json};

use super::mirrored::op;
use super::numbers::same;
use crate::deviations::{Deviation, strategy};
use crate::harness::Verdict;
use crate::lists::shape;
use crate::not_askable::TYPES;

/// Answers beside the recorded ones: what cannot be asked is an error, as a program that asks it
/// does not compile. Where TensorFlow has no answer, `rule` says whether ours is right.
pub(super) fn compare(
    case: &Value,
    ours: Option<Result<Value, Error>>,
    rule: impl FnOnce(&Value) -> Option<Deviation>,
) -> Verdict {
    let input = &case["input"];
    let deviation = match (case.get("expect"), &ours) {
        (None, None) => return Verdict::NotAskable(TYPES),
        (None, Some(Err(error))) if is_due(error, input) => return Verdict::Passed,
        (Some(recorded), Some(Ok(ours))) if same(recorded, ours) => return Verdict::Passed,
        (Some(_), Some(Err(Error::IntegerMean { .. }))) => {
            is_integer_mean(input).then_some(strategy::INTEGER_MEAN)
        }
        (None, Some(Ok(ours))) => rule(ours),
        _ => None,
    };
    deviation.map_or_else(
        || Verdict::Failed(format!("{ours:?} for {case}").chars().take(600).collect()),
        Verdict::by,
    )
}

/// Whether the input has what this error is about.
fn is_due(error: &Error, input: &Value) -> bool {
    let action = input["action"].as_str().unwrap_or_default();
    match error {
        Error::IntegerMean { .. } => is_integer_mean(input),
        Error::NotAggregated { .. } => input["aggregation"] == "NONE",
        Error::SumChanged { .. } => {
            input["synchronization"] == "ON_READ" && action.starts_with("cross_assign_")
        }
        Error::NoSuchAxis { .. } => !input["axis"].is_null(),
        Error::ShapesDiffer { .. } => {
            let mut shapes = list(&input["per_replica"]).iter().map(shape);
            let first = shapes.next();
            shapes.any(|shape| Some(shape) != first)
        }
        _ => false,
    }
}

fn is_integer_mean(input: &Value) -> bool {
    let is = |field: &str, wanted: &str| {
        let value = input[field].as_str().unwrap_or_default();
        value.to_ascii_uppercase().starts_with(wanted)
    };
    let integers = is("dtype", "INT") || is("value_of_replica", "INT") || is("cast", "INT");
    integers && (is("op", "MEAN") || is("aggregation", "MEAN"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The rule by which ours answers what TensorFlow refuses, if the answer is what the rule says.
pub(super) fn beyond(
    question: &str,
    input: &Value,
    replicas: usize,
    ours: &Value,
) -> Option<Deviation> {
    let kind = question.split('/').next()?;
    let (rule, expected) = match kind {
        // The sum of what all assign.
        "variable"
            if input["action"] == "replica_assign_const" && input["aggregation"] == "SUM" =>
        {
            let sum = 5 * replicas;
            let copies = vec![sum; replicas];
            let expected = json!({"per_replica": copies, "cross_replica_read": {"ok": sum}});
            (strategy::EQUAL_VALUES, expected)
        }
        "all_reduce" if input.get("structure").is_some() => {
            let rule = match replicas {
                1 => strategy::ONE_REPLICA,
                _ => strategy::MIXED_TYPES,
            };
            (rule, nest_of_sums(input)?)
        }
        // What it has.
        "all_reduce" if replicas == 1 => {
            let own = &input["per_replica"][0];
            let dtype = input["dtype"].as_str().unwrap_or("float32");
            let own = json!({"dtype": dtype, "shape": shape(own), "value": own});
            (strategy::ONE_REPLICA, json!([own]))
        }
        _ => return None,
    };
    same(&expected, ours).then_some(rule)
}

/// `{'a': x, 'b': [2x, (x[:1], cast(x))]}` for the sum x of lists over all replicas.
fn nest_of_sums(input: &Value) -> Option<Value> {
    let all = list(&input["per_replica"]);
    let mut sums = vec![0.0; list(all.first()?).len()];
    for own in all {
        let own = own.as_array()?.iter();
        let pairs = sums.iter_mut().zip(own);
        pairs.for_each(|(sum, own)| *sum += own.as_f64().unwrap_or(f64::NAN));
    }
    let (op, count) = (op(input)?, all.len() as f64);
    if matches!(op, ReplicaReduceOp::Mean) {
        sums.iter_mut().for_each(|sum| *sum /= count);
    }
    let of_all = |dtype: &Value, values: Vec<f64>| {
        let own = json!({"dtype": dtype, "shape": [values.len()], "value": values});
        json!(vec![own; all.len()])
    };
    let float = json!("float32");
    Some(json!({
        "a": of_all(&float, sums.clone()),
        "b0": of_all(&float, sums.iter().map(|sum| 2.0 * sum).collect()),
        "b10": of_all(&float, sums[..1].to_vec()),
        "b11": of_all(&input["cast"], sums),
    }))
}
