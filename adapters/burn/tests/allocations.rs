//! A step takes no memory for gradients after the first ones: burn's own comes back to it.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use burn_core::module::{Module, Param};
use burn_core::tensor::{Device, Tensor, TensorData};
use burn_core::{self as burn};
use burn_optim::GradientsParams;
use meshwork_burn::{Error, MirroredParams};
use meshwork_collectives::Group;
use meshwork_strategy::MultiWorkerMirroredStrategy;
use meshwork_testing::in_threads;

#[derive(Module, Debug)]
struct Network {
    layers: Vec<Param<Tensor<1>>>,
}

const LAYERS: usize = 3;
const LEN: usize = 100_000;

fn gradients(network: &Network, device: &Device) -> GradientsParams {
    let mut gradients = GradientsParams::new();
    for layer in &network.layers {
        let data = TensorData::new(vec![0.5_f32; LEN], [LEN]);
        gradients.register(layer.id, Tensor::<1>::from_data(data, device));
    }
    gradients
}

/// Bytes that this thread allocates in each of ten steps, after two.
fn allocated(group: Group) -> u64 {
    let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
    let device = Device::flex();
    let layer = |_| Param::from_data(TensorData::new(vec![1.0_f32; LEN], [LEN]), &device);
    let network = Network {
        layers: (0..LAYERS).map(layer).collect(),
    };
    let network = network.train();
    let (mut mirrored, network) = MirroredParams::new(&mut strategy, network).unwrap();
    let mut step = |own: GradientsParams| {
        let mut own = Some(own);
        let sums = strategy.run(|replica| {
            let own = own.take().unwrap_or_default();
            mirrored.all_reduce(replica, &network, own, 0.5)
        });
        Ok::<_, Error>(sums?.into_first())
    };
    (0..2).for_each(|_| drop(step(gradients(&network, &device)).unwrap()));
    let mut all = 0;
    for _ in 0..10 {
        let own = gradients(&network, &device);
        let counted = allocation_counter::measure(|| drop(step(own).unwrap()));
        all += counted.bytes_total;
    }
    strategy.leave().unwrap();
    all / 10
}

#[test]
fn what_a_step_allocates_is_burns_handles_of_tensors_and_no_values() {
    for bytes in in_threads(Group::local(2).unwrap(), allocated) {
        // A thousandth of the 1.2 MB that the gradients have.
        assert!(bytes <= 1200 * LAYERS as u64, "{bytes} bytes");
    }
}
