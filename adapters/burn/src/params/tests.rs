//! `MirroredParams` with workers that are threads of one process: weighted sums, buckets and
//! stages, runs resumed from snapshots with the same bits, copies that diverge, and modules that
//! are refused.

use burn_core::module::{Module, Param, RunningState};
use burn_core::tensor::{DType, Device, Tensor, TensorData};
use burn_core::{self as burn};
use burn_optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use meshwork_strategy::{
    CommunicationDtype, CommunicationOptions, Cursor, MultiWorkerMirroredStrategy, ReplicaContext,
    Snapshot, VariableSpec,
};

use super::MirroredParams;
use crate::testing;
use crate::{Error, restore_optimizer, save_optimizer};

/// Two dense layers, the second of which adds what is not trained.
#[derive(Module, Debug)]
struct Network {
    first: Dense,
    second: Dense,
    mean: RunningState<Tensor<1>>,
    scale: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct Dense {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

impl Dense {
    fn new(inputs: usize, outputs: usize, own: f32, device: &Device) -> Self {
        let values = (0..inputs * outputs).map(|at| own + (at as f32 * 0.7).sin() / 4.0);
        let data = TensorData::new(values.collect(), [inputs, outputs]);
        Self {
            weight: Param::from_data(data, device),
            bias: Param::from_data(TensorData::new(vec![own; outputs], [outputs]), device),
        }
    }

    fn forward(&self, inputs: Tensor<2>) -> Tensor<2> {
        inputs.matmul(self.weight.val()) + self.bias.val().unsqueeze()
    }
}

impl Network {
    fn new(own: f32) -> Self {
        let device = Device::flex().autodiff();
        let scale = Param::from_data([1.0 + own], &device);
        Self {
            first: Dense::new(3, 4, own, &device),
            second: Dense::new(4, 2, own, &device),
            mean: RunningState::new(Tensor::from_data([own; 2], &device)),
            scale: scale.set_require_grad(false),
        }
    }

    fn hidden(&self, inputs: Tensor<2>) -> Tensor<2> {
        self.first.forward(inputs).tanh()
    }

    fn loss(&self, hidden: Tensor<2>) -> Tensor<1> {
        let outputs = self.second.forward(hidden) * self.scale.val().unsqueeze();
        (outputs + self.mean.value().unsqueeze()).square().mean()
    }
}

fn inputs(own: f32) -> Tensor<2> {
    let data = TensorData::new(vec![own, 0.5, -own, 0.25, 2.0, own], [2, 3]);
    Tensor::from_data(data, &Device::flex().autodiff())
}

fn gradients(network: &Network, own: f32) -> GradientsParams {
    let loss = network.loss(network.hidden(inputs(own)));
    GradientsParams::from_grads(loss.backward(), network)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

/// All gradients, in the order of the parameters.
fn taken(network: &Network, gradients: &GradientsParams) -> Vec<Vec<f32>> {
    let matrix = |param: &Param<Tensor<2>>| values(gradients.get::<2>(param.id).unwrap());
    let vector = |param: &Param<Tensor<1>>| values(gradients.get::<1>(param.id).unwrap());
    vec![
        matrix(&network.first.weight),
        vector(&network.first.bias),
        matrix(&network.second.weight),
        vector(&network.second.bias),
    ]
}

fn each<R: Send>(
    world: u32,
    program: impl Fn(MultiWorkerMirroredStrategy, f32) -> R + Sync,
) -> Vec<R> {
    testing::each(world, |strategy| {
        let rank = strategy.rank().number() as f32;
        program(strategy, rank)
    })
}

fn step(
    strategy: &mut MultiWorkerMirroredStrategy,
    body: impl FnMut(&mut ReplicaContext<'_>) -> Result<GradientsParams, Error> + Send,
) -> Result<GradientsParams, Error> {
    let mut body = body;
    let results = strategy.run(|replica| body(replica));
    results.map(meshwork_strategy::PerReplica::into_first)
}

#[test]
fn all_workers_take_rank_0s_values_in_the_order_of_the_module() {
    each(3, |mut strategy, own| {
        let (mirrored, network) = MirroredParams::new(&mut strategy, Network::new(own)).unwrap();
        let names = |specs: &[VariableSpec]| -> Vec<String> {
            specs.iter().map(|spec| spec.name().to_owned()).collect()
        };
        let trained = ["first.weight", "first.bias", "second.weight", "second.bias"];
        assert_eq!(names(mirrored.trained()), trained);
        assert_eq!(names(mirrored.specs())[4..], ["mean", "scale"]);
        assert_eq!(mirrored.specs()[0].shape(), [3, 4]);
        let rank_0 = Network::new(0.0);
        let weight = |network: &Network| values(network.second.weight.val());
        assert_eq!(weight(&network), weight(&rank_0));
        assert_eq!(values(network.mean.value()), [0.0; 2]);
        assert_eq!(values(network.scale.val()), [1.0]);
        assert!(network.first.weight.is_require_grad() && !network.scale.is_require_grad());
        strategy.leave().unwrap();
    });
}

#[test]
fn gradients_are_summed_with_their_weights_and_the_optimizer_applies_the_sum() {
    let alone = Network::new(0.0);
    let parts = [0.0, 1.0].map(|own| taken(&alone, &gradients(&alone, own)));
    each(2, |mut strategy, own| {
        let mirrored = MirroredParams::with_extra(&mut strategy, Network::new(own), 1);
        let (mut mirrored, network) = mirrored.unwrap();
        mirrored.extra_mut().unwrap()[0] = 0.25;
        let own = gradients(&network, own);
        let mut own = Some(own);
        let sums = step(&mut strategy, |replica| {
            mirrored.all_reduce(replica, &network, own.take().unwrap(), 0.5)
        });
        let sums = sums.unwrap();
        assert_eq!(mirrored.extra(), [0.5]);
        for ((sum, one), other) in taken(&network, &sums).iter().zip(&parts[0]).zip(&parts[1]) {
            let expected: Vec<_> = one
                .iter()
                .zip(other)
                .map(|(a, b)| a * 0.5 + b * 0.5)
                .collect();
            assert_eq!(*sum, expected);
        }
        let bias = values(network.second.bias.val())[0];
        let gradient = values(sums.get::<1>(network.second.bias.id).unwrap())[0];
        let network = SgdConfig::new().init().step(2.0, network, sums);
        assert_eq!(values(network.second.bias.val())[0], bias - 2.0 * gradient);
        mirrored.verify(&mut strategy, &network).unwrap();
        strategy.leave().unwrap();
    });
}

/// Which layers the loss of a worker depends on.
#[derive(Clone, Copy)]
enum Used {
    Both,
    Second,
    Neither,
}

#[test]
fn a_parameter_that_no_worker_has_a_gradient_of_is_left_alone_and_others_count_as_zero() {
    for (world, bytes, dtype, backward) in [
        (1, 0, CommunicationDtype::F32, Backward::Whole),
        (2, 0, CommunicationDtype::F32, Backward::Whole),
        (2, 0, CommunicationDtype::Bf16, Backward::Whole),
        (2, 1, CommunicationDtype::F32, Backward::Staged),
        (3, 30, CommunicationDtype::F32, Backward::Staged),
    ] {
        let trained = each(world, |strategy, own| {
            let options = CommunicationOptions::new().with_bytes_per_bucket(bytes);
            let mut strategy = strategy.with_options(options);
            let is_last = strategy.rank().number() + 1 == world;
            let last = |used, others| if is_last { used } else { others };
            let made = MirroredParams::new(&mut strategy, Network::new(own));
            let (mirrored, mut network) = made.unwrap();
            let mut mirrored = mirrored.with_communication_dtype(dtype);
            let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).init();
            let mut layers = Vec::new();
            for used in [
                // Both get moments, by which AdamW would go on.
                Used::Both,
                last(Used::Second, Used::Neither),
                Used::Second,
                last(Used::Both, Used::Second),
                Used::Neither,
            ] {
                let sums = step(&mut strategy, |replica| {
                    step_with(&mut mirrored, replica, &network, used, backward)
                });
                network = optimizer.step(0.1, network, sums.unwrap());
                layers.push([&network.first, &network.second].map(bits));
            }
            strategy.leave().unwrap();
            layers
        });
        assert!(trained.iter().all(|worker| *worker == trained[0]));
        let moved = |layer: usize| -> Vec<bool> {
            let steps = trained[0].windows(2);
            steps.map(|pair| pair[0][layer] != pair[1][layer]).collect()
        };
        assert_eq!(moved(0), [false, false, true, false], "{world} {bytes}");
        assert_eq!(moved(1), [true, true, true, false], "{world} {bytes}");
    }
}

fn step_with(
    mirrored: &mut MirroredParams,
    replica: &mut ReplicaContext<'_>,
    network: &Network,
    used: Used,
    backward: Backward,
) -> Result<GradientsParams, Error> {
    let hidden = match used {
        Used::Both => network.hidden(inputs(1.0)),
        Used::Second => {
            let ones = TensorData::new(vec![1.0_f32; 8], [2, 4]);
            Tensor::from_data(ones, &Device::flex().autodiff())
        }
        Used::Neither => {
            return mirrored.all_reduce(replica, network, GradientsParams::new(), 0.5);
        }
    };
    let mut gradients = network.loss(hidden).backward();
    if let Backward::Staged = backward {
        let part = GradientsParams::from_module(&mut gradients, &network.second);
        mirrored.start(replica, &network.second, part, 0.5)?;
        let part = GradientsParams::from_module(&mut gradients, &network.first);
        mirrored.start(replica, &network.first, part, 0.5)?;
        return mirrored.finish(replica, network);
    }
    let own = GradientsParams::from_grads(gradients, network);
    mirrored.all_reduce(replica, network, own, 0.5)
}

fn bits(dense: &Dense) -> Vec<u32> {
    let all = [values(dense.weight.val()), values(dense.bias.val())].concat();
    all.into_iter().map(f32::to_bits).collect()
}

#[test]
fn buckets_and_stages_give_the_sums_of_one_buffer_and_rounded_ones_come_close() {
    let exact = sums_of(0, CommunicationDtype::F32, Backward::Whole);
    for bytes in [0, 1, 30] {
        assert_eq!(
            sums_of(bytes, CommunicationDtype::F32, Backward::Whole),
            exact
        );
        assert_eq!(
            sums_of(bytes, CommunicationDtype::F32, Backward::Staged),
            exact
        );
        let rounded = sums_of(bytes, CommunicationDtype::Bf16, Backward::Staged);
        for (rounded, exact) in rounded.iter().flatten().zip(exact.iter().flatten()) {
            assert!(
                (rounded - exact).abs() <= 0.01 * exact.abs(),
                "{rounded} {exact}"
            );
        }
    }
}

#[derive(Clone, Copy)]
enum Backward {
    Whole,
    Staged,
}

/// The sums of the second of two equal steps.
fn sums_of(
    bytes_per_bucket: usize,
    dtype: CommunicationDtype,
    backward: Backward,
) -> Vec<Vec<f32>> {
    let results = each(2, |strategy, own| {
        let options = CommunicationOptions::new().with_bytes_per_bucket(bytes_per_bucket);
        let mut strategy = strategy.with_options(options);
        let (mirrored, network) = MirroredParams::new(&mut strategy, Network::new(own)).unwrap();
        let mut mirrored = mirrored.with_communication_dtype(dtype);
        let mut last = Vec::new();
        for _ in 0..2 {
            let sums = step(&mut strategy, |replica| match backward {
                Backward::Whole => {
                    let own = gradients(&network, own);
                    mirrored.all_reduce(replica, &network, own, 0.5)
                }
                Backward::Staged => staged(&mut mirrored, replica, &network, own),
            });
            last = taken(&network, &sums.unwrap());
        }
        strategy.leave().unwrap();
        last
    });
    assert_eq!(results[0], results[1]);
    results.into_iter().next().unwrap()
}

/// The second layer first, whose gradients are on their way while the first layer's are computed.
fn staged(
    mirrored: &mut MirroredParams,
    replica: &mut ReplicaContext<'_>,
    network: &Network,
    own: f32,
) -> Result<GradientsParams, Error> {
    let hidden = network.hidden(inputs(own));
    let boundary = hidden.clone().detach().require_grad();
    let mut late = network.loss(boundary.clone()).backward();
    let upwards = boundary.grad(&late).unwrap();
    let part = GradientsParams::from_module(&mut late, &network.second);
    mirrored.start(replica, &network.second, part, 0.5)?;
    let mut early = (hidden * Tensor::from_inner(upwards)).sum().backward();
    let part = GradientsParams::from_module(&mut early, &network.first);
    mirrored.start(replica, &network.first, part, 0.5)?;
    mirrored.finish(replica, network)
}

#[test]
fn a_run_goes_on_from_a_snapshot_with_the_same_bits() {
    let straight = train(Network::new(0.0), AdamConfig::new().init(), 0..6).0;

    let (network, optimizer) = train(Network::new(0.0), AdamConfig::new().init(), 0..3);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let (mut mirrored, network) = MirroredParams::new(&mut strategy, network).unwrap();
    let snapshot = mirrored
        .save(&network, Snapshot::new(3, Cursor::start()))
        .and_then(|snapshot| save_optimizer(&optimizer, snapshot))
        .unwrap();
    let snapshot = Snapshot::from_bytes(&snapshot.to_bytes().unwrap()).unwrap();
    // burn itself lists parameters in another order each time.
    for _ in 0..8 {
        let again = restore_optimizer(AdamConfig::new().init(), &snapshot).unwrap();
        let saved = save_optimizer(&again, Snapshot::new(3, Cursor::start())).unwrap();
        let bytes = |snapshot: &Snapshot| snapshot.bytes("burn.optimizer").unwrap().to_vec();
        assert_eq!(bytes(&saved), bytes(&snapshot));
    }

    // Another process would have other values, and other ids.
    let (mut mirrored, network) = MirroredParams::new(&mut strategy, Network::new(9.0)).unwrap();
    let network = mirrored.restore(network, &snapshot).unwrap();
    let optimizer = restore_optimizer(AdamConfig::new().init(), &snapshot).unwrap();
    mirrored.verify(&mut strategy, &network).unwrap();
    let resumed = train(network, optimizer, 3..6).0;
    let all = |network: &Network| {
        let matrices = [&network.first.weight, &network.second.weight];
        let vectors = [&network.first.bias, &network.second.bias, &network.scale];
        let matrices = matrices.into_iter().flat_map(|param| values(param.val()));
        matrices
            .chain(vectors.into_iter().flat_map(|param| values(param.val())))
            .map(f32::to_bits)
            .collect::<Vec<_>>()
    };
    assert_eq!(all(&resumed), all(&straight));
}

fn train(
    network: Network,
    mut optimizer: ModuleOptimizer,
    steps: std::ops::Range<u32>,
) -> (Network, ModuleOptimizer) {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let (mut mirrored, mut network) = MirroredParams::new(&mut strategy, network).unwrap();
    for number in steps {
        let sums = step(&mut strategy, |replica| {
            let own = gradients(&network, number as f32 / 4.0);
            mirrored.all_reduce(replica, &network, own, 1.0)
        });
        network = optimizer.step(0.1, network, sums.unwrap());
    }
    (network, optimizer)
}

#[test]
fn a_snapshot_without_the_state_of_an_optimizer_is_refused() {
    let error = restore_optimizer(SgdConfig::new().init(), &Snapshot::new(7, Cursor::start()));
    let error = error.err().unwrap().to_string();
    assert!(
        error.starts_with("the checkpoint of step 7 holds no state"),
        "{error}"
    );
}

#[test]
fn a_copy_that_was_changed_on_one_worker_is_found_by_the_next_step_and_by_verify() {
    for dtype in [CommunicationDtype::F32, CommunicationDtype::Bf16] {
        each(2, |mut strategy, own| {
            let made = MirroredParams::new(&mut strategy, Network::new(own));
            let (mirrored, mut network) = made.unwrap();
            let mut mirrored = mirrored.with_communication_dtype(dtype);
            mirrored.verify(&mut strategy, &network).unwrap();
            if !strategy.is_chief() {
                network.first.bias = network
                    .first
                    .bias
                    .map(|bias| (bias * 1.5 + 0.5).detach().require_grad());
            }
            let error = mirrored.verify(&mut strategy, &network).unwrap_err();
            assert!(
                error.to_string().contains("rank 1 differ from rank 0's"),
                "{error}"
            );
            let error = step(&mut strategy, |replica| {
                let own = gradients(&network, own);
                mirrored.all_reduce(replica, &network, own, 0.5)
            });
            let error = error.unwrap_err().to_string();
            assert!(error.contains("rank 1 differ from rank 0's"), "{error}");
        });
    }
}

#[test]
fn what_is_not_trained_may_differ() {
    each(2, |mut strategy, own| {
        let (mut mirrored, mut network) =
            MirroredParams::new(&mut strategy, Network::new(0.0)).unwrap();
        network.scale = network.scale.map(|scale| scale + own);
        mirrored.verify(&mut strategy, &network).unwrap();
        strategy.leave().unwrap();
    });
}

#[test]
fn running_means_are_those_of_the_last_update() {
    each(2, |mut strategy, own| {
        let (mut mirrored, network) =
            MirroredParams::new(&mut strategy, Network::new(own)).unwrap();
        let update = |network: &Network, mean: f32| {
            let mean = Tensor::from_data([mean; 2], &Device::flex().autodiff());
            network.mean.update(mean);
        };
        // As a batch reads it, and a measurement.
        let means = |network: &Network| {
            let next = values(network.mean.value_sync());
            assert_eq!(values(network.valid().mean.value()), next);
            next
        };
        update(&network, own + 1.0);
        let network = mirrored.broadcast_buffers(&mut strategy, network).unwrap();
        assert_eq!(means(&network), [1.0; 2]);
        update(&network, own + 3.0);
        let snapshot = Snapshot::new(1, Cursor::start());
        let snapshot = mirrored.save(&network, snapshot).unwrap();
        update(&network, 7.0);
        let network = mirrored.restore(network, &snapshot).unwrap();
        assert_eq!(means(&network), [own + 3.0; 2]);
        strategy.leave().unwrap();
    });
}

#[test]
fn parameters_of_another_type_are_refused_by_name() {
    let mut network = Network::new(0.0);
    let device = Device::flex().autodiff();
    let bias = Tensor::from_data(
        TensorData::new(vec![0.0_f64; 2], [2]),
        (&device, DType::F64),
    );
    network.second.bias = Param::from_tensor(bias);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let error = MirroredParams::new(&mut strategy, network)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "parameter second.bias holds F64 values: only F32 parameters can be mirrored"
    );
}

#[test]
fn a_parameter_that_was_not_there_is_refused_by_its_place() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let (mut mirrored, mut network) =
        MirroredParams::new(&mut strategy, Network::new(0.0)).unwrap();
    network.scale = network.scale.set_require_grad(true);
    let error = step(&mut strategy, |replica| {
        let own = gradients(&network, 1.0);
        mirrored.all_reduce(replica, &network, own, 1.0)
    });
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("parameter scale is not one of the 4"),
        "{error}"
    );
}

#[test]
fn a_part_that_is_handed_over_twice_is_refused() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let (mut mirrored, network) = MirroredParams::new(&mut strategy, Network::new(0.0)).unwrap();
    let error = step(&mut strategy, |replica| {
        mirrored.start(replica, &network.second, GradientsParams::new(), 1.0)?;
        mirrored.start(replica, &network.second, GradientsParams::new(), 1.0)?;
        mirrored.finish(replica, &network)
    });
    let error = error.unwrap_err();
    let is_named = matches!(
        &error,
        Error::Strategy(meshwork_strategy::Error::GradientTwice { name }) if name == "weight"
    );
    assert!(is_named, "{error}");
}

#[test]
fn a_parameter_in_two_places_is_one() {
    #[derive(Module, Debug)]
    struct Tied {
        one: Param<Tensor<1>>,
        other: Param<Tensor<1>>,
    }
    each(2, |mut strategy, own| {
        let one = Param::from_data([own + 3.0], &Device::flex().autodiff());
        let tied = Tied {
            other: one.clone(),
            one,
        };
        let (mut mirrored, tied) = MirroredParams::new(&mut strategy, tied).unwrap();
        assert_eq!(mirrored.specs().len(), 1);
        assert_eq!(values(tied.other.val()), [3.0]);
        let sums = step(&mut strategy, |replica| {
            let loss = tied.one.val() * (own + 1.0);
            let own = GradientsParams::from_grads(loss.backward(), &tied);
            mirrored.all_reduce(replica, &tied, own, 1.0)
        });
        let sum = sums.unwrap().get::<1>(tied.one.id).unwrap();
        assert_eq!(values(sum), [3.0]);
        strategy.leave().unwrap();
    });
}
