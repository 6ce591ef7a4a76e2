//! `{"shape", "indices"}`: coordinates by both of TensorFlow's methods, and of all ranks.

use meshwork_core::{Mesh, MeshRank};
use serde_json::{Value, json};

use super::answers::{integers, judge_error, location, same};
use crate::deviations::mesh::RANK_OUTSIDE;
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    let (input, expect) = (&case["input"], &case["expect"]);
    let sizes = integers(&input["shape"]);
    let sizes = sizes
        .iter()
        .map(|&size| usize::try_from(size).expect("a size"));
    let dims = ["x", "y", "z", "w", "v", "u"].into_iter().zip(sizes);
    let mesh = match (Mesh::new(dims), case.get("expect_error")) {
        (Ok(mesh), None) => mesh,
        (result, Some(_)) => return judge_error(case, &result),
        (Err(error), None) => return Verdict::Failed(format!("refused by {error:?}")),
    };
    match first_difference(&mesh, input, expect) {
        Some(difference) => Verdict::Failed(difference),
        None if integers(&input["indices"])
            .iter()
            .all(|&index| rank(&mesh, index).is_some()) =>
        {
            Verdict::Passed
        }
        None => Verdict::by(RANK_OUTSIDE),
    }
}

fn first_difference(mesh: &Mesh, input: &Value, expect: &Value) -> Option<String> {
    for (field, expected) in expect.as_object().expect("recorded answers are objects") {
        let differs = match field.as_str() {
            "strides" => *expected != json!(mesh.strides()),
            "coords" | "device_location" => {
                let indices = integers(&input["indices"]);
                let recorded = expected.as_array().expect("one answer for each index");
                indices.len() != recorded.len()
                    || indices.iter().zip(recorded).any(|(&index, recorded)| {
                        rank(mesh, index).map_or_else(
                            // `coords` wraps around, `device_location` refuses.
                            || field == "device_location" && recorded.get("error").is_none(),
                            |rank| *recorded != json!(mesh.coords(rank).ok().map(|c| c.to_vec())),
                        )
                    })
            }
            "unravel_index" => {
                let all = mesh
                    .ranks()
                    .map(|rank| json!([rank.index(), location(mesh, rank)]));
                !same(expected, &all.collect())
            }
            _ => true,
        };
        if differs {
            return Some(format!("{field} is not {expected}"));
        }
    }
    None
}

/// The rank of this number, if the mesh has it and says so.
fn rank(mesh: &Mesh, index: i64) -> Option<MeshRank> {
    let rank = MeshRank::new(index.try_into().ok()?);
    mesh.coords(rank).is_ok().then_some(rank)
}
