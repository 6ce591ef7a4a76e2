//! Indices, which are looked at before a graph begins where all of an input, or a box of it, have
//! to be some, and else by the host in its step.

use std::ops::Range;
use std::sync::Arc;

use super::*;
use crate::ops::all;
use crate::record::AnyTensor;
use crate::repeat;

/// A table of four rows, and four indices of several types.
type Given = (DTensor<f64>, DTensor<i64>, DTensor<u16>, DTensor<f64>);

type Function = fn(&Given) -> Result<DTensor<f64>, Error>;

/// The inputs that have to be indices by their places, and which of their elements; or why there is
/// no graph.
fn bounded(function: Function) -> Result<Vec<(usize, Range<usize>)>, Apart> {
    let (context, mesh) = four();
    let places = Layout::replicated(&mesh, 1);
    let rows = Layout::replicated(&mesh, 2);
    let places = context.copy_to_mesh(ndarray::array![0_i64, 1, 2, 3], &places);
    let places = places.unwrap();
    let given: Given = (
        context.copy_to_mesh(numbers(&[4, 2]), &rows).unwrap(),
        places.clone(),
        places.cast().unwrap(),
        places.cast().unwrap(),
    );
    let mut compiled = compile(|(): &mut (), given: &Given| function(given));
    compiled.call(&mut (), &given).unwrap();
    let program = compiled.program().unwrap();
    let lowered = match program.in_one(&context) {
        Ok(lowered) => lowered,
        Err(Error::NotOneGraph { why, .. }) => return Err(why),
        Err(other) => panic!("{other}"),
    };
    let bounds = lowered.bounds.iter().map(|bound| {
        let value = lowered.inputs[bound.value];
        let place = program.inputs.iter().position(|input| *input == value);
        let part = bound.part.as_ref().map(|part| part.part()[0].clone());
        (place.unwrap(), part.unwrap_or(0..4))
    });
    Ok(bounds.collect())
}

#[test]
fn inputs_that_are_indices_as_a_whole_are_known_before_the_graph() {
    let cases: [(usize, Function); 8] = [
        (1, |(table, places, ..)| table.embedding(places)),
        (1, |(table, places, ..)| {
            let pairs = places.reshape(&all(&[2, 2]))?;
            let cut = Layout::from_names(["x", "y"], table.layout().mesh())?;
            table.embedding(&pairs.relayout(&cut)?)
        }),
        // A gradient has the indices of the rows.
        (1, |(table, places, ..)| {
            let tape = Tape::new();
            let table = tape.watch(table);
            let rows = table.embedding(places)?;
            let [by_table] = tape.gradient(&rows.mul(&rows)?.sum_all()?, [&table])?;
            Ok(by_table)
        }),
        (2, |(table, _, short, _)| {
            table.embedding(&short.cast::<i64>()?)
        }),
        (2, |(table, _, short, _)| {
            table.embedding(&short.cast::<i32>()?.cast::<i64>()?)
        }),
        (2, |(table, _, short, _)| table.gather(short, 0)),
        (3, |(table, .., floats)| table.embedding(floats)),
        (3, |(table, .., floats)| table.gather(floats, 0)),
    ];
    for (number, (input, function)) in cases.into_iter().enumerate() {
        assert_eq!(bounded(function), Ok(vec![(input, 0..4)]), "case {number}");
    }
}

#[test]
fn a_slice_of_an_input_is_known_before_the_graph_too() {
    let cases: [(usize, Range<usize>, Function); 6] = [
        (1, 0..2, |(table, places, ..)| {
            table.embedding(&places.slice(&[0], &[Some(2)])?)
        }),
        (1, 1..3, |(table, places, ..)| {
            table.gather(&places.slice(&[1], &[Some(2)])?, 0)
        }),
        (2, 1..4, |(table, _, short, _)| {
            table.gather(&short.slice(&[1], &[None])?.cast::<i32>()?, 0)
        }),
        (2, 1..4, |(table, _, short, _)| {
            table.gather(&short.cast::<i32>()?.slice(&[1], &[None])?, 0)
        }),
        (3, 0..2, |(table, .., floats)| {
            table.embedding(&floats.slice(&[0], &[Some(2)])?)
        }),
        // Of the captured tensors of a loop too, which is then no loop in the graph.
        (1, 2..4, |(table, places, ..)| {
            repeat(2, table.clone(), |table| {
                let last = places.slice(&[2], &[None])?;
                table.embedding(&last)?.tile(&[2, 1])
            })
        }),
    ];
    for (number, (input, part, function)) in cases.into_iter().enumerate() {
        assert_eq!(bounded(function), Ok(vec![(input, part)]), "case {number}");
    }
}

#[test]
fn indices_that_are_computed_and_labels_that_are_floats_are_left_to_the_host() {
    let cases: [Function; 6] = [
        |(table, places, ..)| {
            let rest = places.slice(&[1], &[None])?;
            table.embedding(&rest.slice(&[1], &[None])?)
        },
        |(table, _, short, _)| table.gather(&short.cast::<i16>()?, 0),
        |(table, .., floats)| table.embedding(&floats.cast::<i64>()?),
        |(table, places, ..)| table.embedding(&places.cast::<bool>()?),
        |(table, .., floats)| Ok(table.sparse_cross_entropy(floats)?.0),
        |(.., floats)| floats.one_hot(4),
    ];
    for (number, function) in cases.into_iter().enumerate() {
        assert_eq!(bounded(function), Err(Apart::OnHost), "case {number}");
    }
}

#[test]
fn of_a_slice_those_indices_are_looked_at_that_are_in_it() {
    let (context, mesh) = four();
    let table = Layout::replicated(&mesh, 2);
    let table = context.copy_to_mesh(numbers(&[4, 2]), &table).unwrap();
    let rows = Layout::from_names(["x", "unsharded"], &mesh).unwrap();
    let placed = |tokens: Array2<i64>| context.copy_to_mesh(tokens, &rows).unwrap();
    type Given = (DTensor<f64>, DTensor<i64>);
    let mut step = compile(|(): &mut (), (table, tokens): &Given| {
        let all = tokens.expand_dims(0)?;
        let part = all.slice(&[0, 0, 0], &[None, None, Some(2)])?;
        table.embedding(&part.squeeze(&[0])?)
    });
    let tokens = ndarray::array![[0, 1, 9], [3, 2, -1]];
    let given = (table, placed(tokens.clone()));
    step.call(&mut (), &given).unwrap();
    let lowered = step.program().unwrap().in_one(&context).unwrap();
    let [bound] = &lowered.bounds[..] else {
        panic!("{:?}", lowered.bounds);
    };
    let check = |tokens| {
        let tokens: AnyTensor = Arc::new(placed(tokens));
        tokens.check_bound(bound)
    };
    check(tokens).unwrap();
    for none in [4, -1] {
        for at in [[0, 1], [1, 0]] {
            let mut tokens = Array2::zeros((2, 3));
            tokens[at] = none;
            let refused = check(tokens).unwrap_err();
            assert!(
                matches!(refused, Error::IndexOutside { size: 4, .. }),
                "{refused}"
            );
        }
    }
}
