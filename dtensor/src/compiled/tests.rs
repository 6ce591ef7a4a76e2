//! Compiled functions against the same functions carried out op by op: random compositions with
//! their gradients, and training, of one client and of several; what is refused, and what is kept.

use std::sync::Arc;

use meshwork_accel::{Graph, GraphOp, Node, Pointwise};
use meshwork_accel_cpu::CpuAccelerator;
use meshwork_core::{Client, CreateMesh};
use meshwork_layout::Layout;
use ndarray::{ArrayD, array};
use proptest::prelude::*;

use super::*;
use crate::backend::refusing;
use crate::tape::tests::numbers;
use crate::tape::tests::random::{SIDE, Step, all_carried_out, step};
use crate::testing::{clients, context, layouts, mesh};
use crate::{AdamW, Backend, Context, DTensor, DVariable, DeviceType, ReduceAxes, Sgd, Tape};

mod kept;
mod whole;

type Pair = (DTensor<f64>, DTensor<f64>);

/// The last tensor, and the gradients of its sum by the first two.
fn with_gradients(steps: &[Step], pair: &Pair) -> Result<(DTensor<f64>, Vec<DTensor<f64>>), Error> {
    let tape = Tape::new();
    let (a, b) = (tape.watch(&pair.0), tape.watch(&pair.1));
    let made = all_carried_out(steps, vec![a.clone(), b.clone()])?;
    let last = made[made.len() - 1].add(&a)?.add(&b)?;
    let gradients = tape.gradient(&last.sum_all()?, [&a, &b])?;
    Ok((last, gradients.to_vec()))
}

fn bits(tensors: &[DTensor<f64>]) -> Vec<ArrayD<u64>> {
    let whole = tensors.iter().map(|tensor| tensor.to_host().unwrap());
    whole.map(|whole| whole.mapv(f64::to_bits)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn random_compositions_and_their_gradients_have_the_same_bits_compiled(
        steps in prop::collection::vec(step(), 1..12),
        elements in prop::collection::vec(-1.0..1.0_f64, 4 * SIDE * SIDE),
        first in 0..100_usize,
        second in 0..100_usize,
    ) {
        let (context, layouts) = (context(), layouts(2));
        let placed = |from: usize, layout: usize| {
            let elements = elements[from * SIDE * SIDE..][..SIDE * SIDE].to_vec();
            let whole = ndarray::Array2::from_shape_vec((SIDE, SIDE), elements).unwrap();
            context.copy_to_mesh(whole, &layouts[layout % layouts.len()]).unwrap()
        };
        let mut compiled = compile(|(): &mut (), pair: &Pair| with_gradients(&steps, pair));
        for call in 0..2 {
            let pair = (placed(2 * call, first), placed(2 * call + 1, second));
            let (last, gradients) = compiled.call(&mut (), &pair).unwrap();
            let (expected, slopes) = with_gradients(&steps, &pair).unwrap();
            prop_assert_eq!(last.layout(), expected.layout());
            for (gradient, slope) in gradients.iter().zip(&slopes) {
                prop_assert_eq!(gradient.layout(), slope.layout());
            }
            prop_assert_eq!(bits(&[last]), bits(&[expected]));
            prop_assert_eq!(bits(&gradients), bits(&slopes), "{}", compiled.program().unwrap());
        }
        prop_assert_eq!(compiled.traces(), 1);
    }
}

struct Model {
    first: DVariable<f32>,
    bias: DVariable<f32>,
    second: DVariable<f32>,
    adam: AdamW<f32>,
}

impl VariableSet for Model {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        let Self {
            first,
            bias,
            second,
            adam,
        } = self;
        (first, bias, second, adam).visit(visit);
    }
}

type Batch = (DTensor<f32>, DTensor<i64>);

/// A step, however it is carried out.
type Taken<'a> = dyn FnMut(&mut Model, &Batch) -> Result<DTensor<f32>, Error> + 'a;

impl Model {
    fn new(context: &Context, layouts: [&Layout; 3]) -> Self {
        let normal = |seed, shape: &[usize], layout| {
            let drawn = context.random_normal::<f32>(seed, shape, layout).unwrap();
            DVariable::new(drawn.scale(0.5).unwrap())
        };
        let first = normal(1, &[6, 7], layouts[0]);
        let bias = normal(2, &[7], layouts[1]);
        let second = normal(3, &[7, 3], layouts[2]);
        let adam = AdamW::new(0.02, &[&first, &bias, &second]).unwrap();
        Self {
            first,
            bias,
            second,
            adam,
        }
    }

    fn step(&mut self, batch: &Batch) -> Result<DTensor<f32>, Error> {
        let (inputs, labels) = batch;
        let tape = Tape::new();
        let first = tape.watch(self.first.value());
        let bias = tape.watch(self.bias.value());
        let second = tape.watch(self.second.value());
        let hidden = inputs.matmul(&first)?.bias_add(&bias)?.relu()?;
        let (losses, _) = hidden.matmul(&second)?.sparse_cross_entropy(labels)?;
        let loss = losses.mean_all()?;
        let gradients = tape.gradient(&loss, [&first, &bias, &second])?;
        let variables = [&mut self.first, &mut self.bias, &mut self.second];
        self.adam.step(variables.into_iter().zip(&gradients))?;
        Ok(loss)
    }
}

/// The bits of the losses of some steps, and of the weights after them.
fn trained(
    context: &Context,
    mesh: CreateMesh,
    mut step: impl FnMut(&mut Model, &Batch) -> Result<DTensor<f32>, Error>,
) -> Vec<u32> {
    let mesh = mesh.dims([("data", 2), ("model", 2)]);
    let mesh = context.create_distributed_mesh(mesh).unwrap();
    let layout = |names: &[&str]| Layout::from_names(names.iter().copied(), &mesh).unwrap();
    let columns = layout(&["unsharded", "model"]);
    let (bias, rows) = (layout(&["model"]), layout(&["model", "unsharded"]));
    let mut model = Model::new(context, [&columns, &bias, &rows]);
    let mut bits = Vec::new();
    for number in 0..4 {
        let inputs = layout(&["data", "unsharded"]);
        let inputs = context.random_normal(number, &[5, 6], &inputs).unwrap();
        let labels = context.copy_to_mesh(array![0_i64, 2, 1, 2, 0], &layout(&["data"]));
        let loss = step(&mut model, &(inputs, labels.unwrap())).unwrap();
        bits.push(loss.to_host().unwrap().sum().to_bits());
    }
    for variable in [&model.first, &model.second] {
        let weights = variable.value().to_host().unwrap();
        bits.extend(weights.iter().map(|weight| weight.to_bits()));
    }
    bits
}

#[test]
fn compiled_training_has_the_bits_of_training_op_by_op_on_one_client_and_on_four() {
    let expected = clients(1, 4, |context| {
        trained(context, CreateMesh::new(), Model::step)
    });
    let expected = &expected[0];
    for (count, devices) in [(1, 4), (4, 1)] {
        let all = clients(count, devices, |context| {
            let mut step = compile(Model::step);
            let mesh = CreateMesh::new();
            let bits = trained(context, mesh, |model, batch| step.call(model, batch));
            assert_eq!(step.traces(), 1);
            let program = step.program().unwrap();
            assert!(program.len() * 2 < program.recorded(), "{program}");
            bits
        });
        all.iter()
            .for_each(|bits| assert_eq!(bits, expected, "{count} clients"));
    }
}

#[test]
fn on_a_backend_of_devices_a_program_is_its_ops_one_by_one_with_the_same_bits() {
    let trained_there = |step: &mut Taken<'_>| {
        let four = std::num::NonZeroUsize::new(4).unwrap();
        let cpus = Arc::new(CpuAccelerator::with_logical_devices(four));
        let client = Client::new("localhost", 0, 1).unwrap();
        let context = Context::alone(client.with_devices("TPU", 4).unwrap());
        let backend = Backend::of(&cpus).arithmetic().arrangement();
        context.compute_on(DeviceType::Tpu, backend).unwrap();
        trained(&context, CreateMesh::new().device_type("TPU"), step)
    };
    let expected = trained_there(&mut Model::step);
    let mut compiled = compile(Model::step);
    let found = trained_there(&mut |model, batch| compiled.call(model, batch));
    assert_eq!((found, compiled.traces()), (expected, 1));
}

#[test]
fn the_same_classes_of_two_types_are_two_values() {
    let (context, mesh) = (context(), mesh());
    let layout = Layout::replicated(&mesh, 1);
    let classes = context.copy_to_mesh(array![2_i64, 0], &layout).unwrap();
    let mut both = compile(|(): &mut (), classes: &DTensor<i64>| {
        Ok((classes.one_hot::<bool>(3)?, classes.one_hot::<f32>(3)?))
    });
    for _ in 0..2 {
        let (mask, hot) = both.call(&mut (), &classes).unwrap();
        assert!(mask.to_host().unwrap()[[0, 2]]);
        let expected = array![[0.0_f32, 0.0, 1.0], [1.0, 0.0, 0.0]];
        assert_eq!(hot.to_host().unwrap(), expected.into_dyn());
    }
}

#[test]
fn other_shapes_and_layouts_have_programs_of_their_own_of_which_some_are_kept() {
    let context = context();
    let zeros = |size: usize, layout: &Layout| context.zeros::<f32>(&[size], layout).unwrap();
    let layouts = layouts(1);
    let step = compile(|(): &mut (), x: &DTensor<f32>| x.add_scalar(1.0)?.exp());
    let mut step = step.keep(2);
    for (size, layout, traces) in [
        (3, 0, 1),
        (4, 0, 2),
        (3, 0, 2),
        (3, 1, 3),
        (3, 0, 3),
        (4, 0, 4),
    ] {
        let made = step.call(&mut (), &zeros(size, &layouts[layout])).unwrap();
        assert_eq!((made.shape(), step.traces()), (&[size][..], traces));
    }
}

#[test]
fn looking_at_elements_and_functions_of_a_program_are_refused_by_name_and_line() {
    let layout = layouts(1).remove(1);
    let value = context().full(&[3], &layout, 2.0_f64).unwrap();
    let mut variable = DVariable::new(value.clone());
    let line = line!() + 3;
    let mut mapped = compile(|own: &mut DVariable<f64>, x: &DTensor<f64>| {
        own.assign(&x.scale(2.0)?)?;
        x.map(f64::cos)
    });
    let refused = mapped.call(&mut variable, &value).unwrap_err();
    assert!(
        matches!(refused, Error::NotTraceable { op: "map", at } if at.line() == line),
        "{refused}"
    );
    // Nothing has been assigned.
    assert_eq!(variable.value().to_host().unwrap()[0], 2.0);
    let line = line!() + 2;
    let mut looked = compile(|(): &mut (), x: &DTensor<f64>| {
        let sum = x.to_host()?.sum();
        x.scale(sum)
    });
    let refused = looked.call(&mut (), &value).unwrap_err();
    assert!(
        matches!(refused, Error::NotTraceable { op: "unpack", at } if at.line() == line),
        "{refused}"
    );
    assert_eq!((looked.traces(), looked.program().is_none()), (0, true));
}

#[test]
fn a_tensor_is_brought_into_a_layout_once_and_what_is_not_needed_is_not_done() {
    let layout = layouts(2).remove(4);
    let x = context().copy_to_mesh(numbers(&[4, 4]), &layout).unwrap();
    let rows = Layout::from_names(["x", "unsharded"], &mesh()).unwrap();
    let mut step = compile(move |(): &mut (), x: &DTensor<f64>| {
        let there = x.relayout(&rows)?;
        let _ = there.matmul(x)?;
        let again = x.relayout(&rows)?.exp()?.relayout(x.layout())?;
        there.relayout(x.layout())?.add(&again)
    });
    let first = step.call(&mut (), &x).unwrap();
    let program = step.program().unwrap().clone();
    assert_eq!((program.relayouts(), program.len()), (2, 4), "{program}");
    let second = step.call(&mut (), &x).unwrap();
    assert_eq!(bits(&[first]), bits(&[second]));
    let told = program.to_string();
    assert!(
        told.contains("relayouts asked for") && told.contains("tests.rs"),
        "{told}"
    );
}

#[test]
fn in_a_tape_and_in_another_compiled_function_it_is_carried_out_as_it_stands() {
    let layout = layouts(1).remove(1);
    let x = context().full(&[3], &layout, 3.0_f64).unwrap();
    let mut square = compile(|(): &mut (), x: &DTensor<f64>| x.mul(x));
    square.call(&mut (), &x).unwrap();
    let tape = Tape::new();
    let watched = tape.watch(&x);
    let made = square.call(&mut (), &watched).unwrap();
    let [slope] = tape.gradient(&made, [&watched]).unwrap();
    assert_eq!(slope.to_host().unwrap()[0], 6.0);
    let mut outer = compile(|(): &mut (), x: &DTensor<f64>| square.call(&mut (), x)?.mul(x));
    for value in [2.0, 3.0] {
        let x = x.untraced().scale(value / 3.0).unwrap();
        let cube = outer.call(&mut (), &x).unwrap().to_host().unwrap();
        assert!((cube[0] - value * value * value).abs() < 1e-12);
    }
}

#[test]
fn chains_of_elements_in_parts_have_the_bits_of_each_op_by_itself() {
    let layout = Layout::from_names(["x", "unsharded"], &mesh()).unwrap();
    let row = Layout::replicated(&mesh(), 1);
    let column = Layout::from_names(["x", "unsharded"], &mesh()).unwrap();
    let context = context();
    let inputs = (
        context
            .random_normal::<f32>(1, &[5, 1500], &layout)
            .unwrap(),
        context.random_normal::<f32>(2, &[1500], &row).unwrap(),
        context.random_normal::<f32>(3, &[5, 1], &column).unwrap(),
    );
    type Three = (DTensor<f32>, DTensor<f32>, DTensor<f32>);
    let function = |(): &mut (), (x, row, column): &Three| {
        let shifted = x.bias_add(row)?.mul(column)?;
        let bent = shifted.relu()?;
        let chosen = bent.select(&shifted.exp()?, &x.neg()?)?;
        Ok((chosen.div(&x.mul(x)?.add_scalar(1.0)?)?.scale(0.5)?, bent))
    };
    let (expected, bent) = function(&mut (), &inputs).unwrap();
    let mut step = compile(function);
    step.call(&mut (), &inputs).unwrap();
    let (found, also) = step.call(&mut (), &inputs).unwrap();
    assert_eq!(
        step.program().unwrap().len(),
        1,
        "{}",
        step.program().unwrap()
    );
    let bits = |tensor: &DTensor<f32>| tensor.to_host().unwrap().mapv(f32::to_bits);
    assert_eq!(bits(&found), bits(&expected));
    assert_eq!(bits(&also), bits(&bent));
}

#[test]
fn what_is_no_number_stays_in_a_chain() {
    let layout = Layout::replicated(&mesh(), 1);
    let x = context().copy_to_mesh(array![f32::NAN, -1.0, 2.0], &layout);
    let x = x.unwrap();
    let mut step = compile(|(): &mut (), x: &DTensor<f32>| x.relu()?.scale(2.0));
    for _ in 0..2 {
        let found = step.call(&mut (), &x).unwrap().to_host().unwrap();
        assert!(found[[0]].is_nan(), "{found}");
        assert_eq!((found[[1]], found[[2]]), (0.0, 4.0));
    }
}

#[test]
fn vectors_of_variables_and_of_tensors_keep_their_order() {
    let layout = layouts(1).remove(1);
    let context = context();
    let full = |value: f64| context.full(&[3], &layout, value).unwrap();
    let mut variables = vec![DVariable::new(full(1.0)), DVariable::new(full(2.0))];
    let mut step = compile(|own: &mut Vec<DVariable<f64>>, given: &Vec<DTensor<f64>>| {
        let (first, second) = own.split_at_mut(1);
        let sum = first[0].value().add(second[0].value())?;
        let updates = [(&mut first[0], &given[0]), (&mut second[0], &given[1])];
        Sgd::new(1.0).step(updates)?;
        Ok((vec![sum.sum(&ReduceAxes::axes([0]))?], given[0].clone()))
    });
    for expected in [9.0, 9.0 - 3.0 * 12.0] {
        let given = vec![full(4.0), full(8.0)];
        let (sums, same) = step.call(&mut variables, &given).unwrap();
        assert_eq!(sums[0].to_host().unwrap().sum(), expected);
        assert_eq!(same.to_host().unwrap()[0], 4.0);
    }
}

/// The sum of the first list less that of the second.
fn difference(plus: &[DTensor<f64>], minus: &[DTensor<f64>]) -> Result<DTensor<f64>, Error> {
    let mut all = plus[1..].iter();
    let sum = all.try_fold(plus[0].clone(), |sum, own| sum.add(own))?;
    minus.iter().try_fold(sum, |sum, own| sum.sub(own))
}

fn values_of(variables: &[DVariable<f64>]) -> Vec<DTensor<f64>> {
    let values = variables.iter().map(DVariable::value);
    values.cloned().collect()
}

#[test]
fn the_same_tensors_in_lists_of_other_lengths_have_programs_of_their_own() {
    let layout = layouts(1).remove(1);
    let context = context();
    let full = |value: f64| context.full(&[3], &layout, value).unwrap();
    type Lists<T> = (Vec<T>, Vec<T>);
    type Variables = Vec<DVariable<f64>>;
    let mut given =
        compile(|(): &mut (), (plus, minus): &Lists<DTensor<f64>>| difference(plus, minus));
    let mut held = compile(|(plus, minus): &mut Lists<DVariable<f64>>, (): &()| {
        difference(&values_of(plus), &values_of(minus))
    });
    let mut both = compile(|plus: &mut Variables, minus: &Vec<DTensor<f64>>| {
        difference(&values_of(plus), minus)
    });
    for (count, expected, traces) in [(2, -1.0, 1), (1, -5.0, 2), (2, -1.0, 2)] {
        let mut plus = [1.0, 2.0, 4.0].map(full).to_vec();
        let minus = plus.split_off(count);
        let variables = || -> Variables { plus.iter().cloned().map(DVariable::new).collect() };
        let others = minus.iter().cloned().map(DVariable::new).collect();
        let by_held = held.call(&mut (variables(), others), &()).unwrap();
        let by_both = both.call(&mut variables(), &minus).unwrap();
        let by_given = given.call(&mut (), &(plus, minus)).unwrap();
        for made in [by_held, by_both, by_given] {
            assert_eq!(made.to_host().unwrap()[0], expected);
        }
        let found = [held.traces(), both.traces(), given.traces()];
        assert_eq!(found, [traces; 3]);
    }
}

#[test]
fn zeros_of_two_signs_are_two_numbers_and_what_is_no_number_is_itself() {
    let layout = layouts(1).remove(1);
    let x = context().full(&[3], &layout, 5.0_f64).unwrap();
    let mut both = compile(|(): &mut (), x: &DTensor<f64>| {
        let zeros = [x.scale(0.0)?, x.scale(-0.0)?];
        Ok::<_, Error>((zeros.to_vec(), x.scale(0.0)?))
    });
    for _ in 0..2 {
        let (zeros, _) = both.call(&mut (), &x).unwrap();
        let signs = zeros.iter().map(|own| own.to_host().unwrap()[0]);
        let signs: Vec<bool> = signs.map(f64::is_sign_negative).collect();
        assert_eq!(signs, [false, true]);
    }
    // What is the same to the last bit is still done once.
    assert_eq!(both.program().unwrap().recorded(), 3);
    let told = both.program().unwrap().to_string();
    assert_eq!(told.matches("scale").count(), 2, "{told}");

    type Given = (DTensor<f64>, HostValue<f64>);
    let mut step = compile(|(): &mut (), (x, by): &Given| x.scale(by.0));
    let calls = [(0.0, 1), (-0.0, 2), (f64::NAN, 3), (0.0, 3), (f64::NAN, 3)];
    for (by, traces) in calls {
        let made = step.call(&mut (), &(x.clone(), HostValue(by))).unwrap();
        let made = made.to_host().unwrap()[0];
        assert_eq!(format!("{made:?}"), format!("{by:?}"));
        assert_eq!(step.traces(), traces, "by {by}");
    }
}

/// Two logical devices whose compiler refuses some graphs, and a vector's layout on them.
fn on_compiler(refused: fn(&Graph) -> bool) -> (Context, Layout) {
    let cpus = CpuAccelerator::with_logical_devices(2.try_into().unwrap());
    let client = Client::new("localhost", 0, 1).unwrap();
    let context = Context::alone(client.with_devices("CPU", 2).unwrap());
    let backend = refusing(&Arc::new(cpus), refused);
    context.compute_on(DeviceType::Cpu, backend).unwrap();
    let mesh = context.create_mesh(CreateMesh::new().along("x")).unwrap();
    let rows = Layout::batch_sharded(&mesh, "x", 1).unwrap();
    (context, rows)
}

/// What a step says whose compiler refuses some graphs.
fn refused_by(refused: fn(&Graph) -> bool) -> Error {
    let (context, rows) = on_compiler(refused);
    let by = context.full(&[4], &rows, 0.5).unwrap();
    let mut weights = DVariable::new(context.full(&[4], &rows, 1.0).unwrap());
    let mut step = compile(|weights: &mut DVariable<f64>, by: &DTensor<f64>| {
        let sum = weights.value().add(by)?.sum_all()?;
        weights.assign(&weights.value().mul(&sum.exp()?)?)?;
        Ok::<_, Error>(sum)
    });
    let error = step.call(&mut weights, &by).unwrap_err();
    let whole = weights.value().to_host().unwrap();
    assert!(whole.iter().all(|weight| *weight == 1.0), "{whole}");
    error
}

#[test]
fn a_compiler_that_refuses_is_told_with_op_and_line_and_leaves_variables_as_they_were() {
    let has_exp = |graph: &Graph| {
        let exp = GraphOp::Pointwise(Pointwise::Exp);
        graph.nodes().iter().any(|node| *node.op() == exp)
    };
    let refused = refused_by(has_exp);
    let Error::NotCompiled { op, source } = &refused else {
        panic!("{refused}");
    };
    assert!(op.contains("exp") && op.contains("tests.rs:"), "{op}");
    assert!(source.to_string().contains("not today"), "{source}");

    let is_whole = |graph: &Graph| {
        let mut nodes = graph.nodes().iter();
        let first = nodes.next().map(Node::origin);
        nodes.any(|node| Some(node.origin()) != first)
    };
    let refused = refused_by(is_whole);
    let together = matches!(refused, Error::NotCompiledTogether { steps: 4, .. });
    assert!(together, "{refused}");
}

#[test]
fn a_program_says_where_old_values_of_variables_stay_beside_new_ones() {
    type Step = fn(&mut DVariable<f64>, &DTensor<f64>) -> Result<DTensor<f64>, Error>;
    let steps: [(bool, Step); 2] = [
        (false, |weights, by| {
            weights.assign(&weights.value().add(by)?)?;
            weights.value().scale(2.0)
        }),
        // Whether there is an element for an index that is computed is known to the host only.
        (true, |weights, by| {
            weights.assign(&weights.value().add(by)?)?;
            weights.value().gather(&weights.value().argmax(0)?, 0)
        }),
    ];
    for (stay, function) in steps {
        let (context, rows) = on_compiler(|_| false);
        let by = context.full(&[4], &rows, 0.5).unwrap();
        let mut weights = DVariable::new(by.clone());
        let mut step = compile(function);
        step.call(&mut weights, &by).unwrap();
        let told = step.program().unwrap().to_string();
        assert_eq!(
            told.contains("old values of variables stay"),
            stay,
            "{told}"
        );
    }
}
