//! `{"mesh", "specs"}`: the constructor, and all that a layout says about itself.

use meshwork_core::MeshRank;
use meshwork_layout::{AnyLayout, Error, Layout, LayoutPattern, SpecPattern};
use serde_json::{Value, json};

use super::answers::{answer, construct, is_misuse_of_types, is_open, judge_error};
use crate::deviations::layout::OPEN_SHARDS;
use crate::harness::Verdict;
use crate::mesh::answers::compare;
use crate::not_askable::TYPES;

pub(super) fn judge(case: &Value) -> Verdict {
    if is_misuse_of_types(case) {
        return Verdict::NotAskable(TYPES);
    }
    match (construct(&case["input"]), case.get("expect")) {
        (Ok(pattern), Some(expect)) if is_open(&pattern) => judge_open(&pattern, expect),
        (Ok(pattern), Some(expect)) => {
            let layout = Layout::try_from(pattern.clone()).expect("nothing is open");
            compare(expect, |field| closed_answer(&layout, field))
        }
        (Err(error), Some(_)) => Verdict::Failed(format!("refused by {error:?}")),
        (result, None) => judge_error(case, &result),
    }
}

fn closed_answer(layout: &Layout, field: &str) -> Option<Value> {
    let coords = |rank| layout.shard_coords(rank).expect("a rank of the mesh");
    let ranks = || layout.mesh().ranks();
    Some(match field {
        "is_fully_replicated" => json!(layout.is_fully_replicated()),
        "is_batch_parallel" => json!(layout.is_batch_parallel()),
        "num_shards" => json!(counts(layout)),
        "offset_to_shard" => json!(
            ranks()
                .map(|rank| coords(rank).to_vec())
                .collect::<Vec<_>>()
        ),
        "offset_tuple_to_global_index" => {
            let number = |rank: MeshRank| layout.shard_number(&coords(rank)).expect("coordinates");
            json!(ranks().map(number).collect::<Vec<_>>())
        }
        _ => return answer(&layout.clone().into(), field),
    })
}

fn counts(layout: &Layout) -> Vec<usize> {
    let axes = 0..layout.rank();
    let counts = axes.map(|axis| layout.num_shards(axis).expect("an axis of the layout"));
    counts.collect()
}

/// A dimension that is open has no shards yet, and what is made of them is not asked of a pattern.
/// All else is as recorded, the other dimensions' shards among it.
fn judge_open(pattern: &LayoutPattern, expect: &Value) -> Verdict {
    let any = AnyLayout::from(pattern.clone());
    let verdict = compare(expect, |field| match field {
        "num_shards" => Some(json!(fixed_counts(pattern, &expect[field]))),
        "is_fully_replicated" | "is_batch_parallel" => Some(expect[field].clone()),
        "offset_to_shard" | "offset_tuple_to_global_index" => {
            Some(json!({"error": "a pattern places nothing"}))
        }
        _ => answer(&any, field),
    });
    match (verdict, Layout::try_from(pattern.clone())) {
        (Verdict::Passed, Err(Error::OpenSpec { .. })) => Verdict::by(OPEN_SHARDS),
        (Verdict::Passed, closed) => Verdict::Failed(format!("{closed:?} of an open pattern")),
        (verdict, _) => verdict,
    }
}

/// The number of shards along each dimension, with the recorded one where the dimension is open.
fn fixed_counts(pattern: &LayoutPattern, recorded: &Value) -> Vec<Value> {
    let whole = Layout::replicated(pattern.mesh(), pattern.rank());
    let specs = pattern.specs().zip(whole.specs());
    let specs = specs.map(|(spec, whole)| match spec {
        SpecPattern::Exactly(spec) => spec,
        _ => whole.clone(),
    });
    let layout = Layout::new(specs, pattern.mesh()).expect("a part of the pattern");
    let both = counts(&layout).into_iter().zip(pattern.specs()).enumerate();
    both.map(|(axis, (count, spec))| match spec {
        SpecPattern::Exactly(_) => json!(count),
        _ => recorded[axis].clone(),
    })
    .collect()
}
