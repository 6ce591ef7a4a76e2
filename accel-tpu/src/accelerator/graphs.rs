//! Whole graphs as compiled programs.

use std::sync::Arc;

use meshwork_accel::{Accelerator, DeviceBuffer, DeviceId, Error, Graph, Graphs, Vector};

use super::{PjrtAccelerator, PjrtBuffer, failed};
use crate::stablehlo::module;
use crate::{Buffer, CompileOptions, Executable};

/// A graph compiled for some devices of a [`PjrtAccelerator`].
#[derive(Debug)]
pub struct CompiledGraph {
    program: Executable,
    devices: Vec<DeviceId>,
    inputs: Vec<Vector>,
    outputs: Vec<Vector>,
    /// The places of inputs of which an output takes the memory.
    used_up: Vec<usize>,
    /// Bytes that a run takes of each device besides the inputs, where that is known and so is what
    /// the devices have.
    room: Option<u64>,
}

impl CompiledGraph {
    /// The program.
    #[must_use]
    pub const fn executable(&self) -> &Executable {
        &self.program
    }
}

/// One module for all devices, each of which is a replica. The memory of an input is left alone
/// where another buffer shares it. A run that a device has no room for is not begun, where the
/// plugin says what its devices have.
impl Graphs for PjrtAccelerator {
    type Compiled = CompiledGraph;

    fn compile(&self, graph: &Graph, devices: &[DeviceId]) -> Result<CompiledGraph, Error> {
        same_count(devices.len(), graph.devices())?;
        let [first, ..] = devices else {
            let (inputs, outputs) = (0, 1);
            return Err(Error::CountMismatch { inputs, outputs });
        };
        let mut infos = Vec::with_capacity(devices.len());
        for device in devices {
            self.known(*device)?;
            infos.extend(self.client.devices().get(device.index()));
        }
        let text = module(graph)?;
        let replicas = u32::try_from(devices.len()).expect("no client has more devices");
        let options = CompileOptions::replicas(replicas).on(infos);
        let program = self.kernels.compile(&text, options);
        let program = program.map_err(|error| failed(*first, error))?;
        let outputs = graph.outputs().iter();
        Ok(CompiledGraph {
            room: self.room_of(*first, &program)?,
            program,
            devices: devices.to_vec(),
            inputs: graph.inputs().to_vec(),
            outputs: outputs.map(|value| graph.vector(*value)).collect(),
            used_up: graph.heirs().iter().map(|pair| pair.0).collect(),
        })
    }

    fn execute(
        &self,
        compiled: &CompiledGraph,
        inputs: &[Vec<&PjrtBuffer>],
        kept: &[usize],
    ) -> Result<Vec<Vec<PjrtBuffer>>, Error> {
        let arguments = compiled.arguments(inputs)?;
        if let Some(bytes) = compiled.room {
            let mut devices = compiled.devices.iter();
            devices.try_for_each(|device| self.check_room(*device, bytes))?;
        }
        let arguments: Vec<&[&Buffer]> = arguments.iter().map(Vec::as_slice).collect();
        let is_shared = |input: &usize| {
            let mut buffers = inputs[*input].iter();
            kept.contains(input) || buffers.any(|buffer| !buffer.kept().is_empty())
        };
        let left: Vec<usize> = compiled.used_up.iter().copied().filter(is_shared).collect();
        let run = compiled.program.execute_keeping(&arguments, &left);
        // There is one, or it would not have been compiled.
        let run = run.map_err(|error| failed(compiled.devices[0], error))?;
        let (outputs, done) = run.into_parts();
        for (device, event) in compiled.devices.iter().zip(done) {
            let added = self.known(*device)?.add(event);
            added.map_err(|error| failed(*device, error))?;
        }
        let mut made: Vec<Vec<PjrtBuffer>> = Vec::with_capacity(compiled.outputs.len());
        made.resize_with(compiled.outputs.len(), Vec::new);
        for (device, buffers) in compiled.devices.iter().zip(outputs) {
            for ((made, vector), memory) in made.iter_mut().zip(&compiled.outputs).zip(buffers) {
                let mut buffer = self.empty(*device, *vector);
                buffer.set(Arc::new(memory));
                made.push(buffer);
            }
        }
        Ok(made)
    }
}

impl PjrtAccelerator {
    /// Bytes that a run takes besides its arguments; none where the plugin tells nothing of the
    /// program or of its devices.
    fn room_of(&self, device: DeviceId, program: &Executable) -> Result<Option<u64>, Error> {
        if self.memory(device)?.free().is_none() {
            return Ok(None);
        }
        let needed = program.program().memory();
        Ok(needed.ok().map(|memory| memory.beside_arguments()))
    }

    /// Refuses what a device has no room for. What ran before may not have ended, and gives memory
    /// back when it does.
    fn check_room(&self, device: DeviceId, bytes: u64) -> Result<(), Error> {
        let free = || {
            let free = self.memory(device)?.free();
            Ok::<_, Error>(free.filter(|free| *free < bytes))
        };
        if free()?.is_none() {
            return Ok(());
        }
        let done = self.known(device)?.wait(self.patience);
        done.map_err(|error| failed(device, error))?;
        match free()? {
            None => Ok(()),
            Some(free) => Err(Error::NoRoomToRun {
                device,
                bytes,
                free,
            }),
        }
    }
}

impl CompiledGraph {
    /// What each device is given.
    fn arguments<'a>(&self, inputs: &[Vec<&'a PjrtBuffer>]) -> Result<Vec<Vec<&'a Buffer>>, Error> {
        same_count(inputs.len(), self.inputs.len())?;
        let mut arguments = vec![Vec::with_capacity(inputs.len()); self.devices.len()];
        for (buffers, vector) in inputs.iter().zip(&self.inputs) {
            same_count(buffers.len(), self.devices.len())?;
            for ((buffer, device), list) in buffers.iter().zip(&self.devices).zip(&mut arguments) {
                let (left, right) = (*device, buffer.device());
                if left != right {
                    return Err(Error::DeviceMismatch { left, right });
                }
                buffer.check_element(vector.element)?;
                let (left, right) = (vector.len, buffer.len());
                let memory = buffer.memory().filter(|_| left == right);
                list.push(&**memory.ok_or(Error::LengthMismatch { left, right })?);
            }
        }
        Ok(arguments)
    }
}

fn same_count(inputs: usize, outputs: usize) -> Result<(), Error> {
    match inputs == outputs {
        true => Ok(()),
        false => Err(Error::CountMismatch { inputs, outputs }),
    }
}
