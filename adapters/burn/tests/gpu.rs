//! What only a GPU can show: gradients of burn summed where they lie. Each test skips, and says so,
//! where there is none.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

use std::sync::Arc;
use std::thread;

use burn_core::module::{Module, Param, ParamId};
use burn_core::tensor::{Device, Tensor, TensorData};
use burn_core::{self as burn};
use burn_optim::GradientsParams;
use meshwork_accel_cuda::{CudaAccelerator, CudaDevice, Libraries, gpus};
use meshwork_burn::{Error, MirroredParams};
use meshwork_collectives::Group;
use meshwork_strategy::{
    CommunicationOptions, CommunicatorScope, FallbackReason, MultiWorkerMirroredStrategy, Route,
};
use meshwork_testing::{Need, this_test};

#[derive(Module, Debug)]
struct Network {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
    output: Param<Tensor<2>>,
}

const SHAPES: [[usize; 2]; 2] = [[300, 70], [70, 9]];

impl Network {
    fn new(device: &Device) -> Self {
        let matrix = |[rows, columns]: [usize; 2]| {
            let data = TensorData::new(values(0, rows * columns), [rows, columns]);
            Param::from_data(data, device)
        };
        Self {
            weight: matrix(SHAPES[0]),
            bias: Param::from_data(TensorData::new(values(1, 70), [70]), device),
            output: matrix(SHAPES[1]),
        }
    }

    fn ids(&self) -> [ParamId; 3] {
        [self.weight.id, self.bias.id, self.output.id]
    }

    /// Gradients as a backward pass would leave them, that of the bias on one rank alone.
    fn gradients(&self, rank: usize, of_bias: usize, device: &Device) -> GradientsParams {
        let device = device.clone().without_autodiff();
        let mut gradients = GradientsParams::new();
        for (id, [rows, columns]) in [self.weight.id, self.output.id].into_iter().zip(SHAPES) {
            let data = TensorData::new(values(rank + 2, rows * columns), [rows, columns]);
            gradients.register::<2>(id, Tensor::from_data(data, &device));
        }
        if rank == of_bias {
            let data = TensorData::new(values(5, 70), [70]);
            gradients.register::<1>(self.bias.id, Tensor::from_data(data, &device));
        }
        gradients
    }
}

/// Numbers of which no sum is exact.
fn values(seed: usize, len: usize) -> Vec<f32> {
    let at = |at: usize| ((at * 37 + seed * 11) % 101) as f32 * 0.137 - 6.3;
    (0..len).map(at).collect()
}

/// Those of the bias, and of the matrices.
fn bits(network: &Network, mut sums: GradientsParams) -> (Option<Vec<u32>>, [Vec<u32>; 2]) {
    let [weight, bias, output] = network.ids();
    let read = |data: TensorData| -> Vec<u32> { data.iter::<f32>().map(f32::to_bits).collect() };
    let bias = sums.remove::<1>(bias).map(|sum| read(sum.into_data()));
    let matrices = [weight, output].map(|id| sums.remove::<2>(id).unwrap().into_data());
    (bias, matrices.map(read))
}

/// What the sums are by host memory and on the GPU, and by which way they went there.
fn step(group: Group, gpu: usize) -> Result<Route, Error> {
    let options = CommunicationOptions::new().with_bytes_per_bucket(1 << 12);
    let mut strategy = MultiWorkerMirroredStrategy::from_group(group)?.with_options(options);
    let (rank, device) = (strategy.rank().index(), Device::cuda(gpu).autodiff());
    let reach = CommunicatorScope::OneHost;
    let (mut by_host, network) = MirroredParams::new(&mut strategy, Network::new(&device))?;
    let (on_gpu, network) = MirroredParams::new(&mut strategy, network)?;
    let cuda = CudaDevice::new(Arc::new(CudaAccelerator::new()?), gpu)?;
    let mut on_gpu = on_gpu.on_cuda(&mut strategy, &network, cuda, reach)?;
    // The bias of a rank, and of none.
    for (weight, of_bias) in [(1.0, 0), (0.3, 2)] {
        let mut summed = |mirrored: &mut MirroredParams| {
            let gradients = network.gradients(rank, of_bias, &device);
            let sums = strategy
                .run(|replica| mirrored.all_reduce(replica, &network, gradients, weight))?;
            Ok::<_, Error>(bits(&network, sums.into_first()))
        };
        let on_gpu = summed(&mut on_gpu)?;
        assert_eq!(on_gpu, summed(&mut by_host)?, "{weight}");
        assert_eq!(on_gpu.0.is_some(), of_bias == 0);
    }
    let route = on_gpu.route().clone();
    strategy.leave()?;
    Ok(route)
}

#[test]
fn gradients_are_summed_where_they_lie_with_the_bits_of_the_host() {
    let Some(found) = Need::Gpu.or_skip(gpus(&Libraries::from_env())) else {
        return;
    };
    let count = found.len();
    let routes: Vec<Route> = thread::scope(|threads| {
        let groups = Group::local(2).unwrap().into_iter().enumerate();
        let ranks: Vec<_> = groups
            .map(|(rank, group)| threads.spawn(move || step(group, rank % count).unwrap()))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    println!("{}: on {count} GPUs, {}", this_test(), routes[0]);
    let is_right = |route: &Route| match route {
        Route::Direct { .. } => count > 1,
        Route::Staged(FallbackReason::DeviceShared { .. }) => count == 1,
        Route::Staged(_) => false,
    };
    assert!(routes.iter().all(is_right), "{routes:?}");
}
