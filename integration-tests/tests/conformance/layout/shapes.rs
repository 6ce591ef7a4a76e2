//! `{"mesh", "specs", "shapes"}`: local shapes of global ones, and the other way round.
//!
//! Nearly every case has a shape that TensorFlow gets wrong beside those that it gets right, so
//! nearly every case deviates; the other answers of such a case have to be the recorded ones all
//! the same.

use std::collections::BTreeSet;

use meshwork_layout::{Error, Layout, Shape};
use serde_json::{Value, json};

use super::answers::{construct, is_open, judge_error};
use crate::deviations::Deviation;
use crate::deviations::layout::{OPEN_SHARDS, SHAPES_OF_OTHER_RANKS, UNEVEN_SHARDS, UNKNOWN_SIZES};
use crate::harness::Verdict;
use crate::mesh::answers::integer;

pub(super) fn judge(case: &Value) -> Verdict {
    let pattern = match (construct(&case["input"]), case.get("expect_error")) {
        (Ok(pattern), None) => pattern,
        (result, Some(_)) => return judge_error(case, &result),
        (Err(error), None) => return Verdict::Failed(format!("refused by {error:?}")),
    };
    let is_open = is_open(&pattern);
    let layout = match Layout::try_from(pattern) {
        Ok(layout) => layout,
        Err(Error::OpenSpec { .. }) if is_open => return Verdict::by(OPEN_SHARDS),
        Err(error) => return Verdict::Failed(format!("refused by {error:?}")),
    };
    let shapes = case["input"]["shapes"]
        .as_array()
        .expect("a list of shapes");
    let mut rules = BTreeSet::new();
    for (direction, recorded) in case["expect"].as_object().expect("two lists") {
        let Some(direction) = Direction::named(direction) else {
            return Verdict::Failed(format!("the field {direction} is not known"));
        };
        let recorded = recorded.as_array().expect("a list of shapes");
        if recorded.len() != shapes.len() {
            return Verdict::Failed(format!("{direction:?} has answers too many or too few"));
        }
        for (asked, recorded) in shapes.iter().zip(recorded) {
            match direction.judge(&layout, asked, recorded) {
                Ok(rule) => rules.extend(rule),
                Err(why) => return Verdict::Failed(format!("{direction:?} of {asked}: {why}")),
            }
        }
    }
    Verdict::by_all(rules)
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    LocalFromGlobal,
    GlobalFromLocal,
}

impl Direction {
    fn named(name: &str) -> Option<Self> {
        match name {
            "local_from_global" => Some(Self::LocalFromGlobal),
            "global_from_local" => Some(Self::GlobalFromLocal),
            _ => None,
        }
    }

    /// Passes by `None`, or by the rule of a deviation, once the recorded answer is understood.
    fn judge(
        self,
        layout: &Layout,
        asked: &Value,
        recorded: &Value,
    ) -> Result<Option<Deviation>, String> {
        let asked: Vec<i64> = asked
            .as_array()
            .expect("sizes")
            .iter()
            .map(integer)
            .collect();
        let understood = self.tensorflow(layout, &asked);
        // What was not recorded, because it lies outside of what TensorFlow may read.
        let skipped = recorded.get("skipped").is_some() && asked.len() < layout.rank();
        if !skipped && *recorded != json!(understood) {
            return Err(format!(
                "{understood:?} by the rule, recorded is {recorded}"
            ));
        }
        let sizes: Result<Vec<usize>, _> = asked.iter().map(|&size| size.try_into()).collect();
        let Ok(sizes) = sizes else {
            return Ok(Some(UNKNOWN_SIZES));
        };
        match self.answer(layout, &sizes) {
            Ok(shape) if json!(shape.as_slice()) == *recorded => Ok(None),
            Err(Error::RankMismatch { .. }) if sizes.len() != layout.rank() => {
                Ok(Some(SHAPES_OF_OTHER_RANKS))
            }
            Err(Error::Uneven { .. }) if is_exact(layout, &sizes) => Ok(Some(UNEVEN_SHARDS)),
            other => Err(format!("{other:?}, recorded is {recorded}")),
        }
    }

    fn answer(self, layout: &Layout, sizes: &[usize]) -> Result<Shape, Error> {
        match self {
            Self::GlobalFromLocal => layout.global_shape(sizes),
            Self::LocalFromGlobal => {
                let shape = layout.even_local_shape(sizes)?;
                for rank in layout.mesh().ranks() {
                    assert_eq!(
                        layout.local_shape(rank, sizes)?,
                        shape,
                        "{layout} {sizes:?}"
                    );
                }
                Ok(shape)
            }
        }
    }

    /// TensorFlow leaves shapes as they are where nothing is cut. Else it drops the sizes that are
    /// too many, and rounds down or multiplies the others.
    fn tensorflow(self, layout: &Layout, asked: &[i64]) -> Vec<i64> {
        if layout.is_fully_replicated() {
            return asked.to_vec();
        }
        let axes = asked.iter().take(layout.rank()).enumerate();
        let size = |(axis, &size): (usize, &i64)| {
            let shards = layout.num_shards(axis).expect("an axis of the layout");
            let shards = i64::try_from(shards).expect("a small mesh");
            match self {
                Self::LocalFromGlobal if size < 0 => size,
                Self::LocalFromGlobal => size / shards,
                Self::GlobalFromLocal => size * shards,
            }
        };
        axes.map(size).collect()
    }
}

/// Whether no index is lost, and none is held twice but by copies.
fn is_exact(layout: &Layout, sizes: &[usize]) -> bool {
    let held = layout.mesh().ranks().map(|rank| {
        let local = layout.local_shape(rank, sizes).expect("a rank of the mesh");
        local.iter().product::<usize>()
    });
    held.sum::<usize>() == sizes.iter().product::<usize>() * layout.copies()
}
