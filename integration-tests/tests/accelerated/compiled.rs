//! Whole steps as modules of the devices' compiler, against the same steps op by op.

use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{
    Backend, Context, DTensor, DVariable, DeviceType, Error, Program, ReduceAxes, Sgd, Tape,
    Transformer, TransformerSizes, Variable, VariableSet, compile, repeat,
};
use meshwork_layout::{Layout, UNSHARDED};
use ndarray::ArrayD;

use crate::{numbers, pjrt, plugins};

#[path = "compiled/loops.rs"]
mod loops;
#[path = "compiled/network.rs"]
mod network;

/// So many devices of the plugin that stand for TPUs, as a mesh of `data` and `model`.
fn devices(data: u32, model: u32) -> Option<(Context, Mesh, Backend)> {
    let plugin = plugins::cpu()?;
    let count = data * model;
    let accelerator = pjrt(&plugin, count.into());
    let backend = Backend::of(&accelerator).arithmetic().arrangement();
    let backend = Backend::from(backend.collectives().graphs());
    let client = Client::new("localhost", 0, 1).unwrap();
    let context = Context::alone(client.with_devices("TPU", count).unwrap());
    context
        .compute_on(DeviceType::Tpu, backend.clone())
        .unwrap();
    let mesh = CreateMesh::new().device_type("TPU");
    let mesh = mesh.dims([("data", data as usize), ("model", model as usize)]);
    let mesh = context.create_mesh(mesh).unwrap();
    Some((context, mesh, backend))
}

/// The program of a step, which is one module with no step apart.
#[track_caller]
fn in_one_module(program: Option<&Program>) -> &Program {
    let program = program.unwrap();
    let parts = (program.modules(), program.steps_apart());
    assert_eq!(parts, (1, 0), "{program}");
    program
}

fn loss(of: &DTensor<f32>) -> f32 {
    of.to_host().unwrap().sum()
}

const SIZES: TransformerSizes = TransformerSizes {
    batch: 4,
    length: 4,
    tokens: 12,
    width: 8,
    heads: 4,
    layers: 1,
};

/// A transformer on devices, against the same on the host, op by op.
fn learns_as_on_the_host([data, model]: [u32; 2]) {
    let Some((context, mesh, backend)) = devices(data, model) else {
        return;
    };
    let token = |at: usize| (at * 5 % 12) as i64;
    let batch = SIZES.batch_of(&context, &mesh, token).unwrap();
    let mut compiled = Transformer::new(&context, &mesh, SIZES).unwrap();
    let client = Client::new("localhost", 0, 1).unwrap();
    let host = Context::alone(client.with_devices("TPU", data * model).unwrap());
    let alike = SIZES.batch_of(&host, &mesh, token).unwrap();
    let mut by_ops = Transformer::new(&host, &mesh, SIZES).unwrap();
    let mut step = compile(Transformer::step);
    let mut held = Vec::new();
    for number in 0..5 {
        let expected = loss(&by_ops.step(&alike).unwrap());
        let found = loss(&step.call(&mut compiled, &batch).unwrap());
        let program = in_one_module(step.program());
        assert!(
            (found - expected).abs() < 2e-5 * expected.abs(),
            "step {number} on {data} by {model}: {found} and not {expected}\n{program}"
        );
        held.push((backend.bytes_held(), backend.bytes_uploaded()));
    }
    // Nothing goes to the devices any more, and no more is there.
    assert_eq!(held[3], held[4], "{held:?}");
}

#[test]
fn a_transformer_learns_in_one_module_of_four_devices_as_on_the_host() {
    learns_as_on_the_host([2, 2]);
}

/// Two layers, the first cut by columns and the second by rows.
fn step(weights: &mut [DVariable<f32>; 2], inputs: &DTensor<f32>) -> Result<DTensor<f32>, Error> {
    let tape = Tape::new();
    let [first, second] = weights;
    let (w, v) = (tape.watch(first.value()), tape.watch(second.value()));
    let outputs = inputs.matmul(&w)?.relu()?.matmul(&v)?;
    let loss = outputs.mul(&outputs)?.mean_all()?;
    let [by_w, by_v] = tape.gradient(&loss, [&w, &v])?;
    Sgd::new(0.02).step([(first, &by_w), (second, &by_v)])?;
    Ok(loss)
}

#[test]
fn two_layers_learn_in_one_module_of_one_and_of_eight_devices() {
    let mut losses = Vec::new();
    for [data, model] in [[1, 1], [2, 4]] {
        let Some((context, mesh, _)) = devices(data, model) else {
            return;
        };
        let place = |shape: &[usize], seed, names: [&str; 2]| {
            let layout = Layout::from_names(names, &mesh).unwrap();
            context
                .copy_to_mesh(numbers::<f32>(shape, seed), &layout)
                .unwrap()
        };
        let inputs = place(&[4, 8], 1, ["data", UNSHARDED]);
        let first = place(&[8, 8], 2, [UNSHARDED, "model"]).scale(0.1).unwrap();
        let second = place(&[8, 4], 3, ["model", UNSHARDED]).scale(0.1).unwrap();
        let mut weights = Weights([DVariable::new(first), DVariable::new(second)]);
        let mut compiled =
            compile(|weights: &mut Weights, inputs: &DTensor<f32>| step(&mut weights.0, inputs));
        let mut own = Vec::new();
        for _ in 0..4 {
            let made = compiled.call(&mut weights, &inputs).unwrap();
            own.push(loss(&made));
        }
        in_one_module(compiled.program());
        losses.push(own);
    }
    assert!(losses[0][3] < losses[0][0], "{losses:?}");
    for (alone, eight) in losses[0].iter().zip(&losses[1]) {
        assert!((alone - eight).abs() < 1e-5 * alone, "{losses:?}");
    }
}

struct Weights([DVariable<f32>; 2]);

impl VariableSet for Weights {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.0.iter_mut().for_each(|own| own.visit(visit));
    }
}

type Pair = (DTensor<f32>, DTensor<f32>);

/// What the host has to do between two modules.
fn looked_up(weights: &mut DVariable<f32>, by: &DTensor<f32>) -> Result<Pair, Error> {
    let sum = weights.value().add(by)?;
    let largest = sum.argmax(1)?;
    // Whether there is an element for each of them is looked at on the host.
    let found = largest.cast::<f32>()?.gather(&largest, 0)?;
    weights.assign(&sum)?;
    Ok((found.scale(2.0)?, sum.scale(2.0)?))
}

#[test]
fn what_the_host_has_to_do_is_between_two_modules_and_clones_stay() {
    let Some((context, mesh, _)) = devices(2, 1) else {
        return;
    };
    let rows = Layout::from_names(["data", UNSHARDED], &mesh).unwrap();
    let whole = numbers::<f32>(&[4, 3], 1);
    let mut weights = DVariable::new(context.copy_to_mesh(whole.clone(), &rows).unwrap());
    let mut step = compile(looked_up);
    let by = context.copy_to_mesh(numbers(&[4, 3], 2), &rows).unwrap();
    let mut expected = whole;
    for _ in 0..3 {
        let before = weights.value().clone();
        let (found, twice) = step.call(&mut weights, &by).unwrap();
        assert_eq!(
            before.to_host().unwrap(),
            expected,
            "a clone has what it had"
        );
        expected = expected + numbers::<f32>(&[4, 3], 2);
        assert_eq!(twice.to_host().unwrap(), expected.mapv(|x| x * 2.0));
        let largest = expected.map_axis(ndarray::Axis(1), |row| {
            (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
        });
        let chosen = largest.map(|place| 2.0 * largest[*place] as f32);
        assert_eq!(found.to_host().unwrap(), chosen);
    }
    let program = step.program().unwrap();
    let said = program.to_string();
    assert_eq!((program.modules(), program.steps_apart()), (2, 1), "{said}");
    let why = ", as no device has it, or other processes are in it";
    assert!(
        said.contains("by itself: gather ") && said.contains(why),
        "{said}"
    );
}

#[test]
fn variables_are_as_they_were_where_a_step_behind_a_module_fails() {
    let Some((context, mesh, _)) = devices(2, 1) else {
        return;
    };
    let rows = Layout::from_names(["data", UNSHARDED], &mesh).unwrap();
    let place = |whole: ndarray::Array2<f32>| context.copy_to_mesh(whole, &rows).unwrap();
    let whole = ndarray::array![[3.0_f32, 0.0, 0.0], [0.0, 3.0, 0.0]];
    let outside = place(ndarray::array![[0.0_f32, 0.0, 9.0], [0.0, 0.0, 9.0]]);
    let mut weights = DVariable::new(place(whole.clone()));
    let mut step = compile(looked_up);
    let none = place(ndarray::Array2::zeros([2, 3]));
    step.call(&mut weights, &none).unwrap();
    // The sum is there already, in a module of its own.
    let refused = step.call(&mut weights, &outside).unwrap_err();
    assert!(
        matches!(refused, Error::IndexOutside { size: 2, .. }),
        "{refused}"
    );
    assert_eq!(
        (step.traces(), step.program().map(Program::modules)),
        (1, Some(2))
    );
    assert_eq!(weights.value().to_host().unwrap(), whole.into_dyn());
}

type Two = (DVariable<f32>, DVariable<f32>);
type Step = fn(&mut Two, &DTensor<f32>) -> Result<Vec<DTensor<f32>>, Error>;

/// Steps of which each has an old value of the second variable among its results.
const STEPS: [Step; 3] = [
    |(previous, current), by| {
        let next = current.value().add(by)?;
        previous.assign(current.value())?;
        current.assign(&next)?;
        Ok(Vec::new())
    },
    |(_, current), by| {
        let old = current.value().clone();
        current.assign(&old.add(by)?)?;
        Ok(vec![old])
    },
    // The host carries it through a loop, from which it comes as it was.
    |(_, current), by| {
        let (old, chosen) = repeat(2, (current.value().clone(), by.clone()), |(old, by)| {
            Ok((old.clone(), by.gather(&by.argmax(1)?, 0)?))
        })?;
        current.assign(&current.value().add(&chosen)?)?;
        Ok(vec![old])
    },
];

#[test]
fn an_old_value_that_is_assigned_to_another_variable_or_returned_is_not_used_up() {
    let Some((context, mesh, _)) = devices(2, 1) else {
        return;
    };
    let rows = Layout::from_names(["data", UNSHARDED], &mesh).unwrap();
    let place = |seed| {
        let whole = numbers::<f32>(&[4, 3], seed);
        context.copy_to_mesh(whole, &rows).unwrap()
    };
    let by = place(3);
    let new = || (DVariable::new(place(1)), DVariable::new(place(2)));
    let hosted = |made: &[DTensor<f32>], (previous, current): &Two| -> Vec<ArrayD<f32>> {
        let held = [previous.value(), current.value()];
        let all = held.into_iter().chain(made);
        all.map(|own| own.to_host().unwrap()).collect()
    };
    for (number, function) in STEPS.into_iter().enumerate() {
        let (mut found, mut expected) = (new(), new());
        let mut step = compile(function);
        for _ in 0..3 {
            let made = step.call(&mut found, &by).unwrap();
            let alike = function(&mut expected, &by).unwrap();
            assert_eq!(hosted(&made, &found), hosted(&alike, &expected), "{number}");
        }
        let program = step.program().unwrap();
        assert_eq!(program.modules(), 1, "{program}");
    }
}

#[test]
fn shards_of_different_sizes_are_carried_out_op_by_op_and_indices_are_checked_first() {
    let Some((context, mesh, _)) = devices(2, 1) else {
        return;
    };
    let rows = Layout::from_names(["data", UNSHARDED], &mesh).unwrap();
    let odd = context
        .copy_to_mesh(numbers::<f32>(&[3, 2], 1), &rows)
        .unwrap();
    let mut step = compile(|(): &mut (), odd: &DTensor<f32>| odd.add(odd)?.relu());
    let first = step.call(&mut (), &odd).unwrap().to_host().unwrap();
    assert_eq!(step.call(&mut (), &odd).unwrap().to_host().unwrap(), first);
    let said = step.program().unwrap().to_string();
    assert!(said.contains("its shards are not of one size"), "{said}");

    let table = Layout::replicated(&mesh, 2);
    let table = context
        .copy_to_mesh(numbers::<f32>(&[4, 2], 1), &table)
        .unwrap();
    let chosen = Layout::from_names(["data"], &mesh).unwrap();
    let chosen = |last: i64| {
        context
            .copy_to_mesh(ndarray::array![0, last], &chosen)
            .unwrap()
    };
    type Given = (DTensor<f32>, DTensor<i64>);
    let mut step = compile(|(): &mut (), (table, chosen): &Given| table.embedding(chosen)?.relu());
    for last in [1, 3] {
        step.call(&mut (), &(table.clone(), chosen(last))).unwrap();
    }
    assert_eq!(step.program().unwrap().modules(), 1);
    let refused = step.call(&mut (), &(table, chosen(4))).unwrap_err();
    assert!(
        matches!(refused, Error::IndexOutside { size: 4, .. }),
        "{refused}"
    );
}

#[test]
fn whole_numbers_are_computed_by_the_host_beside_the_modules_of_floats() {
    let Some((context, mesh, _)) = devices(2, 1) else {
        return;
    };
    let rows = Layout::batch_sharded(&mesh, "data", 2).unwrap();
    let counts = context.from_fn(&[4, 3], &rows, |at| (at[0] * 3 + at[1]) as i64);
    let counts = counts.unwrap();
    let floats = context
        .copy_to_mesh(numbers::<f32>(&[4, 3], 1), &rows)
        .unwrap();
    type Given = (DTensor<i64>, DTensor<f32>);
    let mut step = compile(|(): &mut (), (counts, floats): &Given| {
        let doubled = counts.add(counts)?.add_scalar(1)?;
        let sums = doubled.sum(&ReduceAxes::axes([1]))?;
        let found = floats.neg()?.add(&doubled.cast()?)?;
        Ok::<_, Error>((
            sums,
            counts.cast::<bool>()?.all(&ReduceAxes::axes([0]))?,
            found,
        ))
    });
    let given = (counts, floats);
    let expected = step.call(&mut (), &given).unwrap();
    let found = step.call(&mut (), &given).unwrap();
    let sums = found.0.to_host().unwrap();
    assert_eq!(sums.as_slice().unwrap(), [9, 27, 45, 63]);
    assert_eq!(
        found.1.to_host().unwrap().as_slice().unwrap(),
        [false, true, true]
    );
    assert_eq!(found.2.to_host().unwrap(), expected.2.to_host().unwrap());
    let program = step.program().unwrap();
    assert!(
        program.modules() > 0 && program.steps_apart() > 0,
        "{program}"
    );
}
