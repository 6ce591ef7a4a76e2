//! Gradients of each op against slopes, of random compositions against slopes of plain arrays
//! (`random`), of gradients again, and what tapes refuse.

use meshwork_layout::Layout;
use meshwork_layout::ops::{Equation, Index, Op, OpError, Orientation, Parts};
use ndarray::{Array, ArrayD, IxDyn, array};

use super::*;
use crate::testing::{clients, context, layouts, mesh};
use crate::{Context, ReduceAxes, bf16};

mod coverage;
mod network;
pub(crate) mod random;

/// Numbers of which no two are alike, so that there are a largest and a smallest.
pub(crate) fn numbers(shape: &[usize]) -> ArrayD<f64> {
    let count: usize = shape.iter().product();
    let values = (0..count).map(|i| ((i * 7 + 3) % 101) as f64 / 8.0 - 1.9);
    Array::from_iter(values)
        .into_shape_with_order(IxDyn(shape))
        .unwrap()
}

fn scalar(value: f64) -> DTensor<f64> {
    let layout = Layout::replicated(&mesh(), 0);
    context().full(&[], &layout, value).unwrap()
}

fn value(tensor: &DTensor<f64>) -> f64 {
    tensor.to_host().unwrap().sum()
}

type Compute<'a> = &'a dyn Fn(&[DTensor<f64>]) -> Result<DTensor<f64>, Error>;

/// The sum of the squares of what is computed.
fn total(compute: Compute<'_>, of: &[DTensor<f64>]) -> Result<DTensor<f64>, Error> {
    let result = compute(of)?;
    result.mul(&result)?.sum_all()
}

/// Gradients by tensors of these shapes are the slopes, in all layouts of each that are not
/// refused, of which there have to be several.
#[track_caller]
fn check(shapes: &[&[usize]], compute: Compute<'_>) {
    let context = context();
    let whole: Vec<ArrayD<f64>> = shapes.iter().map(|shape| numbers(shape)).collect();
    let placed = |whole: &[ArrayD<f64>], layouts: &[&Layout]| -> Vec<DTensor<f64>> {
        let both = whole.iter().zip(layouts);
        both.map(|(whole, layout)| context.copy_to_mesh(whole.clone(), layout).unwrap())
            .collect()
    };
    let plain: Vec<Layout> = shapes
        .iter()
        .map(|shape| Layout::replicated(&mesh(), shape.len()))
        .collect();
    let plain: Vec<&Layout> = plain.iter().collect();
    let slope = |operand: usize, place: usize| {
        let moved = |by: f64| {
            let mut whole = whole.clone();
            whole[operand].as_slice_mut().unwrap()[place] += by;
            value(&total(compute, &placed(&whole, &plain)).unwrap())
        };
        (moved(1e-5) - moved(-1e-5)) / 2e-5
    };
    let slopes: Vec<ArrayD<f64>> = shapes
        .iter()
        .enumerate()
        .map(|(operand, shape)| {
            let count = shape.iter().product::<usize>();
            let slopes = (0..count).map(|place| slope(operand, place)).collect();
            ArrayD::from_shape_vec(IxDyn(shape), slopes).unwrap()
        })
        .collect();
    let mut tried = 0;
    let all: Vec<Vec<Layout>> = shapes.iter().map(|shape| layouts(shape.len())).collect();
    let combinations = all.iter().map(Vec::len).product::<usize>();
    for mut number in 0..combinations {
        let chosen: Vec<&Layout> = all
            .iter()
            .map(|layouts| {
                let layout = &layouts[number % layouts.len()];
                number /= layouts.len();
                layout
            })
            .collect();
        let tape = Tape::new();
        let watched = placed(&whole, &chosen);
        let watched: Vec<DTensor<f64>> = watched.iter().map(|t| tape.watch(t)).collect();
        let Ok(target) = total(compute, &watched) else {
            continue;
        };
        tried += 1;
        let sources: Vec<&DTensor<f64>> = watched.iter().collect();
        let gradients = tape.gradients(&target, &sources).unwrap();
        for (gradient, slopes) in gradients.iter().zip(&slopes) {
            let gradient = gradient.as_ref().unwrap().to_host().unwrap();
            assert_eq!(gradient.shape(), slopes.shape());
            let mut both = gradient.iter().zip(slopes);
            let close = both.all(|(a, b)| (a - b).abs() < 1e-4 * b.abs().max(1.0));
            assert!(close, "{chosen:?}: {gradient} instead of {slopes}");
        }
    }
    assert!(tried > 1, "{tried}");
}

#[test]
fn gradients_of_elementwise_ops_are_the_slopes_in_all_layouts() {
    check(&[&[3, 5], &[5]], &|t| t[0].add(&t[1]));
    check(&[&[3, 1], &[5]], &|t| t[0].sub(&t[1]));
    check(&[&[3, 5], &[3, 1]], &|t| t[0].mul(&t[1]));
    check(&[&[3], &[3, 3]], &|t| t[0].div(&t[1]));
    check(&[&[3, 5]], &|t| t[0].neg()?.scale(3.0)?.add_scalar(2.0));
    check(&[&[3, 5]], &|t| t[0].relu());
    check(&[&[3, 3]], &|t| t[0].scale(0.25)?.exp());
    check(&[&[3, 3]], &|t| t[0].mul(&t[0])?.ln());
    check(&[&[3, 5], &[5]], &|t| t[0].bias_add(&t[1]));
    let chosen = |t: &DTensor<f64>| t.map(|x| x > 1.0);
    check(&[&[3, 5], &[3, 5], &[5]], &|t| {
        chosen(&t[0].stop_gradient())?
            .select(&t[1], &t[2])
            .and_then(|s| s.add(&t[0]))
    });
}

#[test]
fn gradients_of_reductions_are_the_slopes_in_all_layouts() {
    for axes in [vec![0], vec![-1, 0]] {
        let along = ReduceAxes::axes(axes.clone());
        check(&[&[3, 5]], &|t| t[0].sum(&along));
        check(&[&[3, 5]], &|t| t[0].mean(&along.clone().keep_dims()));
        check(&[&[3, 5]], &|t| t[0].max(&along));
        check(&[&[3, 5]], &|t| t[0].min(&along.clone().keep_dims()));
        check(&[&[3, 5]], &|t| t[0].cumsum(axes[0]));
    }
    check(&[&[3, 5]], &|t| t[0].mean_all());
    check(&[&[3, 4]], &|t| t[0].softmax(-1));
    check(&[&[3, 4]], &|t| t[0].softmax(0)?.mul(&t[0]));
    check(&[&[3, 4]], &|t| t[0].log_softmax(-1));
}

#[test]
fn gradients_of_products_are_the_slopes_in_all_layouts() {
    let (plain, turned) = (Orientation::Plain, Orientation::Transposed);
    check(&[&[3, 5], &[5, 2]], &|t| t[0].matmul(&t[1]));
    check(&[&[5, 3], &[2, 5]], &|t| {
        t[0].matmul_stored(&t[1], [turned, turned])
    });
    check(&[&[2, 3, 5], &[4, 5]], &|t| {
        t[0].matmul_stored(&t[1], [plain, turned])
    });
    let equation: Equation = "abc,cd->bad".parse().unwrap();
    check(&[&[2, 3, 2], &[2, 3]], &|t| {
        t[0].einsum(&equation, &[&t[1]])
    });
}

#[test]
fn gradients_of_moved_elements_are_the_slopes_in_all_layouts() {
    let [four, three] = [Some(4), Some(3)];
    check(&[&[3, 4]], &|t| t[0].transpose(&[1, 0]));
    check(&[&[3, 4]], &|t| t[0].reshape(&[four, three]));
    check(&[&[3, 4]], &|t| {
        t[0].expand_dims(1)?.squeeze(&[1])?.mul(&t[0])
    });
    check(&[&[3, 1]], &|t| t[0].broadcast_to(&[2, 3, 5]));
    check(&[&[3, 2]], &|t| t[0].tile(&[2, 1]));
    check(&[&[3, 2]], &|t| t[0].tile(&[1, 3]));
    check(&[&[3, 2]], &|t| t[0].pad(&[(1, 2), (0, 0)]));
    check(&[&[3, 2], &[3, 4]], &|t| {
        DTensor::concat(-1, &[&t[0], &t[1], &t[0]])
    });
    check(&[&[3, 2], &[3, 2]], &|t| DTensor::stack(1, &[&t[0], &t[1]]));
    check(&[&[5, 3]], &|t| {
        let parts = t[0].split(0, &Parts::Sizes(vec![1, 3, 1]))?;
        parts[1].mul(&parts[2])
    });
    check(&[&[3, 4]], &|t| {
        t[0].unstack(1)?[2].mul(&t[0].unstack(1)?[0])
    });
    check(&[&[5, 3]], &|t| t[0].slice(&[1, 0], &[Some(3), None]));
    for layout in layouts(2) {
        check(&[&[3, 5]], &|t| t[0].relayout(&layout)?.mul(&t[0]));
    }
}

#[test]
fn gradients_of_chosen_indices_are_the_slopes_in_all_layouts() {
    let range = |begin, end, step| Index::Range {
        begin,
        end,
        step: std::num::NonZeroIsize::new(step).unwrap(),
    };
    check(&[&[8, 3]], &|t| {
        t[0].strided_slice(&[range(Some(7), Some(1), -2)])
    });
    check(&[&[7, 3]], &|t| {
        t[0].strided_slice(&[range(Some(1), None, 3), Index::At(-1)])
    });
    check(&[&[4, 3]], &|t| {
        t[0].strided_slice(&[Index::NewAxis, range(None, None, -1)])
    });
    let indices = array![[2_i64, 0], [2, 1]];
    let indices = context().copy_to_mesh(indices, &layouts(2)[1]);
    let indices = indices.unwrap();
    for axis in [0, -1] {
        let again = |t: &[DTensor<f64>]| {
            // Indices of the same context as the tensor.
            let context = t[0].context();
            let indices = context.copy_to_mesh(indices.to_host()?, &layouts(2)[1])?;
            t[0].gather(&indices, axis)
        };
        check(&[&[3, 4]], &again);
    }
}

#[test]
fn gradients_of_cross_entropies_are_the_slopes_by_logits_and_by_labels() {
    // Of the second some are no class's, as of padding.
    for numbers in [[1_i64, 0, 3], [2, -1, 4]] {
        let labels = |t: &DTensor<f64>| {
            let layout = Layout::from_names(["x"], t.layout().mesh())?;
            t.context().copy_to_mesh(ndarray::arr1(&numbers), &layout)
        };
        check(&[&[3, 4]], &|t| {
            Ok(t[0].sparse_cross_entropy(&labels(&t[0])?)?.0)
        });
        // Both results: the second is a gradient itself.
        check(&[&[3, 4]], &|t| {
            let (loss, slope) = t[0].sparse_cross_entropy(&labels(&t[0])?)?;
            slope.mul(&loss.expand_dims(-1)?)
        });
    }
    check(&[&[3, 4], &[3, 4]], &|t| {
        let (loss, slope) = t[0].cross_entropy(&t[1].softmax(-1)?)?;
        slope.mul(&loss.expand_dims(-1)?)
    });
}

#[test]
fn gradients_of_gradients_are_those_of_the_formulas() {
    let outer = Tape::new();
    let x = outer.watch(&scalar(2.0));
    let second = |x: &DTensor<f64>| {
        let inner = Tape::new();
        let x = inner.watch(x);
        let result = x.mul(&x).unwrap().mul(&x).unwrap().exp().unwrap();
        let [slope] = inner.gradient(&result, [&x]).unwrap();
        (slope, x)
    };
    // exp(x³)' = 3x²·exp(x³), and (6x + 9x⁴)·exp(x³) after that.
    let (slope, x) = second(&x);
    assert!((value(&slope) / 8_f64.exp() - 12.0).abs() < 1e-9);
    let [bend] = outer.gradient(&slope, [&x]).unwrap();
    assert!((value(&bend) / 8_f64.exp() - 156.0).abs() < 1e-9);

    let tape = Tape::persistent();
    let x = tape.watch(&scalar(0.5));
    let mut derivative = x.mul(&x).unwrap().mul(&x).unwrap().mul(&x).unwrap();
    for expected in [4.0 * 0.125, 12.0 * 0.25, 24.0 * 0.5, 24.0] {
        [derivative] = tape.gradient(&derivative, [&x]).unwrap();
        assert!((value(&derivative) - expected).abs() < 1e-12, "{expected}");
    }
    // That is a constant.
    assert!(tape.gradients(&derivative, &[&x]).unwrap()[0].is_none());
}

#[test]
fn second_derivatives_of_a_network_are_the_slopes_of_the_first() {
    let (context, layout) = (context(), layouts(2).remove(1));
    let labels = Layout::from_names(["y"], &mesh()).unwrap();
    let labels = context.copy_to_mesh(array![1_i64, 0, 3], &labels).unwrap();
    let first = |whole: &ArrayD<f64>, outer: &Tape| {
        let x = outer.watch(&context.copy_to_mesh(whole.clone(), &layout).unwrap());
        let inner = Tape::new();
        let watched = inner.watch(&x);
        let hidden = watched
            .matmul(&watched.transpose(&[1, 0]).unwrap())
            .unwrap();
        let logits = hidden.relu().unwrap().softmax(0).unwrap();
        let logits = logits.matmul(&watched).unwrap();
        let (losses, _) = logits.sparse_cross_entropy(&labels).unwrap();
        let [slope] = inner
            .gradient(&losses.mean_all().unwrap(), [&watched])
            .unwrap();
        (slope.mul(&slope).unwrap().sum_all().unwrap(), x)
    };
    let whole = numbers(&[3, 4]).mapv(|x| x / 4.0);
    let outer = Tape::new();
    let (target, x) = first(&whole, &outer);
    let [found] = outer.gradient(&target, [&x]).unwrap();
    for (place, found) in found.to_host().unwrap().iter().enumerate() {
        let moved = |by: f64| {
            let mut whole = whole.clone();
            whole.as_slice_mut().unwrap()[place] += by;
            value(&first(&whole, &Tape::new()).0)
        };
        let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((slope - found).abs() < 1e-5, "{place}: {found} and {slope}");
    }
}

#[test]
fn clients_get_the_same_bits_as_one_with_all_devices() {
    let gradient = |context: &Context| {
        let mesh = meshwork_core::CreateMesh::new().dims([("x", 2), ("y", 2)]);
        let mesh = context.create_distributed_mesh(mesh).unwrap();
        let placed = |names: [&str; 2], shape: &[usize]| {
            let layout = Layout::from_names(names, &mesh).unwrap();
            let whole = numbers(shape).mapv(|x| x / 3.0);
            let wide = context.copy_to_mesh(whole, &layout).unwrap();
            wide.cast::<f32>().unwrap()
        };
        let tape = Tape::new();
        let a = tape.watch(&placed(["x", "unsharded"], &[5, 7]));
        let b = tape.watch(&placed(["unsharded", "y"], &[7, 3]));
        let product = a.matmul(&b).unwrap().softmax(-1).unwrap();
        let target = product.mul(&product).unwrap().sum_all().unwrap();
        let gradients = tape.gradient(&target, [&a, &b]).unwrap();
        gradients.map(|gradient| gradient.to_host().unwrap().mapv(f32::to_bits))
    };
    let alone = clients(1, 4, gradient).remove(0);
    for (count, devices) in [(2, 2), (4, 1)] {
        let all = clients(count, devices, gradient);
        assert!(all.iter().all(|bits| *bits == alone), "{count} clients");
    }
}

#[test]
fn floats_of_other_types_are_passed_by_gradients_in_their_own() {
    let tape = Tape::new();
    let layout = layouts(1).remove(1);
    let weights = context().full(&[3], &layout, bf16::from_f32(1.5)).unwrap();
    let weights = tape.watch(&weights);
    let wide = weights.cast::<f32>().unwrap();
    let target = wide.mul(&wide).unwrap().sum_all().unwrap();
    let [gradient] = tape.gradient(&target, [&weights]).unwrap();
    let gradient: ArrayD<bf16> = gradient.to_host().unwrap();
    assert!(gradient.iter().all(|slope| slope.to_f32() == 3.0));
}

#[test]
fn what_does_not_depend_on_a_source_has_no_gradient_or_zeros() {
    let tape = Tape::persistent();
    let (x, y) = (tape.watch(&scalar(2.0)), tape.watch(&scalar(3.0)));
    let target = x.mul(&x).unwrap();
    let found = tape.gradients(&target, &[&x, &y]).unwrap();
    assert!(matches!(&found[..], [Some(slope), None] if value(slope) == 4.0));
    let [by_x, by_y] = tape.gradient(&target, [&x, &y]).unwrap();
    assert_eq!([value(&by_x), value(&by_y)], [4.0, 0.0]);
    // Where it is the source itself.
    let [own] = tape.gradient(&x, [&x]).unwrap();
    assert_eq!(value(&own), 1.0);
    // By something on the way.
    let [by_square] = tape.gradient(&target.exp().unwrap(), [&target]).unwrap();
    assert!((value(&by_square) - 4_f64.exp()).abs() < 1e-9);
    let constant = x.stop_gradient().exp().unwrap();
    assert!(tape.gradients(&constant, &[&x]).unwrap()[0].is_none());
    assert_eq!(
        tape.gradient(&constant, [&x]).unwrap_err(),
        Error::TargetUnwatched
    );
}

#[test]
fn gradients_are_carried_on_from_those_that_are_given() {
    let tape = Tape::new();
    let layout = layouts(1).remove(1);
    let context = context();
    let x = context
        .copy_to_mesh(array![1.0, 2.0, 3.0], &layout)
        .unwrap();
    let x = tape.watch(&x);
    let square = x.mul(&x).unwrap();
    let (found, expected) = (vec![], vec![3]);
    let one = context
        .full(&[], &Layout::replicated(&mesh(), 0), 1.0)
        .unwrap();
    assert_eq!(
        tape.gradients_from(&square, &one, &[&x]).unwrap_err(),
        Error::TargetShape { found, expected }
    );
    let upstream = context
        .copy_to_mesh(array![1.0, 0.0, -1.0], &layout)
        .unwrap();
    let found = tape.gradients_from(&square, &upstream, &[&x]).unwrap();
    let found = found[0].as_ref().unwrap().to_host().unwrap();
    assert_eq!(found, array![2.0, 0.0, -6.0].into_dyn());
}

#[test]
fn a_tape_gives_gradients_once_unless_it_is_persistent() {
    let tape = Tape::new();
    let x = tape.watch(&scalar(2.0));
    let square = x.mul(&x).unwrap();
    tape.gradient(&square, [&x]).unwrap();
    assert_eq!(tape.gradient(&square, [&x]).unwrap_err(), Error::TapeSpent);
    assert_eq!(
        Tape::new().gradients(&square, &[&x]).unwrap_err(),
        Error::NotWatched { place: 0 }
    );
    // Nothing more is recorded.
    let cube = square.mul(&x).unwrap();
    assert_eq!(
        tape.gradient(&cube, [&x]).unwrap_err(),
        Error::TargetUnwatched
    );
}

#[test]
fn what_has_no_gradient_is_named_with_its_line() {
    let tape = Tape::persistent();
    let x = tape.watch(&scalar(2.0));
    let line = line!() + 1;
    let cosine = x.map(f64::cos).unwrap();
    let refused = tape.gradient(&cosine, [&x]).unwrap_err();
    assert!(
        matches!(refused, Error::NoDerivative { op: "map", at } if at.line() == line
            && at.file().ends_with("tests.rs")),
        "{refused}"
    );
    let wide = x.reshape(&[Some(1)]).unwrap();
    let product = wide.product(&ReduceAxes::axes([0])).unwrap();
    let refused = tape.gradient(&product, [&x]).unwrap_err();
    assert!(
        matches!(refused, Error::NoDerivative { op: "reduce", .. }),
        "{refused}"
    );
    // What it is not asked about does not matter.
    let both = cosine.stop_gradient().mul(&x).unwrap();
    assert!(tape.gradient(&both, [&x]).is_ok());
}

#[test]
fn only_what_gradients_need_is_kept() {
    let tape = Tape::new();
    let layout = layouts(1).remove(1);
    let x = tape.watch(&context().full(&[3], &layout, 2.0_f64).unwrap());
    let sum = x.add(&x).unwrap();
    let product = sum.mul(&sum).unwrap();
    let table = context().zeros::<f64>(&[3, 2], &layouts(2)[0]).unwrap();
    let words = table.context().zeros::<i64>(&[3], &layout).unwrap();
    tape.watch(&table).embedding(&words).unwrap();
    let kept = |number: usize| {
        let node = tape.recording.node(number).unwrap();
        let tensor: DTensor<f64> = node.operands[0].tensor.typed().cloned().unwrap();
        tensor.unpack().is_ok()
    };
    assert!(!kept(1) && kept(2));
    // Of a table gradients need the layout.
    assert!(!kept(4));
    tape.gradient(&product, [&x]).unwrap();
    assert!((0..3).all(|number| tape.recording.node(number).is_none()));
}

#[test]
fn ops_by_name_have_the_same_gradients() {
    let tape = Tape::new();
    let logits = context()
        .copy_to_mesh(numbers(&[3, 4]), &layouts(2)[4])
        .unwrap();
    let logits = tape.watch(&logits);
    let op = Op::Softmax { axis: 0 };
    let softmax = DTensor::apply(&op, &[&logits], &|_| 0.0).unwrap().remove(0);
    let upstream = softmax.scale(2.0).unwrap();
    let square = softmax.mul(&softmax).unwrap();
    let [found] = tape.gradient(&square, [&logits]).unwrap();
    let logits = [&logits.stop_gradient()];
    let expected = DTensor::gradients(&op, &logits, &upstream, &|_, _| 0.0).unwrap();
    let difference = found.sub(&expected[0]).unwrap().to_host().unwrap();
    assert!(difference.iter().all(|x| x.abs() < 1e-12));
    let refused = DTensor::gradients(&Op::ShapeOf, &logits, &upstream, &|_, _| 0.0);
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, Error::Op(OpError::UpstreamShape { .. })),
        "{refused}"
    );
}
