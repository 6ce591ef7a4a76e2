//! Models in units with workers that are threads of one process: the bits of one tape over whole
//! variables, whatever is sharded and recomputed; what is freed; initial values; mistakes.

mod survivors;

use std::num::NonZeroU32;

use candle_core::{Storage, Var};
use candle_nn::{Linear, Module, VarBuilder, VarMap, linear, linear_no_bias};
use meshwork_strategy::sharded::{AdamW, Sgd, Shard};

use super::*;
use crate::Sharded;
use crate::testing::each;
use crate::values::by_name;

const KINDS: [Shard; 4] = [
    Shard::Nothing,
    Shard::Optimizer,
    Shard::Gradients,
    Shard::Parameters,
];

/// A table of rows, and a parameter that has no use.
struct Table {
    rows: Tensor,
    unused: Tensor,
}

impl Table {
    fn new(vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        Ok(Self {
            rows: vars.get((7, 6), "rows")?,
            unused: vars.get(2, "unused")?,
        })
    }
}

impl Module for Table {
    fn forward(&self, numbers: &Tensor) -> candle_core::Result<Tensor> {
        assert_eq!(self.unused.dims(), [2]);
        self.rows.index_select(numbers, 0)
    }
}

/// A block with a residual path and a weight that it uses twice.
struct Block {
    inner: Linear,
    scale: Tensor,
}

impl Block {
    fn new(vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        Ok(Self {
            inner: linear(6, 6, vars.pp("inner"))?,
            scale: vars.get(6, "scale")?,
        })
    }
}

impl Module for Block {
    fn forward(&self, input: &Tensor) -> candle_core::Result<Tensor> {
        let hidden = self
            .inner
            .forward(input)?
            .broadcast_mul(&self.scale)?
            .tanh()?;
        input + self.inner.forward(&hidden)?
    }
}

fn units() -> Vec<ModuleUnit> {
    let block = |name: &'static str| {
        let is_frozen = |parameter: &str| parameter == "second.scale";
        ModuleUnit::with_frozen(name, is_frozen, move |vars| Block::new(&vars.pp(name)))
    };
    vec![
        ModuleUnit::new("table", |vars| Table::new(&vars.pp("table"))).unwrap(),
        block("first").unwrap(),
        block("second").unwrap(),
        ModuleUnit::new("scores", |vars| linear_no_bias(6, 3, vars.pp("scores"))).unwrap(),
    ]
}

fn initial(spec: &VariableSpec, elements: Range<usize>, rows: &mut [f32]) {
    let name: usize = spec.name().bytes().map(usize::from).sum();
    for (at, value) in elements.zip(rows) {
        *value = ((at * 31 + name) as f32 * 0.618).sin() * 0.5;
    }
}

fn input(step: usize, worker: usize) -> Tensor {
    let numbers: Vec<u32> = (0..5)
        .map(|at| u32::try_from((step * 3 + worker * 5 + at * at) % 7).unwrap())
        .collect();
    Tensor::new(numbers, &Device::Cpu).unwrap()
}

fn loss(scores: &Tensor) -> candle_core::Result<Tensor> {
    (scores - 0.3)?.sqr()?.mean_all()
}

/// The same model over variables of a map.
fn whole_model(vars: &VarMap) -> impl Fn(&Tensor) -> Tensor {
    let builder = VarBuilder::from_varmap(vars, DType::F32, &Device::Cpu);
    let table = Table::new(&builder.pp("table")).unwrap();
    let blocks = ["first", "second"].map(|name| Block::new(&builder.pp(name)).unwrap());
    let scores = linear_no_bias(6, 3, builder.pp("scores")).unwrap();
    for (name, var) in by_name(vars) {
        let spec = VariableSpec::new(name, var.dims()).unwrap();
        let mut values = vec![0.0; spec.len()];
        initial(&spec, 0..spec.len(), &mut values);
        let values = Tensor::from_vec(values, var.dims(), &Device::Cpu).unwrap();
        var.set(&values).unwrap();
    }
    move |input| {
        let hidden = table.forward(input).unwrap();
        let hidden = blocks
            .iter()
            .fold(hidden, |x, block| block.forward(&x).unwrap());
        scores.forward(&hidden).unwrap()
    }
}

fn bits(tensors: impl IntoIterator<Item = (String, Tensor)>) -> Vec<(String, Vec<u32>)> {
    let of = |(name, tensor): (String, Tensor)| {
        let values = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        (name, values.into_iter().map(f32::to_bits).collect())
    };
    let mut all: Vec<_> = tensors.into_iter().map(of).collect();
    all.sort();
    all
}

#[test]
fn units_have_the_losses_and_parameters_of_one_tape_to_the_bit() {
    let sharding = |shard| Sharding::new(shard).with_max_norm(0.2);
    let optimizer = AdamW::new(0.02).with_weight_decay(0.1);
    for workers in [1, 2, 4] {
        let one_tape = each(workers, |strategy| {
            let vars = VarMap::new();
            let model = whole_model(&vars);
            let is_frozen = |name: &str| name == "second.scale";
            let nothing = sharding(Shard::Nothing);
            let training = Sharded::with_frozen(strategy, &vars, is_frozen, optimizer, nothing);
            let mut training = training.unwrap();
            let losses = (0..4).map(|step| {
                let input = input(step, training.worker());
                training
                    .backward_step(&loss(&model(&input)).unwrap())
                    .unwrap()
            });
            let losses: Vec<_> = losses.collect();
            let vars = by_name(&vars).into_iter();
            (
                losses,
                bits(vars.map(|(name, var)| (name, var.into_inner()))),
            )
        });
        for (shard, recompute) in KINDS
            .into_iter()
            .flat_map(|kind| [Recompute::Nothing, Recompute::Units].map(|kept| (kind, kept)))
        {
            let by_units = each(workers, |strategy| {
                let worker = strategy.rank().index();
                let made = sharding(shard);
                let stack = ShardedStack::with_initial(strategy, units(), optimizer, made, initial);
                let mut stack = stack.unwrap().with_recompute(recompute);
                let losses =
                    (0..4).map(|step| stack.backward_step(&input(step, worker), loss).unwrap());
                let losses: Vec<_> = losses.collect();
                assert!(stack.norm().is_some_and(|norm| norm > 0.2));
                let parameters = bits(stack.tensors().unwrap());
                stack.leave().unwrap();
                (losses, parameters)
            });
            assert_eq!(by_units, one_tape, "{shard:?} {recompute:?} {workers}");
        }
    }
}

#[test]
fn accumulated_passes_are_those_of_one_batch() {
    let of = |passes: u32| {
        let sharding =
            Sharding::new(Shard::Parameters).with_accumulation(NonZeroU32::new(passes).unwrap());
        each(2, |strategy| {
            let optimizer = Sgd::new(0.1);
            let worker = strategy.rank().index();
            let stack = ShardedStack::with_initial(strategy, units(), optimizer, sharding, initial);
            let mut stack = stack.unwrap();
            let share = |scores: &Tensor| loss(scores)? / f64::from(passes);
            for _ in 1..passes {
                stack.accumulate(&input(0, worker), share).unwrap();
            }
            stack.backward_step(&input(0, worker), share).unwrap();
            // The loss after that step.
            let output = stack.forward(&input(1, worker)).unwrap();
            stack.leave().unwrap();
            loss(&output).unwrap().to_scalar::<f32>().unwrap()
        })
    };
    for (one, three) in of(1).into_iter().zip(of(3)) {
        assert!((one - three).abs() < 1e-6, "{one} {three}");
    }
}

#[test]
fn a_forward_pass_gives_what_the_whole_model_gives() {
    each(2, |strategy| {
        let worker = strategy.rank().index();
        let sharding = Shard::Parameters;
        let stack = ShardedStack::with_initial(strategy, units(), Sgd::new(0.1), sharding, initial);
        let mut stack = stack.unwrap();
        let vars = VarMap::new();
        let model = whole_model(&vars);
        for step in 0..3 {
            let (found, expected) = (
                stack.forward(&input(step, worker)),
                model(&input(step, worker)),
            );
            assert_eq!(
                found.unwrap().to_vec2::<f32>().unwrap(),
                expected.to_vec2::<f32>().unwrap()
            );
        }
        stack.leave().unwrap();
    });
}

#[test]
fn parameters_take_no_memory_between_the_passes_of_their_unit() {
    let strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let sharding = Shard::Parameters;
    let stack = ShardedStack::with_initial(strategy, units(), Sgd::new(0.1), sharding, initial);
    let mut stack = stack.unwrap();
    let (model, units) = (&mut stack.model, &stack.units);
    let input = Var::ones((2, 6), DType::F32, &Device::Cpu)
        .unwrap()
        .into_inner();
    let freed = stack.strategy.run(|replica| {
        let passed = model.forward(replica, 1, |parameters| {
            units[1].forward(parameters, input.clone())
        })?;
        let (_, tape) = passed?;
        let lens = tape.parameters().iter().map(|parameter| {
            let (storage, _) = parameter.storage_and_layout();
            match &*storage {
                Storage::Cpu(values) => values.as_slice::<f32>().unwrap().len(),
                _ => unreachable!("it is in host memory"),
            }
        });
        Ok::<_, Error>(lens.collect::<Vec<_>>())
    });
    assert_eq!(freed.unwrap().into_first(), [0, 0, 0]);
}

#[test]
fn initial_values_depend_on_the_seed_alone_and_are_candles_hints() {
    let of = |workers, seed, shard: Shard| {
        let all = each(workers, |strategy| {
            let stack = ShardedStack::with_strategy(strategy, units(), Sgd::new(0.1), shard, seed);
            let mut stack = stack.unwrap();
            let tensors = bits(stack.tensors().unwrap());
            stack.leave().unwrap();
            tensors
        });
        assert!(all.iter().all(|one| *one == all[0]));
        all.into_iter().next().unwrap()
    };
    let one = of(1, 5, Shard::Nothing);
    assert_eq!(one, of(3, 5, Shard::Parameters));
    assert_eq!(one, of(4, 5, Shard::Optimizer));
    assert_ne!(one, of(1, 6, Shard::Nothing));
    // candle's dense layer has biases between -1/√inputs and as much above.
    let bias = &one
        .iter()
        .find(|(name, _)| name == "first.inner.bias")
        .unwrap()
        .1;
    let bound = 1.0 / 6_f32.sqrt();
    assert!(bias.iter().all(|bits| f32::from_bits(*bits).abs() <= bound));
}

#[test]
fn a_stack_loads_what_a_model_of_whole_variables_has_saved() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let saved = each(2, |strategy| {
        let vars = VarMap::new();
        let model = whole_model(&vars);
        let optimizer = AdamW::new(0.02);
        let is_frozen = |name: &str| name == "second.scale";
        let training =
            Sharded::with_frozen(strategy, &vars, is_frozen, optimizer, Shard::Optimizer);
        let mut training = training.unwrap();
        training
            .backward_step(&loss(&model(&input(0, 0))).unwrap())
            .unwrap();
        training.save(&checkpoints).unwrap();
        training.leave().unwrap();
        let vars = by_name(&vars).into_iter();
        bits(vars.map(|(name, var)| (name, var.into_inner())))
    });
    let loaded = each(3, |strategy| {
        let (units, optimizer) = (units(), AdamW::new(0.02));
        let stack = ShardedStack::with_strategy(strategy, units, optimizer, Shard::Parameters, 1);
        let mut stack = stack.unwrap();
        assert_eq!(stack.load(&checkpoints).unwrap(), Some(1));
        assert_eq!(stack.steps(), 1);
        let tensors = bits(stack.tensors().unwrap());
        stack.leave().unwrap();
        tensors
    });
    assert!(loaded.iter().all(|tensors| *tensors == saved[0]));
}

#[test]
fn a_unit_may_give_a_view_of_a_parameter() {
    let unit = ModuleUnit::new("view", |vars| {
        let table = vars.get_with_hints((3, 2), "table", candle_nn::Init::Const(0.5))?;
        Ok(move |_: &Tensor| table.narrow(0, 1, 2)?.broadcast_as((4, 2, 2)))
    });
    let units = vec![
        unit.unwrap(),
        ModuleUnit::new("scores", |vars| linear_no_bias(2, 1, vars.pp("scores"))).unwrap(),
    ];
    let mut stack = ShardedStack::new(units, Sgd::new(1.0), Shard::Parameters, 1).unwrap();
    let sum = |scores: &Tensor| scores.sum_all();
    let scores = stack.tensors().unwrap()["scores.weight"]
        .to_vec2::<f32>()
        .unwrap();
    stack.backward_step(&input(0, 0), sum).unwrap();
    let table = stack.tensors().unwrap()["table"].to_vec2::<f32>().unwrap();
    let moved = |column: usize| 0.5 - 4.0 * scores[0][column];
    assert_eq!(
        table,
        [[0.5, 0.5], [moved(0), moved(1)], [moved(0), moved(1)]]
    );
}

#[test]
fn mistakes_in_units_are_named() {
    let twice = ModuleUnit::new("block", |vars| {
        vars.get((2, 3), "weight")?;
        vars.get((2, 4), "weight")?;
        linear(1, 1, vars.pp("other"))
    });
    assert_eq!(
        twice.unwrap_err().to_string(),
        "unit block asks for weight as [2, 3] and as [2, 4]: give different parameters different names"
    );
    let half = ModuleUnit::new("block", |vars| {
        vars.get_with_hints_dtype(2, "half", candle_nn::Init::Const(0.0), DType::F64)?;
        linear(1, 1, vars)
    });
    let half = half.unwrap_err().to_string();
    assert!(half.contains("half is to be of F64"), "{half}");
    let unit = || ModuleUnit::new("block", |vars| linear(2, 2, vars)).unwrap();
    let tied = vec![unit(), unit()];
    let made = ShardedStack::new(tied, Sgd::new(0.1), Shard::Parameters, 1);
    let told = made.unwrap_err().to_string();
    assert!(told.contains("weight was given twice"), "{told}");
}

#[test]
fn losses_of_passes_that_are_given_up_are_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = ShardedCheckpoints::new(folder.path());
    let mut stack = ShardedStack::new(units(), AdamW::new(0.02), Shard::Parameters, 1).unwrap();
    stack.save(&checkpoints).unwrap();
    let given_up: [fn(&mut ShardedStack<AdamW>, &ShardedCheckpoints); 2] = [
        |stack, checkpoints| assert_eq!(stack.load(checkpoints).unwrap(), Some(0)),
        |stack, _| stack.initialize(1).unwrap(),
    ];
    for give_up in given_up {
        stack.accumulate(&input(0, 0), loss).unwrap();
        give_up(&mut stack, &checkpoints);
        let scores = stack.forward(&input(1, 0)).unwrap();
        let expected = loss(&scores).unwrap().to_scalar::<f32>().unwrap();
        assert_eq!(stack.backward_step(&input(1, 0), loss).unwrap(), expected);
    }
}
