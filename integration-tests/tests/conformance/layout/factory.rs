//! `{"fn"}`: layouts by name, parts of them, and whether two are equal.

use std::hash::{BuildHasher, RandomState};

use meshwork_core::Mesh;
use meshwork_layout::{AnyLayout, Error, Layout, LayoutPattern, MATCH, UNSHARDED};
use serde_json::{Value, json};

use super::answers::{answer, construct, is_misuse_of_types, judge_error, judge_refusal, mesh};
use crate::deviations::layout::AXES_THAT_ARE_NOT;
use crate::harness::Verdict;
use crate::mesh::answers::{compare, integer, text};
use crate::not_askable::{NOT_NEGATIVE, TYPES};

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    match text(&input["fn"]) {
        _ if is_misuse_of_types(case) => return Verdict::NotAskable(TYPES),
        "eq" => return judge_equality(input, &case["expect"]),
        function if FUNCTIONS.contains(&function) => {}
        function => return Verdict::Failed(format!("the function {function} is not known")),
    }
    let Some(made) = make(input) else {
        return judge_unsayable(case);
    };
    match (made, case.get("expect")) {
        (Ok(any), Some(expect)) => compare(expect, |field| answer(&any, field)),
        (Err(Error::AxisOutside { .. }), Some(expect)) if input["fn"] == "delete" => {
            judge_ignored(input, expect)
        }
        (Err(error), Some(_)) => judge_refusal(single_device(input), &error),
        (result, None) => judge_error(case, &result),
    }
}

/// The device that all is made of, if it is one.
fn single_device(input: &Value) -> &Value {
    input
        .get("device")
        .unwrap_or_else(|| &input["mesh"]["single_device"])
}

/// The layout asked for, or `None` where a rank or axis is below 0, which cannot be said.
fn make(input: &Value) -> Option<Result<AnyLayout, Error>> {
    let count = |field: &str| match input.get(field) {
        Some(number) => usize::try_from(integer(number)).ok(),
        None => Some(0),
    };
    let (rank, axis) = (count("rank")?, count("axis")?);
    let function = text(&input["fn"]);
    Some(match function {
        "from_device" => AnyLayout::from_device(text(&input["device"])),
        "from_single_device_mesh" => match mesh(&input["mesh"]) {
            Ok(mesh) => AnyLayout::from_single_device_mesh(&mesh),
            Err(error) => Err(error.into()),
        },
        "delete" => delete(input, &axes(&input["dims"])?),
        _ => {
            let axis = match function {
                "inner_sharded" => rank.saturating_sub(1),
                _ => axis,
            };
            sharded(input, rank, axis)
        }
    })
}

fn sharded(input: &Value, rank: usize, axis: usize) -> Result<AnyLayout, Error> {
    let mesh = Mesh::try_from(mesh(&input["mesh"])?)?;
    let dim = input["dim"].as_str().unwrap_or_default();
    if dim == MATCH && axis < rank {
        let word = |other| if other == axis { MATCH } else { UNSHARDED };
        return Ok(LayoutPattern::from_names((0..rank).map(word), &mesh)?.into());
    }
    let layout = match text(&input["fn"]) {
        "replicated" => Ok(Layout::replicated(&mesh, rank)),
        "inner_sharded" => Layout::inner_sharded(&mesh, dim, rank),
        _ if axis == 0 => Layout::batch_sharded(&mesh, dim, rank),
        _ => Layout::axis_sharded(&mesh, dim, rank, axis),
    };
    layout.map(AnyLayout::from)
}

fn delete(input: &Value, axes: &[usize]) -> Result<AnyLayout, Error> {
    let layout = Layout::try_from(construct(input)?)?;
    Ok(layout.delete(axes)?.into())
}

/// One axis or a list of them; `None` where one is below 0.
fn axes(dims: &Value) -> Option<Vec<usize>> {
    let axis = |dim: &Value| usize::try_from(integer(dim)).ok();
    match dims.as_array() {
        Some(dims) => dims.iter().map(axis).collect(),
        None => Some(vec![axis(dims)?]),
    }
}

fn judge_unsayable(case: &Value) -> Verdict {
    match case.get("expect") {
        Some(expect) if case["input"]["fn"] == "delete" => judge_ignored(&case["input"], expect),
        _ => Verdict::unsayable(case, NOT_NEGATIVE),
    }
}

/// TensorFlow deletes those of the axes that there are.
fn judge_ignored(input: &Value, expect: &Value) -> Verdict {
    let dims = input["dims"].as_array().cloned();
    let rank = input["specs"].as_array().map_or(0, Vec::len);
    let there = dims.unwrap_or_else(|| vec![input["dims"].clone()]);
    let there = there
        .iter()
        .filter_map(|dim| usize::try_from(integer(dim)).ok());
    let there: Vec<usize> = there.filter(|axis| *axis < rank).collect();
    match delete(input, &there) {
        Ok(any) => match compare(expect, |field| answer(&any, field)) {
            Verdict::Passed => Verdict::by(AXES_THAT_ARE_NOT),
            verdict => verdict,
        },
        Err(error) => Verdict::Failed(format!("refused by {error:?}")),
    }
}

fn judge_equality(input: &Value, expect: &Value) -> Verdict {
    let made = |name: &str| AnyLayout::from(construct(&input[name]).expect("a recorded layout"));
    let (a, b) = (made("a"), made("b"));
    let state = RandomState::new();
    compare(expect, |field| {
        Some(match field {
            "eq" => json!(a == b),
            "hash_eq" => json!(state.hash_one(&a) == state.hash_one(&b)),
            "eq_parted_a" => match &a {
                AnyLayout::Pattern(pattern) => json!(a == pattern.to_parted().into()),
                _ => return None,
            },
            _ => return None,
        })
    })
}

/// Those that make a layout.
const FUNCTIONS: [&str; 6] = [
    "replicated",
    "batch_sharded",
    "inner_sharded",
    "from_device",
    "from_single_device_mesh",
    "delete",
];
