//! Reads what each kind of record asks for.

use meshwork_core::{DeviceSpec, Mesh};
use meshwork_layout::{Layout, MATCH, PartialReduction, ShardingSpec};
use serde_json::Value;

use super::judge::Asked;

type Text<T> = Result<T, String>;

/// A relayout on a mesh x, y, z, whose layouts say per mesh dimension what it does, and per tensor
/// dimension in which order it is cut.
pub(super) fn torch(case: &Value) -> Text<Asked> {
    let sizes = numbers(&case["mesh"]);
    let mesh = Mesh::new(AXES.into_iter().zip(sizes)).map_err(told)?;
    let layout = |placements: &str, order: &str| {
        let specs = list(&case[order]).map(|dims| {
            ShardingSpec::nested(numbers(dims).into_iter().map(|dim| AXES[dim])).map_err(told)
        });
        let layout = Layout::new(specs.collect::<Text<Vec<_>>>()?, &mesh).map_err(told)?;
        let partial = AXES
            .into_iter()
            .zip(list(&case[placements]))
            .filter(|(_, does)| *does == "P");
        let partial: Vec<_> = partial.map(|(dim, _)| dim).collect();
        layout
            .with_partial(partial, PartialReduction::Sum)
            .map_err(told)
    };
    Ok(Asked {
        from: layout("from", "from_order")?,
        to: layout("to", "to_order")?,
        shape: numbers(&case["shape"]),
        element_size: element_size(case)?,
    })
}

/// A relayout within a mesh, or to one of another name; layouts name at most one mesh dimension for
/// each tensor dimension, and the target may keep what the source has.
pub(super) fn oracle(case: &Value) -> Text<Asked> {
    let dims = list(&case["mesh"]).map(|dim| (text(&dim[0]), number(&dim[1])));
    let mesh = Mesh::new(dims).map_err(told)?;
    let layout = |names: Vec<&str>| Layout::from_names(names, &mesh).map_err(told);
    let from: Vec<&str> = list(&case["from"]).map(text).collect();
    let mut to: Vec<&str> = list(&case["to"]).map(text).collect();
    for (to, from) in to.iter_mut().zip(&from).filter(|(to, _)| **to == MATCH) {
        *to = from;
    }
    Ok(Asked {
        from: layout(from)?,
        to: layout(to)?,
        shape: numbers(&case["shape"]),
        element_size: number(&case["itemsize"]),
    })
}

/// A relayout within a mesh or between two, whose layouts may name parts of mesh dimensions: those
/// are made mesh dimensions of their own.
pub(super) fn shardy(case: &Value) -> Text<Asked> {
    let from_mesh = &case["mesh"];
    let to_mesh = case.get("to_mesh").unwrap_or(from_mesh);
    // A mesh without axes and devices stands for any.
    let stands_for_any =
        |mesh: &Value| list(&mesh["axes"]).next().is_none() && mesh["device_ids"].is_null();
    let or = |mesh, other| if stands_for_any(mesh) { other } else { mesh };
    let (from_mesh, to_mesh) = (or(from_mesh, to_mesh), or(to_mesh, from_mesh));
    let end = |mesh: &Value, key: &str| {
        let parts = Parts::of(mesh, case);
        let specs = list(&case[key]).map(|axes| {
            let names = list(axes)
                .flat_map(|axis| parts.named(axis))
                .collect::<Vec<_>>();
            ShardingSpec::nested(names).map_err(told)
        });
        let layout =
            Layout::new(specs.collect::<Text<Vec<_>>>()?, &parts.mesh(mesh)?).map_err(told)?;
        let partial = case.get(format!("{key}_partial"));
        let partial = partial
            .into_iter()
            .flat_map(list)
            .flat_map(|axis| parts.named(axis));
        layout
            .with_partial(partial.collect::<Vec<_>>(), PartialReduction::Sum)
            .map_err(told)
    };
    Ok(Asked {
        from: end(from_mesh, "from")?,
        to: end(to_mesh, "to")?,
        shape: numbers(&case["shape"]),
        element_size: element_size(case)?,
    })
}

/// The axes of a mesh, cut wherever a layout of the case cuts one.
struct Parts(Vec<Part>);

struct Part {
    axis: String,
    /// The product of the parts that are more major.
    pre: usize,
    size: usize,
}

impl Parts {
    fn of(mesh: &Value, case: &Value) -> Self {
        let ends = ["from", "to", "from_partial", "to_partial"];
        let named = || {
            ends.iter()
                .filter_map(|key| case.get(key))
                .flat_map(flattened)
        };
        let parts = list(&mesh["axes"]).flat_map(|axis| {
            let (name, size) = (text(&axis[0]), number(&axis[1]));
            let cuts = named()
                .filter(|part| part["axis"] == *name)
                .flat_map(|part| {
                    [
                        number(&part["pre"]),
                        number(&part["pre"]) * number(&part["size"]),
                    ]
                });
            let mut bounds: Vec<usize> = cuts.chain([1, size]).collect();
            bounds.sort_unstable();
            bounds.dedup();
            let part = |pair: &[usize]| Part {
                axis: name.to_owned(),
                pre: pair[0],
                size: pair[1] / pair[0],
            };
            let parts: Vec<Part> = bounds.windows(2).map(part).collect();
            parts
        });
        Self(parts.collect())
    }

    /// The names of the parts that make up a whole axis, or a part of one.
    fn named(&self, axis: &Value) -> impl Iterator<Item = String> {
        let whole = axis.as_str();
        let name = whole.unwrap_or_else(|| text(&axis["axis"])).to_owned();
        let range = match whole {
            Some(_) => 1..usize::MAX,
            None => number(&axis["pre"])..number(&axis["pre"]) * number(&axis["size"]),
        };
        let within = move |part: &&Part| part.axis == name && range.contains(&part.pre);
        self.0.iter().filter(within).map(Part::name)
    }

    fn mesh(&self, recorded: &Value) -> Text<Mesh> {
        let dims = self.0.iter().map(|part| (part.name(), part.size));
        let mesh = Mesh::new(dims).map_err(told)?;
        let ids = match recorded["device_ids"].is_null() {
            true => (0..mesh.size()).collect(),
            false => numbers(&recorded["device_ids"]),
        };
        let device = |id| DeviceSpec::parse(&format!("/job:worker/task:0/device:GPU:{id}"));
        let devices = ids.into_iter().map(device).collect::<Result<Vec<_>, _>>();
        mesh.with_devices(devices.map_err(told)?).map_err(told)
    }
}

impl Part {
    fn name(&self) -> String {
        format!("{}.{}", self.axis, self.pre)
    }
}

/// The parts of axes in any nesting of lists.
fn flattened(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(values) => values.iter().flat_map(flattened).collect(),
        Value::Object(_) => vec![value],
        _ => Vec::new(),
    }
}

fn element_size(case: &Value) -> Text<usize> {
    let bits = case["dtype"].as_str().and_then(|name| {
        name.trim_start_matches(char::is_alphabetic)
            .parse::<usize>()
            .ok()
    });
    bits.map(|bits| bits / 8)
        .ok_or_else(|| format!("no size for the type {}", case["dtype"]))
}

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn numbers(value: &Value) -> Vec<usize> {
    list(value).map(number).collect()
}

pub(super) fn number(value: &Value) -> usize {
    value
        .as_u64()
        .and_then(|number| usize::try_from(number).ok())
        .expect("a recorded size")
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().expect("a recorded name")
}

pub(super) fn bytes(value: &Value) -> u64 {
    value.as_u64().expect("a recorded number of bytes")
}

pub(super) fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

const AXES: [&str; 3] = ["x", "y", "z"];
