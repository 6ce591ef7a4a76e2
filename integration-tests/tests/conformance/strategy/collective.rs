//! Single operations among the threads of a process, and what ends them.

use std::sync::Barrier;
use std::time::Duration;

use meshwork_collectives::{
    Element, Group, GroupConfig, JobSecret, OperationError, Rank, ReduceOp, f16,
};
use meshwork_testing::in_threads;
use serde_json::{Value, json};

use super::numbers::flat;
use crate::harness::Verdict;
use crate::not_askable::KEYS;

pub(super) fn judge(case: &Value) -> Verdict {
    let name = case["case"].as_str().unwrap_or_default();
    let input = &case["input"];
    if let Some(what) = name.strip_prefix("collective_error/") {
        return judge_error(what);
    }
    let world = case["expect"].as_array().map_or(0, Vec::len);
    let Ok(world) = u32::try_from(world) else {
        return Verdict::Failed("too many ranks".to_owned());
    };
    let ours = if name.contains("/reduce_v2") {
        return judge_reduce(case, input);
    } else if name.contains("/gather_v2") {
        gather(world, input)
    } else if name.contains("/broadcast_v2") {
        broadcast(world, input)
    } else if name.contains("/all_to_all_v2") {
        all_to_all(world, input)
    } else {
        return Verdict::Failed("no such operation".to_owned());
    };
    let same = flat(&case["expect"]) == ours.concat();
    if same {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("{ours:?}"))
    }
}

fn judge_reduce(case: &Value, input: &Value) -> Verdict {
    let answers = case["expect"].as_array().into_iter().flatten();
    let recorded: Vec<Vec<f64>> = answers.map(flat).collect();
    let inputs: Vec<Vec<f64>> = input["inputs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(flat)
        .collect();
    let op = match input["merge_op"].as_str() {
        Some("Add") => ReduceOp::Sum,
        Some("Mul") => ReduceOp::Product,
        Some("Max") => ReduceOp::Max,
        Some("Min") => ReduceOp::Min,
        _ => return Verdict::Failed("no such op".to_owned()),
    };
    // A mean divides as an operation of its own; other quotients are the caller's.
    let divides = input["final_op"] == "Div";
    let count = inputs.len() as f64;
    let after = |sum: f64| if divides { sum / count } else { sum };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "as the recorded type has it"
    )]
    let ours: Vec<Vec<f64>> = match input["dtype"].as_str() {
        None | Some("float32") => reduce(
            &inputs,
            op,
            |x| x as f32,
            |x| f64::from(after(x.into()) as f32),
        ),
        Some("float64") => reduce(&inputs, op, |x| x, after),
        Some("float16") => reduce(&inputs, op, f16::from_f64, |x| {
            f16::from_f64(after(x.to_f64())).to_f64()
        }),
        Some("int32") => reduce(&inputs, op, |x| x as i32, |x| after(x.into()).trunc()),
        Some("int64") => reduce(&inputs, op, |x| x as i64, |x| after(x as f64).trunc()),
        _ => return Verdict::Failed("no such type".to_owned()),
    };
    // -0.0 and 0.0 are one number here.
    if ours == recorded {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("{ours:?} for {recorded:?}"))
    }
}

fn reduce<T: Element>(
    inputs: &[Vec<f64>],
    op: ReduceOp,
    from: impl Fn(f64) -> T + Sync,
    to: impl Fn(T) -> f64 + Sync,
) -> Vec<Vec<f64>> {
    let world = u32::try_from(inputs.len()).expect("a few");
    each(world, |group| {
        let own = &inputs[group.rank().index()];
        let mut buffer: Vec<T> = own.iter().map(|value| from(*value)).collect();
        group.all_reduce(&mut buffer, op).expect("all call it");
        buffer.into_iter().map(&to).collect()
    })
}

fn gather(world: u32, input: &Value) -> Vec<Vec<f64>> {
    let shape = input["shape"].as_array().into_iter().flatten();
    let len: usize = shape
        .map(|size| {
            size.as_u64()
                .map_or(0, |size| usize::try_from(size).unwrap_or(0))
        })
        .product();
    each(world, |group| {
        let own = vec![f64::from(group.rank().number()); len];
        let mut all = vec![0.0; len * world as usize];
        group.all_gather(&own, &mut all).expect("all call it");
        all
    })
}

fn broadcast(world: u32, input: &Value) -> Vec<Vec<f64>> {
    let source = u32::try_from(input["source"].as_u64().unwrap_or(0)).expect("a rank");
    let value = flat(&input["value"]);
    each(world, |group| {
        let own = group.rank() == Rank::new(source);
        let mut buffer = if own {
            value.clone()
        } else {
            vec![f64::NAN; value.len()]
        };
        group
            .broadcast(&mut buffer, Rank::new(source))
            .expect("all call it");
        buffer
    })
}

fn all_to_all(world: u32, input: &Value) -> Vec<Vec<f64>> {
    let inputs: Vec<Vec<f64>> = input["inputs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(flat)
        .collect();
    each(world, |group| {
        let own = &inputs[group.rank().index()];
        let mut output = vec![0.0; own.len()];
        group.all_to_all(own, &mut output).expect("all call it");
        output
    })
}

/// Each mistake has to end the operation on both ranks by an error that says what it is, and every
/// later one with it.
fn judge_error(what: &str) -> Verdict {
    let both = |mistake: fn(&mut Group) -> Result<(), OperationError>| {
        each(2, |group| {
            group.set_operation_timeout(Duration::from_millis(500));
            (Some(mistake(group)), one_more(group))
        })
    };
    let ended = match what {
        "dtype_mismatch" => both(|group| match group.rank() {
            Rank::CHIEF => group.all_reduce(&mut [1.0_f32; 2], ReduceOp::Sum),
            _ => group.all_reduce(&mut [1_i32; 2], ReduceOp::Sum),
        }),
        "shape_mismatch" => both(|group| {
            let len = 2 + group.rank().index();
            group.all_reduce(&mut vec![1.0_f32; len], ReduceOp::Sum)
        }),
        "type_mismatch" => both(|group| match group.rank() {
            Rank::CHIEF => group.all_reduce(&mut [1.0_f32; 2], ReduceOp::Sum),
            _ => group.broadcast(&mut [1.0_f32; 2], Rank::CHIEF),
        }),
        // Every rank names the root: nobody to send is a root that is somebody else's to name, and
        // two senders are two roots.
        "no_broadcast_source" => both(|group| {
            let other = Rank::new(1 - group.rank().number());
            group.broadcast(&mut [1.0_f32; 2], other)
        }),
        "two_broadcast_sources" => both(|group| {
            let own = group.rank();
            group.broadcast(&mut [1.0_f32; 2], own)
        }),
        "timeout_member_missing" => missing_member(),
        "group_size_mismatch" => return judge_sizes(),
        _ => return Verdict::NotAskable(KEYS),
    };
    let is_due = |error: &OperationError| match what {
        "timeout_member_missing" => matches!(error, OperationError::TimedOut { .. }),
        _ => matches!(error, OperationError::Disagreement { .. }),
    };
    let all_due = ended.iter().all(|(first, later)| {
        let first = first
            .as_ref()
            .is_none_or(|first| first.as_ref().is_err_and(is_due));
        first && later.is_err()
    });
    match all_due {
        true => Verdict::Passed,
        false => Verdict::Failed(format!("an operation ended otherwise: {ended:?}")),
    }
}

/// What came of a mistake, and of the operation after it.
type Ended = (
    Option<Result<(), OperationError>>,
    Result<(), OperationError>,
);

fn one_more(group: &mut Group) -> Result<(), OperationError> {
    group.all_reduce(&mut [0.0_f32], ReduceOp::Sum)
}

/// The chief reduces with a member that is there, and comes only when the chief has given up.
fn missing_member() -> Vec<Ended> {
    let given_up = Barrier::new(2);
    each(2, |group| {
        group.set_operation_timeout(Duration::from_millis(500));
        let first = (group.rank() == Rank::CHIEF)
            .then(|| group.all_reduce(&mut [1.0_f32; 2], ReduceOp::Sum));
        given_up.wait();
        (first, one_more(group))
    })
}

/// A rank outside the list of members cannot be one of them.
fn judge_sizes() -> Verdict {
    let secret = JobSecret::generate().expect("randomness");
    let config = GroupConfig::new(["127.0.0.1:1", "127.0.0.1:2"], Rank::new(2), secret);
    match config {
        Err(meshwork_collectives::ConfigError::RankOutside { .. }) => Verdict::Passed,
        other => Verdict::Failed(format!("{other:?}")),
    }
}

fn each<R: Send>(world: u32, program: impl Fn(&mut Group) -> R + Sync) -> Vec<R> {
    let groups = Group::local(world).expect("a few threads");
    in_threads(groups, |mut group| program(&mut group))
}

#[test]
fn nested_numbers_are_flattened_in_order() {
    assert_eq!(flat(&json!([[1, 2], [3.5]])), [1.0, 2.0, 3.5]);
}
