//! Ops of neural networks in random layouts, on the host and on devices, against loops from their
//! definitions; their gradients against differences.

use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwork_accel_cpu::CpuAccelerator;
use meshwork_core::{Client, CreateMesh, DimName, Mesh};
use meshwork_layout::ShardingSpec;
use meshwork_layout::ops::naive::{Tensor, whole};
use meshwork_layout::ops::{
    Activation, AttentionMask, Convolution, Moments, Normalization, OpError, Padding, Pool,
    Pooling, Turn, Windows, infer,
};
use proptest::prelude::*;

use super::*;
use crate::testing::clients;
use crate::{Backend, Context, DeviceType};

/// Choices at random.
#[derive(Debug)]
struct Draw(std::vec::IntoIter<usize>);

impl Draw {
    fn choose(&mut self, ways: usize) -> usize {
        self.0.next().map_or(0, |choice| choice % ways)
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.choose(high - low + 1)
    }

    fn several(&mut self, count: usize, low: usize, high: usize) -> Vec<usize> {
        (0..count).map(|_| self.between(low, high)).collect()
    }

    fn one_of<const N: usize, R: Copy>(&mut self, all: [R; N]) -> R {
        all[self.choose(N)]
    }

    fn mesh(&mut self) -> Mesh {
        let sizes = self.one_of([[1, 1], [2, 1], [4, 1], [2, 2], [1, 3]]);
        Mesh::new(["x", "y"].into_iter().zip(sizes)).unwrap()
    }

    /// A layout in which each mesh dimension cuts an axis or none.
    fn layout(&mut self, mesh: &Mesh, rank: usize) -> Layout {
        let mut cuts: Vec<Vec<DimName>> = vec![Vec::new(); rank];
        for dim in mesh.dim_names() {
            let axis = self.choose(rank + 1);
            if let Some(cuts) = cuts.get_mut(axis) {
                cuts.push(dim.clone());
            }
        }
        let specs = cuts
            .into_iter()
            .map(|dims| ShardingSpec::nested(dims).unwrap());
        Layout::new(specs, mesh).unwrap()
    }

    fn windows(&mut self, axes: usize) -> Windows {
        let padding = match self.choose(3) {
            0 => Padding::Valid,
            1 => Padding::Same,
            _ => Padding::Explicit(
                (0..axes)
                    .map(|_| (self.choose(3), self.choose(2)))
                    .collect(),
            ),
        };
        let (strides, dilations) = (self.several(axes, 1, 3), self.several(axes, 1, 2));
        Windows::strides(strides).dilated(dilations).padded(padding)
    }
}

fn draws() -> impl Strategy<Value = Draw> {
    proptest::collection::vec(0_usize..1000, 250).prop_map(|choices| Draw(choices.into_iter()))
}

/// Numbers of which no two are equal.
fn distinct(shape: &[usize]) -> ArrayD<f64> {
    let mut number = 0.0_f64;
    ArrayD::from_shape_fn(IxDyn(shape), |_| {
        number += 1.0;
        (number * 12.9898).sin() * 2.0
    })
}

/// An op with operands, none where the shapes that were drawn do not fit.
type Case = Option<(Op, Vec<ArrayD<f64>>)>;

fn output_shape(op: &Op, operands: &[ArrayD<f64>]) -> Option<Vec<usize>> {
    let mesh = Mesh::new([("x", 1)]).unwrap();
    let placed = operands.iter().map(|operand| {
        let layout = Layout::replicated(&mesh, operand.ndim());
        TensorLayout::new(operand.shape().to_vec(), layout).unwrap()
    });
    let inferred = infer(op, &placed.collect::<Vec<_>>()).ok()?;
    Some(inferred.results()[0].placement().shape().to_vec())
}

fn convolution(draw: &mut Draw) -> Case {
    let axes = draw.between(1, 2);
    let of = Convolution {
        windows: draw.windows(axes),
        groups: draw.between(1, 3),
    };
    let (each, outputs) = (draw.between(1, 2), of.groups * draw.between(1, 2));
    let (spatial, window) = (draw.several(axes, 1, 6), draw.several(axes, 1, 3));
    let batch = draw.choose(4);
    let input = distinct(&[&[batch], &spatial[..], &[of.groups * each]].concat());
    let filter = distinct(&[&window[..], &[each, outputs]].concat());
    let op = Op::Convolution(of.clone());
    let operands = vec![input, filter];
    let output = distinct(&output_shape(&op, &operands)?);
    let [input, filter] = operands.try_into().unwrap();
    Some(match draw.choose(3) {
        0 => (op, vec![input, filter]),
        1 => (
            Op::ConvolutionInputGradient { of, spatial },
            vec![output, filter],
        ),
        _ => (
            Op::ConvolutionFilterGradient { of, window },
            vec![input, output],
        ),
    })
}

fn pool(draw: &mut Draw) -> Case {
    let axes = draw.between(1, 2);
    let of = Pool {
        pooling: draw.one_of([Pooling::Max, Pooling::Mean]),
        window: draw.several(axes, 1, 3),
        windows: draw.windows(axes),
    };
    let spatial = draw.several(axes, 1, 6);
    let input = distinct(&[&[draw.choose(4)], &spatial[..], &[draw.choose(4)]].concat());
    let op = Op::Pool(of.clone());
    let output = output_shape(&op, std::slice::from_ref(&input))?;
    Some(match draw.choose(2) {
        0 => (op, vec![input]),
        _ => (Op::PoolGradient(of), vec![input, distinct(&output)]),
    })
}

fn normalization(draw: &mut Draw) -> Case {
    let rank = draw.between(1, 4);
    let shape = draw.several(rank, 1, 4);
    if draw.choose(4) == 0 {
        let epsilon = 0.25.into();
        let variance = distinct(&shape[rank - 1..]).mapv(|x| x * x);
        let operands = vec![distinct(&shape), distinct(&shape[rank - 1..]), variance];
        return Some((Op::Standardize { epsilon }, operands));
    }
    let axes: Vec<isize> = (0..rank.cast_signed())
        .filter(|_| draw.choose(2) == 0)
        .collect();
    let by = Normalization {
        moments: draw.one_of([Moments::MeanAndVariance, Moments::MeanSquare]),
        ..Normalization::new(axes, 0.25)
    };
    Some((Op::Normalize(by), vec![distinct(&shape)]))
}

fn embedding(draw: &mut Draw) -> Case {
    let (rows, features, rank) = (draw.between(1, 6), draw.choose(4), draw.choose(3));
    let at = draw.several(rank, 0, 4);
    let indices = numbers(&at).mapv(|x| (x + 4.0) % rows as f64);
    let table = distinct(&[rows, features]);
    if draw.choose(2) == 0 {
        return Some((Op::Embedding, vec![table, indices]));
    }
    let upstream = distinct(&[&at[..], &[features]].concat());
    Some((Op::EmbeddingGradient, vec![table, indices, upstream]))
}

fn attention(draw: &mut Draw) -> Case {
    let mask = draw.one_of([AttentionMask::Causal, AttentionMask::Full]);
    let [queries, keys, depth, features] = [6, 6, 3, 3].map(|high| draw.between(1, high));
    let rank = draw.choose(3);
    let stack = draw.several(rank, 1, 3);
    let mut of = |matrix: [usize; 2]| {
        let kept = stack
            .iter()
            .map(|&size| if draw.choose(4) == 0 { 1 } else { size });
        distinct(&[&kept.collect::<Vec<_>>()[..], &matrix].concat())
    };
    let operands = vec![
        of([queries, depth]),
        of([keys, depth]),
        of([keys, features]),
    ];
    Some((Op::Attention(mask), operands))
}

fn elementwise(draw: &mut Draw) -> Case {
    let shape = [draw.choose(4), draw.between(1, 5), 2 * draw.choose(3)];
    let turn = draw.one_of([Turn::Forward, Turn::Back]);
    let base = 100.0.into();
    let op = match draw.choose(6) {
        0 => Op::Activation(Activation::Sigmoid),
        1 => Op::Activation(Activation::Tanh),
        2 => Op::Activation(Activation::Silu),
        3 => Op::Activation(Activation::Gelu),
        4 => Op::Activation(Activation::GeluTanh),
        _ => Op::Rotary { base, turn },
    };
    Some((op, vec![distinct(&shape)]))
}

fn by_loops(op: &Op, operands: &[ArrayD<f64>]) -> ArrayD<f64> {
    let mesh = Mesh::new([("x", 1)]).unwrap();
    let placed = operands.iter().map(|operand| {
        let layout = Layout::replicated(&mesh, operand.ndim());
        TensorLayout::new(operand.shape().to_vec(), layout).unwrap()
    });
    let inferred = infer(op, &placed.collect::<Vec<_>>()).unwrap();
    let tensors = operands.iter();
    let tensors = tensors.map(|of| Tensor::new(of.shape().to_vec(), of.iter().copied()));
    let made = whole(op, |_| 0.0, &tensors.collect::<Vec<_>>(), &inferred).remove(0);
    ArrayD::from_shape_vec(IxDyn(made.shape()), made.values().to_vec()).unwrap()
}

/// Where ops are carried out: on the host, on a mesh that is drawn, or on devices.
struct World {
    context: Context,
    devices: Option<(Mesh, Backend)>,
}

impl World {
    fn host() -> Self {
        let (context, devices) = (context(), None);
        Self { context, devices }
    }

    /// A process of four devices that compute, as far as the CPU's backend can.
    fn of_devices() -> Self {
        let client = Client::new("localhost", 0, 1).unwrap();
        let context = Context::alone(client.with_devices("TPU", 4).unwrap());
        let cpus = CpuAccelerator::with_logical_devices(NonZeroUsize::new(4).unwrap());
        let backend = Backend::of(&Arc::new(cpus)).arithmetic().arrangement();
        let backend = Backend::from(backend);
        context
            .compute_on(DeviceType::Tpu, backend.clone())
            .unwrap();
        let mesh = CreateMesh::new().device_type("TPU");
        let mesh = context
            .create_mesh(mesh.dims([("x", 2), ("y", 2)]))
            .unwrap();
        let devices = Some((mesh, backend));
        Self { context, devices }
    }

    /// How many bytes went to devices.
    fn uploaded(&self) -> u64 {
        let backend = self.devices.as_ref().map(|(_, backend)| backend);
        backend.map_or(0, Backend::bytes_uploaded)
    }

    fn place(&self, draw: &mut Draw, operands: &[ArrayD<f64>]) -> Vec<DTensor<f64>> {
        let drawn = draw.mesh();
        let mesh = self.devices.as_ref().map_or(&drawn, |(mesh, _)| mesh);
        let placed = operands.iter().map(|operand| {
            let layout = draw.layout(mesh, operand.ndim());
            self.context.copy_to_mesh(operand.clone(), &layout).unwrap()
        });
        placed.collect()
    }
}

#[track_caller]
fn close(found: &ArrayD<f64>, expected: &ArrayD<f64>, within: f64, what: &dyn std::fmt::Debug) {
    assert_eq!(found.shape(), expected.shape(), "{what:?}");
    let pairs = found.iter().zip(expected);
    let worst = pairs.fold(0.0_f64, |worst, (a, b)| {
        worst.max((a - b).abs() / (1.0 + b.abs()))
    });
    assert!(worst < within, "{what:?}: {found} instead of {expected}");
}

/// The op in a random layout is what loops make of it.
fn check_one(world: &World, draw: &mut Draw, case: fn(&mut Draw) -> Case) {
    let Some((op, operands)) = case(draw) else {
        return;
    };
    let placed = world.place(draw, &operands);
    let tensors: Vec<&DTensor<f64>> = placed.iter().collect();
    let made = DTensor::apply(&op, &tensors, &|_| 0.0).unwrap();
    let found = made[0].to_host().unwrap();
    let what = (
        &op,
        tensors
            .iter()
            .map(|tensor| tensor.layout())
            .collect::<Vec<_>>(),
    );
    close(&found, &by_loops(&op, &operands), 1e-9, &what);
}

/// The gradient by each operand is how the weighted sum of the result changes with it.
fn check_slopes(world: &World, draw: &mut Draw, case: fn(&mut Draw) -> Case) {
    let Some((op, operands)) = case(draw) else {
        return;
    };
    let weights = distinct(&output_shape(&op, &operands).unwrap()).mapv(|x| x + 0.5);
    let mut all = world.place(
        draw,
        &[&operands[..], std::slice::from_ref(&weights)].concat(),
    );
    let upstream = all.pop().unwrap();
    let tensors: Vec<&DTensor<f64>> = all.iter().collect();
    let Ok(gradients) = DTensor::gradients(&op, &tensors, &upstream, &|_, _| 0.0) else {
        let is_largest = |op: &Op| matches!(op, Op::PoolGradient(of) if of.pooling == Pooling::Max);
        assert!(is_largest(&op), "{op:?} has no gradient");
        return;
    };
    let total = |operands: &[ArrayD<f64>]| (by_loops(&op, operands) * &weights).sum();
    for (number, gradient) in gradients.iter().enumerate() {
        let is_index = matches!(op, Op::Embedding | Op::EmbeddingGradient) && number == 1;
        let slopes = ArrayD::from_shape_fn(operands[number].shape(), |index| {
            if is_index {
                return 0.0;
            }
            let moved = |by: f64| {
                let mut operands = operands.clone();
                operands[number][&index] += by;
                total(&operands)
            };
            (moved(1e-5) - moved(-1e-5)) / 2e-5
        });
        close(&gradient.to_host().unwrap(), &slopes, 1e-5, &(&op, number));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn windows_are_what_loops_make_of_them(mut draw in draws()) {
        check_one(&World::host(), &mut draw, convolution);
        check_one(&World::host(), &mut draw, pool);
    }

    #[test]
    fn moments_are_what_loops_make_of_them(mut draw in draws()) {
        check_one(&World::host(), &mut draw, normalization);
    }

    #[test]
    fn rows_and_keys_are_what_loops_make_of_them(mut draw in draws()) {
        check_one(&World::host(), &mut draw, embedding);
        check_one(&World::host(), &mut draw, attention);
        check_one(&World::host(), &mut draw, elementwise);
    }

    #[test]
    fn devices_make_the_same(mut draw in draws()) {
        let world = World::of_devices();
        for case in [convolution, pool, normalization, embedding, attention, elementwise] {
            check_one(&world, &mut draw, case);
        }
        prop_assert!(world.uploaded() > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn gradients_of_windows_are_the_slopes(mut draw in draws()) {
        check_slopes(&World::host(), &mut draw, convolution);
        check_slopes(&World::host(), &mut draw, pool);
    }

    #[test]
    fn gradients_of_moments_are_the_slopes(mut draw in draws()) {
        check_slopes(&World::host(), &mut draw, normalization);
    }

    #[test]
    fn gradients_of_rows_and_keys_are_the_slopes(mut draw in draws()) {
        check_slopes(&World::host(), &mut draw, embedding);
        check_slopes(&World::host(), &mut draw, attention);
        check_slopes(&World::host(), &mut draw, elementwise);
    }

    #[test]
    fn gradients_on_devices_are_the_slopes(mut draw in draws()) {
        let world = World::of_devices();
        for case in [convolution, pool, normalization, embedding, attention, elementwise] {
            check_slopes(&world, &mut draw, case);
        }
    }
}

#[test]
fn large_windows_groups_and_numbers_of_queries_are_what_loops_make_of_them() {
    let of = Convolution::new(Windows::strides([1]));
    let operands = [distinct(&[1, 3000, 2]), distinct(&[64, 2, 1])];
    let check = |op: &Op, operands: &[ArrayD<f64>]| {
        let context = context();
        let placed = operands.iter().map(|of| {
            let layout = Layout::replicated(&mesh(), of.ndim());
            context.copy_to_mesh(of.clone(), &layout).unwrap()
        });
        let placed: Vec<DTensor<f64>> = placed.collect();
        let tensors: Vec<&DTensor<f64>> = placed.iter().collect();
        let made = DTensor::apply(op, &tensors, &|_| 0.0).unwrap();
        close(
            &made[0].to_host().unwrap(),
            &by_loops(op, operands),
            1e-9,
            op,
        );
    };
    check(&Op::Convolution(of.clone()), &operands);
    let [images, filter] = operands;
    let upstream = distinct(&[1, 2937, 1]);
    let (spatial, window) = (vec![3000], vec![64]);
    let op = Op::ConvolutionInputGradient {
        of: of.clone(),
        spatial,
    };
    check(&op, &[upstream.clone(), filter]);
    check(
        &Op::ConvolutionFilterGradient { of, window },
        &[images, upstream],
    );
    // Groups that are large enough for products of matrices.
    let windows = Windows::strides([2]).padded(Padding::Same);
    let of = Convolution { windows, groups: 2 };
    let (images, filter) = (distinct(&[2, 3, 34]), distinct(&[2, 17, 36]));
    let upstream = distinct(&[2, 2, 36]);
    check(
        &Op::Convolution(of.clone()),
        &[images.clone(), filter.clone()],
    );
    let (spatial, window) = (vec![3], vec![2]);
    let op = Op::ConvolutionInputGradient {
        of: of.clone(),
        spatial,
    };
    check(&op, &[upstream.clone(), filter]);
    check(
        &Op::ConvolutionFilterGradient { of, window },
        &[images, upstream],
    );
    let [query, key, value] = [[70, 3], [75, 3], [75, 2]].map(|shape| distinct(&shape));
    check(&Op::Attention(AttentionMask::Causal), &[query, key, value]);
}

/// Mean and variance of each channel, by loops.
fn statistics(batch: &ArrayD<f64>) -> [Vec<f64>; 2] {
    let channels = batch.shape()[batch.ndim() - 1];
    let of = |channel: usize| -> Vec<f64> {
        let all = batch.iter().skip(channel).step_by(channels);
        all.copied().collect()
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let moments = (0..channels).map(|channel| {
        let values = of(channel);
        let center = mean(&values);
        let squares: Vec<f64> = values.iter().map(|x| (x - center) * (x - center)).collect();
        (center, mean(&squares))
    });
    let (means, variances) = moments.unzip();
    [means, variances]
}

fn check_batch_norm(context: &Context, mesh: &Mesh, names: &[&str]) {
    let batch = distinct(&[5, 3, 2, 3]);
    let [means, variances] = statistics(&batch);
    let vector = |of: &[f64]| {
        let layout = Layout::replicated(mesh, 1);
        context
            .copy_to_mesh(Array::from(of.to_vec()), &layout)
            .unwrap()
    };
    let (scale, offset) = ([0.5, 1.0, 2.0], [3.0, -1.0, 0.0]);
    let layout = Layout::from_names(names, mesh).unwrap();
    let placed = context.copy_to_mesh(batch.clone(), &layout).unwrap();
    let made = placed
        .batch_norm(&vector(&scale), &vector(&offset), 1e-3)
        .unwrap();
    let expected = ArrayD::from_shape_fn(batch.shape(), |index| {
        let channel = index[3];
        let root = (variances[channel] + 1e-3).sqrt();
        (batch[&index] - means[channel]) / root * scale[channel] + offset[channel]
    });
    close(&made.output.to_host().unwrap(), &expected, 1e-12, &names);
    assert_eq!(made.output.layout(), &layout);
    let found = made.mean.to_host().unwrap();
    close(
        &found,
        &Array::from(means.clone()).into_dyn(),
        1e-12,
        &names,
    );
    let found = made.variance.to_host().unwrap();
    close(&found, &Array::from(variances).into_dyn(), 1e-12, &names);
    // By other statistics, for inference.
    let one = vector(&[1.0; 3]);
    let known = [&vector(&means), &one];
    let made = placed
        .batch_norm_by(known, [&one, &vector(&[0.0; 3])], 1e-9)
        .unwrap();
    let expected = ArrayD::from_shape_fn(batch.shape(), |index| batch[&index] - means[index[3]]);
    close(&made.to_host().unwrap(), &expected, 1e-6, &names);
}

#[test]
fn statistics_of_a_batch_are_those_of_the_whole_one_however_it_is_cut() {
    for sizes in [[1, 1], [2, 1], [4, 1], [2, 2], [7, 1]] {
        let mesh = Mesh::new(["x", "y"].into_iter().zip(sizes)).unwrap();
        for names in [
            ["x", "unsharded", "unsharded", "unsharded"],
            ["x", "y", "unsharded", "unsharded"],
            ["unsharded", "unsharded", "y", "x"],
        ] {
            check_batch_norm(&context(), &mesh, &names);
        }
    }
}

#[test]
fn statistics_of_a_batch_are_reduced_between_clients() {
    let checked = clients(2, 2, |context| {
        let mesh = context.create_distributed_mesh(CreateMesh::new().dims([("x", 2), ("y", 2)]));
        let mesh = mesh.unwrap();
        check_batch_norm(context, &mesh, &["x", "unsharded", "y", "unsharded"]);
        let rows = Layout::from_names(["x", "unsharded"], &mesh).unwrap();
        let table = context.copy_to_mesh(distinct(&[5, 3]), &rows).unwrap();
        let words = Layout::from_names(["y"], &mesh).unwrap();
        let words = context.copy_to_mesh(array![4_i32, 0, 4], &words).unwrap();
        let found = table.embedding(&words).unwrap().to_host().unwrap();
        let whole = distinct(&[5, 3]);
        let rows = ArrayD::from_shape_fn(IxDyn(&[3, 3]), |at| whole[[[4, 0, 4][at[0]], at[1]]]);
        assert_eq!(found, rows);
        1
    });
    assert_eq!(checked, [1, 1]);
}

#[test]
fn rows_and_groups_of_channels_are_normalised_scaled_and_shifted() {
    let context = context();
    let layout = Layout::from_names(["x", "unsharded", "y"], &mesh()).unwrap();
    let whole = distinct(&[3, 2, 4]);
    let tensor = context.copy_to_mesh(whole.clone(), &layout).unwrap();
    let vector = |of: [f64; 4]| {
        let layout = Layout::from_names(["x"], &mesh()).unwrap();
        context
            .copy_to_mesh(Array::from(of.to_vec()), &layout)
            .unwrap()
    };
    let (scale, offset) = (vector([1.0, 2.0, 3.0, 4.0]), vector([0.0, 1.0, 0.0, -1.0]));
    let by = |together: &dyn Fn(&[usize], &[usize]) -> bool, has_mean: bool| {
        ArrayD::from_shape_fn(whole.shape(), |index| {
            let at = [index[0], index[1], index[2]];
            let others = whole.indexed_iter();
            let others = others.filter(|(other, _)| together(&at, &[other[0], other[1], other[2]]));
            let values: Vec<f64> = others.map(|(_, value)| *value).collect();
            let count = values.len() as f64;
            let mean = if has_mean {
                values.iter().sum::<f64>() / count
            } else {
                0.0
            };
            let spread = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            let normal = (whole[&index] - mean) / (spread + 1e-3).sqrt();
            normal * [1.0, 2.0, 3.0, 4.0][at[2]]
        })
    };
    let offsets = |made: ArrayD<f64>| made + &array![0.0, 1.0, 0.0, -1.0].into_dyn();
    let row = |a: &[usize], b: &[usize]| a[..2] == b[..2];
    let found = tensor.layer_norm(&scale, &offset, 1e-3).unwrap();
    close(
        &found.to_host().unwrap(),
        &offsets(by(&row, true)),
        1e-9,
        &"layer",
    );
    let found = tensor.rms_norm(&scale, 1e-3).unwrap();
    assert_eq!(found.layout(), &layout);
    close(&found.to_host().unwrap(), &by(&row, false), 1e-9, &"rms");
    let group = |a: &[usize], b: &[usize]| a[0] == b[0] && a[2] / 2 == b[2] / 2;
    let found = tensor.group_norm(2, [&scale, &offset], 1e-3).unwrap();
    close(
        &found.to_host().unwrap(),
        &offsets(by(&group, true)),
        1e-9,
        &"group",
    );
}

#[test]
fn an_empty_batch_has_groups_of_channels_too() {
    let context = context();
    let vector = Layout::replicated(&mesh(), 1);
    let ones = context.full(&[8], &vector, 1.0_f64).unwrap();
    for layout in layouts(4) {
        let batch = context.zeros::<f64>(&[0, 4, 4, 8], &layout).unwrap();
        let normal = batch.group_norm(2, [&ones, &ones], 1e-3).unwrap();
        let normal = normal.to_host().unwrap();
        assert_eq!(normal.shape(), [0, 4, 4, 8], "{layout}");
        let refused = batch.group_norm(3, [&ones, &ones], 1e-3).unwrap_err();
        let are_unequal = matches!(refused, Error::Op(OpError::ReshapeSize { .. }));
        assert!(are_unequal, "{refused}");
    }
}

#[test]
fn short_floats_are_summed_in_32_bits_and_rounded_once() {
    let layout = Layout::from_names(["x", "unsharded", "y"], &mesh()).unwrap();
    // A sum of as many bits does not grow beyond 256.
    let context = context();
    let images = context.full(&[2, 600, 2], &layout, bf16::ONE).unwrap();
    let filter = context.full(&[600, 2, 1], &Layout::replicated(&mesh(), 3), bf16::ONE);
    let of = Convolution::new(Windows::strides([1]));
    let sums = images.convolution(&filter.unwrap(), &of).unwrap();
    assert!(
        sums.to_host()
            .unwrap()
            .iter()
            .all(|sum| sum.to_f32() == 1200.0)
    );
    let of = Pool::new(Pooling::Mean, [600]);
    let means = images.pool(&of).unwrap().to_host().unwrap();
    assert!(means.iter().all(|mean| *mean == bf16::ONE));
}

#[test]
fn the_first_element_of_a_window_that_is_no_number_is_its_largest() {
    let (context, nan) = (context(), f64::NAN);
    let elements = array![[[1.0, nan], [nan, 5.0], [2.0, nan], [3.0, nan]]];
    let of = Pool::new(Pooling::Max, [2]);
    for channels in ["unsharded", "y"] {
        let names = ["unsharded", "unsharded", channels];
        let layout = Layout::from_names(names, &mesh()).unwrap();
        let images = context.copy_to_mesh(elements.clone(), &layout).unwrap();
        let pooled = images.pool(&of).unwrap();
        let ones = context.full(&[1, 2, 2], pooled.layout(), 1.0).unwrap();
        let slopes = images.pool_gradient(&ones, &of).unwrap();
        let pooled = pooled.to_host().unwrap();
        for lost in [[0_usize, 0, 0], [0, 0, 1], [0, 1, 1]] {
            assert!(pooled[lost].is_nan(), "{lost:?} of {pooled}");
        }
        assert_eq!(pooled[[0, 1, 0]], 3.0);
        let expected = array![[[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]];
        assert_eq!(slopes.to_host().unwrap(), expected.into_dyn());
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let context = context();
    let of = |shape: &[usize]| {
        let layout = Layout::replicated(&mesh(), shape.len());
        context.zeros::<f64>(shape, &layout).unwrap()
    };
    let windows = Windows::strides([1, 1]);
    let of_two = Convolution { windows, groups: 2 };
    let refused = of(&[1, 4, 4, 3]).convolution(&of(&[1, 1, 3, 2]), &of_two);
    let groups = OpError::UnequalGroups {
        op: "convolution",
        channels: 3,
        groups: 2,
    };
    assert_eq!(refused.unwrap_err(), Error::Op(groups));
    let refused = of(&[4, 4])
        .normalize(&Normalization::new([0], -1.0))
        .unwrap_err();
    let message = "normalize has the epsilon -1: it must be positive and finite";
    assert_eq!(refused.to_string(), message);
    let words = context.copy_to_mesh(array![0_i64, 7], &Layout::replicated(&mesh(), 1));
    let (index, axis, size) = (7.0, 0, 7);
    assert_eq!(
        of(&[7, 2]).embedding(&words.unwrap()).unwrap_err(),
        Error::IndexOutside { index, axis, size }
    );
    let pool = Op::PoolGradient(Pool::new(Pooling::Max, [2]));
    let (images, slopes) = (of(&[1, 4, 1]), of(&[1, 2, 1]));
    let refused = DTensor::gradients(&pool, &[&images, &slopes], &images, &|_, _| 0.0);
    let none = OpError::NoGradient {
        op: "pool_gradient",
    };
    assert_eq!(refused.unwrap_err(), Error::Op(none));
}

#[test]
fn tanh_on_devices_has_the_digits_of_that_on_the_host() {
    fn check<T: Float>(within: f64) {
        let world = World::of_devices();
        let (mesh, _) = world.devices.as_ref().unwrap();
        let layout = Layout::from_names(["x"], mesh).unwrap();
        let numbers = array![0.0, 1e-8, 1e-6, 1e-4, -0.01, 0.12, -0.13, 3.0, -200.0, 1e30];
        let numbers = numbers.mapv(T::from_f64);
        let there = world
            .context
            .copy_to_mesh(numbers.clone(), &layout)
            .unwrap();
        let found = there.tanh().unwrap().to_host().unwrap();
        for (found, number) in found.iter().zip(&numbers) {
            let (found, expected) = (found.to_f64(), number.to_f64().tanh());
            let distance = (found - expected).abs();
            assert!(
                distance <= within * expected.abs(),
                "{found}, not {expected}"
            );
        }
        let none = array![T::from_f64(f64::NAN), T::from_f64(0.5)];
        let none = world.context.copy_to_mesh(none, &layout).unwrap();
        let none = none.tanh().unwrap().to_host().unwrap();
        assert!(none[[0]].to_f64().is_nan(), "{none:?}");
    }
    check::<f32>(1e-5);
    check::<f64>(1e-13);
}

#[test]
fn gradients_of_activations_far_from_zero_have_the_digits_of_those_on_the_host() {
    let world = World::of_devices();
    let (mesh, _) = world.devices.as_ref().unwrap();
    let layout = Layout::from_names(["x"], mesh).unwrap();
    let numbers = array![-18.0_f32, -10.0, -5.0, 0.5, 5.0, 10.0, 16.0, 18.0];
    let there = world.context.copy_to_mesh(numbers.clone(), &layout);
    let there = there.unwrap();
    let ones = there.zeros_like().unwrap().add_scalar(1.0).unwrap();
    for (by, z) in [(Activation::Tanh, 2.0), (Activation::Sigmoid, 1.0)] {
        let found = there.activation_gradient(&ones, by).unwrap();
        for (found, number) in found.to_host().unwrap().iter().zip(&numbers) {
            let root = 1.0 / (1.0 + (z * f64::from(number.abs())).exp());
            let expected = z * z * root * (1.0 - root);
            let distance = (f64::from(*found) - expected).abs();
            assert!(
                distance <= 1e-5 * expected,
                "{by:?} at {number}: {found}, not {expected}"
            );
        }
    }
}
