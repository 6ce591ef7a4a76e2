//! Optimizers against loops over plain numbers, in all layouts, their state in checkpoints, and
//! floats of 16 bits.

use std::path::Path;

use meshwork_core::Mesh;
use meshwork_layout::Layout;
use ndarray::{ArrayD, IxDyn};

use super::*;
use crate::testing::{clients, mesh};
use crate::{Context, bf16, f16};

const SHAPE: [usize; 2] = [3, 5];

fn layouts(mesh: &Mesh) -> Vec<Layout> {
    let names = [
        ["unsharded", "unsharded"],
        ["x", "y"],
        ["y", "unsharded"],
        ["unsharded", "x"],
    ];
    let layouts = names.iter().map(|names| Layout::from_names(*names, mesh));
    layouts.collect::<Result<_, _>>().unwrap()
}

fn whole(step: usize) -> ArrayD<f64> {
    let count = SHAPE.iter().product::<usize>();
    let numbers = (0..count).map(|i| (((i + step) * 7 + 3) % 11) as f64 / 4.0 - 1.0);
    ArrayD::from_shape_vec(IxDyn(&SHAPE), numbers.collect()).unwrap()
}

/// The slope at a step: also 0 at some elements, at which nothing may become of 0 by 0.
fn slope(step: usize) -> ArrayD<f64> {
    whole(step + 1).mapv(|x| if x > 0.9 { 0.0 } else { x })
}

/// Where a variable is after some steps in each layout, gradients being in another one.
fn ends<O>(
    make: impl Fn(&DVariable<f64>) -> O,
    step: impl Fn(&mut O, &mut DVariable<f64>, &DTensor<f64>),
) -> Vec<ArrayD<f64>> {
    let context = Context::alone(testing_client());
    let all = layouts(&mesh());
    let ends = all.iter().zip(all.iter().rev()).map(|(own, other)| {
        let mut variable = DVariable::new(context.copy_to_mesh(whole(0), own).unwrap());
        let mut optimizer = make(&variable);
        for number in 0..5 {
            let gradient = context.copy_to_mesh(slope(number), other).unwrap();
            step(&mut optimizer, &mut variable, &gradient);
        }
        assert_eq!(variable.layout(), own);
        variable.value().to_host().unwrap()
    });
    ends.collect()
}

fn assert_close(found: &ArrayD<f64>, expected: &ArrayD<f64>) {
    let mut both = found.iter().zip(expected);
    assert!(
        both.all(|(a, b)| (a - b).abs() < 1e-7),
        "{found} {expected}"
    );
}

#[test]
fn descent_and_momentum_are_the_loops_of_their_formulas_in_every_layout() {
    let (mut plain, mut heavy) = (whole(0), whole(0));
    let mut velocity = ArrayD::zeros(IxDyn(&SHAPE));
    for number in 0..5 {
        plain = plain - 0.1 * slope(number);
        velocity = 0.9 * velocity + slope(number);
        heavy = heavy - 0.1 * &velocity;
    }
    let sgd = ends(
        |_| Sgd::new(0.1),
        |sgd, variable, gradient| sgd.step([(variable, gradient)]).unwrap(),
    );
    sgd.iter().for_each(|end| assert_close(end, &plain));
    let momentum = ends(
        |variable| Momentum::new(0.1, 0.9, &[variable]).unwrap(),
        |momentum, variable, gradient| momentum.step([(variable, gradient)]).unwrap(),
    );
    momentum.iter().for_each(|end| assert_close(end, &heavy));
    let halves = ends(
        |variable| Momentum::new(0.2, 0.9, &[variable]).unwrap(),
        |momentum, variable, gradient| {
            let whole = Layout::replicated(variable.layout().mesh(), 0);
            let half = gradient.context().full(&[], &whole, 0.5).unwrap();
            momentum.step_by(&half, [(variable, gradient)]).unwrap();
        },
    );
    halves.iter().for_each(|end| assert_close(end, &heavy));
}

#[test]
fn adam_is_the_loop_of_its_paper_in_every_layout() {
    let (mut weights, none) = (whole(0), ArrayD::<f64>::zeros(IxDyn(&SHAPE)));
    let (mut mean, mut square) = (none.clone(), none);
    for number in 0..5 {
        mean = 0.8 * mean + 0.2 * slope(number);
        square = 0.95 * square + 0.05 * slope(number).mapv(|g| g * g);
        let time = i32::try_from(number).unwrap() + 1;
        let (by_mean, by_square) = (1.0 - 0.8_f64.powi(time), 1.0 - 0.95_f64.powi(time));
        let divisor = (&square / by_square).mapv(|v| v.sqrt() + 1e-6);
        weights = &weights - 0.1 * (&mean / by_mean / divisor + 0.3 * &weights);
    }
    let ends = ends(
        |variable| {
            let adam = AdamW::new(0.1, &[variable]).unwrap();
            adam.betas([0.8, 0.95]).epsilon(1e-6).weight_decay(0.3)
        },
        |adam, variable, gradient| adam.step([(variable, gradient)]).unwrap(),
    );
    let close = |end: &ArrayD<f64>| end.iter().zip(&weights).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(ends.iter().all(close), "{ends:?} {weights}");
}

#[test]
fn adam_moves_short_floats_as_it_does_wide_ones_that_are_rounded_after_each_step() {
    assert_rounded_only::<f16>();
    assert_rounded_only::<bf16>();
}

/// Gradients are so small that most of their squares are no half floats, and some are 0.
#[track_caller]
fn assert_rounded_only<T: Float>() {
    let context = Context::alone(testing_client());
    let layout = layouts(&mesh()).remove(1);
    let placed = |whole: ArrayD<f64>| {
        let short = whole.mapv(T::from_f64);
        context.copy_to_mesh(short, &layout).unwrap()
    };
    let mut short = DVariable::new(placed(whole(0)));
    let mut wide = DVariable::new(short.value().cast::<f32>().unwrap());
    let mut of_short = AdamW::new(T::from_f64(0.125), &[&short]).unwrap();
    let mut of_wide = AdamW::new(0.125, &[&wide]).unwrap();
    for number in 0..5 {
        let gradient = placed(slope(number) / 4096.0);
        of_short.step([(&mut short, &gradient)]).unwrap();
        let gradient = gradient.cast().unwrap();
        of_wide.step([(&mut wide, &gradient)]).unwrap();
        let rounded = wide.value().cast::<T>().unwrap();
        let found = short.value().to_host().unwrap();
        assert_eq!(found, rounded.to_host().unwrap());
        wide.assign(&rounded.cast().unwrap()).unwrap();
    }
}

#[test]
fn training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped_on_another_mesh_of_more_clients() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("half");
    let through = trained(
        &prefix,
        &Context::alone(testing_client()),
        0..6,
        &["x", "y"],
    );
    let _ = trained(
        &prefix,
        &Context::alone(testing_client()),
        0..3,
        &["x", "y"],
    );
    let ends = clients(2, 2, |context| {
        trained(&prefix, context, 3..6, &["y", "unsharded"])
    });
    ends.iter().for_each(|end| assert_eq!(end, &through));
}

fn testing_client() -> meshwork_core::Client {
    let client = meshwork_core::Client::new("localhost", 0, 1).unwrap();
    client.with_devices("CPU", 4).unwrap()
}

/// A variable after these steps; the first begin anew, others at the checkpoint; the last is saved.
fn trained(
    prefix: &Path,
    context: &Context,
    steps: std::ops::Range<usize>,
    names: &[&str; 2],
) -> ArrayD<f64> {
    let mesh = meshwork_core::CreateMesh::new().dims([("x", 2), ("y", 2)]);
    let mesh = context.create_distributed_mesh(mesh).unwrap();
    let layout = Layout::from_names(names.iter().copied(), &mesh).unwrap();
    let mut weights = DVariable::new(context.copy_to_mesh(whole(0), &layout).unwrap());
    let mut adam = AdamW::new(0.1, &[&weights]).unwrap();
    let mut momentum = Momentum::new(0.1, 0.5, &[&weights]).unwrap();
    if steps.start > 0 {
        let saved = context.saved(prefix).unwrap();
        let value = saved.restore("weights", &layout).unwrap();
        weights.assign(&value).unwrap();
        adam.restore(&saved, "adam").unwrap();
        momentum.restore(&saved, "momentum").unwrap();
    }
    for number in steps.clone() {
        let gradient = context.copy_to_mesh(slope(number), &layout).unwrap();
        adam.step([(&mut weights, &gradient)]).unwrap();
        momentum.step([(&mut weights, &gradient)]).unwrap();
    }
    if steps.start == 0 {
        let mut state = adam.state("adam");
        state.extend(momentum.state("momentum"));
        let mut saved: Vec<(&str, &dyn Save)> = vec![("weights", &weights)];
        saved.extend(state.iter().map(|(name, tensor)| (name.as_str(), *tensor)));
        context.save(prefix, &saved).unwrap();
    }
    weights.value().to_host().unwrap()
}

#[test]
fn as_many_gradients_are_taken_as_there_are_variables_and_of_their_shapes() {
    let context = Context::alone(testing_client());
    let layout = layouts(&mesh()).remove(1);
    let mut weights = DVariable::new(context.copy_to_mesh(whole(0), &layout).unwrap());
    let mut adam = AdamW::new(0.1, &[&weights, &weights.clone()]).unwrap();
    let gradient = context.copy_to_mesh(slope(0), &layout).unwrap();
    let (found, expected) = (1, 2);
    assert_eq!(
        adam.step([(&mut weights, &gradient)]),
        Err(Error::UpdateCount { found, expected })
    );
    let row = gradient.sum(&crate::ReduceAxes::axes([0])).unwrap();
    let (found, expected) = (vec![5], vec![3, 5]);
    let refused = Sgd::new(0.1).step([(&mut weights, &row)]);
    assert_eq!(refused, Err(Error::AssignedShape { found, expected }));
}
