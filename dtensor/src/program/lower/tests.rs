//! Graphs of programs, carried out by a naive interpreter, against the programs.

use meshwork_accel::GraphOp;
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_layout::{Layout, PartialReduction, ShardingSpec};
use ndarray::Array2;

use crate::record::with_scalar;
use crate::tape::tests::numbers;
use crate::{Apart, Context, DTensor, Error, ReduceAxes, Scalar, Tape, compile};

mod indices;
mod interpreter;
mod network;
mod rolled;

type Pair = (DTensor<f64>, DTensor<f64>);

fn four() -> (Context, Mesh) {
    let client = Client::new("localhost", 0, 1).unwrap();
    let context = Context::alone(client.with_devices("CPU", 4).unwrap());
    let mesh = CreateMesh::new().dims([("x", 2), ("y", 2)]);
    let mesh = context.create_mesh(mesh).unwrap();
    (context, mesh)
}

/// All layouts of a matrix.
fn layouts(mesh: &Mesh) -> Vec<Layout> {
    let words: [&[&str]; 5] = [&[], &["x"], &["y"], &["x", "y"], &["y", "x"]];
    let pairs = words.iter().flat_map(|a| words.iter().map(move |b| [a, b]));
    let layout = |[a, b]: [&&[&str]; 2]| {
        let specs = [*a, *b].map(|names| match names {
            [] => ShardingSpec::unsharded(),
            names => ShardingSpec::nested(names).unwrap(),
        });
        Layout::new(specs, mesh).ok()
    };
    pairs.filter_map(layout).collect()
}

/// These, and the same with terms along each dimension that is left.
fn with_partial(layouts: &[Layout]) -> Vec<Layout> {
    let partial = layouts.iter().flat_map(|layout| {
        let along = |dim: &str| layout.clone().with_partial([dim], PartialReduction::Sum);
        ["x", "y"]
            .into_iter()
            .filter_map(move |dim| along(dim).ok())
    });
    layouts.iter().cloned().chain(partial).collect()
}

/// The blocks of a tensor.
fn blocks<T: Scalar>(of: &DTensor<T>) -> Vec<Vec<f64>> {
    let blocks = of.unpack().unwrap().iter();
    blocks
        .map(|block| block.iter().map(|x| x.to_f64()).collect())
        .collect()
}

/// Compiles a function, and compares what its graph gives with what it does.
fn check(
    context: &Context,
    pair: &Pair,
    function: impl Fn(&Pair) -> Result<Vec<DTensor<f64>>, Error>,
) -> Vec<&'static str> {
    let mut compiled = compile(|(): &mut (), pair: &Pair| function(pair));
    // Some layouts do not go together.
    let Ok(expected) = compiled.call(&mut (), pair) else {
        return Vec::new();
    };
    let program = compiled.program().unwrap();
    let lowered = program.in_one(context).unwrap();
    let values = lowered.inputs.iter().map(|value| {
        let mut inputs = program.inputs.iter();
        let mut constants = program.constants.iter();
        match inputs.position(|input| input == value) {
            Some(0) => blocks(&pair.0),
            Some(_) => blocks(&pair.1),
            None => {
                let (_, tensor) = constants.find(|constant| constant.0 == *value).unwrap();
                with_scalar!(&**tensor, |tensor| blocks(tensor)).unwrap()
            }
        }
    });
    let made = interpreter::outputs(&lowered.graph, values.collect());
    let mut compared = 0;
    for (made, value) in made.iter().zip(&lowered.outputs) {
        let places = program.outputs.iter().zip(&expected);
        for (_, expected) in places.filter(|(output, _)| *output == value) {
            compared += 1;
            for (made, expected) in made.iter().zip(blocks(expected)) {
                assert_eq!(made.len(), expected.len(), "{program}");
                for (made, expected) in made.iter().zip(expected) {
                    let distance = (made - expected).abs();
                    assert!(distance < 1e-9, "{made} and not {expected}\n{program}");
                }
            }
        }
    }
    assert!(compared > 0, "{program}");
    let nodes = lowered.graph.nodes().iter();
    nodes.map(|node| kind(node.op())).collect()
}

fn kind(op: &GraphOp) -> &'static str {
    match op {
        GraphOp::AllReduce(..) => "all-reduce",
        GraphOp::AllGather(_) => "all-gather",
        GraphOp::ReduceScatter(..) => "reduce-scatter",
        GraphOp::AllToAll(_) => "all-to-all",
        GraphOp::Permute(_) => "permute",
        _ => "other",
    }
}

#[test]
fn every_relayout_of_a_matrix_is_its_collectives() {
    let (context, mesh) = four();
    let mut seen = std::collections::BTreeSet::new();
    let all = with_partial(&layouts(&mesh));
    let whole = context
        .copy_to_mesh(numbers(&[8, 4]), &Layout::replicated(&mesh, 2))
        .unwrap();
    for from in &all {
        let given = whole.relayout(from).unwrap();
        let pair = (given.clone(), given);
        for to in all.iter().filter(|to| *to != from) {
            seen.extend(check(&context, &pair, |(given, _)| {
                Ok(vec![given.relayout(to)?])
            }));
        }
    }
    let all = [
        "all-gather",
        "all-reduce",
        "all-to-all",
        "permute",
        "reduce-scatter",
    ];
    assert!(all.iter().all(|kind| seen.contains(kind)), "{seen:?}");
}

#[test]
fn ops_and_gradients_in_all_layouts_are_what_they_are_one_by_one() {
    let (context, mesh) = four();
    let mut compared = 0;
    for first in layouts(&mesh) {
        for second in layouts(&mesh) {
            let a = context.copy_to_mesh(numbers(&[4, 4]), &first).unwrap();
            let b = context.copy_to_mesh(numbers(&[4, 4]), &second).unwrap();
            let nodes = check(&context, &(a, b), |(a, b)| {
                let tape = Tape::new();
                let (a, b) = (tape.watch(a), tape.watch(b));
                let product = a.scale(0.25)?.matmul(&b)?;
                let soft = product.softmax(0)?.log_softmax(1)?;
                let sums = soft.cumsum(1)?.sum(&ReduceAxes::axes([0]))?;
                let labels = a
                    .context()
                    .from_fn(&[4], &rows(&a)?, |at| (at[0] as i64 * 3) % 4)?;
                let (losses, _) = b
                    .mul(&a.transpose(&[1, 0])?)?
                    .sparse_cross_entropy(&labels)?;
                let looked_up = b.replicate()?.embedding(&labels)?.relu()?;
                let total = losses.sum_all()?.add(&sums.sum_all()?)?;
                let total = total.add(&looked_up.mul(&soft)?.sum_all()?)?;
                let [by_a, by_b] = tape.gradient(&total, [&a, &b])?;
                Ok(vec![total, by_a, by_b])
            });
            compared += usize::from(!nodes.is_empty());
        }
    }
    assert!(compared > 60, "{compared} of 121");
}

#[test]
fn a_class_without_probability_costs_nothing_in_a_graph_too() {
    let (context, mesh) = four();
    let right = Array2::<f64>::eye(4);
    let logits = Array2::from_shape_fn((4, 4), |(row, class)| match (4 + class - row) % 4 {
        0 | 1 => 0.0,
        _ => f64::NEG_INFINITY,
    });
    for layout in layouts(&mesh) {
        let logits = context.copy_to_mesh(logits.clone(), &layout).unwrap();
        let right = context.copy_to_mesh(right.clone(), &layout).unwrap();
        let nodes = check(&context, &(logits, right), |(logits, right)| {
            Ok(vec![logits.cross_entropy(right)?.0])
        });
        assert!(!nodes.is_empty(), "{layout}");
    }
}

fn rows(of: &DTensor<f64>) -> Result<Layout, Error> {
    Ok(Layout::replicated(of.layout().mesh(), 1))
}

#[test]
fn steps_that_cannot_be_in_a_graph_say_why() {
    let (context, mesh) = four();
    let layout = Layout::from_names(["x", "unsharded"], &mesh).unwrap();
    let refused = |rows: usize, function: fn(&DTensor<f64>) -> Result<DTensor<f64>, Error>| {
        let given = context.copy_to_mesh(numbers(&[rows, 2]), &layout).unwrap();
        let mut compiled = compile(|(): &mut (), given: &DTensor<f64>| function(given));
        compiled.call(&mut (), &given).unwrap();
        compiled.program().unwrap().graph(&context).unwrap_err()
    };
    // Whether an index that is computed is there is known to the host only.
    let on_host = refused(4, |given| given.gather(&given.argmax(0)?, 0));
    let uneven = refused(3, |given| given.neg());
    let empty = refused(0, |given| given.neg());
    for (refused, reason) in [
        (&on_host, Apart::OnHost),
        (&uneven, Apart::Uneven),
        (&empty, Apart::Empty),
    ] {
        let Error::NotOneGraph { why, op } = refused else {
            panic!("{refused}");
        };
        assert_eq!(
            (*why, op.contains("tests.rs:")),
            (reason, true),
            "{refused}"
        );
    }
}
