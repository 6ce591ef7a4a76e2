//! What a graph does, element by element, with all elements as `f64`: the oracle of lowering.

use std::collections::BTreeMap;
use std::ops::Range;

use meshwork_accel::{
    ElementType, Graph, GraphOp, Loop, Pairwise, PerDevice, Pointwise, ReduceOp, StridedSlice,
    TableRows,
};

use crate::Scalar;

mod windows;

/// The values of one device or of all, by device.
type Values = Vec<Vec<f64>>;

/// The outputs on each device, for inputs on each.
pub(super) fn outputs(graph: &Graph, inputs: Vec<Values>) -> Vec<Values> {
    let mut values = inputs;
    let mut loops = BTreeMap::new();
    for node in graph.nodes() {
        let operands: Vec<&Values> = node.operands().iter().map(|own| &values[*own]).collect();
        values.push(match node.op() {
            GraphOp::Loop(own) => {
                let results = looped(own, &operands);
                let first = results[0].clone();
                loops.insert(values.len(), results);
                first
            }
            GraphOp::LoopResult(own) => loops[&node.operands()[0]][own.place].clone(),
            op => made(op, &operands, graph.devices()),
        });
    }
    let outputs = graph.outputs().iter();
    outputs.map(|value| values[*value].clone()).collect()
}

/// The results of a loop.
fn looped(of: &Loop, operands: &[&Values]) -> Vec<Values> {
    let (carried, count) = (of.carried_count(), of.count());
    let mut results: Vec<Values> = operands[..carried].iter().map(|&own| own.clone()).collect();
    let mut stacks: Vec<Vec<Values>> = Vec::new();
    for turn in 0..count {
        let at = if of.is_reversed() {
            count - 1 - turn
        } else {
            turn
        };
        let rest = operands.iter().enumerate().skip(carried);
        let rest = rest.map(|(place, own)| match place < carried + of.stacked_count() {
            true => own.iter().map(|own| part(own, at, count)).collect(),
            false => (*own).clone(),
        });
        let mut made = outputs(of.body(), results.into_iter().chain(rest).collect());
        stacks.push(made.split_off(carried));
        results = made;
    }
    if of.is_reversed() {
        stacks.reverse();
    }
    let slices = stacks[0].len();
    results.extend((0..slices).map(|slice| {
        let devices = 0..of.body().devices();
        let own = |device: usize| {
            stacks
                .iter()
                .flat_map(move |made| made[slice][device].clone())
        };
        devices.map(|device| own(device).collect()).collect()
    }));
    results
}

fn part(of: &[f64], at: usize, count: usize) -> Vec<f64> {
    let len = of.len() / count;
    of[at * len..][..len].to_vec()
}

fn made(op: &GraphOp, of: &[&Values], devices: usize) -> Values {
    let groups = match op {
        GraphOp::AllReduce(_, groups)
        | GraphOp::AllGather(groups)
        | GraphOp::ReduceScatter(_, groups)
        | GraphOp::AllToAll(groups) => groups,
        GraphOp::Permute(pairs) => {
            let mut moved = vec![Vec::new(); devices];
            for (from, to) in pairs {
                moved[*to] = of[0][*from].clone();
            }
            return moved;
        }
        _ => return (0..devices).map(|device| alone(op, of, device)).collect(),
    };
    let mut made = vec![Vec::new(); devices];
    for group in groups {
        let own: Vec<&Vec<f64>> = group.iter().map(|device| &of[0][*device]).collect();
        let part = own[0].len() / group.len();
        for (number, device) in group.iter().enumerate() {
            let place = number * part..(number + 1) * part;
            made[*device] = match op {
                GraphOp::AllReduce(op, _) => folded(*op, &own),
                GraphOp::ReduceScatter(op, _) => folded(*op, &own)[place].to_vec(),
                GraphOp::AllGather(_) => own.concat_all(),
                _ => own
                    .iter()
                    .flat_map(|other| other[place.clone()].to_vec())
                    .collect(),
            };
        }
    }
    made
}

trait ConcatAll {
    fn concat_all(&self) -> Vec<f64>;
}

impl ConcatAll for Vec<&Vec<f64>> {
    fn concat_all(&self) -> Vec<f64> {
        self.iter().flat_map(|own| own.iter().copied()).collect()
    }
}

fn folded(op: ReduceOp, all: &[&Vec<f64>]) -> Vec<f64> {
    (0..all[0].len())
        .map(|at| all.iter().map(|own| own[at]).reduce(by(op)).unwrap())
        .collect()
}

fn by(op: ReduceOp) -> fn(f64, f64) -> f64 {
    match op {
        ReduceOp::Sum => |a, b| a + b,
        ReduceOp::Product => |a, b| a * b,
        ReduceOp::Min => f64::min,
        ReduceOp::Max => f64::max,
        other => panic!("no test has {other}"),
    }
}

fn own<T: Eq>(of: &PerDevice<T>, device: usize) -> &T {
    of.same().unwrap_or_else(|| &of.values()[device])
}

fn alone(op: &GraphOp, of: &[&Values], device: usize) -> Vec<f64> {
    let operand = |number: usize| &of[number][device];
    let zip = |function: &dyn Fn(f64, f64) -> f64| {
        let both = operand(0).iter().zip(operand(1));
        both.map(|(a, b)| function(*a, *b)).collect()
    };
    match op {
        GraphOp::Constant(element, bytes) => constant(*element, own::<Vec<u8>>(bytes, device)),
        GraphOp::Pointwise(op) => operand(0).iter().map(|x| pointwise(*op, *x)).collect(),
        GraphOp::Pairwise(op) => zip(&|a, b| match op {
            Pairwise::Add => a + b,
            Pairwise::Subtract => a - b,
            Pairwise::Multiply => a * b,
            Pairwise::Divide => a / b,
        }),
        GraphOp::Reduce(op) => zip(&by(*op)),
        GraphOp::Product(shape) => {
            let sizes = [shape.depth(), shape.rows(), shape.inner(), shape.columns()];
            product(sizes, operand(0), operand(1))
        }
        GraphOp::Convert(ElementType::Bool) => {
            operand(0).iter().map(|x| f64::from(*x != 0.0)).collect()
        }
        GraphOp::Convert(to) if !to.is_float() => operand(0).iter().map(|x| x.trunc()).collect(),
        GraphOp::Convert(_) => operand(0).clone(),
        GraphOp::Select => (0..operand(0).len())
            .map(|at| operand(if operand(0)[at] == 0.0 { 2 } else { 1 })[at])
            .collect(),
        GraphOp::Fold(op, [outer, len, inner]) => (0..outer * inner)
            .map(|at| {
                let along =
                    (0..*len).map(|k| operand(0)[(at / inner * len + k) * inner + at % inner]);
                along.reduce(by(*op)).unwrap()
            })
            .collect(),
        GraphOp::Scan(op, [_, len, inner]) => {
            let mut sums = operand(0).clone();
            for at in 0..sums.len() {
                if at / inner % len > 0 {
                    sums[at] = by(*op)(sums[at - inner], sums[at]);
                }
            }
            sums
        }
        GraphOp::ArgReduce(op, [outer, len, inner]) => (0..outer * inner)
            .map(|at| {
                let along =
                    (0..*len).map(|k| operand(0)[(at / inner * len + k) * inner + at % inner]);
                let along: Vec<f64> = along.collect();
                let extreme = along.iter().copied().reduce(by(*op));
                along.iter().position(|own| Some(*own) == extreme).unwrap() as f64
            })
            .collect(),
        other => {
            let own: Vec<&Vec<f64>> = of.iter().map(|values| &values[device]).collect();
            windows::made(other, &own).unwrap_or_else(|| moved(other, of, device))
        }
    }
}

/// Ops that move elements.
fn moved(op: &GraphOp, of: &[&Values], device: usize) -> Vec<f64> {
    let operand = |number: usize| &of[number][device];
    match op {
        GraphOp::Cut(part) => {
            let part = own(part, device);
            let places = places(part.whole(), part.part());
            places.map(|place| operand(0)[place]).collect()
        }
        GraphOp::Paste(part) => {
            let part = own(part, device);
            let mut whole = operand(0).clone();
            for (place, by) in places(part.whole(), part.part()).zip(operand(1)) {
                whole[place] = *by;
            }
            whole
        }
        GraphOp::Arrange(to) => indices(to.to())
            .map(|index| {
                let along = to.from().iter().zip(to.places());
                let at = along.fold(0, |at, (size, place)| {
                    at * size + if *size == 1 { 0 } else { index[*place] }
                });
                operand(0)[at]
            })
            .collect(),
        GraphOp::Step(by) => stepped(by, operand(0)),
        GraphOp::Take([outer, len, inner]) => (0..*outer)
            .flat_map(|row| operand(1).iter().map(move |index| (row, at(*index))))
            .flat_map(|(row, index)| (0..*inner).map(move |at| (row * len + index) * inner + at))
            .map(|at| operand(0)[at])
            .collect(),
        GraphOp::OneHot(classes, _) => operand(0)
            .iter()
            .flat_map(|index| {
                let classes = own(classes, device).clone();
                classes.map(move |class| f64::from(class as f64 == *index))
            })
            .collect(),
        other => by_rows(other, of, device),
    }
}

/// Ops of tables of which each device has some rows.
fn by_rows(op: &GraphOp, of: &[&Values], device: usize) -> Vec<f64> {
    let operand = |number: usize| &of[number][device];
    match op {
        GraphOp::AddRows(TableRows {
            first,
            count,
            width,
        }) => {
            let mut sums = vec![0.0; count * width];
            for (index, by) in operand(0).iter().zip(operand(1).chunks(*width)) {
                let row = at(*index).wrapping_sub(*own(first, device));
                if row < *count {
                    let sums = &mut sums[row * width..][..*width];
                    sums.iter_mut().zip(by).for_each(|(sum, by)| *sum += by);
                }
            }
            sums
        }
        GraphOp::TakeRows(TableRows {
            first,
            count,
            width,
        }) => {
            let row = |index: &f64| {
                let row = at(*index).wrapping_sub(*own(first, device));
                let here = (row < *count).then(|| &operand(0)[row * width..][..*width]);
                here.map_or_else(|| vec![0.0; *width], <[f64]>::to_vec)
            };
            operand(1).iter().flat_map(row).collect()
        }
        other => panic!("no oracle for {other:?}"),
    }
}

fn at(index: f64) -> usize {
    index.to_index().unwrap()
}

fn constant(element: ElementType, bytes: &[u8]) -> Vec<f64> {
    match element {
        ElementType::F64 => bytes
            .chunks_exact(8)
            .map(|own| f64::from_ne_bytes(own.try_into().unwrap()))
            .collect(),
        ElementType::I64 => bytes
            .chunks_exact(8)
            .map(|own| i64::from_ne_bytes(own.try_into().unwrap()) as f64)
            .collect(),
        ElementType::F32 => bytes
            .chunks_exact(4)
            .map(|own| f64::from(f32::from_ne_bytes(own.try_into().unwrap())))
            .collect(),
        ElementType::Bool => bytes.iter().map(|own| f64::from(*own)).collect(),
        other => panic!("no test has {other}"),
    }
}

fn pointwise(op: Pointwise, x: f64) -> f64 {
    match op {
        Pointwise::Negate => -x,
        Pointwise::Relu => x.max(0.0),
        Pointwise::Exp => x.exp(),
        Pointwise::Ln => x.ln(),
    }
}

fn product([depth, rows, inner, columns]: [usize; 4], left: &[f64], right: &[f64]) -> Vec<f64> {
    let element = |at: usize| {
        let (matrix, row, column) = (at / columns / rows, at / columns % rows, at % columns);
        let term = |k: usize| {
            left[(matrix * rows + row) * inner + k] * right[(matrix * inner + k) * columns + column]
        };
        (0..inner).map(term).sum()
    };
    (0..depth * rows * columns).map(element).collect()
}

fn stepped(by: &StridedSlice, from: &[f64]) -> Vec<f64> {
    let counts: Vec<usize> = by.along().iter().map(|along| along.count).collect();
    let chosen = indices(&counts).map(|index| {
        let along = by.along().iter().zip(by.whole()).zip(index);
        let at = along.fold(0, |at, ((along, size), number)| {
            at * size
                + along
                    .first
                    .wrapping_add_signed(along.step.get() * number as isize)
        });
        from[at]
    });
    chosen.collect()
}

/// All indices of these sizes, in order.
fn indices(sizes: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let sizes = sizes.to_vec();
    (0..sizes.iter().product()).map(move |mut at: usize| {
        let mut index: Vec<usize> = sizes
            .iter()
            .rev()
            .map(|size| {
                let own = at % size;
                at /= size;
                own
            })
            .collect();
        index.reverse();
        index
    })
}

/// The places of a box in its whole.
fn places(whole: &[usize], part: &[Range<usize>]) -> impl Iterator<Item = usize> + use<> {
    let (whole, part) = (whole.to_vec(), part.to_vec());
    let sizes: Vec<usize> = part.iter().map(Range::len).collect();
    indices(&sizes).map(move |index| {
        let along = whole.iter().zip(&part).zip(index);
        along.fold(0, |at, ((size, range), own)| at * size + range.start + own)
    })
}
