//! `{"mesh", "n", "gbs", "layouts", "batch_dim", "elem", "prebatch", "already"}`: n samples of
//! shape `elem`, whose elements count up, distributed in batches of `gbs`; `prebatch` of them at a
//! time come as one element, which `already` says is a batch.

use meshwork_dtensor::{Context, DTensor, DTensorDataset, Error};
use meshwork_layout::{Layout, UNSHARDED};
use ndarray::ArrayD;
use serde_json::{Value, json};

use super::values::{context, differs, layout, list, mesh, numbered, size, sizes};
use crate::deviations::Deviation;
use crate::deviations::dtensor::{ALL_SAMPLES, BATCH_DIM, UNEVEN_BATCH};
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    judge_in(case, &context())
}

/// Judges what one of several clients holds, or the only one.
pub(super) fn judge_in(case: &Value, context: &Context) -> Verdict {
    let input = &case["input"];
    let problem = match (distributed(input, context), case.get("expect")) {
        (Ok(distributed), Some(expected)) => match misdealt(&distributed, input, expected) {
            Some(rule) if distributed.is_right() && sizes_agree(&distributed, expected) => {
                return Verdict::by(rule);
            }
            Some(_) => Some("batches are not the slices that they should be".to_owned()),
            None => compare(&distributed, input, expected),
        },
        (Err(error), None) => misfit(&error, &case["expect_error"]),
        (Err(error), Some(_)) => Some(error.to_string()),
        (Ok(distributed), None) => {
            // Without replicas nothing has to be distributed evenly: shards may be uneven.
            let uneven = case["expect_error"]["category"] == "not_divisible";
            if uneven && distributed.is_right() && input["batch_dim"].is_null() {
                return Verdict::by(UNEVEN_BATCH);
            }
            Some(format!(
                "{} batches instead of {}",
                distributed.batches.len(),
                case["expect_error"]
            ))
        }
    };
    problem.map_or(Verdict::Passed, Verdict::Failed)
}

struct Distributed {
    shape: Vec<usize>,
    batches: Vec<DTensor<i32>>,
}

impl Distributed {
    /// Whether each batch has the samples that it should, in order.
    fn is_right(&self) -> bool {
        let mut batches = self.batches.iter().enumerate();
        batches.all(|(step, batch)| is_slice(batch, step))
    }
}

fn distributed(input: &Value, context: &Context) -> Result<Distributed, Error> {
    let mesh = mesh(context, &input["mesh"])?;
    let names = &input["layouts"];
    let layout: Layout = layout(names, &mesh)?;
    let sample = sizes(&input["elem"]);
    let together = input.get("prebatch").map(size);
    let are_batches = input["already"] == true;
    // A batch that is not said to be one is a sample with one axis more.
    let element = match (together, are_batches) {
        (Some(together), false) => [&[together], sample.as_slice()].concat(),
        _ => sample.clone(),
    };
    let dataset = DTensorDataset::new(context, &layout, &element, size(&input["gbs"]))?;
    let dataset = match input["batch_dim"].as_str() {
        Some(dim) => dataset.batch_dim(dim)?,
        None => dataset,
    };
    let elements = elements(size(&input["n"]), &sample, together);
    let batches: Result<Vec<_>, Error> = match are_batches {
        true => dataset.iterate_batched(elements).collect(),
        false => dataset.iterate(elements).collect(),
    };
    Ok(Distributed {
        shape: dataset.batch_shape(),
        batches: batches?,
    })
}

/// The samples, one by one or so many together, whose elements count up.
fn elements(count: usize, sample: &[usize], together: Option<usize>) -> Vec<ArrayD<i32>> {
    let many = together.unwrap_or(1);
    let shape = match together {
        Some(together) => [&[together], sample].concat(),
        None => sample.to_vec(),
    };
    let length = i32::try_from(shape.iter().product::<usize>()).expect("a few elements");
    let of = |number: usize| {
        let first = i32::try_from(number).expect("a few samples") * length;
        numbered::<i32>(&shape).mapv(|element| element + first)
    };
    (0..count / many).map(of).collect()
}

/// The rule by which the recorded batches are wrong without being called so.
fn misdealt(distributed: &Distributed, input: &Value, expected: &Value) -> Option<Deviation> {
    // What is distributed is lost where another axis of it is cut.
    let mut others = list(&input["layouts"]).iter().skip(1);
    let is_cut = input["batch_dim"].is_string() && others.any(|name| name != UNSHARDED);
    if is_cut && loses(distributed, expected) {
        return Some(ALL_SAMPLES);
    }
    is_distributed_by_number(input, expected).then_some(BATCH_DIM)
}

/// Whether the replicas are those of the devices in turn, though another dimension of the mesh than
/// the first has them.
fn is_distributed_by_number(input: &Value, expected: &Value) -> bool {
    let mut dims = list(&input["mesh"]).iter().map(|dim| &dim[0]);
    let has_first = dims.next() == Some(&input["batch_dim"]);
    let mut places = list(&expected["batches"]).iter().map(|batch| {
        let places = sizes(&batch["shards"]["device_to_unique"]);
        places.is_sorted() && places.last() > Some(&0)
    });
    !has_first && dims.any(|dim| *dim == input["batch_dim"]) && places.any(|by_number| by_number)
}

/// Whether no device has some element of a batch that TensorFlow does not call wrong.
fn loses(distributed: &Distributed, expected: &Value) -> bool {
    let recorded = list(&expected["batches"]).iter().enumerate();
    let mut lost = recorded.map(|(step, recorded)| {
        let mut found = Vec::new();
        numbers(&recorded["shards"]["unique"], &mut found);
        let length = distributed.batches.get(step).map_or(0, DTensor::size);
        let mut all = (step * length..(step + 1) * length).map(|element| json!(element));
        all.any(|element| !found.contains(&&element))
    });
    expected["TF_WRONG_VALUE"] != true && lost.any(|lost| lost)
}

fn numbers<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| numbers(value, found)),
        number => found.push(number),
    }
}

fn sizes_agree(distributed: &Distributed, expected: &Value) -> bool {
    json!(distributed.shape) == expected["element_spec_shape"]
        && json!(distributed.batches.len()) == expected["num_batches"]
}

fn compare(distributed: &Distributed, input: &Value, expected: &Value) -> Option<String> {
    let recorded = list(&expected["batches"]);
    if !sizes_agree(distributed, expected) || recorded.len() > distributed.batches.len() {
        return Some(format!(
            "{} of {:?}",
            distributed.batches.len(),
            distributed.shape
        ));
    }
    let mut both = distributed.batches.iter().zip(recorded).enumerate();
    both.find_map(|(step, (batch, recorded))| {
        // Where TensorFlow loses samples, each batch has to be the slice that it is.
        if expected["TF_WRONG_VALUE"] == true {
            let same = is_slice(batch, step)
                && batch.layout().specs().len() == list(&input["layouts"]).len();
            return (!same).then(|| format!("{batch:?}"));
        }
        differs(batch, recorded)
    })
}

/// Whether a batch has the samples that it should, in order.
fn is_slice(batch: &DTensor<i32>, step: usize) -> bool {
    let length = batch.size();
    let first = step * length;
    let host = batch
        .to_host()
        .map(|host| host.into_iter().collect::<Vec<_>>());
    let expected =
        (first..first + length).map(|element| i32::try_from(element).unwrap_or(i32::MAX));
    host.is_ok_and(|host| host.into_iter().eq(expected))
}

fn misfit(error: &Error, recorded: &Value) -> Option<String> {
    let fits = match recorded["category"].as_str() {
        Some("not_divisible") => matches!(error, Error::UnevenBatch { .. }),
        Some("unknown_mesh_dim") => {
            matches!(error, Error::Mesh(meshwork_core::Error::UnknownDim { .. }))
        }
        _ => true,
    };
    (!fits).then(|| format!("{error:?} instead of {recorded}"))
}
