//! Layers as a loop of the module against the same layers one after the other: how large the
//! module of a training step is, how long a PJRT plugin compiles it, and how many steps it does a
//! second.
//!
//! ```text
//! cargo run --release -p meshwork-benches --no-default-features --bin loops -- --layers 2,8,32
//! ```
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use meshwork_accel_tpu::{
    AttributeValue, CompileOptions, PjrtAccelerator, PjrtClient, Platform, Plugin, module,
};
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{
    Backend, Context, DTensor, DVariable, DeviceType, Error, Sgd, Tape, Variable, VariableSet,
    compile, scan,
};
use meshwork_layout::ops::{Activation, Normalization};
use meshwork_layout::{Layout, UNSHARDED};

/// Measures layers in a loop and one after the other.
#[derive(Debug, Parser)]
struct Args {
    /// Numbers of layers
    #[arg(long, value_delimiter = ',', default_values_t = [2, 8, 32])]
    layers: Vec<usize>,

    /// Numbers of devices, along which batches are cut
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    devices: Vec<u32>,

    /// Seconds for each
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let mut out = io::stdout();
    writeln!(
        out,
        "devices,layers,form,first_call_s,module_bytes,compile_s,steps_per_s"
    )?;
    let plugin = Plugin::load(Platform::Cpu.find()?)?;
    for devices in &args.devices {
        for layers in &args.layers {
            for form in [Form::Loop, Form::OneByOne] {
                let (devices, layers) = (*devices, *layers);
                let stack = Stack {
                    devices,
                    layers,
                    form,
                };
                let row = stack.measured(args, &plugin)?;
                writeln!(out, "{devices},{layers},{form:?},{row}")?;
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    Loop,
    OneByOne,
}

/// The weights of all layers, stacked.
struct Weights(Vec<DVariable<f32>>);

impl VariableSet for Weights {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.0.visit(visit);
    }
}

const WIDTH: usize = 64;

fn layer(x: &DTensor<f32>, out: &DTensor<f32>, back: &DTensor<f32>) -> Result<DTensor<f32>, Error> {
    let inner = x.normalize(&Normalization::new([-1], 1e-5))?.matmul(out)?;
    x.add(&inner.activation(Activation::GeluTanh)?.matmul(back)?)
}

impl Weights {
    fn new(context: &Context, mesh: &Mesh, layers: usize) -> Result<Self, Error> {
        let layout = Layout::replicated(mesh, 3);
        let shapes = [[layers, WIDTH, 4 * WIDTH], [layers, 4 * WIDTH, WIDTH]];
        let made = shapes.iter().zip(1..).map(|(shape, seed)| {
            let made = context.random_normal::<f32>(seed, shape, &layout)?;
            Ok(DVariable::new(made.scale(0.05)?))
        });
        made.collect::<Result<_, _>>().map(Self)
    }

    /// A step of training.
    fn step(&mut self, x: &DTensor<f32>, form: Form) -> Result<DTensor<f32>, Error> {
        let tape = Tape::new();
        let [out, back] = [0, 1].map(|place: usize| tape.watch(self.0[place].value()));
        let last = match form {
            Form::Loop => {
                let stacks = (out.clone(), back.clone());
                scan(x.clone(), &stacks, |x, (out, back)| {
                    Ok((layer(x, out, back)?, ()))
                })?
                .0
            }
            Form::OneByOne => {
                let both = out.unstack(0)?.into_iter().zip(back.unstack(0)?);
                both.into_iter()
                    .try_fold(x.clone(), |x, (out, back)| layer(&x, &out, &back))?
            }
        };
        let loss = last.mul(&last)?.mean_all()?;
        let slopes = tape.gradient(&loss, [&out, &back])?;
        Sgd::new(0.01).step(self.0.iter_mut().zip(&slopes))?;
        Ok(loss)
    }
}

/// What is measured in one row.
struct Stack {
    devices: u32,
    layers: usize,
    form: Form,
}

impl Stack {
    fn measured(self, args: &Args, plugin: &Plugin) -> Result<String, Failure> {
        let Self {
            devices,
            layers,
            form,
        } = self;
        let name = DeviceType::Tpu.name();
        let context = Context::alone(Client::new("localhost", 0, 1)?.with_devices(name, devices)?);
        let count = [("cpu_device_count", AttributeValue::Int(devices.into()))];
        let client = PjrtClient::new(plugin, &count)?;
        let compiler = PjrtClient::new(plugin, &count)?;
        let backend = Backend::of(&Arc::new(PjrtAccelerator::new(client))).arithmetic();
        context.compute_on(
            DeviceType::Tpu,
            backend.arrangement().collectives().graphs(),
        )?;
        let mesh = CreateMesh::new().device_type(name);
        let mesh = context.create_mesh(mesh.dims([("data", devices as usize)]))?;
        let rows = Layout::from_names(["data", UNSHARDED], &mesh)?;
        let x = context.random_normal::<f32>(7, &[128, WIDTH], &rows)?;
        let mut weights = Weights::new(&context, &mesh, layers)?;
        let mut step = compile(|weights: &mut Weights, x: &DTensor<f32>| weights.step(x, form));
        let begin = Instant::now();
        step.call(&mut weights, &x)?.to_host()?;
        let first = begin.elapsed().as_secs_f64();
        let graph = step
            .program()
            .ok_or("nothing was compiled")?
            .graph(&context)?;
        let text = module(&graph)?;
        let begin = Instant::now();
        compiler.compile(text.as_bytes(), &CompileOptions::replicas(devices))?;
        let compiled = begin.elapsed().as_secs_f64();
        let (begin, mut steps) = (Instant::now(), 0.0);
        while begin.elapsed().as_secs_f64() < args.seconds || steps == 0.0 {
            step.call(&mut weights, &x)?.to_host()?;
            steps += 1.0;
        }
        let speed = steps / begin.elapsed().as_secs_f64();
        let bytes = text.len();
        Ok(format!("{first:.2},{bytes},{compiled:.2},{speed:.0}"))
    }
}
