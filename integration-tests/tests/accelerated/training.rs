//! A training whose weights, samples and gradients stay on devices: the strategy reduces them
//! there.

use meshwork_accel::{
    Accelerator, DeviceBuffer, DeviceId, Elementwise, Matmul, NativeCollectives, Pairwise,
    ProductShape,
};
use meshwork_collectives::Group;
use meshwork_strategy::{DeviceReducer, Error, MultiWorkerMirroredStrategy, ReplicaReduceOp};
use meshwork_testing::in_threads;

use crate::{cpus, pjrt, plugins};

/// Samples of a replica, and weights of the model.
const SAMPLES: usize = 8;
const WEIGHTS: usize = 3;
const STEPS: usize = 60;
const RATE: f32 = 0.5;

/// What is to be learned.
const TRUE: [f32; WEIGHTS] = [1.5, -2.0, 0.25];

/// A replica's samples, by rows, and what is to come out.
fn samples(replica: usize) -> (Vec<f32>, Vec<f32>) {
    let noise = |at: usize| ((at * 37 + 11) % 29) as f32 / 14.5 - 1.0;
    let first = replica * SAMPLES * WEIGHTS;
    let inputs: Vec<f32> = (first..first + SAMPLES * WEIGHTS).map(noise).collect();
    let result = |row: &[f32]| row.iter().zip(TRUE).map(|(x, w)| x * w).sum();
    let outputs = inputs.chunks(WEIGHTS).map(result).collect();
    (inputs, outputs)
}

/// One replica's part, on one device.
struct Model<'a, A: Accelerator> {
    accelerator: &'a A,
    inputs: A::Buffer,
    turned: A::Buffer,
    outputs: A::Buffer,
    weights: A::Buffer,
    /// Each step's rate by the number of samples.
    rate: A::Buffer,
}

impl<'a, A: Elementwise + Matmul> Model<'a, A> {
    fn new(accelerator: &'a A, device: DeviceId, replica: usize) -> Self {
        let on = |values: &[f32]| {
            let element = meshwork_accel::ElementType::F32;
            let mut buffer = accelerator.allocate(device, element, values.len()).unwrap();
            accelerator.upload(values, &mut buffer, 0).unwrap();
            buffer
        };
        let (inputs, outputs) = samples(replica);
        let turned: Vec<f32> = (0..WEIGHTS)
            .flat_map(|column| inputs.iter().skip(column).step_by(WEIGHTS).copied())
            .collect();
        Self {
            accelerator,
            inputs: on(&inputs),
            turned: on(&turned),
            outputs: on(&outputs),
            weights: on(&[0.0; WEIGHTS]),
            rate: on(&[RATE / SAMPLES as f32; WEIGHTS]),
        }
    }

    /// Xᵀ (X w - y), on the device.
    fn gradient(&self) -> A::Buffer {
        let device = self.weights.device();
        let room = |len| {
            let element = meshwork_accel::ElementType::F32;
            self.accelerator.allocate(device, element, len).unwrap()
        };
        let product = |rows, inner, left, right, into: &mut A::Buffer| {
            let shape = ProductShape::new(rows, inner, 1).unwrap();
            self.accelerator.matmul(shape, left, right, into).unwrap();
        };
        let (mut error, mut gradient) = (room(SAMPLES), room(WEIGHTS));
        product(SAMPLES, WEIGHTS, &self.inputs, &self.weights, &mut error);
        let subtract = Pairwise::Subtract;
        self.accelerator
            .pairwise(subtract, &mut error, &self.outputs)
            .unwrap();
        product(WEIGHTS, SAMPLES, &self.turned, &error, &mut gradient);
        gradient
    }

    fn apply(&mut self, mut gradient: A::Buffer) {
        let accelerator = self.accelerator;
        accelerator
            .pairwise(Pairwise::Multiply, &mut gradient, &self.rate)
            .unwrap();
        let weights = &mut self.weights;
        accelerator
            .pairwise(Pairwise::Subtract, weights, &gradient)
            .unwrap();
    }

    fn weights(&self) -> Vec<f32> {
        let mut weights = vec![0.0; WEIGHTS];
        self.accelerator
            .download(&self.weights, 0, &mut weights)
            .unwrap();
        weights
    }
}

/// The weights of a worker with one replica.
fn alone<A: Elementwise + Matmul>(
    strategy: &mut MultiWorkerMirroredStrategy,
    accelerator: &A,
    device: DeviceId,
    devices: &DeviceReducer<'_, A>,
) -> Vec<f32> {
    let mut model = Model::new(accelerator, device, strategy.rank().index());
    for _ in 0..STEPS {
        strategy
            .run(|replica| {
                let mut gradient = model.gradient();
                devices.all_reduce(replica, ReplicaReduceOp::Mean, &mut gradient)?;
                model.apply(gradient);
                Ok::<_, Error>(())
            })
            .unwrap();
    }
    model.weights()
}

/// The weights of each of a worker's two replicas, which have a device each.
fn in_pairs<A>(group: Group, accelerator: &A) -> Vec<Vec<f32>>
where
    A: Elementwise + Matmul + NativeCollectives + Sync,
    A::Buffer: 'static,
{
    let mut strategy = MultiWorkerMirroredStrategy::from_group(group)
        .unwrap()
        .with_local_replicas(2)
        .unwrap();
    let devices = strategy.staged_on(accelerator);
    let first = 2 * strategy.rank().index();
    let trained = strategy.run_each(|replica| {
        let device = DeviceId::new(first + replica.local_id());
        let mut model = Model::new(accelerator, device, first + replica.local_id());
        for _ in 0..STEPS {
            let gradient = replica.merge_call(model.gradient(), |cross, mut gradients| {
                devices.all_reduce_each(cross, ReplicaReduceOp::Mean, &mut gradients)?;
                Ok(gradients)
            })?;
            model.apply(gradient);
        }
        Ok::<_, Error>(model.weights())
    });
    let trained = trained.unwrap().into_vec();
    strategy.leave().unwrap();
    trained
}

/// Every replica ends with the same bits, and with what was to be learned.
fn learned(weights: &[Vec<f32>]) -> &[f32] {
    for of_one in weights {
        assert_eq!(of_one, &weights[0]);
        for (found, wanted) in of_one.iter().zip(TRUE) {
            assert!((found - wanted).abs() < 0.02, "{of_one:?}");
        }
    }
    &weights[0]
}

/// The same but for the order of sums.
pub(crate) fn agree(found: &[Vec<f32>; 2], expected: &[Vec<f32>; 2]) {
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
    }
}

/// The weights of so many replicas by plain loops.
fn on_the_host(replicas: usize) -> Vec<f32> {
    let mut weights = [0.0; WEIGHTS];
    for _ in 0..STEPS {
        let mut mean = [0.0; WEIGHTS];
        for replica in 0..replicas {
            let (inputs, outputs) = samples(replica);
            for (row, output) in inputs.chunks(WEIGHTS).zip(outputs) {
                let found: f32 = row.iter().zip(weights).map(|(x, w)| x * w).sum();
                for (mean, x) in mean.iter_mut().zip(row) {
                    *mean += x * (found - output) / replicas as f32;
                }
            }
        }
        for (weight, mean) in weights.iter_mut().zip(mean) {
            *weight -= mean * RATE / SAMPLES as f32;
        }
    }
    weights.to_vec()
}

/// The weights of two workers with one device each, then of two with two, on all of which they are
/// alike.
pub(crate) fn trained<A>(accelerator: &A) -> [Vec<f32>; 2]
where
    A: Elementwise + Matmul + NativeCollectives + Sync,
    A::Buffer: 'static,
{
    let weights = in_threads(Group::local(2).unwrap(), |group| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let device = DeviceId::new(strategy.rank().index());
        let devices = strategy.staged_on(accelerator);
        let weights = alone(&mut strategy, accelerator, device, &devices);
        let reduced = strategy.communication_stats().operations();
        assert_eq!(reduced, STEPS as u64);
        devices.close(&mut strategy).unwrap();
        strategy.leave().unwrap();
        weights
    });
    let pairs = in_threads(Group::local(2).unwrap(), |group| {
        in_pairs(group, accelerator)
    })
    .concat();
    [weights, pairs].map(|weights| learned(&weights).to_vec())
}

#[test]
fn a_strategy_trains_on_devices_of_the_cpu() {
    let weights = trained(&*cpus(4));
    // One step more or less, or a replica's gradient left out, is more than this.
    agree(&weights, &[on_the_host(2), on_the_host(4)]);
}

#[test]
fn a_strategy_trains_on_devices_of_a_plugin_to_the_weights_of_the_cpu() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    agree(&trained(&*pjrt(&plugin, 4)), &trained(&*cpus(4)));
}

#[test]
fn what_a_strategy_cannot_reduce_on_devices_is_refused_before_anything_is_sent() {
    let accelerator = &*cpus(2);
    let int = meshwork_accel::ElementType::I32;
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let devices = strategy.staged_on(accelerator);
    let mut whole = accelerator.allocate(DeviceId::new(0), int, 2).unwrap();
    let mean = strategy
        .run(|replica| devices.all_reduce(replica, ReplicaReduceOp::Mean, &mut whole))
        .map(drop);
    let found = meshwork_strategy::ElementType::I32;
    assert_eq!(mean, Err(Error::IntegerMean { found }));
    let mut pair = MultiWorkerMirroredStrategy::mirrored(2).unwrap();
    let devices = pair.staged_on(accelerator);
    let each = pair
        .run_each(|replica| {
            let mut own = accelerator.allocate(DeviceId::new(0), int, 2)?;
            devices.all_reduce(replica, ReplicaReduceOp::Sum, &mut own)
        })
        .map(drop);
    assert_eq!(each, Err(Error::SeveralReplicas { replicas: 2 }));
}
