//! A step of training, traced here on as many devices as the slice has, and what it takes by our
//! own cost model.

use std::time::Duration;

use meshwork_accel::{Graph, GraphOp, Vector};
use meshwork_core::{Client, CreateMesh};
use meshwork_dtensor::{Context, Transformer, TransformerSizes, compile};
use meshwork_layout::Link;

use super::{Compile, Model, Program, TpuError};

/// A step as the program of all devices.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) sizes: TransformerSizes,
    /// Devices along which batches are cut, and the model.
    pub(super) mesh: [usize; 2],
    pub(super) recorded: usize,
    graph: Graph,
}

/// Collectives of one kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Exchanges {
    pub(super) name: &'static str,
    pub(super) count: usize,
    /// What each device receives.
    pub(super) bytes: u64,
    /// By the cost model.
    pub(super) time: Duration,
}

/// What a step is asked for of; none where a collective is.
pub(super) fn model(wanted: &Compile) -> Result<Option<Model>, TpuError> {
    let is_step = matches!(wanted.program, Program::TrainStep) && wanted.stablehlo.is_none();
    match (is_step, wanted.model) {
        (false, None) if wanted.parts.is_none() => Ok(None),
        (false, _) => Err(TpuError::NoStep),
        (true, _) if wanted.bytes.is_some() => Err(TpuError::StepBytes),
        (true, None) => Err(TpuError::NoModel),
        (true, Some(model)) => Ok(Some(model)),
    }
}

/// The step that is asked for, if one is.
pub(super) fn step(wanted: &Compile, devices: usize) -> Result<Option<Step>, TpuError> {
    let Some(Model::TensorParallel) = model(wanted)? else {
        return Ok(None);
    };
    let mesh = mesh(wanted.parts, devices)?;
    let sizes = TransformerSizes {
        batch: 2 * mesh[0],
        length: 64,
        tokens: 256,
        width: 128,
        heads: HEADS,
        layers: 2,
    };
    Step::traced(sizes, mesh).map(Some)
}

/// Devices along `data` and `model`.
fn mesh(parts: Option<usize>, devices: usize) -> Result<[usize; 2], TpuError> {
    let divides = |parts: &usize| {
        *parts > 0 && devices.is_multiple_of(*parts) && HEADS.is_multiple_of(*parts)
    };
    let example = [4, 2].into_iter().find(divides).unwrap_or(1);
    let parts = parts.unwrap_or(example);
    match divides(&parts) {
        true => Ok([devices / parts, parts]),
        false => Err(TpuError::Parts {
            parts,
            devices,
            heads: HEADS,
            example,
        }),
    }
}

/// The heads of the model, which are dealt out.
const HEADS: usize = 8;

impl Step {
    /// Nothing of the step is carried out.
    fn traced(sizes: TransformerSizes, mesh: [usize; 2]) -> Result<Self, TpuError> {
        let count = u32::try_from(mesh[0] * mesh[1]).expect("no slice has so many devices");
        let client = Client::new("localhost", 0, 1).map_err(meshwork_dtensor::Error::from)?;
        let client = client.with_devices("CPU", count);
        let context = Context::alone(client.map_err(meshwork_dtensor::Error::from)?);
        let dims = [("data", mesh[0]), ("model", mesh[1])];
        let made = context.create_mesh(CreateMesh::new().dims(dims))?;
        let batch = sizes.batch_of(&context, &made, |at| (at % sizes.tokens) as i64)?;
        let mut model = Transformer::new(&context, &made, sizes)?;
        let mut step = compile(Transformer::step);
        let program = step.lower(&mut model, &batch)?;
        Ok(Self {
            sizes,
            mesh,
            recorded: program.recorded(),
            graph: program.graph(&context)?,
        })
    }

    /// As StableHLO.
    pub(super) fn text(&self) -> Result<String, TpuError> {
        let text = meshwork_accel_tpu::module(&self.graph);
        Ok(text.map_err(meshwork_dtensor::Error::from)?)
    }

    /// The collectives of a step by kind, those that take longest first.
    pub(super) fn exchanges(&self) -> Vec<Exchanges> {
        let mut all: Vec<Exchanges> = Vec::new();
        add_exchanges(&self.graph, 1, &mut all);
        all.sort_by_key(|own| std::cmp::Reverse(own.time));
        all
    }

    /// Multiplications of one device.
    pub(super) fn multiplications(&self) -> u64 {
        multiplications(&self.graph)
    }
}

/// Adds the collectives of a graph that is carried out so many times.
fn add_exchanges(graph: &Graph, times: usize, all: &mut Vec<Exchanges>) {
    for node in graph.nodes() {
        if let GraphOp::Loop(own) = node.op() {
            add_exchanges(own.body(), times.saturating_mul(own.count()), all);
        }
        let given = node.operands().first();
        let given = given.map(|operand| graph.vector(*operand));
        let Some((name, bytes)) = given.and_then(|given| received(node.op(), given)) else {
            continue;
        };
        let one = Link::default().time(bytes);
        let one = Exchanges {
            name,
            count: times,
            bytes: bytes * times as u64,
            time: u32::try_from(times).map_or(Duration::MAX, |times| one.saturating_mul(times)),
        };
        match all.iter_mut().find(|own| own.name == name) {
            Some(own) => {
                own.count += one.count;
                own.bytes += one.bytes;
                own.time += one.time;
            }
            None => all.push(one),
        }
    }
}

fn multiplications(graph: &Graph) -> u64 {
    let products = graph.nodes().iter().map(|node| match node.op() {
        GraphOp::Product(shape) => (shape.product() * shape.inner()) as u64,
        GraphOp::Convolution(shape)
        | GraphOp::ConvolutionInputGradient(shape)
        | GraphOp::ConvolutionFilterGradient(shape) => {
            // Each output is a sum over a window and the channels of its group.
            let (filter, outputs) = (shape.filter(), shape.outputs());
            let terms = filter[..filter.len() - 1].iter();
            terms.chain(&outputs).map(|size| *size as u64).product()
        }
        GraphOp::Loop(own) => own.count() as u64 * multiplications(own.body()),
        _ => 0,
    });
    products.sum()
}

/// The kind of a collective, and the bytes that each device receives by rings; none for what is
/// no collective.
fn received(op: &GraphOp, given: Vector) -> Option<(&'static str, u64)> {
    let bytes = (given.len * given.element.size()) as u64;
    let others = |groups: &Vec<Vec<usize>>| {
        let size = groups.first().map_or(1, Vec::len) as u64;
        (size - 1, size)
    };
    Some(match op {
        GraphOp::AllReduce(_, groups) => {
            let (others, size) = others(groups);
            ("all-reduce", 2 * bytes * others / size)
        }
        GraphOp::AllGather(groups) => ("all-gather", bytes * others(groups).0),
        GraphOp::ReduceScatter(_, groups) => {
            let (others, size) = others(groups);
            ("reduce-scatter", bytes * others / size)
        }
        GraphOp::AllToAll(groups) => {
            let (others, size) = others(groups);
            ("all-to-all", bytes * others / size)
        }
        GraphOp::Permute(_) => ("permute", bytes),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_divide_devices_and_heads_or_the_line_says_what_would() {
        assert_eq!(mesh(None, 8).unwrap(), [2, 4]);
        assert_eq!(mesh(None, 6).unwrap(), [3, 2]);
        assert_eq!(mesh(Some(1), 8).unwrap(), [8, 1]);
        let refused = mesh(Some(3), 8).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "--parts 3 does not divide 8 devices and the 8 heads of the model: give 4"
        );
        assert!(mesh(Some(0), 8).is_err() && mesh(Some(16), 32).is_err());
    }

    #[test]
    fn the_whole_step_is_one_program_of_which_all_collectives_are_counted() {
        let sizes = TransformerSizes {
            batch: 4,
            length: 4,
            tokens: 8,
            width: 16,
            heads: HEADS,
            layers: 1,
        };
        let step = Step::traced(sizes, [2, 2]).unwrap();
        let text = step.text().unwrap();
        let exchanges = step.exchanges();
        let reduces = exchanges.iter().find(|own| own.name == "all-reduce");
        let calls = text.matches("all_reduce").count();
        assert!(calls > 0 && reduces.is_some_and(|own| own.count >= calls));
        assert!(step.multiplications() > 0);
        let donated = text.matches("tf.aliasing_output").count();
        assert_eq!(donated, 4 * 8, "weights, and what Adam keeps of each");
    }
}
