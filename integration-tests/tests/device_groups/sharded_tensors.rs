//! A sharded model whose units compute with DTensors: parts of parts, on the dimensions of one
//! mesh, train as one process does.

use std::ops::Range;

use meshwork_collectives::Group;
use meshwork_core::{Client, CreateMesh, Mesh, MeshRank};
use meshwork_dtensor::{Context, DTensor, Tape};
use meshwork_layout::{Layout, UNSHARDED};
use meshwork_strategy::sharded::{AdamW, Shard, ShardedModel, Sharding, UnitSpec};
use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, ReplicaReduceOp, VariableSpec};
use meshwork_testing::in_threads;
use ndarray::ArrayD;

const INPUTS: usize = 3;
/// Not the same number on each of two workers.
const HIDDEN: usize = 7;
const OUTPUTS: usize = 2;
/// Samples of each replica.
const BATCH: usize = 4;
const STEPS: usize = 4;

fn unit() -> UnitSpec {
    let spec = |name: &str, shape: &[usize]| VariableSpec::new(name, shape).unwrap();
    let parameters = [
        spec("up", &[INPUTS, HIDDEN]),
        spec("up.bias", &[HIDDEN]),
        spec("down", &[HIDDEN, OUTPUTS]),
        spec("down.bias", &[OUTPUTS]),
    ];
    let unit = UnitSpec::new("mlp", parameters).with_cut("up", 1);
    let unit = unit.and_then(|unit| unit.with_cut("up.bias", 0));
    unit.and_then(|unit| unit.with_cut("down", 0)).unwrap()
}

fn initial(spec: &VariableSpec, elements: Range<usize>, rows: &mut [f32]) {
    let name = spec.name().len();
    for (at, value) in elements.zip(rows) {
        *value = ((at * 31 + name) as f32 * 0.618).sin();
    }
}

/// The parts of one replica's tensors on the workers of a mesh of one dimension.
struct Network {
    context: Context,
    layouts: [Layout; 4],
    rows: Layout,
    own: MeshRank,
}

impl Network {
    fn new(context: Context, workers: usize) -> Self {
        let mesh = CreateMesh::new().dims([("tensor", workers)]);
        let mesh = context.create_distributed_mesh(mesh).unwrap();
        let layout = |specs: &[&str]| Layout::from_names(specs.iter().copied(), &mesh).unwrap();
        Self {
            layouts: [
                layout(&[UNSHARDED, "tensor"]),
                layout(&["tensor"]),
                layout(&["tensor", UNSHARDED]),
                layout(&[UNSHARDED]),
            ],
            rows: layout(&[UNSHARDED, UNSHARDED]),
            own: MeshRank::new(usize::try_from(context.index()).unwrap()),
            context,
        }
    }

    /// A parameter of which this worker has these values.
    fn parameter(&self, number: usize, values: &[f32]) -> DTensor<f32> {
        let (layout, unit) = (&self.layouts[number], unit());
        let shape = unit.parameters()[number].shape();
        let own = layout.local_shape(self.own, shape).unwrap();
        let block = ArrayD::from_shape_vec(own.to_vec(), values.to_vec()).unwrap();
        self.context.pack_uneven([block], layout, shape).unwrap()
    }

    /// The loss, and what this worker has of its gradients.
    fn gradients(
        &self,
        parameters: &[DTensor<f32>; 4],
        samples: Range<usize>,
    ) -> (f32, Vec<Vec<f32>>) {
        let count = samples.len();
        let first = samples.start;
        let number = move |at: &[usize]| ((first + at[0]) as f32 * 1.3 + at[1] as f32 * 0.7).sin();
        let inputs = self
            .context
            .from_fn(&[count, INPUTS], &self.rows, number)
            .unwrap();
        let tape = Tape::new();
        let [up, up_bias, down, down_bias] = parameters.each_ref().map(|one| tape.watch(one));
        let hidden = inputs.matmul(&up).unwrap().bias_add(&up_bias).unwrap();
        let outputs = hidden.tanh().unwrap().matmul(&down).unwrap();
        let outputs = outputs
            .relayout(&self.rows)
            .unwrap()
            .bias_add(&down_bias)
            .unwrap();
        let loss = outputs.mul(&outputs).unwrap().mean_all().unwrap();
        let slopes = tape
            .gradient(&loss, [&up, &up_bias, &down, &down_bias])
            .unwrap();
        let own = |(slope, layout): (&DTensor<f32>, &Layout)| {
            let slope = slope.relayout(layout).unwrap();
            slope.unpack().unwrap()[0].iter().copied().collect()
        };
        let own = slopes.iter().zip(&self.layouts).map(own).collect();
        (loss.to_host().unwrap().sum(), own)
    }
}

/// The losses of all samples, step by step.
fn train(mut strategy: MultiWorkerMirroredStrategy, network: &Network, batch: usize) -> Vec<f32> {
    let sharding = Sharding::new(Shard::Parameters).with_max_norm(0.5);
    let optimizer = AdamW::new(0.02);
    let model = ShardedModel::new(&mut strategy, sharding, &[unit()], optimizer, initial);
    let mut model = model.unwrap();
    let first = strategy.rank().index() * batch;
    let losses = (0..STEPS).map(|_| {
        let stepped = strategy.run(|replica| {
            let loss = model.backward(replica, 0, |values, gradients| {
                let parameters = [0, 1, 2, 3].map(|at| network.parameter(at, &values[at]));
                let (loss, slopes) = network.gradients(&parameters, first..first + batch);
                for (at, slope) in slopes.iter().enumerate() {
                    gradients[at].copy_from_slice(slope);
                }
                loss
            })?;
            model.step(replica)?;
            let mut loss = [loss];
            replica.all_reduce(ReplicaReduceOp::Mean, &mut loss)?;
            Ok::<_, Error>(loss[0])
        });
        stepped.unwrap().into_first()
    });
    let losses = losses.collect();
    strategy.leave().unwrap();
    losses
}

fn client(number: u32, count: u32) -> Client {
    let client = Client::new("worker", number, count).unwrap();
    client.with_devices("CPU", 1).unwrap()
}

#[test]
fn units_of_dtensors_in_parts_of_parts_train_as_in_one_process() {
    let mesh = Mesh::new([("shard", 2), ("tensor", 2)]).unwrap();
    let found = in_threads(Group::local(4).unwrap(), |group| {
        let strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let (strategy, tensor) = strategy.split_along(&mesh, "tensor").unwrap();
        let client = client(tensor.rank().number(), tensor.world());
        let network = Network::new(Context::from_group(client, tensor).unwrap(), 2);
        train(strategy, &network, BATCH)
    });
    let alone = MultiWorkerMirroredStrategy::alone().unwrap();
    let network = Network::new(Context::alone(client(0, 1)), 1);
    let expected = train(alone, &network, 2 * BATCH);
    assert!(expected[STEPS - 1] < expected[0]);
    for losses in &found {
        assert_eq!(losses, &found[0]);
        for (found, expected) in losses.iter().zip(&expected) {
            // Sums are made in another order.
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }
}
