//! Loops: what they take and make, and what is refused.

use super::*;
use crate::{ElementType, GraphOp, Pairwise};

const fn row(len: usize) -> Vector {
    let element = ElementType::F32;
    Vector { element, len }
}

/// One vector of two is carried, one of three is a slice, and one of two comes out each turn.
fn body() -> Graph {
    let mut body = Graph::new(1, vec![row(2), row(3)]);
    let twice = GraphOp::Pairwise(Pairwise::Add);
    let twice = body.add(twice, &[0, 0], "twice").unwrap();
    body.output(twice).unwrap();
    body.output(0).unwrap();
    body
}

#[test]
fn a_loop_takes_and_makes_stacks_of_as_many_slices_as_it_has_turns() {
    let turns = Loop::new(body(), 4).unwrap().carried(1).unwrap();
    let turns = turns.stacked(1).unwrap();
    assert_eq!(turns.operands().unwrap(), [row(2), row(12)]);
    assert_eq!(turns.results().unwrap(), [row(2), row(8)]);
    let op = GraphOp::Loop(Box::new(turns));
    let mut graph = Graph::new(1, vec![row(2), row(12), row(11)]);
    let last = graph.add(op.clone(), &[0, 1], "loop").unwrap();
    assert_eq!(graph.vector(last), row(2));
    let result = |place, len| {
        let vector = row(len);
        GraphOp::LoopResult(LoopResult { place, vector })
    };
    let stack = graph.add(result(1, 8), &[last], "loop").unwrap();
    assert_eq!(graph.vector(stack), row(8));
    for (op, operands) in [
        (op.clone(), vec![0, 2]),
        (op.clone(), vec![0]),
        (result(1, 7), vec![last]),
        (result(2, 8), vec![last]),
        (result(1, 8), vec![stack]),
        (result(1, 8), vec![0]),
    ] {
        assert!(graph.add(op, &operands, "loop").is_err(), "{operands:?}");
    }
    let mut two = Graph::new(2, vec![row(2), row(12)]);
    let (inputs, outputs) = (1, 2);
    let refused = two.add(op, &[0, 1], "loop").unwrap_err();
    assert_eq!(refused, Error::CountMismatch { inputs, outputs });
}

#[test]
fn a_loop_that_does_nothing_or_carries_what_it_was_not_given_is_refused() {
    let none = Graph::new(1, vec![row(2)]);
    assert!(Loop::new(body(), 0).is_err() && Loop::new(none, 3).is_err());
    let turns = || Loop::new(body(), 3).unwrap();
    // The second output is not like the second input, and there is no third one.
    assert!(turns().carried(2).is_err() && turns().carried(3).is_err());
    let carried = turns().carried(1).unwrap();
    assert!(carried.clone().stacked(2).is_err());
    assert!(!carried.is_reversed() && carried.reversed().is_reversed());
}
