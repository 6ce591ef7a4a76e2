//! Where blocks are: what crosses between the host and devices, and how often.

use std::num::{NonZeroIsize, NonZeroUsize};
use std::sync::Arc;

use meshwork_accel_cpu::CpuAccelerator;
use meshwork_core::Mesh;
use meshwork_dtensor::{Backend, BackendBuilder, Context, DTensor, DeviceType, ReduceAxes, bf16};
use meshwork_layout::Layout;
use meshwork_layout::ops::{Index, Orientation};
use ndarray::ArrayD;

use crate::counting::Counting;
use crate::{eight, numbers};

/// Eight devices that count and have arithmetic only, and what lies on them.
fn counting() -> (Arc<Counting>, Backend, Context, Mesh) {
    offering(BackendBuilder::arithmetic)
}

/// Eight devices that count, and what lies on them.
fn offering(
    offer: impl Fn(BackendBuilder<Counting>) -> BackendBuilder<Counting>,
) -> (Arc<Counting>, Backend, Context, Mesh) {
    let eight_devices = NonZeroUsize::new(8).unwrap();
    let cpus = CpuAccelerator::with_logical_devices(eight_devices);
    let counting = Arc::new(Counting::new(cpus));
    let backend = Backend::from(offer(Backend::of(&counting)));
    let (context, mesh) = eight();
    context
        .compute_on(DeviceType::Tpu, backend.clone())
        .unwrap();
    (counting, backend, context, mesh)
}

/// Rows over x and y, and what they are multiplied by, whole everywhere.
fn operands(context: &Context, mesh: &Mesh) -> [DTensor<f32>; 3] {
    let rows = Layout::from_names(["y", "unsharded"], mesh).unwrap();
    let whole = Layout::from_names(["unsharded", "unsharded"], mesh).unwrap();
    let place = |shape: &[usize], seed, layout| {
        let array: ArrayD<f32> = numbers(shape, seed);
        context.copy_to_mesh(array, layout).unwrap()
    };
    [
        place(&[8, 6], 1, &rows),
        place(&[6, 6], 2, &whole),
        place(&[8, 6], 3, &rows),
    ]
}

/// A chain of five ops, of which the first three inputs are all there are.
fn chain([a, b, c]: &[DTensor<f32>; 3]) -> DTensor<f32> {
    let product = a.matmul(b).unwrap().relu().unwrap();
    let sum = product.add(c).unwrap().mul(a).unwrap();
    sum.neg().unwrap()
}

#[test]
fn a_chain_of_ops_takes_each_input_to_the_devices_once_and_its_result_back_once() {
    let (counting, backend, context, mesh) = counting();
    let inputs = operands(&context, &mesh);
    let result = chain(&inputs);
    let (inputs_of_devices, devices) = (3 * 8, 8);
    assert_eq!(counting.crossings(), (inputs_of_devices, 0));
    let blocks = result.unpack().unwrap().to_vec();
    assert_eq!(counting.crossings(), (inputs_of_devices, devices));

    // What is known of both sides does not cross again.
    assert_eq!(result.clone().unpack().unwrap(), blocks);
    result.neg().unwrap();
    chain(&inputs);
    assert_eq!(counting.crossings(), (inputs_of_devices, devices));

    let (host, same) = eight();
    let expected = chain(&operands(&host, &same));
    assert_eq!(expected.unpack().unwrap(), blocks);
    let elements: usize = blocks.iter().map(|block| block.len()).sum();
    assert_eq!(backend.bytes_downloaded(), 4 * elements as u64);
}

#[test]
fn an_op_that_a_backend_lacks_takes_its_operand_back_once() {
    let (counting, _, context, mesh) = counting();
    let [a, _, c] = operands(&context, &mesh);
    let sum = a.add(&c).unwrap();
    for _ in 0..2 {
        sum.cumsum(1).unwrap();
        sum.map(f32::sqrt).unwrap();
    }
    assert_eq!(counting.crossings(), (2 * 8, 8));
}

#[test]
fn ops_that_look_at_indices_stay_on_the_devices() {
    let all = |offer: BackendBuilder<Counting>| offer.arithmetic().arrangement().collectives();
    let (counting, backend, context, mesh) = offering(all);
    let found = chosen(&context, &mesh);
    assert_eq!(counting.crossings().1, 0, "something came to the host");
    assert_chosen(&found);
    drop(found);
    assert_eq!(backend.bytes_held(), 0);
}

/// What was [`chosen`] on devices is what the host chooses.
#[track_caller]
pub(crate) fn assert_chosen(found: &[DTensor<f32>]) {
    let (host, same) = eight();
    for (found, expected) in found.iter().zip(chosen(&host, &same)) {
        assert_eq!(found.shape(), expected.shape());
        let (found, expected) = (found.to_host().unwrap(), expected.to_host().unwrap());
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() <= 1e-5, "{found}, not {expected}");
        }
    }
}

/// What ops that look at indices, conditions and neighbours make of a table, all of it on devices.
pub(crate) fn chosen(context: &Context, mesh: &Mesh) -> Vec<DTensor<f32>> {
    let rows = Layout::from_names(["x", "unsharded"], mesh).unwrap();
    let whole = Layout::from_names(["unsharded"], mesh).unwrap();
    let table: ArrayD<f32> = numbers(&[8, 6], 1);
    let table = context.copy_to_mesh(table, &rows).unwrap();
    let tokens = ndarray::array![3_i32, 0, 5, 3].into_dyn();
    let tokens = context.copy_to_mesh(tokens, &whole).unwrap();
    // What an op has made is on the devices only.
    let table = table.neg().unwrap();
    let picked = table.gather(&tokens, 1).unwrap();
    let labels = tokens.one_hot::<f32>(6).unwrap();
    let steps = NonZeroIsize::new(-2).unwrap();
    let backwards = Index::Range {
        begin: None,
        end: None,
        step: steps,
    };
    let logits = table.transpose(&[1, 0]).unwrap();
    let logits = logits.slice(&[0, 0], &[Some(4), Some(6)]).unwrap();
    let (loss, gradient) = logits.sparse_cross_entropy(&tokens).unwrap();
    vec![
        picked.cumsum(-1).unwrap(),
        picked.pad(&[(0, 0), (1, 2)]).unwrap(),
        picked.tile(&[1, 3]).unwrap(),
        picked.strided_slice(&[Index::FULL, backwards]).unwrap(),
        labels.clone(),
        picked
            .einsum(&"ab,bc->ac".parse().unwrap(), &[&labels])
            .unwrap(),
        gradient,
        loss,
        picked.cast::<f64>().unwrap().cast().unwrap(),
        table.argmax(1).unwrap().cast().unwrap(),
        // Along the axis that is cut, and after a copy to devices.
        table.argmin(0).unwrap().cast().unwrap(),
        tokens.argmax(-1).unwrap().cast().unwrap(),
        picked
            .relu()
            .unwrap()
            .select(&picked, &labels_like(&picked))
            .unwrap(),
    ]
}

/// Twice as large, to be told apart.
fn labels_like(tensor: &DTensor<f32>) -> DTensor<f32> {
    tensor.add(tensor).unwrap()
}

#[test]
fn a_tensor_that_goes_to_its_devices_leaves_nothing_on_the_host() {
    let (counting, backend, context, mesh) = counting();
    let [a, _, _] = operands(&context, &mesh);
    let whole = a.to_host().unwrap();
    let there = a.into_devices().unwrap();
    assert_eq!(counting.crossings(), (8, 0));
    let again = there.clone().into_devices().unwrap();
    assert_eq!(counting.crossings(), (8, 0));
    assert_eq!(backend.bytes_held(), 8 * 2 * 6 * 4);
    // Nobody else has it: it is fetched.
    assert_eq!(again.to_host().unwrap(), whole);
    assert!(counting.crossings().1 > 0);
}

#[test]
fn elements_that_were_refused_are_not_given_again() {
    let (counting, _, context, mesh) = counting();
    let rows = Layout::from_names(["y", "unsharded"], &mesh).unwrap();
    let short: ArrayD<bf16> = numbers(&[8, 6], 1);
    let tensor = context.copy_to_mesh(short, &rows).unwrap();
    for _ in 0..2 {
        tensor.add(&tensor).unwrap();
    }
    // The wrapper does not know what the CPU refuses, and is told once, by the first block.
    assert_eq!(counting.crossings().0, 8);
    let other = tensor.neg().unwrap();
    other.mul(&other).unwrap();
    assert_eq!(counting.crossings().0, 8);
}

#[test]
fn blocks_on_devices_take_memory_as_long_as_a_tensor_has_them() {
    let (_, backend, context, mesh) = counting();
    let inputs = operands(&context, &mesh);
    assert_eq!(backend.bytes_held(), 0, "nothing has computed yet");
    // Two rows of six for each device, and six by six.
    let block = 2 * 6 * 4;
    let sum = inputs[0].add(&inputs[2]).unwrap();
    assert_eq!(backend.bytes_held(), 3 * 8 * block);
    let again = sum.clone();
    drop(sum);
    assert_eq!(backend.bytes_held(), 3 * 8 * block);
    drop((again, inputs));
    assert_eq!(backend.bytes_held(), 0);
}

#[test]
fn tensors_of_a_backend_that_was_replaced_go_on_with_the_new_one() {
    let (old, _, context, mesh) = counting();
    let inputs = operands(&context, &mesh);
    let first = chain(&inputs);
    let (new, _, _, _) = counting();
    let backend = Backend::of(&new).arithmetic();
    context.compute_on(DeviceType::Tpu, backend).unwrap();
    let second = chain(&inputs).add(&first).unwrap();
    let twice = first.to_host().unwrap() * 2.0;
    assert_eq!(second.to_host().unwrap(), twice);
    assert_eq!(old.crossings().0, 3 * 8);
    assert!(new.crossings().0 > 0);
}

/// A layer as transformers have them: queries of the rows meet their keys, and take what they
/// attend to; weights are cut as tensor parallelism cuts them.
pub(crate) fn attention(context: &Context, mesh: &Mesh) -> DTensor<f32> {
    let place = |shape: &[usize], seed, names: &[&str]| {
        let layout = Layout::from_names(names.iter().copied(), mesh).unwrap();
        let array: ArrayD<f32> = numbers(shape, seed);
        context.copy_to_mesh(array, &layout).unwrap()
    };
    let rows = place(&[2, 6, 8], 1, &["x", "unsharded", "unsharded"]);
    let [queries, keys, values] = [2, 3, 4].map(|seed| {
        let weights = place(&[8, 8], seed, &["unsharded", "y"]);
        let made = rows.matmul(&weights).unwrap().scale(0.125).unwrap();
        let heads = made.reshape(&[2, 6, 4, 2].map(Some)).unwrap();
        heads.transpose(&[0, 2, 1, 3]).unwrap()
    });
    let stored = [Orientation::Plain, Orientation::Transposed];
    let scores = queries.matmul_stored(&keys, stored).unwrap();
    let seen = scores.softmax(-1).unwrap().matmul(&values).unwrap();
    let seen = seen.transpose(&[0, 2, 1, 3]).unwrap();
    let seen = seen.reshape(&[2, 6, 8].map(Some)).unwrap();
    let out = place(&[8, 8], 5, &["y", "unsharded"]);
    let sum = seen.matmul(&out).unwrap().add(&rows).unwrap();
    let mean = sum.mean(&ReduceAxes::axes([-1]).keep_dims()).unwrap();
    sum.sub(&mean).unwrap()
}

#[test]
fn a_layer_of_a_transformer_stays_on_the_devices_and_they_reduce_among_themselves() {
    let all = |offer: BackendBuilder<Counting>| offer.arithmetic().arrangement().collectives();
    let (counting, backend, context, mesh) = offering(all);
    let found = attention(&context, &mesh);
    assert_eq!(counting.crossings().1, 0, "something came to the host");
    // Terms of the last product lie along y, in two groups.
    assert_eq!(counting.reductions(), 2);
    // Five operands, and three factors and a divisor of one element each.
    assert_eq!(counting.crossings().0, (5 + 4) * 8);
    let (host, same) = eight();
    let expected = attention(&host, &same).to_host().unwrap();
    for (found, expected) in found.to_host().unwrap().iter().zip(&expected) {
        assert!((found - expected).abs() <= 1e-5, "{found}, not {expected}");
    }
    drop(found);
    assert_eq!(backend.bytes_held(), 0);
}
