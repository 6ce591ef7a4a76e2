//! Ops of networks in graphs, in layouts that cut the batch, the channels and the spatial axes.

use meshwork_accel::{ElementType, Pointwise};
use meshwork_layout::ops::{Activation, Convolution, Padding, Pool, Pooling, Windows};

use super::*;
use crate::program::Task;
use crate::record::Primitive;
use crate::{Float, bf16, f16, repeat};

/// All layouts of images in which each mesh dimension cuts one axis or none.
fn image_layouts(mesh: &Mesh) -> Vec<Layout> {
    let places = 0..25;
    let layout = |number: usize| {
        let mut names = ["unsharded"; 4];
        for (name, at) in [("x", number % 5), ("y", number / 5)] {
            match names.get_mut(at) {
                Some(own) if *own == "unsharded" => *own = name,
                Some(_) => return None,
                None => {}
            }
        }
        Layout::from_names(names, mesh).ok()
    };
    places.filter_map(layout).collect()
}

fn convolutions() -> [Convolution; 3] {
    let same = Windows::strides([2, 1]).padded(Padding::Same);
    let wide = Windows::strides([1, 2]).dilated([1, 2]);
    let wide = wide.padded(Padding::Explicit(vec![(1, 1), (0, 2)]));
    let grouped = Convolution {
        groups: 2,
        ..Convolution::new(same.clone())
    };
    [Convolution::new(same), Convolution::new(wide), grouped]
}

/// Images through a convolution and pools, with gradients by images and filter, and the places of
/// the largest channels.
fn network(given: &Pair, of: &Convolution) -> Result<Vec<DTensor<f64>>, Error> {
    let tape = Tape::new();
    let (images, filter) = (tape.watch(&given.0), tape.watch(&given.1));
    let sums = images.convolution(&filter, of)?.scale(0.01)?;
    let moving = Windows::strides([1, 1]).padded(Padding::Same);
    let largest = sums.pool(&Pool {
        pooling: Pooling::Max,
        window: vec![2, 3],
        windows: moving.clone(),
    })?;
    let means = largest.pool(&Pool {
        pooling: Pooling::Mean,
        window: vec![2, 2],
        windows: moving.dilated([1, 2]),
    })?;
    let parts = means.pool(&Pool::new(Pooling::Mean, [2, 1]))?;
    let total = parts.mul(&parts)?.sum_all()?;
    let [by_images, by_filter] = tape.gradient(&total, [&images, &filter])?;
    let places = [sums.argmax(3)?.cast()?, sums.argmin(0)?.cast()?];
    let [first, second] = places;
    Ok(vec![total, by_images, by_filter, first, second])
}

#[test]
fn convolutions_and_pools_in_all_layouts_are_what_they_are_one_by_one() {
    let (context, mesh) = four();
    let mut compared = 0;
    for (number, layout) in image_layouts(&mesh).into_iter().enumerate() {
        let of = &convolutions()[number % 3];
        let filter = numbers(&[3, 2, 2 / of.groups, 2]);
        let images = numbers(&[2, 8, 4, 2]);
        let images = context.copy_to_mesh(images, &layout).unwrap();
        let whole = Layout::replicated(&mesh, 4);
        let filter = context.copy_to_mesh(filter, &whole).unwrap();
        let nodes = check(&context, &(images, filter), |pair| network(pair, of));
        compared += usize::from(!nodes.is_empty());
    }
    assert_eq!(compared, 21, "of all layouts");
}

#[test]
fn a_batch_that_is_cut_is_worked_on_where_it_is() {
    let (context, mesh) = four();
    let layout = Layout::from_names(["x", "unsharded", "unsharded", "unsharded"], &mesh).unwrap();
    let whole = Layout::replicated(&mesh, 4);
    let images = context
        .copy_to_mesh(numbers(&[4, 4, 8, 4]), &layout)
        .unwrap();
    let filter = context
        .copy_to_mesh(numbers(&[3, 2, 4, 4]), &whole)
        .unwrap();
    let [of, ..] = convolutions();
    let nodes = check(&context, &(images, filter), |(images, filter)| {
        let tape = Tape::new();
        let filter = tape.watch(filter);
        let sums = images
            .convolution(&filter, &of)?
            .pool(&Pool::new(Pooling::Max, [2, 2]))?;
        let [by_filter] = tape.gradient(&sums.sum_all()?, [&filter])?;
        Ok(vec![by_filter.relayout(filter.layout())?])
    });
    let exchanges: Vec<_> = nodes.into_iter().filter(|kind| *kind != "other").collect();
    assert_eq!(exchanges, ["all-reduce"], "of the gradient by the filter");
}

#[test]
fn rows_of_tables_that_are_cut_by_rows_are_in_graphs() {
    let (context, mesh) = four();
    let mut compared = 0;
    for layout in layouts(&mesh) {
        let table = context.copy_to_mesh(numbers(&[8, 4]), &layout).unwrap();
        let nodes = check(&context, &(table.clone(), table), |(table, _)| {
            let tape = Tape::new();
            let table = tape.watch(table);
            let chosen = |at: &[usize]| (at[0] as i64 * 5) % 8;
            let chosen = table.context().from_fn(&[6], &rows(&table)?, chosen)?;
            let found = table.embedding(&chosen)?;
            let [by_table] = tape.gradient(&found.mul(&found)?.sum_all()?, [&table])?;
            Ok(vec![found, by_table])
        });
        compared += usize::from(!nodes.is_empty());
    }
    assert_eq!(compared, layouts(&mesh).len());
}

/// A table, indices, and a gradient by what is made of them.
type Given = (DTensor<f64>, DTensor<i64>, DTensor<f64>);

type Taking = fn(&DTensor<f64>, &DTensor<i64>) -> Result<DTensor<f64>, Error>;

fn by_table(taking: Taking, given: &Given) -> Result<DTensor<f64>, Error> {
    let (table, indices, upstream) = given;
    let tape = Tape::new();
    let table = tape.watch(table);
    let made = taking(&table, indices)?;
    let found = tape.gradients_from(&made, upstream, &[&table])?;
    Ok(found.into_iter().flatten().next().unwrap())
}

#[test]
fn the_gradient_of_what_was_gathered_takes_indices_and_no_table() {
    let (context, mesh) = four();
    let [line, matrix] = [1, 2].map(|rank| Layout::replicated(&mesh, rank));
    let rows = || context.copy_to_mesh(numbers(&[4, 2]), &matrix).unwrap();
    let indices = ndarray::array![3_i64, 0, 3, 1];
    let indices = context.copy_to_mesh(indices, &line).unwrap();
    let given: Given = (rows(), indices, rows());
    let cases: [(usize, Taking); 2] = [
        (0, |table, indices| table.gather(indices, 0)),
        (2, |table, indices| {
            repeat(2, table.clone(), |table| table.gather(indices, 0))
        }),
    ];
    for (expected_loops, taking) in cases {
        let expected = by_table(taking, &given).unwrap().to_host().unwrap();
        let mut step = compile(|(): &mut (), given: &Given| by_table(taking, given));
        for _ in 0..2 {
            let found = step.call(&mut (), &given).unwrap();
            assert_eq!(found.to_host().unwrap(), expected);
        }
        let program = step.program().unwrap();
        assert!(!program.to_string().contains("= constant"), "{program}");
        let mut inputs = program.in_one(&context).unwrap().inputs.into_iter();
        assert!(inputs.all(|own| program.inputs.contains(&own)), "{program}");
        let mut loops = 0;
        for step in &program.steps {
            let Task::One(Primitive::Scan(scan)) = &step.task else {
                continue;
            };
            loops += 1;
            let mut captured = step.operands[scan.carried + scan.stacked..].iter();
            let is_line = |own: &usize| program.values[*own].placement.rank() == 1;
            assert!(captured.all(is_line), "{program}");
        }
        assert_eq!(loops, expected_loops, "{program}");
    }
}

#[test]
fn activations_of_short_floats_are_made_in_32_bits_in_graphs() {
    fn check<T: Float>(by: Activation) {
        let (context, mesh) = four();
        let layout = Layout::from_names(["x"], &mesh).unwrap();
        let given = context.full(&[4], &layout, T::from_f64(0.003)).unwrap();
        let mut step = compile(|(): &mut (), given: &DTensor<T>| given.activation(by));
        step.call(&mut (), &given).unwrap();
        let graph = step.program().unwrap().in_one(&context).unwrap().graph;
        let is_exp = |op: &GraphOp| matches!(op, GraphOp::Pointwise(Pointwise::Exp));
        let mut exps = 0;
        for node in graph.nodes().iter().filter(|node| is_exp(node.op())) {
            exps += 1;
            let of = graph.vector(node.operands()[0]).element;
            assert_eq!(of, ElementType::F32, "{by:?}");
        }
        assert_eq!(exps, 1, "{by:?}");
        let [output] = graph.outputs() else {
            panic!("{:?}", graph.outputs());
        };
        assert_eq!(graph.vector(*output).element, T::TYPE, "{by:?}");
    }
    for by in [
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::Silu,
        Activation::GeluTanh,
    ] {
        check::<f16>(by);
        check::<bf16>(by);
    }
}

#[test]
fn sums_of_short_floats_along_several_axes_are_rounded_once() {
    fn check<T: Float>() {
        let (context, mesh) = four();
        let layout = Layout::from_names(["x", "unsharded"], &mesh).unwrap();
        let given = context.full(&[4, 3], &layout, T::from_f64(1.0)).unwrap();
        let mut step = compile(|(): &mut (), given: &DTensor<T>| given.sum_all());
        step.call(&mut (), &given).unwrap();
        let graph = step.program().unwrap().in_one(&context).unwrap().graph;
        let is_fold = |op: &GraphOp| matches!(op, GraphOp::Fold(..));
        let mut folds = 0;
        for node in graph.nodes().iter().filter(|node| is_fold(node.op())) {
            folds += 1;
            let of = graph.vector(node.operands()[0]).element;
            assert_eq!(of, ElementType::F32);
        }
        assert!(folds >= 2, "{folds}");
    }
    check::<f16>();
    check::<bf16>();
}
