//! Random compositions of ops over random layouts, uneven shards included, against the slopes of
//! the same compositions of plain arrays.

use meshwork_layout::ops::Orientation::{Plain, Transposed};
use ndarray::{Array2, Axis};
use proptest::prelude::*;

use super::*;

/// Sizes that no mesh dimension divides.
pub(crate) const SIDE: usize = 3;

/// One more tensor of 3×3, of those before it, by their numbers.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Add(usize, usize),
    Sub(usize, usize),
    Mul(usize, usize),
    MatMul(usize, usize),
    Relu(usize),
    Softmax(usize, usize),
    LogSoftmax(usize, usize),
    Transpose(usize),
    MeanSpread(usize, usize),
    Cumsum(usize, usize),
    Shift(usize, usize),
    Turn(usize),
    Gather(usize, usize),
    Scale(usize),
    Lie(usize, usize),
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let (at, axis) = (0..100_usize, 0..2_usize);
    prop_oneof![
        (at.clone(), at.clone()).prop_map(|(a, b)| Step::Add(a, b)),
        (at.clone(), at.clone()).prop_map(|(a, b)| Step::Sub(a, b)),
        (at.clone(), at.clone()).prop_map(|(a, b)| Step::Mul(a, b)),
        (at.clone(), at.clone()).prop_map(|(a, b)| Step::MatMul(a, b)),
        at.clone().prop_map(Step::Relu),
        (at.clone(), axis.clone()).prop_map(|(a, axis)| Step::Softmax(a, axis)),
        (at.clone(), axis.clone()).prop_map(|(a, axis)| Step::LogSoftmax(a, axis)),
        at.clone().prop_map(Step::Transpose),
        (at.clone(), axis.clone()).prop_map(|(a, axis)| Step::MeanSpread(a, axis)),
        (at.clone(), axis.clone()).prop_map(|(a, axis)| Step::Cumsum(a, axis)),
        (at.clone(), axis.clone()).prop_map(|(a, axis)| Step::Shift(a, axis)),
        at.clone().prop_map(Step::Turn),
        (at.clone(), axis).prop_map(|(a, axis)| Step::Gather(a, axis)),
        at.clone().prop_map(Step::Scale),
        (at.clone(), at).prop_map(|(a, layout)| Step::Lie(a, layout)),
    ]
}

fn all(sizes: [usize; 2]) -> [Option<usize>; 2] {
    sizes.map(Some)
}

/// The steps one after the other; where layouts of operands do not fit, with whole ones.
pub(crate) fn all_carried_out(
    steps: &[Step],
    mut made: Vec<DTensor<f64>>,
) -> Result<Vec<DTensor<f64>>, Error> {
    for step in steps {
        made.push(match carried_out(step, &made) {
            Err(Error::Op(OpError::SpecsDiffer { .. })) => {
                let whole: Result<Vec<_>, _> = made.iter().map(DTensor::replicate).collect();
                carried_out(step, &whole?)?
            }
            made => made?,
        });
    }
    Ok(made)
}

/// The step with tensors; an error where the layouts of its operands do not fit.
fn carried_out(step: &Step, made: &[DTensor<f64>]) -> Result<DTensor<f64>, Error> {
    let of = |number: &usize| &made[number % made.len()];
    let along = |axis: &usize| ReduceAxes::axes([axis.cast_signed()]).keep_dims();
    match step {
        Step::Add(a, b) => of(a).add(of(b)),
        Step::Sub(a, b) => of(a).sub(of(b)),
        Step::Mul(a, b) => of(a).mul(of(b)),
        Step::MatMul(a, b) => of(a).matmul_stored(of(b), [Plain, Transposed]),
        Step::Relu(a) => of(a).relu(),
        Step::Softmax(a, axis) => of(a).softmax(axis.cast_signed()),
        Step::LogSoftmax(a, axis) => of(a).log_softmax(axis.cast_signed()),
        Step::Transpose(a) => of(a).transpose(&[1, 0]),
        Step::MeanSpread(a, axis) => of(a).mean(&along(axis))?.broadcast_to(&[SIDE, SIDE]),
        Step::Cumsum(a, axis) => of(a).cumsum(axis.cast_signed()),
        // Two of three, and zeros behind them.
        Step::Shift(a, axis) => {
            let whole = of(a).replicate()?;
            let (mut begin, mut sizes, mut behind) = ([0; 2], [SIDE; 2], [(0, 0); 2]);
            (begin[*axis], sizes[*axis], behind[*axis]) = (1, SIDE - 1, (0, 1));
            whole.slice(&begin, &all(sizes))?.pad(&behind)
        }
        Step::Turn(a) => {
            let back = std::num::NonZeroIsize::new(-1).unwrap();
            let (begin, end) = (None, None);
            let turned = Index::Range {
                begin,
                end,
                step: back,
            };
            of(a).replicate()?.strided_slice(&[turned])
        }
        Step::Gather(a, axis) => {
            let layout = Layout::from_names(["x"], &mesh())?;
            let indices = of(a).context().copy_to_mesh(array![2_i64, 0, 2], &layout)?;
            of(a).gather(&indices, axis.cast_signed())
        }
        Step::Scale(a) => of(a).scale(0.5)?.add_scalar(0.25),
        Step::Lie(a, layout) => {
            let layouts = layouts(2);
            of(a).relayout(&layouts[layout % layouts.len()])
        }
    }
}

/// The same step with plain arrays.
fn naive(step: &Step, made: &[Array2<f64>]) -> Array2<f64> {
    let of = |number: &usize| &made[number % made.len()];
    let spread = |row: &Array2<f64>| row.broadcast((SIDE, SIDE)).unwrap().to_owned();
    let shifted = |a: &Array2<f64>, axis: usize| {
        let largest = a.map_axis(Axis(axis), |row| row.fold(f64::MIN, |a, b| a.max(*b)));
        a - &spread(&largest.insert_axis(Axis(axis)))
    };
    let softmax = |a: &Array2<f64>, axis: usize| {
        let powers = shifted(a, axis).mapv(f64::exp);
        &powers / &spread(&powers.sum_axis(Axis(axis)).insert_axis(Axis(axis)))
    };
    match step {
        Step::Add(a, b) => of(a) + of(b),
        Step::Sub(a, b) => of(a) - of(b),
        Step::Mul(a, b) => of(a) * of(b),
        Step::MatMul(a, b) => of(a).dot(&of(b).t()),
        Step::Relu(a) => of(a).mapv(|x| x.max(0.0)),
        Step::Softmax(a, axis) => softmax(of(a), *axis),
        Step::LogSoftmax(a, axis) => softmax(of(a), *axis).mapv(f64::ln),
        Step::Transpose(a) => of(a).t().to_owned(),
        Step::MeanSpread(a, axis) => {
            let mean = of(a).mean_axis(Axis(*axis)).unwrap();
            spread(&mean.insert_axis(Axis(*axis)))
        }
        Step::Cumsum(a, axis) => {
            let mut sums = of(a).clone();
            sums.accumulate_axis_inplace(Axis(*axis), |before, own| *own += before);
            sums
        }
        Step::Shift(a, axis) => {
            let mut moved = Array2::zeros((SIDE, SIDE));
            let to = ndarray::Slice::from(0..SIDE - 1);
            let from = of(a).slice_axis(Axis(*axis), ndarray::Slice::from(1..));
            moved.slice_axis_mut(Axis(*axis), to).assign(&from);
            moved
        }
        Step::Turn(a) => of(a).select(Axis(0), &[2, 1, 0]),
        Step::Gather(a, axis) => of(a).select(Axis(*axis), &[2, 0, 2]),
        Step::Scale(a) => of(a).mapv(|x| x * 0.5 + 0.25),
        Step::Lie(a, _) => of(a).clone(),
    }
}

/// The last of the arrays, each element by a weight of its own, summed.
fn naive_target(steps: &[Step], given: &[Array2<f64>]) -> f64 {
    let mut made = given.to_vec();
    for step in steps {
        made.push(naive(step, &made));
    }
    let last = made.last().unwrap();
    (last * &weights()).sum()
}

fn weights() -> Array2<f64> {
    Array2::from_shape_fn((SIDE, SIDE), |(i, j)| (i * 5 + j * 3) as f64 / 7.0 - 1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn gradients_of_random_compositions_are_the_slopes(
        steps in prop::collection::vec(step(), 1..9),
        elements in prop::collection::vec(-1.0..1.0_f64, 2 * SIDE * SIDE),
        first in 0..100_usize,
        second in 0..100_usize,
    ) {
        let square = |from: usize| {
            let elements = elements[from..][..SIDE * SIDE].to_vec();
            Array2::from_shape_vec((SIDE, SIDE), elements).unwrap()
        };
        let given = [square(0), square(SIDE * SIDE)];
        prop_assume!(naive_target(&steps, &given).abs() < 1e4);
        let (context, layouts) = (context(), layouts(2));
        let tape = Tape::new();
        let watch = |array: &Array2<f64>, layout: usize| {
            let layout = &layouts[layout % layouts.len()];
            tape.watch(&context.copy_to_mesh(array.clone(), layout).unwrap())
        };
        let watched = vec![watch(&given[0], first), watch(&given[1], second)];
        let made = all_carried_out(&steps, watched).unwrap();
        let layout = Layout::replicated(&mesh(), 2);
        let weights = context.copy_to_mesh(weights(), &layout).unwrap();
        let found = tape.gradients_from(made.last().unwrap(), &weights, &[&made[0], &made[1]]);
        for (operand, found) in found.unwrap().into_iter().enumerate() {
            let found = match found {
                Some(found) => found.to_host().unwrap(),
                None => ArrayD::zeros(IxDyn(&[SIDE, SIDE])),
            };
            for (place, found) in found.iter().enumerate() {
                let moved = |by: f64| {
                    let mut given = given.clone();
                    given[operand].as_slice_mut().unwrap()[place] += by;
                    naive_target(&steps, &given)
                };
                let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                let near = 1e-4 * slope.abs().max(1.0);
                prop_assert!((found - slope).abs() < near, "{operand}, {place}: {found} {slope}");
            }
        }
    }
}
