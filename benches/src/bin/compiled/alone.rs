//! The module of a compiled step, run by the plugin alone: what its steps cannot be faster than.

use std::time::Duration;

use meshwork_accel::{ElementType, Graph, Vector};
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
    pub(crate) fn new(graph: &Graph) -> Result<Self, Failure> {
        let plugin = Plugin::load(Platform::Cpu.find()?)?;
        let count = AttributeValue::Int(graph.devices().try_into()?);
        let client = PjrtClient::new(&plugin, &[("cpu_device_count", count)])?;
        let options = CompileOptions::replicas(graph.devices().try_into()?);
        let program = client.compile(module(graph)?.as_bytes(), &options)?;
        let mut arguments = Vec::new();
        for device in program.devices() {
            let inputs = graph.inputs().iter();
            let made = inputs.map(|vector| made(&client, *device, *vector));
            arguments.push(made.collect::<Result<_, _>>()?);
        }
        let mut outputs = graph.outputs().iter();
        let loss = outputs.position(|value| graph.vector(*value).len == 1);
        Ok(Self {
            loss: loss.ok_or("the program has no output of one element")?,
            kept: graph.heirs().iter().map(|pair| pair.0).collect(),
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

/// Small numbers, of which indices are 0 and 1.
fn made(client: &PjrtClient, device: usize, vector: Vector) -> Result<Buffer, Failure> {
    let Vector { element, len } = vector;
    Ok(match element {
        ElementType::F32 => {
            let numbers: Vec<f32> = (0..len).map(|at| (at % 7) as f32 * 0.01).collect();
            client.upload(device, &[len], &numbers)?
        }
        ElementType::I64 => {
            let indices: Vec<i64> = (0..len).map(|at| (at % 2) as i64).collect();
            client.upload(device, &[len], &indices)?
        }
        other => return Err(format!("an input of {other} elements").into()),
    })
}
