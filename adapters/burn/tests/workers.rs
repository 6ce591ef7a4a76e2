//! Real processes that train one burn module together: one, two and four of them are one training,
//! also where a run is interrupted and goes on from its checkpoint.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]
#![expect(clippy::print_stdout, reason = "it is how a process tells its losses")]

use std::env;
use std::path::Path;
use std::process::{Child, Stdio};

use burn_core::module::{Module, Param};
use burn_core::tensor::{Device, Tensor, TensorData, activation};
use burn_core::{self as burn};
use burn_optim::{AdamConfig, GradientsParams};
use meshwork_burn::{Error, MirroredParams, restore_optimizer, save_optimizer};
use meshwork_strategy::{
    Batch, Checkpoints, CommunicationOptions, Cursor, JobSecret, MultiWorkerMirroredStrategy, Rank,
    ReplicaContext, Snapshot,
};
use meshwork_testing::{child, free_addresses, passed, tf_config};

#[derive(Module, Debug)]
struct Network {
    hidden: Dense,
    output: Dense,
}

#[derive(Module, Debug)]
struct Dense {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

impl Dense {
    /// Other values on each worker, until they are mirrored.
    fn new(inputs: usize, outputs: usize, rank: Rank, device: &Device) -> Self {
        let own = rank.index() as f32;
        let values = (0..inputs * outputs).map(|at| (at as f32 * 1.7 + own).sin() / 2.0);
        let weight = TensorData::new(values.collect(), [inputs, outputs]);
        let bias = TensorData::new(vec![0.0_f32; outputs], [outputs]);
        Self {
            weight: Param::from_data(weight, device),
            bias: Param::from_data(bias, device),
        }
    }

    fn forward(&self, inputs: Tensor<2>) -> Tensor<2> {
        inputs.matmul(self.weight.val()) + self.bias.val().unsqueeze()
    }
}

/// One process of a job, which prints `step LOSS HASH` after each step; in a run of the tests
/// themselves there is nothing to do.
#[test]
fn one_worker_of_a_job() {
    if env::var_os(FOLDER).is_some() {
        work().unwrap();
    }
}

fn work() -> Result<(), Error> {
    let options = CommunicationOptions::new().with_bytes_per_bucket(64);
    let mut strategy = MultiWorkerMirroredStrategy::from_env()?.with_options(options);
    let device = Device::flex().autodiff();
    let network = Network {
        hidden: Dense::new(2, 16, strategy.rank(), &device),
        output: Dense::new(16, 1, strategy.rank(), &device),
    };
    let mirrored = MirroredParams::with_extra(&mut strategy, network, 1)?;
    let (mut mirrored, mut network) = mirrored;
    let mut optimizer = AdamConfig::new().init();
    let kept = Checkpoints::new(Path::new(&env::var_os(FOLDER).unwrap()));
    let (mut step, mut from) = (0, Cursor::start());
    if let Some(snapshot) = strategy.restore_checkpoint(&kept)?.snapshot() {
        network = mirrored.restore(network, snapshot)?;
        optimizer = restore_optimizer(optimizer, snapshot)?;
        (step, from) = (snapshot.step(), snapshot.cursor());
    }
    let samples = strategy.distribute_dataset(SAMPLES, BATCH)?.shuffled(7);
    let steps: usize = env::var(STEPS).unwrap().parse().unwrap();
    let mut epoch = samples.resume(from)?;
    for _ in 0..steps {
        let batch = epoch.next().unwrap();
        let sums = strategy.run(|replica| gradients(&mut mirrored, replica, &network, &batch));
        network = optimizer.step(0.02, network, sums?.into_first());
        step += 1;
        let hash = mirrored.verify(&mut strategy, &network)?;
        println!("\nstep {} {hash:016x}", mirrored.extra()[0]);
    }
    let snapshot = mirrored.save(&network, Snapshot::new(step, epoch.cursor()))?;
    let snapshot = save_optimizer(&optimizer, snapshot)?;
    strategy.save_checkpoint(&kept, &snapshot)?;
    Ok(strategy.leave()?)
}

/// The output layer's gradients are on their way while the hidden layer's are computed.
fn gradients(
    mirrored: &mut MirroredParams,
    replica: &mut ReplicaContext<'_>,
    network: &Network,
    batch: &Batch,
) -> Result<GradientsParams, Error> {
    let weight = batch.indices().len() as f32 / batch.global_len() as f32;
    mirrored.extra_mut()?[0] = 0.0;
    if batch.indices().is_empty() {
        return mirrored.all_reduce(replica, network, GradientsParams::new(), weight);
    }
    let (inputs, targets) = samples(batch.indices());
    let hidden = activation::relu(network.hidden.forward(inputs));
    let boundary = hidden.clone().detach().require_grad();
    let difference = network.output.forward(boundary.clone()) - targets;
    let loss = difference.square().mean();
    mirrored.extra_mut()?[0] = loss.clone().into_scalar::<f32>() * weight;
    let mut late = loss.backward();
    let upwards = boundary.grad(&late).unwrap();
    let part = GradientsParams::from_module(&mut late, &network.output);
    mirrored.start(replica, &network.output, part, weight)?;
    let mut early = (hidden * Tensor::from_inner(upwards)).sum().backward();
    let part = GradientsParams::from_module(&mut early, &network.hidden);
    mirrored.start(replica, &network.hidden, part, weight)?;
    mirrored.finish(replica, network)
}

/// Points of a square, and a smooth height above each.
fn samples(indices: &[usize]) -> (Tensor<2>, Tensor<2>) {
    let device = Device::flex().autodiff();
    let point = |index: &usize| {
        let at = *index as f32;
        [(at * 0.37).sin(), (at * 0.61).cos()]
    };
    let points: Vec<f32> = indices.iter().flat_map(point).collect();
    let heights = points.chunks(2).map(|point| point[0] * point[1] + 0.3);
    let heights = TensorData::new(heights.collect(), [indices.len(), 1]);
    let points = TensorData::new(points, [indices.len(), 2]);
    let tensor = |data| Tensor::from_data(data, &device);
    (tensor(points), tensor(heights))
}

#[test]
fn one_two_and_four_workers_have_one_loss_curve_and_equal_parameters_in_every_step() {
    let alone = train(1, 51);
    assert_eq!(alone.len(), 51);
    assert!(
        alone[50].loss < 0.2 * alone[0].loss,
        "it does not learn: {alone:?}"
    );
    for workers in [2, 4] {
        let together = train(workers, 51);
        assert_eq!(together.len(), alone.len());
        for (number, (one, other)) in alone.iter().zip(&together).enumerate() {
            let apart = (one.loss - other.loss).abs() / one.loss;
            let allowed = if number < 20 { 1e-4 } else { 2e-2 };
            assert!(
                apart <= allowed,
                "step {number}: {one:?} and {other:?} are {apart:e} apart"
            );
        }
    }
}

#[test]
fn a_run_that_is_interrupted_goes_on_with_the_same_bits() {
    let straight = train(2, 20);
    let folder = tempfile::tempdir().unwrap();
    let mut steps = in_folder(2, 12, folder.path());
    steps.extend(in_folder(2, 8, folder.path()));
    assert_eq!(steps, straight);
}

/// One step, as all workers of a job have printed it.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    loss: f64,
    hash: String,
}

fn train(workers: usize, steps: usize) -> Vec<Step> {
    let folder = tempfile::tempdir().unwrap();
    in_folder(workers, steps, folder.path())
}

/// A job that keeps its checkpoints in `folder`.
#[track_caller]
fn in_folder(workers: usize, steps: usize, folder: &Path) -> Vec<Step> {
    let secret = JobSecret::generate().unwrap();
    let addresses = free_addresses(workers);
    let start = |index| -> Child {
        child("one_worker_of_a_job")
            .arg("--nocapture")
            .env("TF_CONFIG", tf_config(&addresses, index))
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .env(FOLDER, folder)
            .env(STEPS, steps.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let started: Vec<_> = (0..workers).map(start).collect();
    let all: Vec<_> = started.into_iter().map(steps_of).collect();
    for worker in &all {
        assert_eq!(worker, &all[0], "workers differ");
    }
    all.into_iter().next().unwrap()
}

#[track_caller]
fn steps_of(worker: Child) -> Vec<Step> {
    let text = passed(&worker.wait_with_output().unwrap());
    let step = |line: &str| {
        let (loss, hash) = line.strip_prefix("step ")?.split_once(' ')?;
        Some(Step {
            loss: loss.parse().unwrap(),
            hash: hash.to_owned(),
        })
    };
    text.lines().filter_map(step).collect()
}

/// Where a process keeps its checkpoints, and how many steps it makes.
const FOLDER: &str = "MESHWORK_BURN_TEST_FOLDER";
const STEPS: &str = "MESHWORK_BURN_TEST_STEPS";

/// The last batch of an epoch has 1 sample: with 4 workers three have none.
const SAMPLES: usize = 1601;
const BATCH: usize = 32;
