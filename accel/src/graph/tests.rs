//! What each op makes of its operands, and what is refused.

use std::num::{NonZeroIsize, NonZeroUsize};

use super::*;
use crate::{
    Arrangement, ConvolutionShape, ImageWindows, Pairwise, Pointwise, ProductShape, ReduceOp,
    Region, StridedRange, StridedSlice, WindowRange,
};

const F: ElementType = ElementType::F32;
const INDEX: ElementType = ElementType::I64;
/// How many devices the graphs of these tests have.
const DEVICES: usize = 4;

const fn vector(element: ElementType, len: usize) -> Vector {
    Vector { element, len }
}

/// An op, with operands that it has, and what it makes of them.
struct Case {
    op: GraphOp,
    of: Vec<Vector>,
    made: Vector,
}

fn case(op: GraphOp, of: &[Vector], made: Vector) -> Case {
    let of = of.to_vec();
    Case { op, of, made }
}

/// Windows of three of seven indices, with a padding of one, two apart: four of them.
fn windows(channels: usize) -> ImageWindows {
    let [one, two, three] = [1, 2, 3].map(|number| NonZeroUsize::new(number).unwrap());
    let along = WindowRange {
        size: 7,
        window: three,
        stride: two,
        dilation: one,
        padding: [1, 1],
    };
    ImageWindows::new(2, &[along], channels).unwrap()
}

fn rows(first: PerDevice<usize>) -> TableRows {
    let (count, width) = (3, 5);
    TableRows {
        first,
        count,
        width,
    }
}

fn pairs() -> Groups {
    vec![vec![0, 2], vec![3, 1]]
}

fn part(start: usize) -> Region {
    Region::new(&[6, 2], &[start..start + 2, 0..2]).unwrap()
}

/// Each op once.
fn cases() -> Vec<Case> {
    let all = [
        of_elements(),
        of_places(),
        of_rows_and_windows(),
        of_devices(),
    ];
    all.into_iter().flatten().collect()
}

/// Ops of elements.
fn of_elements() -> Vec<Case> {
    let [six, twelve] = [vector(F, 6), vector(F, 12)];
    let product = ProductShape::stacked(2, [3, 1, 2]).unwrap();
    vec![
        case(GraphOp::Constant(F, PerDevice::all(vec![0; 24])), &[], six),
        case(GraphOp::Pointwise(Pointwise::Exp), &[six], six),
        case(GraphOp::Pairwise(Pairwise::Add), &[six, six], six),
        case(GraphOp::Reduce(ReduceOp::Max), &[six, six], six),
        case(GraphOp::Product(product), &[six, vector(F, 4)], twelve),
        case(GraphOp::Convert(INDEX), &[six], vector(INDEX, 6)),
        case(GraphOp::Select, &[vector(INDEX, 6), six, six], six),
    ]
}

/// Ops that move elements, and of those along an axis.
fn of_places() -> Vec<Case> {
    let [six, twelve] = [vector(F, 6), vector(F, 12)];
    let along = StridedRange {
        first: 5,
        step: NonZeroIsize::new(-2).unwrap(),
        count: 3,
    };
    let every = StridedSlice::new(&[6], &[along]).unwrap();
    let wide = Arrangement::new(&[3, 2], &[2, 0], &[2, 4, 3]).unwrap();
    let cut = PerDevice::each(vec![part(0), part(1), part(4), part(2)]).unwrap();
    vec![
        case(GraphOp::Cut(cut.clone()), &[twelve], vector(F, 4)),
        case(GraphOp::Paste(cut), &[twelve, vector(F, 4)], twelve),
        case(GraphOp::Arrange(wide), &[six], vector(F, 24)),
        case(
            GraphOp::Fold(ReduceOp::Sum, [2, 3, 2]),
            &[twelve],
            vector(F, 4),
        ),
        case(GraphOp::Scan(ReduceOp::Sum, [2, 3, 2]), &[twelve], twelve),
        case(
            GraphOp::ArgReduce(ReduceOp::Min, [2, 3, 2]),
            &[twelve],
            vector(INDEX, 4),
        ),
        case(GraphOp::Step(every), &[six], vector(F, 3)),
        case(
            GraphOp::Take([2, 3, 2]),
            &[twelve, vector(INDEX, 5)],
            vector(F, 20),
        ),
    ]
}

/// Ops of tables and of images.
fn of_rows_and_windows() -> Vec<Case> {
    let six = vector(F, 6);
    let shape = ConvolutionShape::new(windows(4), 6, 2).unwrap();
    let [images, filter, sums] = [2 * 7 * 4, 3 * 2 * 6, 2 * 4 * 6].map(|len| vector(F, len));
    let pooled = vector(F, 2 * 4 * 4);
    let own = PerDevice::each(vec![0, 3, 6, 9]).unwrap();
    vec![
        case(
            GraphOp::TakeRows(rows(own.clone())),
            &[vector(F, 15), vector(INDEX, 4)],
            vector(F, 20),
        ),
        case(
            GraphOp::OneHot(PerDevice::all(2..5), F),
            &[vector(INDEX, 2)],
            six,
        ),
        case(
            GraphOp::AddRows(rows(own)),
            &[vector(INDEX, 4), vector(F, 20)],
            vector(F, 15),
        ),
        case(GraphOp::Convolution(shape.clone()), &[images, filter], sums),
        case(
            GraphOp::ConvolutionInputGradient(shape.clone()),
            &[sums, filter],
            images,
        ),
        case(
            GraphOp::ConvolutionFilterGradient(shape),
            &[images, sums],
            filter,
        ),
        case(GraphOp::Pool(ReduceOp::Max, windows(4)), &[images], pooled),
        case(
            GraphOp::PoolGradient(ReduceOp::Mean, windows(4)),
            &[images, pooled],
            images,
        ),
    ]
}

/// Ops of several devices.
fn of_devices() -> Vec<Case> {
    let [six, twelve] = [vector(F, 6), vector(F, 12)];
    vec![
        case(GraphOp::AllReduce(ReduceOp::Sum, pairs()), &[six], six),
        case(GraphOp::AllGather(pairs()), &[six], twelve),
        case(
            GraphOp::ReduceScatter(ReduceOp::Sum, pairs()),
            &[six],
            vector(F, 3),
        ),
        case(GraphOp::AllToAll(pairs()), &[six], six),
        case(
            GraphOp::Permute(vec![(0, 1), (1, 2), (2, 0), (3, 3)]),
            &[six],
            six,
        ),
        case(looped(), &[six, vector(F, 12)], six),
    ]
}

/// Three turns, each of which is given a slice.
fn looped() -> GraphOp {
    let mut body = Graph::new(DEVICES, vec![vector(F, 6), vector(F, 4)]);
    body.output(0).unwrap();
    let own = Loop::new(body, 3).unwrap().carried(1).unwrap();
    GraphOp::Loop(Box::new(own.stacked(1).unwrap()))
}

/// The place of an op's name among all of them: a new one does not compile before it is here.
const fn number(op: &GraphOp) -> usize {
    match op {
        GraphOp::Constant(..) => 0,
        GraphOp::Pointwise(_) => 1,
        GraphOp::Pairwise(_) => 2,
        GraphOp::Reduce(_) => 3,
        GraphOp::Product(_) => 4,
        GraphOp::Convert(_) => 5,
        GraphOp::Select => 6,
        GraphOp::Cut(_) => 7,
        GraphOp::Paste(_) => 8,
        GraphOp::Arrange(_) => 9,
        GraphOp::Fold(..) => 10,
        GraphOp::Scan(..) => 11,
        GraphOp::ArgReduce(..) => 12,
        GraphOp::Step(_) => 13,
        GraphOp::Take(_) => 14,
        GraphOp::TakeRows(_) => 15,
        GraphOp::OneHot(..) => 16,
        GraphOp::AddRows(_) => 17,
        GraphOp::Convolution(_) => 18,
        GraphOp::ConvolutionInputGradient(_) => 19,
        GraphOp::ConvolutionFilterGradient(_) => 20,
        GraphOp::Pool(..) => 21,
        GraphOp::PoolGradient(..) => 22,
        GraphOp::AllReduce(..) => 23,
        GraphOp::AllGather(_) => 24,
        GraphOp::ReduceScatter(..) => 25,
        GraphOp::AllToAll(_) => 26,
        GraphOp::Permute(_) => 27,
        GraphOp::Loop(_) => 28,
        // There is none by itself.
        GraphOp::LoopResult(_) => 29,
    }
}

/// What an op makes of operands, as the only node of a graph.
fn made(devices: usize, op: &GraphOp, of: &[Vector]) -> Result<Vector, Error> {
    let mut graph = Graph::new(devices, of.to_vec());
    let operands: Vec<usize> = (0..of.len()).collect();
    let made = graph.add(op.clone(), &operands, "")?;
    Ok(graph.vector(made))
}

#[test]
fn each_op_makes_what_its_sizes_say() {
    let mut seen: Vec<usize> = Vec::new();
    for Case {
        op,
        of,
        made: expected,
    } in cases()
    {
        assert_eq!(made(DEVICES, &op, &of), Ok(expected), "{op:?}");
        seen.push(number(&op));
    }
    assert_eq!(seen, (0..29).collect::<Vec<_>>(), "each op has its case");
}

#[test]
fn other_numbers_of_operands_are_refused() {
    for Case { op, of, .. } in cases() {
        let expected = of.len();
        let more = [&of[..], &[vector(F, 6)]].concat();
        let fewer = of.split_last().map(|(_, fewer)| fewer.to_vec());
        for of in [Some(more), fewer].into_iter().flatten() {
            let (inputs, outputs) = (of.len(), expected);
            let refused = Err(Error::CountMismatch { inputs, outputs });
            assert_eq!(made(DEVICES, &op, &of), refused, "{op:?}");
        }
    }
}

/// Whether an op takes elements of any number at this place.
fn is_of_any_len(op: &GraphOp, operand: usize) -> bool {
    match op {
        GraphOp::Pointwise(_) | GraphOp::Convert(_) | GraphOp::OneHot(..) => true,
        GraphOp::AllReduce(..) | GraphOp::AllGather(_) | GraphOp::Permute(_) => true,
        GraphOp::Take(_) | GraphOp::TakeRows(_) => operand == 1,
        _ => false,
    }
}

#[test]
fn operands_of_another_length_are_refused_by_both_lengths() {
    for Case { op, of, .. } in cases() {
        for operand in 0..of.len() {
            let mut longer = of.clone();
            longer[operand].len += 1;
            let found = made(DEVICES, &op, &longer);
            if is_of_any_len(&op, operand) {
                assert!(found.is_ok(), "{op:?} {found:?}");
                continue;
            }
            let Err(Error::LengthMismatch { left, right }) = found else {
                panic!("{op:?} of {longer:?} makes {found:?}");
            };
            assert_ne!(left, right);
        }
    }
}

#[test]
fn operands_whose_elements_meet_are_of_one_type() {
    for Case { op, of, .. } in cases() {
        // Indices and conditions may be of any type.
        let first = match op {
            GraphOp::Select => 1,
            GraphOp::Take(_) | GraphOp::TakeRows(_) | GraphOp::AddRows(_) => continue,
            _ => 0,
        };
        for operand in first + 1..of.len() {
            let mut mixed = of.clone();
            mixed[operand].element = ElementType::F64;
            let (buffer, other) = (F, ElementType::F64);
            let refused = Err(Error::ElementMismatch { buffer, other });
            assert_eq!(made(DEVICES, &op, &mixed), refused, "{op:?}");
        }
    }
}

#[test]
fn what_is_for_each_device_is_for_as_many_as_the_graph_has() {
    let own = PerDevice::each(vec![0, 3, 6, 9]).unwrap();
    let of = [vector(F, 15), vector(INDEX, 4)];
    let (inputs, outputs) = (4, 3);
    let refused = Err(Error::CountMismatch { inputs, outputs });
    assert_eq!(made(3, &GraphOp::TakeRows(rows(own)), &of), refused);
    let alike = PerDevice::each(vec![3; 4]).unwrap();
    assert_eq!(
        alike.same(),
        Some(&3),
        "what does not differ is for any number"
    );
    assert!(made(3, &GraphOp::TakeRows(rows(alike)), &of).is_ok());
    assert!(PerDevice::<usize>::each(Vec::new()).is_none());
    let unlike = PerDevice::each(vec![part(0), Region::new(&[6, 2], &[0..3, 0..2]).unwrap()]);
    let unlike = GraphOp::Cut(unlike.unwrap());
    let (left, right) = (6, 4);
    let refused = Err(Error::LengthMismatch { left, right });
    assert_eq!(made(2, &unlike, &[vector(F, 12)]), refused);
}

#[test]
fn a_collective_has_each_device_once() {
    let six = [vector(F, 6)];
    let refused = |groups: Groups| made(4, &GraphOp::AllGather(groups), &six).unwrap_err();
    let (device, available) = (DeviceId::new(4), 4);
    let unknown = Error::UnknownDevice { device, available };
    assert_eq!(refused(vec![vec![0, 1], vec![2, 4]]), unknown);
    let device = DeviceId::new(1);
    let repeated = Error::DeviceRepeated { device };
    assert_eq!(refused(vec![vec![0, 1], vec![1, 2]]), repeated);
    let (inputs, outputs) = (2, 4);
    let missing = Error::CountMismatch { inputs, outputs };
    assert_eq!(refused(vec![vec![3, 1]]), missing);
    let (left, right) = (1, 3);
    let uneven = Error::LengthMismatch { left, right };
    assert_eq!(refused(vec![vec![0, 1, 2], vec![3]]), uneven);
    let both = GraphOp::Permute(vec![(0, 1), (1, 1), (2, 0), (3, 3)]);
    assert_eq!(made(4, &both, &six), Err(repeated));
    let nobody = made(0, &GraphOp::AllGather(Vec::new()), &six).unwrap_err();
    assert!(matches!(nobody, Error::Unsupported { .. }), "{nobody}");
}

#[test]
fn windows_and_indices_are_chosen_by_two_ops_each() {
    let images = [vector(F, 2 * 7 * 4)];
    for by in ReduceOp::ALL {
        let pool = made(1, &GraphOp::Pool(by, windows(4)), &images);
        assert_eq!(
            pool.is_ok(),
            matches!(by, ReduceOp::Max | ReduceOp::Mean),
            "{by}"
        );
        let index = made(1, &GraphOp::ArgReduce(by, [2, 7, 4]), &images);
        assert_eq!(
            index.is_ok(),
            matches!(by, ReduceOp::Min | ReduceOp::Max),
            "{by}"
        );
    }
}

#[test]
fn largest_elements_have_a_gradient_where_windows_have_no_gaps() {
    let [one, two] = [1, 2].map(|number| NonZeroUsize::new(number).unwrap());
    for (window, has_gradient) in [(one, true), (two, false)] {
        let along = WindowRange {
            size: 4,
            window,
            stride: one,
            dilation: two,
            padding: [0, 0],
        };
        let over = ImageWindows::new(1, &[along], 1).unwrap();
        let of = [over.images(), over.windows()].map(|sizes| vector(F, sizes[1]));
        for by in [ReduceOp::Max, ReduceOp::Mean] {
            let gradient = made(1, &GraphOp::PoolGradient(by, over.clone()), &of);
            let expected = has_gradient || by == ReduceOp::Mean;
            assert_eq!(gradient.is_ok(), expected, "{by} {window}: {gradient:?}");
        }
    }
}

#[test]
fn values_that_are_not_there_or_have_no_elements_are_refused() {
    let exp = || GraphOp::Pointwise(Pointwise::Exp);
    let mut graph = Graph::new(1, vec![vector(F, 2), vector(F, 0)]);
    for operand in [1, 2] {
        let refused = graph.add(exp(), &[operand], "").unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    }
    assert_eq!((graph.nodes().len(), graph.inputs().len()), (0, 2));
    assert_eq!(graph.add(exp(), &[0], "exp"), Ok(2));
    assert_eq!(graph.nodes()[0].origin(), "exp");
    assert!(graph.output(3).is_err() && graph.output(2).is_ok());
    assert_eq!(graph.outputs(), [2]);
    let most = usize::MAX;
    let too_many = made(
        1,
        &GraphOp::Fold(ReduceOp::Sum, [most, 0, 2]),
        &[vector(F, 0)],
    );
    assert!(
        matches!(too_many, Err(Error::ShapeTooLarge { .. })),
        "{too_many:?}"
    );
}

#[test]
fn memory_is_inherited_once_and_by_what_is_alike() {
    let mut graph = Graph::new(1, vec![vector(F, 2), vector(F, 2), vector(F, 3)]);
    for _ in 0..2 {
        let sum = graph.add(GraphOp::Pairwise(Pairwise::Add), &[0, 1], "");
        graph.output(sum.unwrap()).unwrap();
    }
    assert!(!graph.inherit(2, 0), "of another length");
    assert!(!graph.inherit(0, 2) && !graph.inherit(3, 0), "not there");
    assert!(graph.inherit(1, 0));
    assert!(!graph.inherit(1, 1) && !graph.inherit(0, 0), "taken");
    assert!(graph.inherit(0, 1));
    assert_eq!(graph.heirs(), [(1, 0), (0, 1)]);
}

fn each<T: Eq>(values: Vec<T>) -> PerDevice<T> {
    PerDevice::each(values).unwrap()
}

#[test]
fn ops_that_differ_by_device_are_one_and_others_are_not() {
    let joined = |ops: [GraphOp; 2]| GraphOp::joined(&[&ops[0], &ops[1]]);
    let all = |first| rows(PerDevice::all(first));
    let hot = |classes| GraphOp::OneHot(PerDevice::all(classes), F);
    let constant = |byte| GraphOp::Constant(ElementType::U8, PerDevice::all(vec![byte]));
    let cut = |start| GraphOp::Cut(PerDevice::all(part(start)));
    for (ops, expected) in [
        ([cut(0), cut(2)], GraphOp::Cut(each(vec![part(0), part(2)]))),
        (
            [GraphOp::AddRows(all(0)), GraphOp::AddRows(all(3))],
            GraphOp::AddRows(rows(each(vec![0, 3]))),
        ),
        (
            [GraphOp::TakeRows(all(3)), GraphOp::TakeRows(all(3))],
            GraphOp::TakeRows(all(3)),
        ),
    ] {
        assert_eq!(joined(ops), Some(expected));
    }
    let expected = GraphOp::OneHot(each(vec![0..2, 2..4]), F);
    assert_eq!(joined([hot(0..2), hot(2..4)]), Some(expected));
    let expected = GraphOp::Constant(ElementType::U8, each(vec![vec![1], vec![2]]));
    assert_eq!(joined([constant(1), constant(2)]), Some(expected));
    let wider = TableRows { width: 6, ..all(0) };
    for unlike in [
        [hot(0..2), hot(2..5)],
        [cut(0), constant(1)],
        [GraphOp::AddRows(all(0)), GraphOp::AddRows(wider)],
        [GraphOp::AddRows(all(0)), GraphOp::TakeRows(all(0))],
        [GraphOp::Select, GraphOp::Convert(F)],
    ] {
        assert_eq!(joined(unlike), None);
    }
}
