//! Variables that have no gradient in a step, on some workers or on all: in every way in which
//! gradients are summed.

use std::num::NonZeroUsize;

use candle_core::Device;
use candle_nn::{AdamW, Init, Optimizer, ParamsAdamW};
use meshwork_strategy::CommunicationOptions;

use super::super::*;
use super::{values, var};
use crate::testing::each;

/// How gradients are summed.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Bf16,
    LowRank,
    Hooked,
}

/// One training of three variables: one that is always used, one by the last worker alone, and one
/// in the first step alone.
struct Job {
    strategy: MultiWorkerMirroredStrategy,
    model: VarMap,
    mirrored: MirroredVars,
    optimizer: AdamW,
    way: Way,
}

impl Job {
    fn new(strategy: MultiWorkerMirroredStrategy, way: Way, bytes_per_bucket: usize) -> Self {
        let options = CommunicationOptions::new().with_bytes_per_bucket(bytes_per_bucket);
        let mut strategy = strategy.with_options(options);
        let model = VarMap::new();
        for name in ["all", "last", "once"] {
            let ones = Init::Const(1.0);
            let made = model.get((6, 5), name, ones, DType::F32, &Device::Cpu);
            made.unwrap();
        }
        let mirrored = MirroredVars::with_extra(&mut strategy, &model, 1).unwrap();
        let mirrored = match way {
            Way::Plain | Way::Hooked => mirrored,
            Way::Bf16 => mirrored.with_communication_dtype(CommunicationDtype::Bf16),
            Way::LowRank => mirrored.with_power_sgd(NonZeroUsize::MIN),
        };
        let decaying = ParamsAdamW {
            lr: 0.1,
            weight_decay: 0.1,
            ..ParamsAdamW::default()
        };
        let optimizer = AdamW::new(model.all_vars(), decaying).unwrap();
        Self {
            strategy,
            model,
            mirrored,
            optimizer,
            way,
        }
    }

    /// A step in which this worker's loss depends on these.
    fn step(&mut self, used: &[&str]) {
        let (model, mirrored, optimizer) = (&self.model, &mut self.mirrored, &mut self.optimizer);
        let (way, weight) = (self.way, 0.5);
        let loss = |of: &dyn Fn(&str) -> Tensor| {
            let mut loss = Tensor::zeros((), DType::F32, &Device::Cpu).unwrap();
            for name in used {
                loss = (loss + of(name).sqr().unwrap().sum_all().unwrap()).unwrap();
            }
            loss
        };
        let stepped = self.strategy.run(|replica| {
            mirrored.extra_mut()?[0] = 1.0;
            let gradients = match way {
                Way::Hooked => {
                    let hooked = mirrored.hooked()?;
                    let loss = loss(&|name| hooked.get((6, 5), name).unwrap());
                    mirrored.backward(replica, &loss, weight)?
                }
                Way::Plain | Way::Bf16 | Way::LowRank => {
                    let loss = loss(&|name| var(model, name).into_inner());
                    let mut gradients = loss.backward()?;
                    mirrored.all_reduce(replica, &mut gradients, weight)?;
                    gradients
                }
            };
            Ok::<_, Error>(optimizer.step(&gradients)?)
        });
        stepped.unwrap();
        let workers = self.strategy.num_replicas_in_sync() as f32;
        assert_eq!(self.mirrored.extra(), [workers]);
    }

    fn bits(&self, name: &str) -> Vec<u32> {
        let values = values(&var(&self.model, name)).into_iter();
        values.map(f32::to_bits).collect()
    }
}

#[test]
fn a_variable_that_no_worker_has_a_gradient_of_is_left_alone_and_others_count_as_zero() {
    for (world, way, bytes) in [
        (1, Way::Plain, 0),
        (1, Way::Hooked, 0),
        (1, Way::LowRank, 0),
        (2, Way::Plain, 0),
        (3, Way::Plain, 1),
        (2, Way::Bf16, 0),
        (2, Way::Bf16, 1),
        (2, Way::LowRank, 0),
        (2, Way::Hooked, 0),
        (3, Way::Hooked, 1),
    ] {
        let trained = each(world, |strategy| {
            let is_last = strategy.rank().number() + 1 == world;
            let mut job = Job::new(strategy, way, bytes);
            // It gets moments, by which AdamW would go on.
            job.step(&["all", "once"]);
            let (begun, once) = (job.bits("last"), job.bits("once"));
            assert_eq!(begun, [1.0_f32.to_bits(); 30], "{way:?}");
            for _ in 0..3 {
                let all = job.bits("all");
                job.step(if is_last { &["all", "last"] } else { &["all"] });
                assert_ne!(job.bits("all"), all, "{way:?}");
            }
            assert_ne!(job.bits("last"), begun, "{way:?}");
            let last = job.bits("last");
            // Some have no samples.
            job.step(if is_last { &["all"] } else { &[] });
            // Of low rank there is more to come of a gradient that was.
            if !matches!(way, Way::LowRank) {
                assert_eq!(job.bits("once"), once, "{way:?} {world}");
                assert_eq!(job.bits("last"), last, "{way:?} {world}");
            }
            job.mirrored.verify(&mut job.strategy).unwrap();
            let values = ["all", "last", "once"].map(|name| job.bits(name));
            job.strategy.leave().unwrap();
            values
        });
        assert!(trained.iter().all(|worker| *worker == trained[0]));
    }
}
