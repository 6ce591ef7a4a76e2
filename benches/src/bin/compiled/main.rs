//! Steps of training op by op and compiled, on the CPU and on a PJRT plugin: samples a second.
//!
//! ```text
//! cargo run --release -p meshwork-benches --no-default-features --bin compiled -- \
//!     --model transformer --engine tape,compiled --backend pjrt --devices 1,4 --csv
//! ```
//!
//! Without the default features nothing of candle and burn is built. The plugin is XLA's for the
//! CPU, found as everywhere (`PJRT_PLUGIN_PATH`).
#![forbid(unsafe_code)]

mod alone;
mod cnn;
mod small;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use meshwork_accel::{Graph, GraphOp};
use meshwork_accel_tpu::{AttributeValue, PjrtAccelerator, PjrtClient, Platform, Plugin};
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{
    Backend, Context, DTensor, DeviceType, Program, TokenBatch, Transformer, TransformerSizes,
    compile,
};

use alone::Alone;
use cnn::Network;
use small::Small;

/// Measures steps of training.
#[derive(Debug, Parser)]
struct Args {
    /// What to train
    #[arg(long, value_enum, default_value = "transformer")]
    model: Model,

    /// How steps are carried out, one after the other
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Engine::Tape, Engine::Compiled])]
    engine: Vec<Engine>,

    /// What computes
    #[arg(long, value_enum, default_value = "pjrt")]
    backend: Computing,

    /// Numbers of devices: 1, 2, 4 or 8
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4])]
    devices: Vec<u32>,

    /// Seconds for each
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,

    /// Run a module too that others have lowered for the same step and devices, by the plugin
    /// alone; its first line says the arguments, as `peers/jax_transformer.py` writes it
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,

    /// Print rows, separated by commas
    #[arg(long)]
    csv: bool,

    /// Print what the compiled program is, to standard error
    #[arg(long)]
    explain: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// The convolutional network for MNIST, batches of 64, cut over the batch
    Cnn,
    /// Two layers of a decoder, 8 sequences of 32 tokens, cut over batch and model
    Transformer,
    /// Next to nothing, with eight variables: what a call costs; a step is a sample
    Small,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Engine {
    /// The loss alone, op by op
    Eager,
    /// The whole step, op by op
    Tape,
    /// The whole step, compiled
    Compiled,
    /// The module of the compiled step, run by the plugin alone
    Plugin,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Computing {
    /// The processor
    Cpu,
    /// A PJRT plugin
    Pjrt,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let mut out = io::stdout();
    match args.csv {
        true => writeln!(out, "model,engine,devices,samples_per_s")?,
        false => writeln!(out, "{:?} on {:?}", args.model, args.backend)?,
    }
    for devices in &args.devices {
        for engine in &args.engine {
            let speed = of_engine(args, *engine, *devices)?;
            report(&mut out, args, (&name(*engine), *devices), speed)?;
        }
        if let Some(file) = &args.module {
            let module = Alone::of_text(&fs::read_to_string(file)?, *devices)?;
            let samples = samples(args.model) * measured(args, || module.step())?;
            report(&mut out, args, ("module", *devices), samples)?;
        }
    }
    Ok(())
}

fn report(out: &mut impl Write, args: &Args, of: (&str, u32), speed: f64) -> io::Result<()> {
    let (engine, devices) = of;
    match args.csv {
        true => writeln!(out, "{},{engine},{devices},{speed:.0}", name(args.model)),
        false => writeln!(out, "{engine:>10} on {devices}: {speed:.0} samples/s"),
    }
}

fn of_engine(args: &Args, engine: Engine, devices: u32) -> Result<f64, Failure> {
    let (context, mesh) = context(args.backend, shape(args.model, devices)?)?;
    let steps = match args.model {
        Model::Cnn => cnn(args, engine, &context, &mesh)?,
        Model::Transformer => transformer(args, engine, &context, &mesh)?,
        Model::Small => small(args, engine, &context, &mesh)?,
    };
    Ok(steps * samples(args.model))
}

/// How many a step learns from.
fn samples(model: Model) -> f64 {
    match model {
        Model::Cnn => cnn::BATCH as f64,
        Model::Transformer => SIZES.batch as f64,
        Model::Small => 1.0,
    }
}

fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// How many parts of data and of the model.
fn shape(model: Model, devices: u32) -> Result<[u32; 2], Failure> {
    Ok(match (model, devices) {
        (Model::Cnn | Model::Small, 1 | 2 | 4 | 8) => [devices, 1],
        (Model::Transformer, 1) => [1, 1],
        (Model::Transformer, 2) => [1, 2],
        (Model::Transformer, 4) => [2, 2],
        (Model::Transformer, 8) => [2, 4],
        (_, other) => return Err(format!("{other} devices: give 1, 2, 4 or 8").into()),
    })
}

fn context(computing: Computing, [data, parts]: [u32; 2]) -> Result<(Context, Mesh), Failure> {
    let count = data * parts;
    let device_type = match computing {
        Computing::Cpu => DeviceType::Cpu,
        Computing::Pjrt => DeviceType::Tpu,
    };
    let client = Client::new("localhost", 0, 1)?.with_devices(device_type.name(), count)?;
    let context = Context::alone(client);
    if computing == Computing::Pjrt {
        let plugin = Plugin::load(Platform::Cpu.find()?)?;
        let devices = [("cpu_device_count", AttributeValue::Int(count.into()))];
        let client = PjrtClient::new(&plugin, &devices)?;
        let backend = Backend::of(&Arc::new(PjrtAccelerator::new(client))).arithmetic();
        context.compute_on(device_type, backend.arrangement().collectives().graphs())?;
    }
    let mesh = CreateMesh::new().device_type(device_type.name());
    let mesh = mesh.dims([("data", data as usize), ("model", parts as usize)]);
    let mesh = context.create_mesh(mesh)?;
    Ok((context, mesh))
}

const SIZES: TransformerSizes = TransformerSizes {
    batch: 8,
    length: 32,
    tokens: 64,
    width: 64,
    heads: 4,
    layers: 2,
};

fn transformer(
    args: &Args,
    engine: Engine,
    context: &Context,
    mesh: &Mesh,
) -> Result<f64, Failure> {
    let token = |at: usize| i64::try_from(at * at % 61).unwrap_or_default();
    let batch: TokenBatch = SIZES.batch_of(context, mesh, token)?;
    let mut model = Transformer::new(context, mesh, SIZES)?;
    match engine {
        Engine::Eager => measured(args, || on_host(&model.loss_of(&batch)?)),
        Engine::Tape => measured(args, || on_host(&model.step(&batch)?)),
        Engine::Compiled | Engine::Plugin => {
            let mut step = compile(Transformer::step);
            let call = || on_host(&step.call(&mut model, &batch)?);
            let steps = measured(args, call)?;
            of_program(args, engine, (context, step.program()), steps)
        }
    }
}

fn cnn(args: &Args, engine: Engine, context: &Context, mesh: &Mesh) -> Result<f64, Failure> {
    let batch = cnn::batch(context, mesh)?;
    let mut network = Network::new(context, mesh)?;
    match engine {
        Engine::Eager => measured(args, || on_host(&network.loss_of(&batch)?)),
        Engine::Tape => measured(args, || on_host(&network.step(&batch)?)),
        Engine::Compiled | Engine::Plugin => {
            let mut step = compile(Network::step);
            let call = || on_host(&step.call(&mut network, &batch)?);
            let steps = measured(args, call)?;
            of_program(args, engine, (context, step.program()), steps)
        }
    }
}

fn small(args: &Args, engine: Engine, context: &Context, mesh: &Mesh) -> Result<f64, Failure> {
    let input = small::input(context, mesh)?;
    let mut model = Small::new(context, mesh)?;
    match engine {
        Engine::Eager | Engine::Tape => measured(args, || on_host(&model.step(&input)?)),
        Engine::Compiled | Engine::Plugin => {
            let mut step = compile(Small::step);
            let call = || on_host(&step.call(&mut model, &input)?);
            let steps = measured(args, call)?;
            of_program(args, engine, (context, step.program()), steps)
        }
    }
}

/// The steps in a second of a program that made `steps`: those, or those of its module alone.
fn of_program(
    args: &Args,
    engine: Engine,
    compiled: (&Context, Option<&Program>),
    steps: f64,
) -> Result<f64, Failure> {
    let (context, program) = compiled;
    let program = program.ok_or("nothing was compiled")?;
    if args.explain {
        let [count, bytes] = sums(&program.graph(context)?);
        writeln!(io::stderr(), "{program}")?;
        writeln!(io::stderr(), "{count} all-reduces of {bytes} B")?;
    }
    if engine == Engine::Compiled {
        return Ok(steps);
    }
    let alone = Alone::new(&program.graph(context)?)?;
    measured(args, || alone.step())
}

/// How many sums over devices a step has, and of how many bytes of each device.
fn sums(graph: &Graph) -> [usize; 2] {
    let sums = graph.nodes().iter();
    let sums = sums.filter(|node| matches!(node.op(), GraphOp::AllReduce(..)));
    let given = sums.flat_map(|node| node.operands().first());
    let bytes = given
        .map(|own| graph.vector(*own))
        .map(|own| own.len * own.element.size());
    bytes.fold([0, 0], |sum, own| [sum[0] + 1, sum[1] + own])
}

fn on_host(loss: &DTensor<f32>) -> Result<f32, Failure> {
    Ok(loss.to_host()?.sum())
}

/// Steps in a second, after three that are not counted. Each ends with its loss on the host.
fn measured(args: &Args, mut step: impl FnMut() -> Result<f32, Failure>) -> Result<f64, Failure> {
    let mut last = 0.0;
    for _ in 0..3 {
        last = step()?;
    }
    let (begin, mut steps) = (Instant::now(), 0.0);
    while begin.elapsed() < Duration::from_secs_f64(args.seconds) || steps == 0.0 {
        last = step()?;
        steps += 1.0;
    }
    let took = begin.elapsed().as_secs_f64();
    match f32::is_finite(last) {
        true => Ok(steps / took),
        false => Err(format!("the loss is {last} after {steps} steps").into()),
    }
}
