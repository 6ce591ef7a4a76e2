//! What the adapters cost a training step, beside the time of the whole step by the same clock:
//! where one worker trains nothing is sent, and all of `all_reduce` is the adapter's; where two do,
//! it is what that takes longer than an all-reduce of as many numbers in the same step.
//!
//! Prints `library,model,workers,step_us,adapter_us,share`: medians of many steps, and the median
//! of their shares in percent.

use std::hint::black_box;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use burn_core::module::{Module, Param};
use burn_core::tensor::{Device as BurnDevice, Int, Tensor as BurnTensor, TensorData, activation};
use burn_core::{self as burn};
use burn_optim::{GradientsParams, SgdConfig};
use candle_core::{DType, Device, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Optimizer, SGD, VarBuilder, VarMap};
use meshwork_burn::MirroredParams;
use meshwork_candle::MirroredVars;
use meshwork_candle_ops as ops;
use meshwork_launcher::{Cores, Launch, Outcome, Output};
use meshwork_strategy::{MultiWorkerMirroredStrategy, PerReplica, ReplicaContext, ReplicaReduceOp};

/// As programs that train have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error>;

/// Steps that fill caches, and steps that are measured.
const WARM_UP: usize = 10;
const STEPS: usize = 200;

/// Sizes of the dense layers, and their batch.
const DENSE: [usize; 4] = [64, 512, 512, 10];
const BATCH: usize = 256;
const IMAGES: usize = 64;
const RATE: f64 = 0.01;

fn main() -> Result<(), Failure> {
    // cargo asks with --test whether it runs at all.
    let steps = if std::env::args().any(|arg| arg == "--test") {
        1
    } else {
        STEPS
    };
    if std::env::var_os("TF_CONFIG").is_some() {
        let mut strategy = MultiWorkerMirroredStrategy::from_env()?;
        rows(&mut strategy, steps)?;
        return Ok(strategy.leave()?);
    }
    writeln!(
        io::stdout(),
        "library,model,workers,step_us,adapter_us,share"
    )?;
    rows(&mut MultiWorkerMirroredStrategy::alone()?, steps)?;
    let launch = Launch::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env("RAYON_NUM_THREADS", "1")
        .env("CANDLE_NUM_THREADS", "1")
        .workers(2)?
        .cores(Cores::Split)
        .output(Output::ChiefInherits);
    match launch.run()? {
        Outcome::Succeeded => Ok(()),
        outcome => Err(outcome.to_string().into()),
    }
}

fn rows(strategy: &mut MultiWorkerMirroredStrategy, steps: usize) -> Result<(), Failure> {
    let workers = strategy.num_replicas_in_sync();
    for (name, measured) in [
        ("candle,dense", candle_dense(strategy, steps)?),
        ("candle,cnn", candle_cnn(strategy, steps)?),
        ("burn,dense", burn_dense(strategy, steps)?),
    ] {
        if strategy.is_chief() {
            writeln!(io::stdout(), "{name},{workers},{measured}")?;
        }
    }
    Ok(())
}

/// What a step tells of itself.
struct Timed {
    /// Within the adapter, but for what its numbers take on their way.
    adapter: Duration,
    /// What a training would not do: measuring that.
    beside: Duration,
}

/// Times what an adapter does, which sums as many numbers as `bare` has over the workers.
fn timed<R, E: From<meshwork_strategy::Error>>(
    replica: &mut ReplicaContext<'_>,
    bare: &mut [f32],
    act: impl FnOnce(&mut ReplicaContext<'_>) -> Result<R, E>,
) -> Result<(R, Timed), E> {
    let began = Instant::now();
    let mut exchange = Duration::ZERO;
    if replica.num_replicas_in_sync() > 1 {
        // All set out together, so that nobody's time is spent waiting for a slower one.
        replica.all_reduce(ReplicaReduceOp::Sum, &mut [0.0_f32])?;
        let set_out = Instant::now();
        replica.all_reduce(ReplicaReduceOp::Sum, bare)?;
        exchange = set_out.elapsed();
        replica.all_reduce(ReplicaReduceOp::Sum, &mut [0.0_f32])?;
    }
    let set_out = Instant::now();
    let result = act(replica)?;
    let timed = Timed {
        adapter: set_out.elapsed().saturating_sub(exchange),
        beside: set_out - began,
    };
    Ok((result, timed))
}

/// The medians of steps.
fn measure(
    steps: usize,
    mut step: impl FnMut() -> Result<Timed, Failure>,
) -> Result<String, Failure> {
    for _ in 0..WARM_UP {
        step()?;
    }
    let (mut whole, mut adapter, mut share) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..steps {
        let began = Instant::now();
        let timed = step()?;
        let within = timed.adapter.as_secs_f64();
        let all = (began.elapsed() - timed.beside).as_secs_f64();
        whole.push(all * 1e6);
        adapter.push(within * 1e6);
        share.push(within / all * 100.0);
    }
    let [whole, adapter, share] = [whole, adapter, share].map(median);
    Ok(format!("{whole:.0},{adapter:.1},{share:.2}"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Steps of a candle model, which `forward` makes scores of.
fn candle(
    strategy: &mut MultiWorkerMirroredStrategy,
    steps: usize,
    vars: &VarMap,
    labels: &Tensor,
    forward: impl Fn() -> candle_core::Result<Tensor>,
) -> Result<String, Failure> {
    let mut mirrored = MirroredVars::with_extra(strategy, vars, 1)?;
    let numbers = vars.all_vars().iter().map(|var| var.elem_count()).sum();
    let mut bare = strategy.alloc(numbers)?;
    let weight = 1.0 / strategy.num_replicas_in_sync() as f32;
    let mut optimizer = SGD::new(vars.all_vars(), RATE)?;
    measure(steps, || {
        let timed = strategy.run(|replica| {
            let mut gradients = ops::cross_entropy(&forward()?, labels)?.backward()?;
            let ((), timed) = timed(replica, &mut bare, |replica| {
                mirrored.all_reduce(replica, &mut gradients, weight)
            })?;
            optimizer.step(&gradients)?;
            Ok::<_, meshwork_candle::Error>(timed)
        })?;
        Ok(timed.into_first())
    })
}

fn labels(count: usize) -> candle_core::Result<Tensor> {
    let labels: Vec<u32> = (0..10).cycle().take(count).collect();
    Tensor::from_vec(labels, count, &Device::Cpu)
}

fn candle_dense(
    strategy: &mut MultiWorkerMirroredStrategy,
    steps: usize,
) -> Result<String, Failure> {
    let vars = VarMap::new();
    let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let layer =
        |number: usize| candle_nn::linear(DENSE[number], DENSE[number + 1], builder.pp(number));
    let layers: Vec<Linear> = (0..3).map(layer).collect::<Result<_, _>>()?;
    let inputs = Tensor::rand(-1.0_f32, 1.0, (BATCH, DENSE[0]), &Device::Cpu)?;
    candle(strategy, steps, &vars, &labels(BATCH)?, || {
        let first = ops::silu(&ops::linear(&layers[0], &inputs)?)?;
        let second = ops::silu(&ops::linear(&layers[1], &first)?)?;
        ops::linear(&layers[2], &second)
    })
}

/// The network of the MNIST example.
fn candle_cnn(strategy: &mut MultiWorkerMirroredStrategy, steps: usize) -> Result<String, Failure> {
    let vars = VarMap::new();
    let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let conv = |sizes: [usize; 5], name: &str| -> candle_core::Result<Conv2d> {
        let [inputs, outputs, kernel, padding, stride] = sizes;
        let config = Conv2dConfig {
            padding,
            stride,
            ..Conv2dConfig::default()
        };
        candle_nn::conv2d(inputs, outputs, kernel, config, builder.pp(name))
    };
    let first = conv([1, 8, 5, 2, 2], "conv1")?;
    let second = conv([8, 24, 3, 1, 1], "conv2")?;
    let hidden = candle_nn::linear(24 * 7 * 7, 48, builder.pp("hidden"))?;
    let output = candle_nn::linear(48, 10, builder.pp("output"))?;
    let images = Tensor::rand(0.0_f32, 1.0, (IMAGES, 1, 28, 28), &Device::Cpu)?;
    candle(strategy, steps, &vars, &labels(IMAGES)?, || {
        let halves = ops::silu(&ops::conv2d(&first, &images)?)?;
        let keeps = ops::silu(&ops::conv2d(&second, &halves)?)?;
        let quarters = ops::avg_pool2d(&keeps, 2)?.flatten_from(1)?;
        ops::linear(&output, &ops::silu(&ops::linear(&hidden, &quarters)?)?)
    })
}

#[derive(Module, Debug)]
struct Dense {
    layers: Vec<Layer>,
}

#[derive(Module, Debug)]
struct Layer {
    weight: Param<BurnTensor<2>>,
    bias: Param<BurnTensor<1>>,
}

impl Dense {
    fn new(device: &BurnDevice) -> Self {
        let layer = |sizes: &[usize]| {
            let (inputs, outputs) = (sizes[0], sizes[1]);
            let values = (0..inputs * outputs).map(|at| (at as f32).sin() / 16.0);
            let weight = TensorData::new(values.collect(), [inputs, outputs]);
            let bias = TensorData::new(vec![0.0_f32; outputs], [outputs]);
            Layer {
                weight: Param::from_data(weight, device),
                bias: Param::from_data(bias, device),
            }
        };
        let layers = DENSE.windows(2).map(layer).collect();
        Self { layers }
    }

    fn forward(&self, inputs: BurnTensor<2>) -> BurnTensor<2> {
        let mut outputs = inputs;
        for (number, layer) in self.layers.iter().enumerate() {
            outputs = outputs.matmul(layer.weight.val()) + layer.bias.val().unsqueeze();
            if number + 1 < self.layers.len() {
                outputs = activation::relu(outputs);
            }
        }
        outputs
    }
}

fn burn_dense(strategy: &mut MultiWorkerMirroredStrategy, steps: usize) -> Result<String, Failure> {
    let device = BurnDevice::flex().autodiff();
    let (mut mirrored, network) = MirroredParams::new(strategy, Dense::new(&device))?;
    let mut bare = strategy.alloc(network.num_params())?;
    let weight = 1.0 / strategy.num_replicas_in_sync() as f32;
    let mut network = Some(network);
    let mut optimizer = SgdConfig::new().init();
    let inputs = (0..BATCH * DENSE[0]).map(|at| (at as f32 * 0.3).cos());
    let inputs = TensorData::new(inputs.collect(), [BATCH, DENSE[0]]);
    let inputs = BurnTensor::<2>::from_data(inputs, &device);
    let labels = (0..10_i64).cycle().take(BATCH).collect();
    let labels = BurnTensor::<2, Int>::from_data(TensorData::new(labels, [BATCH, 1]), &device);
    measure(steps, || {
        // Moved through the optimizer: a second handle would make it copy every parameter.
        let before = network.take().ok_or("the last step has failed")?;
        let sums = strategy.run(|replica| {
            let scores = activation::log_softmax(before.forward(inputs.clone()), 1);
            let loss = -scores.gather(1, labels.clone()).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &before);
            timed::<_, meshwork_burn::Error>(replica, &mut bare, |replica| {
                mirrored.all_reduce(replica, &before, gradients, weight)
            })
        });
        let (sums, timed) = sums.map(PerReplica::into_first)?;
        network = Some(optimizer.step(RATE, before, sums));
        black_box(&network);
        Ok(timed)
    })
}
