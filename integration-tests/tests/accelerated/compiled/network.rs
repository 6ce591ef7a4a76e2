//! Convolutions, pools and indices in modules of the devices' compiler, against the host.

use meshwork_dtensor::{Context, DTensor, DVariable, Error, Float, ReduceAxes, Sgd, Tape, compile};
use meshwork_layout::ops::{Convolution, Padding, Pool, Pooling, Windows};
use meshwork_layout::{Layout, UNSHARDED};
use ndarray::{ArrayD, Axis};

use super::{Variable, VariableSet, devices, in_one_module, loss};
use crate::numbers;

/// Images and a filter.
type Pair<T> = (DTensor<T>, DTensor<T>);

struct Case {
    images: &'static [usize],
    filter: &'static [usize],
    of: Convolution,
}

/// Convolutions along one, two and three axes, with strides, dilation, groups and padding that is
/// not reached.
fn cases() -> Vec<Case> {
    let case = |images, filter, windows: Windows, groups| Case {
        images,
        filter,
        of: Convolution {
            groups,
            ..Convolution::new(windows)
        },
    };
    let same = || Windows::strides([2, 1]).padded(Padding::Same);
    let around = Padding::Explicit(vec![(2, 0), (1, 3)]);
    vec![
        case(&[4, 6, 5, 4], &[3, 2, 4, 6], same(), 1),
        case(&[4, 6, 5, 4], &[3, 2, 2, 6], same(), 2),
        case(&[4, 6, 5, 4], &[3, 3, 1, 8], Windows::strides([1, 1]), 4),
        case(
            &[4, 7, 6, 2],
            &[2, 3, 2, 4],
            Windows::strides([3, 2]).dilated([2, 1]).padded(around),
            1,
        ),
        case(&[4, 9, 2], &[3, 2, 4], Windows::strides([2]), 1),
        case(
            &[2, 3, 4, 3, 2],
            &[2, 2, 2, 2, 2],
            Windows::strides([1; 3]).padded(Padding::Same),
            1,
        ),
    ]
}

/// Sums and their gradients, of which each is a convolution of its own.
fn passes<T: Float>(pair: &Pair<T>, of: &Convolution) -> Result<Vec<DTensor<T>>, Error> {
    let tape = Tape::new();
    let (images, filter) = (tape.watch(&pair.0), tape.watch(&pair.1));
    let sums = images.convolution(&filter, of)?;
    let [by_images, by_filter] = tape.gradient(&sums.mul(&sums)?, [&images, &filter])?;
    Ok(vec![sums.stop_gradient(), by_images, by_filter])
}

/// Largest elements and means of windows that overlap, have gaps, lie side by side or reach over
/// padding, and their gradients.
fn pools(images: &DTensor<f32>) -> Result<Vec<DTensor<f32>>, Error> {
    let windows = |strides: [usize; 2]| Windows::strides(strides).padded(Padding::Same);
    let pool = |pooling, window: [usize; 2], windows| Pool {
        pooling,
        window: window.to_vec(),
        windows,
    };
    let all = [
        pool(Pooling::Max, [2, 3], windows([1, 2])),
        pool(Pooling::Max, [2, 2], Windows::strides([2, 2])),
        pool(Pooling::Mean, [2, 2], Windows::strides([2, 2])),
        pool(Pooling::Mean, [3, 2], windows([2, 1])),
        pool(
            Pooling::Mean,
            [2, 2],
            Windows::strides([1, 1]).dilated([2, 3]),
        ),
    ];
    let mut made = Vec::new();
    for of in all {
        let tape = Tape::new();
        let images = tape.watch(images);
        let pooled = images.pool(&of)?;
        let [slopes] = tape.gradient(&pooled.mul(&pooled)?, [&images])?;
        made.extend([pooled.stop_gradient(), slopes]);
    }
    Ok(made)
}

fn placed<T: Float>(context: &Context, whole: &ArrayD<T>, layout: &Layout) -> DTensor<T> {
    context.copy_to_mesh(whole.clone(), layout).unwrap()
}

/// What a module makes the second time is what the ops made one by one the first time, on the host,
/// up to a part of the largest of all.
fn agrees<T: Float>(
    given: &Pair<T>,
    function: impl Fn(&Pair<T>) -> Result<Vec<DTensor<T>>, Error>,
    within: f64,
) {
    let mut step = compile(|(): &mut (), given: &Pair<T>| function(given));
    let expected = step.call(&mut (), given).unwrap();
    let found = step.call(&mut (), given).unwrap();
    let program = in_one_module(step.program());
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let (found, expected) = (found.to_host().unwrap(), expected.to_host().unwrap());
        assert_eq!(found.shape(), expected.shape());
        let most = expected
            .iter()
            .map(|x| x.to_f64().abs())
            .fold(1.0, f64::max);
        for (found, expected) in found.iter().zip(&expected) {
            let distance = (found.to_f64() - expected.to_f64()).abs();
            assert!(
                distance <= within * most,
                "{number}: {found:?}, not {expected:?}\n{program}"
            );
        }
    }
}

#[test]
fn convolutions_and_their_gradients_in_modules_are_those_of_the_host() {
    let Some((context, mesh, _)) = devices(2, 1) else {
        return;
    };
    for (number, Case { images, filter, of }) in cases().into_iter().enumerate() {
        let rows = Layout::batch_sharded(&mesh, "data", images.len()).unwrap();
        let whole = Layout::replicated(&mesh, filter.len());
        let images = numbers::<f32>(images, 1);
        let filter = numbers::<f32>(filter, 2);
        let pair = (
            placed(&context, &images, &rows),
            placed(&context, &filter, &whole),
        );
        // Sums of multiples of 1/64 are exact in f32, their products with such not always.
        agrees(&pair, |pair| passes(pair, &of), 1e-6);
        // The one of groups in 16 bits too, of which sums are made in 32.
        if number == 1 {
            let short = (pair.0.cast().unwrap(), pair.1.cast().unwrap());
            agrees::<meshwork_dtensor::bf16>(&short, |pair| passes(pair, &of), 1e-2);
        }
    }
}

#[test]
fn pools_and_their_gradients_in_modules_are_those_of_the_host() {
    let Some((context, mesh, _)) = devices(2, 1) else {
        return;
    };
    let rows = Layout::batch_sharded(&mesh, "data", 4).unwrap();
    // Numbers repeat: of largest ones there are several in a window.
    let images = numbers::<f32>(&[4, 6, 8, 3], 3).mapv(f32::round);
    let images = placed(&context, &images, &rows);
    agrees(&(images.clone(), images), |(images, _)| pools(images), 1e-6);
}

#[test]
fn indices_of_the_largest_are_the_first_and_nan_is_none_but_in_front() {
    let Some((context, mesh, _)) = devices(2, 1) else {
        return;
    };
    let (nan, least, most) = (f32::NAN, f32::NEG_INFINITY, f32::INFINITY);
    let whole = ndarray::arr2(&[
        [1.0, 3.0, 3.0, 2.0, 1.0],
        [nan, 3.0, most, least, 0.0],
        [2.0, nan, 2.0, nan, 0.5],
        [least, nan, least, least, least],
        [-0.0, 0.0, -0.0, nan, most],
        [most, most, nan, most, least],
    ]);
    let rows = Layout::from_names(["data", UNSHARDED], &mesh).unwrap();
    let given = placed(&context, &whole.clone().into_dyn(), &rows);
    let mut step = compile(|(): &mut (), given: &DTensor<f32>| {
        let along = [given.argmax(1)?, given.argmin(1)?];
        let short = given.cast::<meshwork_dtensor::bf16>()?;
        let [largest, smallest] = along;
        Ok::<_, Error>(vec![largest, smallest, given.argmax(0)?, short.argmin(1)?])
    });
    let expected = step.call(&mut (), &given).unwrap();
    let found = step.call(&mut (), &given).unwrap();
    in_one_module(step.program());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(
            found.to_host().unwrap(),
            expected.to_host().unwrap(),
            "{whole}"
        );
    }
    let first = found[0].to_host().unwrap();
    assert_eq!(first.as_slice().unwrap(), [1, 0, 0, 0, 4, 0]);
}

#[test]
fn rows_of_a_table_that_is_cut_by_rows_are_looked_up_in_a_module() {
    let Some((context, mesh, _)) = devices(1, 4) else {
        return;
    };
    let rows = Layout::from_names(["model", UNSHARDED], &mesh).unwrap();
    let table = placed(&context, &numbers::<f32>(&[8, 3], 4), &rows);
    let layout = Layout::replicated(&mesh, 1);
    let chosen = context
        .copy_to_mesh(ndarray::array![7_i64, 0, 3, 3, 5], &layout)
        .unwrap();
    type Given = (DTensor<f32>, DTensor<i64>);
    let mut step = compile(|(): &mut (), (table, chosen): &Given| {
        let tape = Tape::new();
        let table = tape.watch(table);
        let found = table.embedding(chosen)?;
        let [slopes] = tape.gradient(&found.mul(&found)?, [&table])?;
        Ok::<_, Error>((found.stop_gradient(), slopes))
    });
    let given = (table, chosen);
    let expected = step.call(&mut (), &given).unwrap();
    let found = step.call(&mut (), &given).unwrap();
    in_one_module(step.program());
    assert_eq!(found.0.to_host().unwrap(), expected.0.to_host().unwrap());
    assert_eq!(found.1.to_host().unwrap(), expected.1.to_host().unwrap());
    let whole = numbers::<f32>(&[8, 3], 4);
    assert_eq!(
        found.0.to_host().unwrap().index_axis(Axis(0), 4),
        whole.index_axis(Axis(0), 5)
    );
}

/// The network for pictures of digits, smaller.
struct Network {
    weights: Vec<DVariable<f32>>,
}

impl Network {
    fn new(context: &Context, mesh: &meshwork_core::Mesh) -> Self {
        let shapes: [&[usize]; 6] = [&[3, 3, 1, 4], &[4], &[3, 3, 2, 6], &[6], &[24, 5], &[5]];
        let made = shapes.iter().zip(1..).map(|(shape, seed)| {
            let layout = Layout::replicated(mesh, shape.len());
            let whole = numbers::<f32>(shape, seed).mapv(|x| x * 0.2);
            DVariable::new(placed(context, &whole, &layout))
        });
        Self {
            weights: made.collect(),
        }
    }

    fn step(&mut self, batch: &(DTensor<f32>, DTensor<i64>)) -> Result<DTensor<f32>, Error> {
        let (images, labels) = batch;
        let tape = Tape::new();
        let weights: Vec<DTensor<f32>> =
            self.weights.iter().map(|w| tape.watch(w.value())).collect();
        let strided = Convolution::new(Windows::strides([2, 2]).padded(Padding::Same));
        let grouped = Convolution {
            groups: 2,
            ..Convolution::new(Windows::strides([1, 1]).padded(Padding::Same))
        };
        let hidden = images
            .convolution(&weights[0], &strided)?
            .add(&weights[1])?
            .silu()?;
        let hidden = hidden.pool(&Pool::new(Pooling::Max, [2, 2]))?;
        let hidden = hidden
            .convolution(&weights[2], &grouped)?
            .add(&weights[3])?
            .silu()?;
        let hidden = hidden.pool(&Pool::new(Pooling::Mean, [2, 2]))?;
        let rows = hidden.shape()[0];
        let scores = hidden.reshape(&[Some(rows), None])?.matmul(&weights[4])?;
        let (losses, _) = scores.add(&weights[5])?.sparse_cross_entropy(labels)?;
        let loss = losses.mean(&ReduceAxes::axes([0]))?;
        let all: Vec<&DTensor<f32>> = weights.iter().collect();
        let slopes = tape.gradients(&loss, &all)?;
        let updates = self.weights.iter_mut().zip(slopes.iter().flatten());
        Sgd::new(0.1).step(updates)?;
        Ok(loss)
    }
}

impl VariableSet for Network {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.weights.visit(visit);
    }
}

#[test]
fn a_convolutional_network_learns_in_one_module_of_one_and_of_four_devices() {
    let mut losses: Vec<Vec<f32>> = Vec::new();
    for data in [1, 4] {
        let Some((context, mesh, backend)) = devices(data, 1) else {
            return;
        };
        let rows = ["data", UNSHARDED, UNSHARDED, UNSHARDED];
        let rows = Layout::from_names(rows, &mesh).unwrap();
        let images = placed(&context, &numbers(&[8, 16, 16, 1], 5), &rows);
        let labels = Layout::from_names(["data"], &mesh).unwrap();
        let labels = context
            .from_fn(&[8], &labels, |at| at[0] as i64 * 3 % 5)
            .unwrap();
        let batch = (images, labels);
        let mut network = Network::new(&context, &mesh);
        let mut by_ops = Network::new(&context, &mesh);
        let mut step = compile(Network::step);
        let (mut own, mut uploaded) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let expected = loss(&by_ops.step(&batch).unwrap());
            let before = backend.bytes_uploaded();
            own.push(loss(&step.call(&mut network, &batch).unwrap()));
            uploaded.push(backend.bytes_uploaded() - before);
            let found = own[own.len() - 1];
            assert!(
                (found - expected).abs() < 2e-5 * expected,
                "{found} and not {expected}"
            );
        }
        in_one_module(step.program());
        assert_eq!(
            uploaded[2..],
            [0, 0, 0],
            "nothing goes to the devices any more"
        );
        losses.push(own);
    }
    assert!(losses[0][4] < losses[0][0], "{losses:?}");
    for (alone, four) in losses[0].iter().zip(&losses[1]) {
        assert!((alone - four).abs() < 2e-5 * alone, "{losses:?}");
    }
}
