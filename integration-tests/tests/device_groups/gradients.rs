//! Gradients of a library whose tensors lie on GPUs, as those of candle and burn do: a driver in
//! host memory counts what crosses between GPUs and host, and another library, which stands for
//! candle, allocates and works by streams of its own.

use std::sync::{Arc, Barrier, Mutex};

use meshwork_accel::{DeviceId, ElementType};
use meshwork_accel_cuda::{
    CudaAccelerator, CudaBuffer, CudaConfig, Error as CudaError, KernelCache, Library,
};
use meshwork_collectives::{CommunicatorScope, FallbackReason, Group, OperationError, Rank, Route};
use meshwork_strategy::{
    CommunicationOptions, DeviceGradients, DeviceTensors, Error, GradientBuckets,
    MultiWorkerMirroredStrategy, Packed, VariableSpec,
};

use crate::cuda::{DEVICE, Over, four_gpus, run};
use crate::fake::{Count, Fake};
use crate::other::Other;

const REACH: CommunicatorScope = CommunicatorScope::OneHost;

/// A library whose tensors lie on one GPU, each with a stream of its own.
#[derive(Debug)]
struct Tensors<'a> {
    fake: &'a Fake,
    gpu: usize,
    cuda: Arc<CudaAccelerator>,
    /// Whatever a failed step has lent stays allocated.
    kept: Mutex<Vec<Tensor<'a>>>,
}

type Tensor<'a> = Arc<Other<'a>>;

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Strategy(#[from] Error),
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl<'a> Tensors<'a> {
    fn new(fake: &'a Fake, gpu: usize, cuda: CudaAccelerator) -> Self {
        let (cuda, kept) = (Arc::new(cuda), Mutex::default());
        Self {
            fake,
            gpu,
            cuda,
            kept,
        }
    }

    fn empty(&self, len: usize) -> Tensor<'a> {
        let gpu = i32::try_from(self.gpu).unwrap();
        let made = Arc::new(Other::by_stream(self.fake, gpu, len * size_of::<f32>()));
        self.kept.lock().unwrap().push(made.clone());
        made
    }

    fn with(&self, values: &[f32]) -> Tensor<'a> {
        let tensor = self.empty(values.len());
        tensor.write(bytemuck::cast_slice(values));
        tensor
    }
}

impl<'a> DeviceTensors for Tensors<'a> {
    type Tensor = Tensor<'a>;
    type Accelerator = CudaAccelerator;
    type Error = Failed;

    fn accelerator(&self) -> &Arc<CudaAccelerator> {
        &self.cuda
    }

    fn len(&self, tensor: &Tensor<'a>) -> usize {
        tensor.bytes() / size_of::<f32>()
    }

    fn zeros(&self, len: usize) -> Result<Tensor<'a>, Failed> {
        let zeros = self.empty(len);
        zeros.set(0);
        Ok(zeros)
    }

    fn concatenate(&self, parts: Vec<Tensor<'a>>) -> Result<Tensor<'a>, Failed> {
        let packed = self.empty(parts.iter().map(|part| self.len(part)).sum());
        let mut end = 0;
        for part in parts {
            packed.copy_from(&part, end);
            end += part.bytes();
        }
        Ok(packed)
    }

    fn lend(&self, packed: &Tensor<'a>, element: ElementType) -> Result<CudaBuffer, Failed> {
        let memory = packed.lend(element, self.len(packed));
        Ok(self.cuda.borrow(DEVICE, memory)?)
    }
}

/// Three variables, of which two share a bucket.
fn specs() -> Vec<VariableSpec> {
    let shapes: [(&str, &[usize]); 3] = [("first", &[5, 7]), ("bias", &[7]), ("second", &[70])];
    let spec = |(name, shape): (&str, &[usize])| VariableSpec::new(name, shape).unwrap();
    shapes.map(spec).to_vec()
}

/// Numbers of which no sum is exact.
fn values(rank: usize, variable: usize, len: usize) -> Vec<f32> {
    let at = |at: usize| ((at * 37 + rank * 11 + variable * 5) % 101) as f32 * 0.137 - 6.3;
    (0..len).map(at).collect()
}

fn in_buckets(group: Group) -> MultiWorkerMirroredStrategy {
    let options = CommunicationOptions::new().with_bytes_per_bucket(100);
    let strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
    let timeouts = strategy.options().timeouts();
    strategy.with_options(options.with_timeouts(timeouts))
}

/// What host memory makes of the same gradients.
fn by_host(strategy: &mut MultiWorkerMirroredStrategy, weight: f32) -> Vec<Vec<u8>> {
    let mut buckets = GradientBuckets::new(strategy, &specs(), 0).unwrap();
    let rank = strategy.rank().index();
    strategy
        .run(|replica| {
            for (index, spec) in specs().iter().enumerate().rev().filter(|(at, _)| *at != 1) {
                let slot = buckets.gradient_mut(index)?;
                slot.copy_from_slice(&values(rank, index, spec.len()));
                slot.iter_mut().for_each(|value| *value *= weight);
            }
            buckets.finish(replica)
        })
        .unwrap();
    (0..3)
        .map(|index| bytes_of(buckets.gradient(index)))
        .collect()
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// The bits of each variable's part.
fn bits(sums: &[Packed<Tensor<'_>>]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(); 3];
    for packed in sums {
        let bytes = packed.tensor().read();
        for (index, range) in packed.parts() {
            all[index] = bytes[4 * range.start..4 * range.end].to_vec();
        }
    }
    all
}

fn transfers(fake: &Fake) -> i64 {
    fake.count(Count::ToDevice) + fake.count(Count::ToHost)
}

/// A step whose backward pass gives the gradients of all variables but the bias.
fn step<'a>(
    strategy: &mut MultiWorkerMirroredStrategy,
    gradients: &mut DeviceGradients<Tensors<'a>>,
    given: &[(usize, Tensor<'a>)],
    weight: f32,
) -> Result<Vec<Packed<Tensor<'a>>>, Failed> {
    let sums = strategy.run(|replica| {
        gradients.begin(weight);
        for (index, gradient) in given {
            gradients.ready(*index, gradient.clone())?;
        }
        gradients.finish(replica)
    });
    Ok(sums?.into_first())
}

/// Their own gradients, from the last to the first, without that of the bias.
fn own<'a>(tensors: &Tensors<'a>, rank: usize) -> Vec<(usize, Tensor<'a>)> {
    let of = |index: usize| tensors.with(&values(rank, index, specs()[index].len()));
    vec![(2, of(2)), (0, of(0))]
}

#[test]
fn a_step_moves_no_gradient_between_gpu_and_host_and_has_the_bits_of_the_host() {
    for over in [Over::Threads, Over::Memory, Over::Quic] {
        let fake = four_gpus();
        let (before, ready) = (fake.performed(), Barrier::new(2));
        run(&fake, over, 2, |group, cuda| {
            let mut strategy = in_buckets(group);
            let rank = strategy.rank().index();
            let tensors = Tensors::new(&fake, rank, cuda);
            let given = own(&tensors, rank);
            let made = DeviceGradients::new(&mut strategy, tensors, &specs(), DEVICE, REACH);
            let mut gradients = made.unwrap();
            assert!(matches!(gradients.route(), Route::Direct { .. }));
            assert_eq!(gradients.buckets(), 2);
            for weight in [1.0, 0.3] {
                ready.wait();
                let counted = transfers(&fake);
                ready.wait();
                let sums = step(&mut strategy, &mut gradients, &given, weight).unwrap();
                ready.wait();
                assert_eq!(transfers(&fake), counted, "{over:?}");
                ready.wait();
                let expected = by_host(&mut strategy, weight);
                assert_eq!(bits(&sums), expected, "{over:?}, {weight}");
            }
            gradients.settle(&mut strategy).unwrap();
            strategy.leave().unwrap();
        });
        assert_eq!(
            fake.performed() - before,
            4,
            "two buckets in each of two steps"
        );
        assert_eq!(fake.communicators().0, 0);
        fake.is_clean();
    }
}

#[test]
fn where_a_rank_has_no_nccl_gradients_go_through_host_memory_with_the_same_bits() {
    let fake = four_gpus();
    meshwork_testing::in_threads(Over::Memory.groups(2), |group| {
        let mut strategy = in_buckets(group);
        let rank = strategy.rank().index();
        let libraries = match rank {
            1 => fake.libraries().without(Library::Nccl),
            _ => fake.libraries(),
        };
        let config = CudaConfig::new(libraries, KernelCache::none()).with_gpus([rank]);
        let cuda = CudaAccelerator::open(&config).unwrap();
        let tensors = Tensors::new(&fake, rank, cuda);
        let given = own(&tensors, rank);
        let made = DeviceGradients::new(&mut strategy, tensors, &specs(), DEVICE, REACH);
        let mut gradients = made.unwrap();
        let no_library = |route: &Route| {
            let Route::Staged(FallbackReason::NoLibrary { rank, .. }) = route else {
                return false;
            };
            *rank == Rank::new(1)
        };
        assert!(no_library(&gradients.route()), "{}", gradients.route());
        let sums = step(&mut strategy, &mut gradients, &given, 0.3).unwrap();
        let expected = by_host(&mut strategy, 0.3);
        assert_eq!(bits(&sums), expected);
        drop((sums, given));
        gradients.settle(&mut strategy).unwrap();
        strategy.leave().unwrap();
    });
    fake.is_clean();
}

#[test]
fn variables_are_made_equal_and_compared_on_the_gpu() {
    let fake = four_gpus();
    let ready = Barrier::new(3);
    run(&fake, Over::Memory, 3, |group, cuda| {
        let mut strategy = in_buckets(group);
        let rank = strategy.rank().index();
        let tensors = Tensors::new(&fake, rank, cuda);
        let model = |rank| -> Vec<_> {
            let specs = specs();
            let own = specs.iter().enumerate();
            let own = own.map(|(index, spec)| values(rank, index, spec.len()));
            own.collect()
        };
        let variables: Vec<_> = model(rank).iter().map(|one| tensors.with(one)).collect();
        let mut made =
            DeviceGradients::new(&mut strategy, tensors, &specs(), DEVICE, REACH).unwrap();
        ready.wait();
        let counted = transfers(&fake);
        ready.wait();
        let equal = made.broadcast(&variables).unwrap();
        ready.wait();
        assert_eq!(transfers(&fake), counted);
        ready.wait();
        let chiefs: Vec<_> = model(0).iter().map(|one| bytes_of(one)).collect();
        assert_eq!(bits(&equal), chiefs);
        let equal: Vec<_> = chiefs
            .iter()
            .map(|one| made.library().with(bytemuck::cast_slice(one)))
            .collect();
        made.verify(&mut strategy, &equal).unwrap();
        let mut others = equal.clone();
        if rank == 2 {
            // The last bit of a zero of the other sign.
            others[1] = made.library().with(&[-0.0; 7]);
        }
        let told = made.verify(&mut strategy, &others).unwrap_err();
        let Failed::Strategy(Error::ReplicasDiverged { ranks }) = told else {
            panic!("{told}");
        };
        assert_eq!(ranks, [Rank::new(2)]);
        made.begin(1.0);
        drop((equal, others, variables));
        made.settle(&mut strategy).unwrap();
        strategy.leave().unwrap();
    });
    fake.is_clean();
}

/// One rank, whose GPU is 0.
fn alone(fake: &Fake) -> (MultiWorkerMirroredStrategy, Tensors<'_>) {
    let cuda = CudaAccelerator::open(&fake.config().with_gpus([0])).unwrap();
    let strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    (strategy, Tensors::new(fake, 0, cuda))
}

#[test]
fn gradients_that_do_not_belong_to_the_model_or_the_gpu_are_refused_by_name() {
    let fake = four_gpus();
    let (mut strategy, tensors) = alone(&fake);
    let (short, own) = (tensors.with(&[1.0; 6]), tensors.with(&[1.0; 7]));
    let elsewhere = Arc::new(Other::by_stream(&fake, 1, 28));
    let specs = [VariableSpec::new("bias", &[7]).unwrap()];
    let mut made = DeviceGradients::new(&mut strategy, tensors, &specs, DEVICE, REACH).unwrap();
    let text = |told: Result<(), Failed>| told.unwrap_err().to_string();
    assert!(text(made.ready(0, short)).contains("bias"));
    made.ready(0, own.clone()).unwrap();
    assert!(text(made.ready(0, own.clone())).contains("bias"));
    // The library has a tensor of another GPU packed into one of that.
    let lent = made.library().lend(&elsewhere, ElementType::F32);
    assert!(
        matches!(
            lent,
            Err(Failed::Cuda(CudaError::OnOtherGpu {
                found: 1,
                ordinal: 0,
                ..
            }))
        ),
        "{lent:?}"
    );
    let freed = elsewhere.lend(ElementType::F32, 7);
    drop(elsewhere);
    let gone = made.library().cuda.borrow(DeviceId::new(0), freed);
    assert!(matches!(gone, Err(CudaError::NotOnGpu { .. })), "{gone:?}");
    let sums = strategy.run(|replica| made.finish(replica)).unwrap();
    assert_eq!(sums.into_first().len(), 1);
    drop(own);
    drop(made);
    fake.is_clean();
}

#[test]
fn models_that_differ_are_told_before_a_gradient_is_summed() {
    let fake = four_gpus();
    let told = run(&fake, Over::Memory, 2, |group, cuda| {
        let mut strategy = in_buckets(group);
        let rank = strategy.rank().index();
        let mut specs = specs();
        if rank == 1 {
            specs[2] = VariableSpec::new("second", &[71]).unwrap();
        }
        let tensors = Tensors::new(&fake, rank, cuda);
        let made = DeviceGradients::new(&mut strategy, tensors, &specs, DEVICE, REACH);
        made.unwrap_err()
    });
    let differ = |error: &Error| matches!(error, Error::VariablesDiffer { .. });
    assert!(told.iter().any(differ), "{told:?}");
    fake.is_clean();
}

#[test]
fn a_rank_that_dies_while_others_sum_is_named_and_nothing_hangs() {
    let fake = four_gpus();
    let all_are_in = Barrier::new(2);
    run(&fake, Over::Memory, 2, |group, cuda| {
        let mut strategy = in_buckets(group);
        let rank = strategy.rank().index();
        let tensors = Tensors::new(&fake, rank, cuda);
        let given = own(&tensors, rank);
        let mut made =
            DeviceGradients::new(&mut strategy, tensors, &specs(), DEVICE, REACH).unwrap();
        all_are_in.wait();
        if rank == 1 {
            return;
        }
        let told = step(&mut strategy, &mut made, &given, 1.0).unwrap_err();
        let Failed::Strategy(Error::Group(error)) = &told else {
            panic!("{told}");
        };
        assert!(error.to_string().contains("rank 1"), "{error}");
    });
    fake.is_clean();
}

/// Sizes that differ although the models are said to be equal are told by the group.
#[test]
fn buckets_of_other_sizes_are_told_by_the_group() {
    let fake = four_gpus();
    let told = run(&fake, Over::Memory, 2, |mut group, cuda| {
        let rank = group.rank().index();
        let tensors = Tensors::new(&fake, rank, cuda);
        let packed = tensors.with(&vec![1.0; 7 + rank]);
        let mut lent = tensors.lend(&packed, ElementType::F32).unwrap();
        let mut devices = group.direct_on(&*tensors.cuda, DEVICE, REACH).unwrap();
        devices
            .all_reduce(&mut lent, meshwork_accel::ReduceOp::Sum)
            .unwrap_err()
    });
    let differ = |error: &OperationError| error.to_string().contains('8');
    assert!(told.iter().any(differ), "{told:?}");
    fake.is_clean();
}
