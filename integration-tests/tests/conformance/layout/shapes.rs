//! `{"mesh", "specs", "shapes"}`: local shapes of global ones, and the other way round.

use meshwork_layout::{Error, Layout, Shape};
use serde_json::{Value, json};

use super::answers::construct;
use crate::deviations::Deviation;
use crate::deviations::layout::{SHAPES_OF_OTHER_RANKS, UNEVEN_SHARDS, UNKNOWN_SIZES};
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    let pattern = construct(&case["input"]).expect("a recorded layout");
    let layout = Layout::try_from(pattern).expect("nothing is open");
    let shapes = case["input"]["shapes"]
        .as_array()
        .expect("a list of shapes");
    let mut deviates = None;
    for (direction, recorded) in case["expect"].as_object().expect("two lists") {
        let judge_one = match direction.as_str() {
            "local_from_global" => judge_local,
            "global_from_local" => judge_global,
            _ => return Verdict::Failed(format!("the field {direction} is not known")),
        };
        let recorded = recorded.as_array().expect("a list of shapes");
        if recorded.len() != shapes.len() {
            return Verdict::Failed(format!("{direction} has an answer too many or too few"));
        }
        for (asked, recorded) in shapes.iter().zip(recorded) {
            let judged = match sizes(asked) {
                Some(asked) => judge_one(&layout, &asked, recorded),
                None => Ok(Some(UNKNOWN_SIZES)),
            };
            match judged {
                Ok(deviation) => deviates = deviates.or(deviation),
                Err(why) => return Verdict::Failed(format!("{direction} of {asked}: {why}")),
            }
        }
    }
    deviates.map_or(Verdict::Passed, Verdict::Deviates)
}

/// Passes by `None`, or by the rule of a deviation.
type Judged = Result<Option<Deviation>, String>;

fn judge_local(layout: &Layout, asked: &[usize], recorded: &Value) -> Judged {
    match layout.even_local_shape(asked) {
        Ok(shape) => {
            let mut ranks = layout.mesh().ranks();
            if !ranks.all(|rank| layout.local_shape(rank, asked).as_ref() == Ok(&shape)) {
                return Err("the shards are not even".to_owned());
            }
            same(&shape, recorded)
        }
        Err(Error::Uneven { .. }) => judge_uneven(layout, asked, recorded),
        Err(error) => judge_rank(layout, asked, recorded, &error),
    }
}

fn judge_global(layout: &Layout, asked: &[usize], recorded: &Value) -> Judged {
    match layout.global_shape(asked) {
        Ok(shape) => same(&shape, recorded),
        Err(error) => judge_rank(layout, asked, recorded, &error),
    }
}

fn same(shape: &Shape, recorded: &Value) -> Judged {
    if json!(shape.as_slice()) == *recorded {
        return Ok(None);
    }
    Err(format!("{shape:?}, recorded is {recorded}"))
}

/// TensorFlow rounds down where shards differ; here no index is lost, and none is held twice but by
/// copies.
fn judge_uneven(layout: &Layout, asked: &[usize], recorded: &Value) -> Judged {
    let recorded = sizes(recorded).ok_or("not the sizes that were recorded")?;
    let shards = |axis| layout.num_shards(axis).expect("an axis of the layout");
    for (axis, (&size, &down)) in asked.iter().zip(&recorded).enumerate() {
        if size / shards(axis) != down {
            return Err(format!(
                "{size} over {} is recorded as {down}",
                shards(axis)
            ));
        }
    }
    let held = layout.mesh().ranks().map(|rank| {
        let local = layout.local_shape(rank, asked).expect("a rank of the mesh");
        local.iter().product::<usize>()
    });
    let (held, elements) = (held.sum::<usize>(), asked.iter().product::<usize>());
    if held != elements * layout.copies() {
        return Err(format!("{held} elements are held of {elements}"));
    }
    Ok(Some(UNEVEN_SHARDS))
}

/// TensorFlow drops the sizes that are too many, and reads what is not there where there are too few.
fn judge_rank(layout: &Layout, asked: &[usize], recorded: &Value, error: &Error) -> Judged {
    let rank = layout.rank();
    let other = matches!(error, Error::RankMismatch { .. }) && asked.len() != rank;
    if other && (recorded.get("skipped").is_some() || recorded.is_array()) {
        return Ok(Some(SHAPES_OF_OTHER_RANKS));
    }
    Err(format!("{error:?}, recorded is {recorded}"))
}

/// The sizes, unless one is unknown, which is recorded as -1.
fn sizes(shape: &Value) -> Option<Vec<usize>> {
    let sizes = shape.as_array()?.iter();
    let sizes = sizes.map(|size| size.as_u64().and_then(|size| usize::try_from(size).ok()));
    sizes.collect()
}
