//! Relayouts that TensorFlow carried out: the same values have to come out where they did.

use meshwork_core::{Client, Mesh};
use meshwork_dtensor::{Context, DTensor, Error, Scalar, compile};
use meshwork_layout::{Layout, LayoutPattern, Relayout};
use ndarray::ArrayD;
use serde_json::Value;

use super::read::{list, number, numbers, text, told};
use crate::deviations::{Deviation, relayout};
use crate::harness::Verdict;
use crate::lists;
use crate::not_askable::ONE_PROCESS;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    match (carried_out(input), case.get("expect")) {
        (Ok(outcome), Some(expected)) => {
            let compared = compare(&outcome, input, expected);
            match compared.and_then(|()| on_devices(&outcome, input)) {
                Ok(()) => Verdict::Passed,
                Err(how) => Verdict::Failed(how),
            }
        }
        (Err(how), Some(_)) => Verdict::Failed(how),
        (Err(_), None) => Verdict::Passed,
        (Ok(outcome), None) => refused(&outcome, case),
    }
}

/// What came of a relayout.
struct Outcome {
    source: Layout,
    target: Layout,
    /// The values of each rank, row-major, by their numbers in the whole tensor.
    shards: Vec<Vec<f64>>,
}

fn carried_out(input: &Value) -> Result<Outcome, String> {
    let dims = list(&input["mesh"]).map(|dim| (text(&dim[0]), number(&dim[1])));
    let mesh = Mesh::new(dims).map_err(told)?;
    let shape = numbers(&input["value"]["shape"]);
    let source = match &input["from"] {
        // TensorFlow takes a plain tensor for a replicated one.
        Value::String(_) => Layout::replicated(&mesh, shape.len()),
        names => Layout::from_names(list(names).map(text), &mesh).map_err(told)?,
    };
    let pattern =
        LayoutPattern::from_names(list(&input["to"]).map(text), &target_mesh(input, &mesh)?);
    let target = pattern
        .and_then(|pattern| pattern.resolve(&source))
        .map_err(told)?;
    let plan = Relayout::new(&source, &target, &shape, 4).and_then(|relayout| relayout.plan());
    let plan = plan.map_err(told)?;
    let shards = plan.apply(&cut(&source, &shape)).map_err(told)?;
    Ok(Outcome {
        source,
        target,
        shards,
    })
}

/// The same by tensors on the devices of the mesh, which are all here.
fn on_devices(outcome: &Outcome, input: &Value) -> Result<(), String> {
    let context = Context::alone(Client::new("localhost", 0, 1).map_err(told)?);
    let shape = numbers(&input["value"]["shape"]);
    let moved = match input["value"]["dtype"].as_str() {
        Some("bool") => moved::<bool>(&context, outcome, input, &shape),
        Some("uint8") => moved::<u8>(&context, outcome, input, &shape),
        Some("int64") => moved::<i64>(&context, outcome, input, &shape),
        Some("float32") => moved::<f32>(&context, outcome, input, &shape),
        // Complex numbers of two floats have as many bytes, and are moved by them.
        Some("float64" | "complex64") => moved::<f64>(&context, outcome, input, &shape),
        _ => moved::<i32>(&context, outcome, input, &shape),
    };
    let expected = outcome.shards.iter().map(|shard| {
        let stored = shard.iter().map(|number| stored(*number, input));
        stored.collect::<Vec<f64>>()
    });
    let (moved, expected) = (moved.map_err(told)?, expected.collect::<Vec<_>>());
    match moved == expected {
        true => Ok(()),
        false => Err(format!("on devices {moved:?}, expected {expected:?}")),
    }
}

/// What devices hold after a relayout, in the way in which it was asked for.
fn moved<T: Scalar>(
    context: &Context,
    outcome: &Outcome,
    input: &Value,
    shape: &[usize],
) -> Result<Vec<Vec<f64>>, Error> {
    let count: usize = shape.iter().product();
    let elements =
        (0..count).map(|number| T::from_f64(stored(T::from_index(number).to_f64(), input)));
    let array =
        ArrayD::from_shape_vec(shape, elements.collect()).expect("as many as the shape says");
    let (source, target) = (&outcome.source, &outcome.target);
    let tensor = context
        .copy_to_mesh(array.clone(), source)?
        .into_devices()?;
    let moved = match input["via"].as_str() {
        Some("relayout_like") => tensor.relayout_like(&context.zeros::<bool>(shape, target)?)?,
        Some("call_with_layout_ones") => {
            context.call_with_layout(target, || meshwork_dtensor::full(shape, T::from_index(1)))?
        }
        Some("copy_to_mesh" | "relayout") => context.copy_to_mesh(array, target)?,
        _ => tensor.relayout(target)?,
    };
    moved.check_layout(target)?;
    let flat = |block: &meshwork_dtensor::Block<T>| block.iter().map(|x| x.to_f64()).collect();
    Ok(moved.unpack()?.iter().map(flat).collect())
}

/// Holds what one of several clients has after a relayout on their mesh against what ranks have
/// that are told nothing of clients.
pub(crate) fn among_clients(case: &Value, context: &Context, mesh: &Mesh) -> Verdict {
    let input = &case["input"];
    // Meshes of other names and sizes are made by one process.
    let via = input["via"].as_str().unwrap_or_default();
    if via.starts_with("to_") {
        return Verdict::NotAskable(ONE_PROCESS);
    }
    match (carried_out(input), case.get("expect_error")) {
        (Ok(outcome), _) => Verdict::of(moved_among_clients(input, &outcome, context, mesh).err()),
        // There is no layout to move a tensor to.
        (Err(_), Some(_)) => Verdict::NotAskable(ONE_PROCESS),
        (Err(how), None) => Verdict::Failed(how),
    }
}

fn moved_among_clients(
    input: &Value,
    outcome: &Outcome,
    context: &Context,
    mesh: &Mesh,
) -> Result<(), String> {
    let on = |layout: &Layout| Layout::new(layout.specs().cloned(), mesh).map_err(told);
    let (source, target) = (on(&outcome.source)?, on(&outcome.target)?);
    let shape = numbers(&input["value"]["shape"]);
    let elements = (0..shape.iter().product::<usize>()).map(f64::from_index);
    let whole = ArrayD::from_shape_vec(shape, elements.collect()).map_err(told)?;
    let tensor = context
        .copy_to_mesh(whole, &source)
        .and_then(DTensor::into_devices)
        .map_err(told)?;
    holds(&tensor.relayout(&target).map_err(told)?, outcome)?;
    let mut step = compile(|(): &mut (), given: &DTensor<f64>| given.relayout(&target));
    for _ in 0..2 {
        holds(&step.call(&mut (), &tensor).map_err(told)?, outcome)?;
    }
    Ok(())
}

/// Whether each rank of this client has what it should have.
fn holds(moved: &DTensor<f64>, outcome: &Outcome) -> Result<(), String> {
    let mut held = moved
        .local_ranks()
        .iter()
        .zip(moved.unpack().expect("blocks are fetched"));
    match held.all(|(rank, block)| block.iter().eq(&outcome.shards[rank.index()])) {
        true => Ok(()),
        false => Err(format!("{moved:?}, expected {:?}", outcome.shards)),
    }
}

/// The mesh that a tensor goes to: the one it is on, the same under another name, or one of its
/// first four devices.
fn target_mesh(input: &Value, mesh: &Mesh) -> Result<Mesh, String> {
    match input["via"].as_str() {
        Some("to_other_named_mesh") => mesh.clone().with_name("other").map_err(told),
        Some("to_1d4_mesh") => Mesh::new([("x", 4)]).map_err(told),
        _ => Ok(mesh.clone()),
    }
}

/// The shards of a tensor whose values are the row-major numbers of its elements.
fn cut(layout: &Layout, shape: &[usize]) -> Vec<Vec<f64>> {
    let shards = layout.mesh().ranks().map(|rank| {
        let held = layout
            .shard(rank, shape)
            .expect("a rank of the mesh, a shape of its rank");
        let mut numbers = vec![0_usize];
        for (range, &size) in held.iter().zip(shape) {
            let along = |&number: &usize| range.clone().map(move |index| number * size + index);
            numbers = numbers.iter().flat_map(along).collect();
        }
        numbers.into_iter().map(|number| number as f64).collect()
    });
    shards.collect()
}

fn compare(outcome: &Outcome, input: &Value, expected: &Value) -> Result<(), String> {
    let names: Vec<String> = outcome.target.specs().map(ToString::to_string).collect();
    if !list(&expected["layout"])
        .map(text)
        .eq(names.iter().map(String::as_str))
    {
        return Err(format!("layout {names:?}, expected {}", expected["layout"]));
    }
    let shape = numbers(&expected["global_shape"]);
    if numbers(&input["value"]["shape"]) != shape {
        return Err(format!("global shape {shape:?}"));
    }
    if outcome.shards != cut(&outcome.target, &shape) {
        return Err("values are not those of the tensor".to_owned());
    }
    // Where TensorFlow's values are wrong, or were not kept, those above are all there is.
    if expected["TF_WRONG_VALUE"] == true || expected.get("shards").is_none() {
        return Ok(());
    }
    let unique = &expected["shards"]["unique"];
    let recorded = numbers(&expected["shards"]["device_to_unique"]);
    let recorded: Vec<Vec<f64>> = recorded.into_iter().map(|at| flat(&unique[at])).collect();
    let own = outcome
        .shards
        .iter()
        .map(|shard| shard.iter().map(|&number| stored(number, input)));
    let own: Vec<Vec<f64>> = own.map(Iterator::collect).collect();
    if own == recorded {
        return Ok(());
    }
    Err(format!("{own:?}, expected {recorded:?}"))
}

/// The value that TensorFlow's tensor had in place of the number of the element.
fn stored(number: f64, input: &Value) -> f64 {
    let ones = input["via"] == "call_with_layout_ones";
    match input["value"]["dtype"].as_str() {
        _ if ones => 1.0,
        Some("bool") => f64::from(u8::from(number != 0.0)),
        _ => number,
    }
}

fn flat(value: &Value) -> Vec<f64> {
    lists::numbers(value).expect("recorded numbers")
}

/// TensorFlow refuses what was carried out here.
fn refused(outcome: &Outcome, case: &Value) -> Verdict {
    let shape = numbers(&case["input"]["value"]["shape"]);
    let cut = |layout: &Layout| {
        let mut sizes = shape.iter().enumerate();
        sizes.any(|(axis, size)| {
            layout
                .num_shards(axis)
                .is_ok_and(|shards| size % shards != 0)
        })
    };
    let deviation: Option<Deviation> = match case["expect_error"]["category"].as_str() {
        Some("not_divisible") if cut(&outcome.source) || cut(&outcome.target) => {
            Some(relayout::UNEVEN)
        }
        Some("output_inconsistent_with_layout")
            if outcome.source.mesh() != outcome.target.mesh() =>
        {
            Some(relayout::BETWEEN_MESHES)
        }
        _ => None,
    };
    match deviation {
        Some(_) if outcome.shards != self::cut(&outcome.target, &shape) => {
            Verdict::Failed("values are not those of the tensor".to_owned())
        }
        Some(_) if on_devices(outcome, &case["input"]).is_err() => {
            Verdict::Failed("values are not those of the tensor on devices".to_owned())
        }
        Some(deviation) => Verdict::by(deviation),
        None => Verdict::Failed(format!("an error is expected: {}", case["expect_error"])),
    }
}
