//! The ops that TensorFlow's functions are made of.

use std::num::NonZeroIsize;

use meshwork_layout::ops::{Index, Labels, Op, OpError, Orientation, Parts, ReducedAxes, Reducer};
use serde_json::Value;

use super::case::{Case, axes, axis, size, sizes, text};

/// One op of a function.
pub(super) struct Call {
    pub(super) op: Op,
    /// What it does to elements, if it is element-wise.
    pub(super) function: fn(&[f64]) -> f64,
    /// What its gradient does to that by the result and to the elements.
    pub(super) derivative: fn(&[f64]) -> f64,
}

impl From<Op> for Call {
    fn from(op: Op) -> Self {
        Self::elementwise(op, |_| f64::NAN, |_| f64::NAN)
    }
}

impl Call {
    fn elementwise(op: Op, function: fn(&[f64]) -> f64, derivative: fn(&[f64]) -> f64) -> Self {
        Self {
            op,
            function,
            derivative,
        }
    }
}

/// The ops that a function applies one after the other; none for an unknown function.
pub(super) fn calls(case: &Case) -> Result<Option<Vec<Call>>, OpError> {
    let params = &case.params;
    let sum = || sum(case.operands[0].rank());
    let function: fn(&[f64]) -> f64 = match case.op.as_str() {
        "add" => |x| x[0] + x[1],
        "mul" => |x| x[0] * x[1],
        "neg" => |x| -x[0],
        "relu" => |x| x[0].max(0.0),
        "add_python_scalar" => |x| x[0] + 5.0,
        "cast_float" => |x| x[0],
        "zeros_like" => |_| 0.0,
        "einsum" => {
            let equation = text(&params["equation"]).parse()?;
            return Ok(Some(vec![Op::Einsum(equation).into()]));
        }
        "l2_loss" => {
            let half_square = elementwise(|x| x[0] * x[0] / 2.0);
            return Ok(Some(vec![half_square, sum().into()]));
        }
        "log_softmax" => {
            let softmax = Op::Softmax { axis: -1 };
            return Ok(Some(vec![softmax.into(), elementwise(|x| x[0].ln())]));
        }
        "grad_matmul_sum" => return Ok(Some(vec![matmul(params).into(), sum().into()])),
        "grad_relayout_square" => {
            let to = Box::new(case.layout(&params["to"]));
            let square = Call::elementwise(Op::Elementwise, |x| x[0] * x[0], |x| x[0] * 2.0 * x[1]);
            return Ok(Some(vec![Op::Relayout(to).into(), square, sum().into()]));
        }
        _ => return Ok(other(case).map(|op| vec![op.into()])),
    };
    Ok(Some(vec![elementwise(function)]))
}

fn elementwise(function: fn(&[f64]) -> f64) -> Call {
    Call::elementwise(Op::Elementwise, function, |_| f64::NAN)
}

fn sum(rank: usize) -> Op {
    let all = (0..rank).map(usize::cast_signed).collect();
    reduce(Reducer::Sum, all, &Value::Null)
}

fn other(case: &Case) -> Option<Op> {
    let params = &case.params;
    let axis = || axis(&params["axis"]);
    let op = match case.op.as_str() {
        "where" => Op::Select,
        "matmul" => matmul(params),
        name if name.starts_with("reduce_") => {
            reduce(reducer(name)?, axes(&params["axis"]), &params["keepdims"])
        }
        "argmax" => Op::ArgReduce { axis: axis() },
        "cumsum" => Op::Scan { axis: axis() },
        "softmax" => Op::Softmax { axis: -1 },
        "bias_add" => Op::BiasAdd,
        "softmax_xent" => Op::CrossEntropy(Labels::Dense),
        "sparse_softmax_xent" => Op::CrossEntropy(Labels::Sparse),
        "transpose" => Op::Transpose {
            perm: sizes(&params["perm"]),
        },
        "reshape" => Op::Reshape {
            shape: optional_sizes(&params["shape"]),
        },
        "expand_dims" => Op::ExpandDims { axis: axis() },
        "squeeze" => Op::Squeeze {
            axes: axes(&params["axis"]),
        },
        "tile" => Op::Tile {
            multiples: sizes(&params["multiples"]),
        },
        "pad" => Op::Pad {
            paddings: pairs(&params["paddings"]),
        },
        "broadcast_to" => Op::BroadcastTo {
            shape: sizes(&params["shape"]),
        },
        "shape" => Op::ShapeOf,
        "one_hot" => Op::OneHot {
            depth: size(&params["depth"]),
        },
        "concat" => Op::Concat { axis: axis() },
        "stack" => Op::Stack { axis: axis() },
        "unstack" => Op::Unstack { axis: axis() },
        "split" => Op::Split {
            axis: axis(),
            parts: Parts::Equal(size(&params["num"])),
        },
        "split_v" => Op::Split {
            axis: axis(),
            parts: Parts::Sizes(sizes(&params["sizes"])),
        },
        "slice" => Op::Slice {
            begin: sizes(&params["begin"]),
            size: optional_sizes(&params["size"]),
        },
        "strided_slice" => Op::StridedSlice(brackets(text(&params["slice"]))),
        "gather" => Op::Gather { axis: axis() },
        _ => return None,
    };
    Some(op)
}

fn matmul(params: &Value) -> Op {
    Op::MatMul {
        lhs: orientation(&params["transpose_a"]),
        rhs: orientation(&params["transpose_b"]),
    }
}

fn orientation(transposed: &Value) -> Orientation {
    if *transposed == true {
        Orientation::Transposed
    } else {
        Orientation::Plain
    }
}

fn reducer(name: &str) -> Option<Reducer> {
    let reducer = match name {
        "reduce_sum" => Reducer::Sum,
        "reduce_mean" => Reducer::Mean,
        "reduce_prod" => Reducer::Product,
        "reduce_min" => Reducer::Min,
        "reduce_max" => Reducer::Max,
        "reduce_any" => Reducer::Any,
        "reduce_all" => Reducer::All,
        _ => return None,
    };
    Some(reducer)
}

fn reduce(reducer: Reducer, axes: Vec<isize>, keepdims: &Value) -> Op {
    let reduced = if *keepdims == true {
        ReducedAxes::Kept
    } else {
        ReducedAxes::Removed
    };
    Op::Reduce {
        reducer,
        axes,
        reduced,
    }
}

/// Sizes of which −1 is to be found.
fn optional_sizes(value: &Value) -> Vec<Option<usize>> {
    let known = |value: &Value| (*value != -1).then(|| size(value));
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(known)
        .collect()
}

fn pairs(value: &Value) -> Vec<(usize, usize)> {
    let pair = |value: &Value| (size(&value[0]), size(&value[1]));
    value.as_array().expect("a list").iter().map(pair).collect()
}

/// What stands between Python's brackets.
fn brackets(text: &str) -> Vec<Index> {
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    inner.split(',').map(|part| index(part.trim())).collect()
}

fn index(text: &str) -> Index {
    let number = |text: &str| -> Option<isize> {
        let text = text.trim();
        (!text.is_empty()).then(|| text.parse().expect("a number"))
    };
    match text {
        "..." => return Index::Ellipsis,
        "tf.newaxis" | "None" => return Index::NewAxis,
        _ => {}
    }
    let parts: Vec<Option<isize>> = text.split(':').map(number).collect();
    let (begin, end, step) = match parts[..] {
        [at] => return Index::At(at.expect("a number")),
        [begin, end] => (begin, end, None),
        [begin, end, step] => (begin, end, step),
        _ => panic!("{text:?} is no index"),
    };
    Index::Range {
        begin,
        end,
        step: NonZeroIsize::new(step.unwrap_or(1)).expect("a step"),
    }
}
