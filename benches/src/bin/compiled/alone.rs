//! The module of a step, run by the plugin alone: that of a compiled step, than which it cannot be
//! faster, or one that others have lowered.

use std::time::Duration;

use meshwork_accel::{ElementType, Graph};
use meshwork_accel_tpu::{
    AttributeValue, Buffer, CompileOptions, Executable, PjrtClient, Platform, Plugin, module,
};

use crate::Failure;

pub(crate) struct Alone {
    program: Executable,
    /// What each device is given, all of which stays.
    arguments: Vec<Vec<Buffer>>,
    kept: Vec<usize>,
    /// The place of the loss among the outputs.
    loss: usize,
}

impl Alone {
    /// The module of a program of ours.
    pub(crate) fn new(graph: &Graph) -> Result<Self, Failure> {
        let devices = graph.devices().try_into()?;
        let options = CompileOptions::replicas(devices);
        let text = module(graph)?;
        let mut outputs = graph.outputs().iter();
        let loss = outputs.position(|value| graph.vector(*value).len == 1);
        let loss = loss.ok_or("the program has no output of one element")?;
        let kept = graph.heirs().iter().map(|pair| pair.0).collect();
        let inputs = graph.inputs().iter().map(|vector| Argument {
            element: vector.element,
            shape: vec![vector.len],
        });
        Self::compiled(&text, options, (inputs.collect(), kept), loss)
    }

    /// StableHLO with shardings over `devices`, whose first line is `// ` and the arguments of one
    /// device, and whose last result is the loss: what `peers/jax_transformer.py` writes.
    pub(crate) fn of_text(text: &str, devices: u32) -> Result<Self, Failure> {
        let first = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("// "));
        let first = first.ok_or("the first line of the module does not say its arguments")?;
        let inputs: Result<Vec<Argument>, Failure> = first.split(' ').map(argument).collect();
        let inputs = inputs?;
        let options = CompileOptions::partitions(devices);
        // The two that are no state of the step are its batch, in whose place the loss is given.
        let loss = inputs.len().checked_sub(2).ok_or("too few arguments")?;
        let kept = (0..inputs.len()).collect();
        Self::compiled(text, options, (inputs, kept), loss)
    }

    fn compiled(
        text: &str,
        options: CompileOptions,
        inputs: (Vec<Argument>, Vec<usize>),
        loss: usize,
    ) -> Result<Self, Failure> {
        let plugin = Plugin::load(Platform::Cpu.find()?)?;
        let count = options.replica_count() * options.partition_count();
        let count = AttributeValue::Int(count.into());
        let client = PjrtClient::new(&plugin, &[("cpu_device_count", count)])?;
        let program = client.compile(text.as_bytes(), &options)?;
        let mut arguments = Vec::new();
        for device in program.devices() {
            let made = inputs.0.iter().map(|own| made(&client, *device, own));
            arguments.push(made.collect::<Result<_, _>>()?);
        }
        Ok(Self {
            loss,
            kept: inputs.1,
            program,
            arguments,
        })
    }

    /// One run, and the loss on the host.
    pub(crate) fn step(&self) -> Result<f32, Failure> {
        let arguments: Vec<Vec<&Buffer>> = self
            .arguments
            .iter()
            .map(|own| own.iter().collect())
            .collect();
        let arguments: Vec<&[&Buffer]> = arguments.iter().map(Vec::as_slice).collect();
        let run = self.program.execute_keeping(&arguments, &self.kept)?;
        let mut loss = [0.0];
        run.outputs()[0][self.loss].download(&mut loss, Duration::from_secs(60))?;
        Ok(loss[0])
    }
}

/// What one device is given.
struct Argument {
    element: ElementType,
    shape: Vec<usize>,
}

/// `float32[64x32]`, as numpy names elements.
fn argument(text: &str) -> Result<Argument, Failure> {
    let unread = || format!("an argument {text:?}: give an element and a shape, as float32[64x32]");
    let (element, shape) = text.split_once('[').ok_or_else(unread)?;
    let shape = shape.strip_suffix(']').ok_or_else(unread)?;
    let shape = shape.split('x').filter(|size| !size.is_empty());
    Ok(Argument {
        element: match element {
            "float32" => ElementType::F32,
            "int32" => ElementType::I32,
            _ => return Err(unread().into()),
        },
        shape: shape.map(str::parse).collect::<Result<_, _>>()?,
    })
}

/// Small numbers, of which indices are 0 and 1.
fn made(client: &PjrtClient, device: usize, argument: &Argument) -> Result<Buffer, Failure> {
    let Argument { element, shape } = argument;
    let places = 0..shape.iter().product::<usize>();
    Ok(match element {
        ElementType::F32 => {
            let numbers: Vec<f32> = places.map(|at| (at % 7) as f32 * 0.01).collect();
            client.upload(device, shape, &numbers)?
        }
        ElementType::I32 => {
            let indices: Vec<i32> = places.map(|at| i32::from(at % 2 == 1)).collect();
            client.upload(device, shape, &indices)?
        }
        ElementType::I64 => {
            let indices: Vec<i64> = places.map(|at| i64::from(at % 2 == 1)).collect();
            client.upload(device, shape, &indices)?
        }
        other => return Err(format!("an input of {other} elements").into()),
    })
}
