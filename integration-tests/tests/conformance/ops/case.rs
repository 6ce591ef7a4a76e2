//! A recorded case, read.

use meshwork_core::Mesh;
use meshwork_layout::Layout;
use meshwork_layout::ops::TensorLayout;
use meshwork_layout::ops::naive::Tensor;
use serde_json::Value;

use crate::lists;

/// What TensorFlow was asked.
pub(super) struct Case {
    pub(super) op: String,
    pub(super) params: Value,
    pub(super) operands: Vec<TensorLayout>,
    /// The elements of the operands.
    pub(super) tensors: Vec<Tensor>,
    mesh: Mesh,
}

impl Case {
    pub(super) fn read(input: &Value) -> Self {
        let dims = input["mesh"].as_array().expect("mesh dimensions");
        let dims = dims.iter().map(|dim| (text(&dim[0]), size(&dim[1])));
        Self::on(input, Mesh::new(dims).expect("a mesh"))
    }

    /// The same on a mesh of the same dimensions.
    pub(super) fn on(input: &Value, mesh: Mesh) -> Self {
        let mut case = Self {
            op: text(&input["op"]).to_owned(),
            params: input["params"].clone(),
            operands: Vec::new(),
            tensors: Vec::new(),
            mesh,
        };
        for operand in input["operands"].as_array().expect("a list of operands") {
            let shape = sizes(&operand["shape"]);
            let layout = case.layout(&operand["layout"]);
            case.tensors
                .push(Tensor::new(shape.clone(), elements(operand)));
            case.operands
                .push(TensorLayout::new(shape, layout).expect("a placement"));
        }
        case
    }

    /// A recorded layout on the mesh of the case.
    pub(super) fn layout(&self, names: &Value) -> Layout {
        let names = names.as_array().expect("a list of names").iter().map(text);
        Layout::from_names(names, &self.mesh).expect("a layout")
    }
}

/// The elements of an operand, without end: counted, and left as they are or taken modulo a number;
/// of truth values, whether they differ from 0.
fn elements(operand: &Value) -> impl Iterator<Item = f64> + use<> {
    let number = |name: &str, default: i64| operand[name].as_i64().unwrap_or(default);
    let is_truth = operand["dtype"] == "bool";
    let (mul, add, wrap) = match text(&operand["gen"]) {
        "arange" => (number("mul", 1), number("add", 0), None),
        _ => (
            number("mul", 7),
            number("add", 3),
            Some((number("mod", 11), number("sub", 0))),
        ),
    };
    (0_i64..).map(move |i| {
        let counted = i * mul + add;
        let value = wrap.map_or(counted, |(wrap, sub)| counted.rem_euclid(wrap) - sub);
        let value = if is_truth {
            i64::from(value != 0)
        } else {
            value
        };
        f64::from(i32::try_from(value).expect("a small element"))
    })
}

/// A tensor written as nested lists.
pub(super) fn tensor(value: &Value) -> Tensor {
    let numbers = lists::numbers(value).expect("numbers");
    Tensor::new(lists::shape(value), numbers)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

pub(super) fn size(value: &Value) -> usize {
    let size = value.as_u64().expect("a size");
    usize::try_from(size).expect("a size that fits")
}

pub(super) fn sizes(value: &Value) -> Vec<usize> {
    value.as_array().expect("a list").iter().map(size).collect()
}

/// An axis, which may be counted from the end.
pub(super) fn axis(value: &Value) -> isize {
    let axis = value.as_i64().expect("an axis");
    isize::try_from(axis).expect("an axis that fits")
}

pub(super) fn axes(value: &Value) -> Vec<isize> {
    value.as_array().expect("a list").iter().map(axis).collect()
}
