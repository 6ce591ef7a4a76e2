//! Loops against the same layers one after the other: op by op, by a tape, compiled; their
//! gradients, and those of gradients; of one client and of several.

use meshwork_core::{CreateMesh, Mesh};
use meshwork_layout::Layout;
use ndarray::ArrayD;

use super::*;
use crate::testing::{clients, context, mesh};
use crate::{Context, DTensor, HostValue, Tape, compile};

type Tensor = DTensor<f64>;

/// What is carried, the weights of all layers, and what each layer takes.
type Inputs = (Tensor, Tensor, Tensor);

/// Six layers of four numbers for three rows; weights are cut as `names` say.
fn inputs(context: &Context, mesh: &Mesh, names: [&str; 3]) -> Inputs {
    let weights = Layout::from_names(names, mesh).unwrap();
    let rows = Layout::from_names([names[1], "unsharded"], mesh).unwrap();
    let row = Layout::replicated(mesh, 1);
    (
        context.random_normal(1, &[4, 4], &rows).unwrap(),
        context.random_normal(2, &[6, 4, 4], &weights).unwrap(),
        context.random_normal(3, &[4], &row).unwrap(),
    )
}

/// One layer: what it gives, and what it says.
fn layer(x: &Tensor, weights: &Tensor, bias: &Tensor) -> Result<(Tensor, Tensor), Error> {
    let bent = x.matmul(weights)?.bias_add(bias)?.relu()?;
    Ok((x.scale(0.5)?.add(&bent)?, bent.sum_all()?))
}

fn looped(inputs: &Inputs) -> Result<(Tensor, Tensor), Error> {
    let (x, weights, bias) = inputs;
    scan(x.clone(), weights, |x, weights| layer(x, weights, bias))
}

fn one_by_one(inputs: &Inputs) -> Result<(Tensor, Tensor), Error> {
    let (x, weights, bias) = inputs;
    let (mut x, mut said) = (x.clone(), Vec::new());
    for weights in weights.unstack(0)? {
        let (next, told) = layer(&x, &weights, bias)?;
        x = next.relayout(x.layout())?;
        said.push(told);
    }
    let said: Vec<&Tensor> = said.iter().collect();
    Ok((x, DTensor::stack(0, &said)?))
}

type Function = fn(&Inputs) -> Result<(Tensor, Tensor), Error>;

/// The results, and their gradients by all inputs.
fn with_gradients(function: Function, given: &Inputs) -> Result<Vec<Tensor>, Error> {
    let tape = Tape::new();
    let (x, weights) = (tape.watch(&given.0), tape.watch(&given.1));
    let bias = tape.watch(&given.2);
    let watched = (x.clone(), weights.clone(), bias.clone());
    let (last, said) = function(&watched)?;
    let loss = last
        .mul(&last)?
        .sum_all()?
        .add(&said.mul(&said)?.sum_all()?)?;
    let by_each = tape.gradient(&loss, [&x, &weights, &bias])?;
    Ok([last, said].into_iter().chain(by_each).collect())
}

fn hosted(all: &[Tensor]) -> Vec<ArrayD<f64>> {
    let whole = all.iter().map(|own| own.to_host().unwrap());
    whole.collect()
}

#[track_caller]
fn are_near(found: &[ArrayD<f64>], expected: &[ArrayD<f64>]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.shape(), expected.shape());
        let most = expected
            .iter()
            .fold(1.0_f64, |most, own| most.max(own.abs()));
        let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
        let apart = apart.fold(0.0, f64::max);
        assert!(apart < 1e-12 * most, "{found} and not {expected}");
    }
}

const NAMES: [[&str; 3]; 4] = [
    ["unsharded", "unsharded", "unsharded"],
    ["unsharded", "unsharded", "x"],
    ["unsharded", "x", "unsharded"],
    ["unsharded", "y", "x"],
];

#[test]
fn a_loop_does_what_its_layers_do_one_after_the_other_compiled_or_not() {
    let (context, mesh) = (context(), mesh());
    for names in NAMES {
        let given = inputs(&context, &mesh, names);
        let (last, said) = one_by_one(&given).unwrap();
        let expected = hosted(&[last, said]);
        let (last, said) = looped(&given).unwrap();
        assert_eq!(hosted(&[last, said]), expected, "{names:?}");
        let mut step = compile(|(): &mut (), given: &Inputs| looped(given));
        for _ in 0..2 {
            let (last, said) = step.call(&mut (), &given).unwrap();
            assert_eq!(last.layout(), given.0.layout());
            assert_eq!(hosted(&[last, said]), expected, "{names:?}");
        }
        let told = step.program().unwrap().to_string();
        assert_eq!(told.matches("matmul").count(), 1, "{told}");
        assert!(
            told.contains("scan 6 times") && told.contains("scan/tests.rs"),
            "{told}"
        );
    }
}

#[test]
fn gradients_of_a_loop_are_those_of_its_layers_compiled_or_not() {
    let (context, mesh) = (context(), mesh());
    for names in NAMES {
        let given = inputs(&context, &mesh, names);
        let expected = hosted(&with_gradients(one_by_one, &given).unwrap());
        let found = hosted(&with_gradients(looped, &given).unwrap());
        are_near(&found, &expected);
        let mut step = compile(|(): &mut (), given: &Inputs| with_gradients(looped, given));
        for _ in 0..2 {
            let compiled = step.call(&mut (), &given).unwrap();
            assert_eq!(hosted(&compiled), found, "{}", step.program().unwrap());
        }
        let told = step.program().unwrap().to_string();
        assert_eq!(told.matches("scan 6 times").count(), 2, "{told}");
    }
}

/// A loop whose layers are loops, of which the carried value alone is differentiated twice.
#[test]
fn loops_in_loops_have_gradients_of_gradients() {
    let given = inputs(&context(), &mesh(), NAMES[1]);
    let nested = |x: &Tensor, weights: &Tensor| {
        let (last, ()) = scan(x.clone(), weights, |x, weights| {
            let inner = repeat(2, x.clone(), |x| x.matmul(weights)?.mul(x)?.scale(0.1))?;
            Ok((inner, ()))
        })?;
        last.sum_all()
    };
    let plain = |x: &Tensor, weights: &Tensor| {
        let mut x = x.clone();
        for weights in weights.unstack(0)? {
            for _ in 0..2 {
                x = x
                    .matmul(&weights)?
                    .mul(&x)?
                    .scale(0.1)?
                    .relayout(x.layout())?;
            }
        }
        x.sum_all()
    };
    type Loss<'a> = &'a dyn Fn(&Tensor, &Tensor) -> Result<Tensor, Error>;
    let twice = |loss: Loss<'_>, (x, weights, _): &Inputs| {
        let (outer, inner) = (Tape::new(), Tape::new());
        let weights = outer.watch(weights);
        let x = inner.watch(&outer.watch(x));
        let [slope] = inner.gradient(&loss(&x, &weights)?, [&x])?;
        let bend = outer.gradient(&slope.mul(&slope)?.sum_all()?, [&x, &weights])?;
        Ok::<_, Error>([slope].into_iter().chain(bend).collect::<Vec<_>>())
    };
    let expected = hosted(&twice(&plain, &given).unwrap());
    are_near(&hosted(&twice(&nested, &given).unwrap()), &expected);
    let mut step = compile(|(): &mut (), given: &Inputs| twice(&nested, given));
    for _ in 0..2 {
        are_near(&hosted(&step.call(&mut (), &given).unwrap()), &expected);
    }
}

#[test]
fn several_clients_loop_with_the_bits_of_one() {
    let looped_by = |count, devices| {
        clients(count, devices, |context| {
            let mesh = CreateMesh::new().dims([("x", 2), ("y", 2)]);
            let mesh = context.create_distributed_mesh(mesh).unwrap();
            let given = inputs(context, &mesh, NAMES[3]);
            let mut step = compile(|(): &mut (), given: &Inputs| with_gradients(looped, given));
            step.call(&mut (), &given).unwrap();
            hosted(&step.call(&mut (), &given).unwrap())
        })
    };
    let alone = looped_by(1, 4);
    looped_by(4, 1)
        .iter()
        .for_each(|own| assert_eq!(own, &alone[0]));
}

#[test]
fn a_body_that_carries_something_else_and_stacks_that_are_none_are_refused() {
    let (context, mesh) = (context(), mesh());
    let given = inputs(&context, &mesh, NAMES[0]);
    let narrow = |(): &mut (), (x, ..): &Inputs| {
        repeat(2, x.clone(), |x| x.slice(&[0, 0], &[Some(2), None]))
    };
    let refused = [
        narrow(&mut (), &given).unwrap_err(),
        compile(narrow).call(&mut (), &given).unwrap_err(),
    ];
    for refused in refused {
        assert!(
            matches!(refused, Error::CarriedDiffers { place: 0, .. }),
            "{refused}"
        );
    }
    let over = |stack: &Tensor| scan(given.0.clone(), stack, |x, _| Ok((x.clone(), ())));
    let layers = Layout::from_names(["x", "unsharded", "unsharded"], &mesh).unwrap();
    let scalar = Layout::replicated(&mesh, 0);
    let none = Layout::replicated(&mesh, 1);
    for stack in [
        given.1.relayout(&layers).unwrap(),
        context.zeros(&[], &scalar).unwrap(),
        context.zeros(&[0], &none).unwrap(),
    ] {
        let refused = over(&stack).unwrap_err();
        assert!(
            matches!(refused, Error::NotStacked { place: 0, .. }),
            "{refused}"
        );
    }
    let same = repeat(0, given.0.clone(), |_| Err(Error::NotHere)).unwrap();
    assert_eq!(hosted(&[same]), hosted(std::slice::from_ref(&given.0)));
}

/// Elements that a loop looks at are those of one time only.
#[test]
fn a_body_that_is_traced_looks_at_no_elements() {
    let given = inputs(&context(), &mesh(), NAMES[0]);
    let looks = |x: &Tensor| repeat(2, x.clone(), |x| x.scale(x.to_host()?.sum()));
    looks(&given.0).unwrap();
    let tape = Tape::new();
    let refused = looks(&tape.watch(&given.0)).unwrap_err();
    assert!(matches!(refused, Error::NotTraceable { .. }), "{refused}");
}

fn doubled(x: &Tensor) -> Result<(), Error> {
    let given = (x.clone(), HostValue(2.0));
    let all = repeat(3, given, |(x, by)| {
        Ok((x.scale(by.0)?, HostValue(by.0 * 2.0)))
    });
    all.map(drop)
}

fn regrouped(x: &Tensor) -> Result<(), Error> {
    let given = (vec![x.clone()], vec![x.clone(); 2]);
    let all = repeat(2, given, |(first, rest)| {
        Ok((vec![first[0].clone(), rest[0].clone()], rest[1..].to_vec()))
    });
    all.map(drop)
}

fn longer(x: &Tensor) -> Result<(), Error> {
    repeat(2, vec![x.clone()], |own| Ok(vec![own[0].clone(); 2])).map(drop)
}

fn shorter(x: &Tensor) -> Result<(), Error> {
    repeat(2, vec![x.clone()], |_| Ok(Vec::new())).map(drop)
}

/// A value of the host that is not the same, from what it was.
fn value(found: &str, expected: &str) -> Error {
    let [found, expected] = [found, expected].map(str::to_owned);
    Error::LoopValue { found, expected }
}

#[test]
fn a_body_carries_on_lists_and_values_of_the_host_as_it_was_given_them() {
    let x = inputs(&context(), &mesh(), NAMES[0]).0;
    type Loop = fn(&Tensor) -> Result<(), Error>;
    let count = |found, expected| Error::LoopCount { found, expected };
    let cases: [(Loop, Error); 4] = [
        (doubled, value("4.0", "2.0")),
        (regrouped, count(2, 1)),
        (longer, count(2, 1)),
        (shorter, count(0, 1)),
    ];
    for (function, expected) in cases {
        let mut step = compile(|(): &mut (), x: &Tensor| function(x));
        for refused in [function(&x), step.call(&mut (), &x)] {
            assert_eq!(refused.unwrap_err(), expected);
        }
    }
    // What stays the same is kept.
    let given = (x.clone(), HostValue(0.5));
    let (all, by) = repeat(2, given, |(x, by)| Ok((x.scale(by.0)?, *by))).unwrap();
    let expected = x.scale(0.25).unwrap();
    assert_eq!((hosted(&[all]), by.0), (hosted(&[expected]), 0.5));
    // So is what is not even equal to itself.
    let given = || (x.clone(), HostValue((Some(f64::NAN), 1.0)));
    let (_, by) = repeat(2, given(), |(x, by)| Ok((x.clone(), *by))).unwrap();
    assert!(by.0.0.is_some_and(f64::is_nan));
    let refused = repeat(2, given(), |(x, by)| {
        Ok((x.clone(), HostValue((by.0.0, 2.0))))
    });
    assert_eq!(
        refused.unwrap_err(),
        value("(Some(NaN), 2.0)", "(Some(NaN), 1.0)")
    );
}

#[test]
fn a_body_gives_lists_and_values_of_the_host_as_the_first_time() {
    let stack = inputs(&context(), &mesh(), NAMES[0]).1;
    for [first, second] in [[[2, 1], [1, 2]], [[1, 2], [2, 1]], [[2, 1], [1, 1]]] {
        let mut turns = [first, second].into_iter();
        let grouped = |(): &(), row: &Tensor| {
            let lists = turns.next().unwrap().map(|count| vec![row.clone(); count]);
            Ok(((), <(_, _)>::from(lists)))
        };
        let refused = scan((), &stack, grouped).unwrap_err();
        let [expected, found] = [first[0], second[0]];
        assert_eq!(refused, Error::LoopCount { found, expected });
    }
    let mut turn = 0;
    let counted = |(): &(), _: &Tensor| {
        turn += 1;
        Ok(((), HostValue(turn)))
    };
    assert_eq!(scan((), &stack, counted).unwrap_err(), value("2", "1"));
}
