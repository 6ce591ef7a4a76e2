//! Whole graphs by the devices of a backend.

use std::any::Any;
use std::sync::Arc;

use meshwork_accel::{DeviceId, Error as Refusal, Graph, Graphs};

use super::typed::{Raw, Typed};
use super::{Backend, BackendBuilder, DeviceBlock, DeviceBlocks};
use crate::Error;

/// A compiled graph of a backend.
pub(crate) struct CompiledGraph {
    raw: Box<dyn Any + Send + Sync>,
    /// Bytes of one device's part of each output.
    bytes: Vec<u64>,
    backend: Backend,
}

/// Graphs compiled for several devices.
pub(super) trait Together: Send + Sync {
    fn compile(
        &self,
        graph: &Graph,
        devices: &[DeviceId],
    ) -> Result<Box<dyn Any + Send + Sync>, Refusal>;

    /// None where the graph or a buffer is of another kind of accelerator.
    fn execute(
        &self,
        compiled: &(dyn Any + Send + Sync),
        inputs: &[Vec<&Raw>],
        kept: &[usize],
    ) -> Option<Result<Vec<Vec<Raw>>, Refusal>>;
}

impl<A: Graphs<Buffer: Sync, Compiled: 'static> + 'static> Together for Typed<A> {
    fn compile(
        &self,
        graph: &Graph,
        devices: &[DeviceId],
    ) -> Result<Box<dyn Any + Send + Sync>, Refusal> {
        Ok(Box::new(self.0.compile(graph, devices)?))
    }

    fn execute(
        &self,
        compiled: &(dyn Any + Send + Sync),
        inputs: &[Vec<&Raw>],
        kept: &[usize],
    ) -> Option<Result<Vec<Vec<Raw>>, Refusal>> {
        let compiled = compiled.downcast_ref()?;
        let typed = inputs.iter().map(|buffers| {
            let typed = buffers.iter().map(|buffer| buffer.downcast_ref());
            typed.collect::<Option<Vec<&A::Buffer>>>()
        });
        let typed: Vec<Vec<&A::Buffer>> = typed.collect::<Option<_>>()?;
        let made = self.0.execute(compiled, &typed, kept);
        let boxed = |buffers: Vec<A::Buffer>| {
            let raws = buffers.into_iter().map(|buffer| Box::new(buffer) as Raw);
            raws.collect()
        };
        Some(made.map(|made| made.into_iter().map(boxed).collect()))
    }
}

impl<A: Graphs<Buffer: Sync, Compiled: 'static> + 'static> BackendBuilder<A> {
    /// It compiles whole programs: a [compiled](crate::compile) step is one program of all devices
    /// of this client, as far as its ops are the backend's.
    pub fn graphs(mut self) -> Self {
        self.backend.graphs = Some(Arc::new(Typed(Arc::clone(&self.accelerator))));
        self
    }
}

impl Backend {
    /// Whether it compiles graphs.
    pub(crate) fn compiles(&self) -> bool {
        self.0.graphs.is_some()
    }

    /// A graph compiled for devices; none where the backend compiles none.
    pub(crate) fn compile(
        &self,
        graph: &Graph,
        devices: &[DeviceId],
    ) -> Result<Option<CompiledGraph>, Refusal> {
        let Some(graphs) = &self.0.graphs else {
            return Ok(None);
        };
        let bytes = graph.outputs().iter().map(|value| {
            let vector = graph.vector(*value);
            (vector.len * vector.element.size()) as u64
        });
        Ok(Some(CompiledGraph {
            raw: graphs.compile(graph, devices)?,
            bytes: bytes.collect(),
            backend: self.clone(),
        }))
    }
}

impl CompiledGraph {
    /// The outputs for these inputs; those whose places are not in `kept` may be used up.
    pub(crate) fn execute(
        &self,
        inputs: &[DeviceBlocks],
        kept: &[usize],
    ) -> Result<Vec<DeviceBlocks>, Error> {
        let raws = inputs.iter().map(|blocks| {
            let raws = blocks.iter().map(|block| self.backend.own(block));
            raws.collect::<Option<Vec<&Raw>>>()
        });
        let raws: Vec<Vec<&Raw>> = raws.collect::<Option<_>>().ok_or(Error::NotKept)?;
        let graphs = self.backend.0.graphs.as_ref().ok_or(Error::NotKept)?;
        let made = graphs.execute(&*self.raw, &raws, kept);
        let made = made.ok_or(Error::NotKept)??;
        let kept = made.into_iter().zip(&self.bytes).map(|(raws, bytes)| {
            let blocks = raws.into_iter().map(|raw| self.backend.keep(raw, *bytes));
            blocks.collect::<Vec<Arc<DeviceBlock>>>()
        });
        Ok(kept.collect())
    }
}

/// Compilers for tests.
#[cfg(test)]
pub(crate) mod testing {
    use meshwork_accel_cpu::CpuAccelerator;

    use super::*;

    struct Refusing(fn(&Graph) -> bool);

    impl Together for Refusing {
        fn compile(
            &self,
            graph: &Graph,
            devices: &[DeviceId],
        ) -> Result<Box<dyn Any + Send + Sync>, Refusal> {
            match (self.0)(graph) {
                true => Err(Refusal::DeviceFailed {
                    device: devices[0],
                    operation: "PJRT_Client_Compile",
                    code: 13,
                    status: "not today".to_owned(),
                }),
                false => Ok(Box::new(())),
            }
        }

        fn execute(
            &self,
            _: &(dyn Any + Send + Sync),
            _: &[Vec<&Raw>],
            _: &[usize],
        ) -> Option<Result<Vec<Vec<Raw>>, Refusal>> {
            None
        }
    }

    /// Logical devices whose compiler refuses some graphs, and runs none.
    pub(crate) fn refusing(cpus: &Arc<CpuAccelerator>, refused: fn(&Graph) -> bool) -> Backend {
        let mut builder = Backend::of(cpus).arithmetic().arrangement();
        builder.backend.graphs = Some(Arc::new(Refusing(refused)));
        builder.into()
    }
}
