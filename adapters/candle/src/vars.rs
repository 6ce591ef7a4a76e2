use candle_core::backprop::GradStore;
use candle_core::{DType, Storage, Tensor, Var};
use candle_nn::VarMap;
use meshwork_strategy::{
    FlatBuffer, GradientPacks, MultiWorkerMirroredStrategy, ReplicaContext, Snapshot, VariableSpec,
    Wire,
};

use crate::Error;

/// The variables of a candle model, equal on all workers, and room for their gradients.
///
/// Variables are ordered by name, so that all workers agree on the order: a [`VarMap`] itself has
/// none. The buffers are allocated once, in memory that the other workers of a host read where it
/// is, and packed as the strategy's
/// [`bytes_per_pack`](meshwork_strategy::CommunicationOptions::bytes_per_pack) says.
#[derive(Debug)]
pub struct MirroredVars {
    vars: Vec<Var>,
    /// The gradients, the caller's extra numbers, and room for the check of copies.
    gradients: GradientPacks,
    extra: usize,
    checks: Checks,
    /// This worker's copy of the values.
    values: FlatBuffer,
}

/// When copies of the model are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Checks {
    EachStep,
    Never,
}

impl MirroredVars {
    /// Gives all variables of `model`, on every worker, the values they have on rank 0.
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Strategy`], above all when the workers' models differ;
    /// [`Error::Candle`].
    pub fn new(strategy: &mut MultiWorkerMirroredStrategy, model: &VarMap) -> Result<Self, Error> {
        Self::with_extra(strategy, model, 0)
    }

    /// As [`new`](Self::new), with room for `extra` numbers that are summed with the gradients,
    /// such as the loss: one operation for both.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_extra(
        strategy: &mut MultiWorkerMirroredStrategy,
        model: &VarMap,
        extra: usize,
    ) -> Result<Self, Error> {
        let named = by_name(model);
        let mut specs = Vec::with_capacity(named.len());
        for (name, var) in &named {
            if var.dtype() != DType::F32 {
                return Err(Error::ElementType {
                    name: name.clone(),
                    found: var.dtype(),
                });
            }
            specs.push(VariableSpec::new(name, var.dims())?);
        }
        let checks = strategy
            .run(|replica| Ok::<_, Error>(replica.check_len()))?
            .into_first();
        let gradients = GradientPacks::new(strategy, &specs, extra + checks)?;
        let mut mirrored = Self {
            vars: named.into_iter().map(|(_, var)| var).collect(),
            gradients,
            extra,
            checks: Checks::EachStep,
            values: FlatBuffer::new(&specs, 0)?,
        };
        mirrored.read_values()?;
        strategy.scope(|scope| scope.mirror(&specs, mirrored.values.as_mut_slice()))?;
        mirrored.write_values()?;
        Ok(mirrored)
    }

    /// Names and shapes, in the order in which gradients are reduced.
    #[must_use]
    pub fn specs(&self) -> &[VariableSpec] {
        self.values.specs()
    }

    /// Sends gradients in another form, in the same way on every worker. The check of copies takes
    /// numbers as they are, so it is left out where they are rounded.
    #[must_use]
    pub fn with_wire(mut self, wire: Wire) -> Self {
        self.checks = if wire == Wire::F32 {
            Checks::EachStep
        } else {
            Checks::Never
        };
        self.gradients = self.gradients.with_wire(wire);
        self
    }

    /// The variables and their names, in the order of [`specs`](Self::specs).
    pub fn named(&self) -> impl Iterator<Item = (String, Var)> + '_ {
        let names = self.specs().iter().map(|spec| spec.name().to_owned());
        names.zip(self.vars.iter().cloned())
    }

    /// The numbers that were summed with the gradients.
    #[must_use]
    pub fn extra(&self) -> &[f32] {
        &self.gradients.extra()[..self.extra]
    }

    /// The numbers that are summed with the gradients, to be written before
    /// [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::Strategy`] while gradients are under way, after an error.
    pub fn extra_mut(&mut self) -> Result<&mut [f32], Error> {
        Ok(&mut self.gradients.extra_mut()?[..self.extra])
    }

    /// Adds the values of all variables to `snapshot`.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    pub fn save(&mut self, mut snapshot: Snapshot) -> Result<Snapshot, Error> {
        self.read_values()?;
        for (index, spec) in self.values.specs().iter().enumerate() {
            snapshot = snapshot.with_array(spec, self.values.gradient(index))?;
        }
        Ok(snapshot)
    }

    /// Takes over the values of all variables from `snapshot`, the same on every worker.
    ///
    /// # Errors
    /// [`Error::Strategy`] when one is missing or has another shape; [`Error::Candle`].
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        for index in 0..self.vars.len() {
            let values = snapshot.array(&self.values.specs()[index])?;
            self.values.set(index, values)?;
        }
        self.write_values()
    }

    /// Replaces the gradients of this worker by the sum over all workers of each worker's
    /// gradients times its `weight`. The same operation checks that all copies of the model are
    /// equal, bit for bit.
    ///
    /// With a loss that is the mean over the worker's samples, [`Batch::weight`] makes the sum the
    /// gradient of the mean over the global batch. A variable without a gradient counts as zero.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`]; `gradients` are then partly replaced.
    ///
    /// [`Batch::weight`]: meshwork_strategy::Batch::weight
    #[track_caller]
    pub fn all_reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        gradients: &mut GradStore,
        weight: f32,
    ) -> Result<(), Error> {
        // From the last to the first, as packs are made: one is reduced while the next is filled.
        for (index, var) in self.vars.iter().enumerate().rev() {
            let slot = self.gradients.gradient_mut(index)?;
            match gradients.get(var) {
                Some(gradient) => read(gradient, slot)?,
                None => slot.fill(0.0),
            }
            slot.iter_mut().for_each(|value| *value *= weight);
            self.gradients.ready(replica, index)?;
        }
        self.read_values()?;
        let extra = self.extra;
        if self.checks == Checks::EachStep {
            let room = &mut self.gradients.extra_mut()?[extra..];
            replica.write_check(self.values.as_mut_slice(), room)?;
        }
        self.gradients.finish(replica)?;
        if self.checks == Checks::EachStep {
            replica.read_check(&self.gradients.extra()[extra..])?;
        }
        for (index, var) in self.vars.iter().enumerate() {
            let sum =
                Tensor::from_slice(self.gradients.gradient(index), var.shape(), var.device())?;
            gradients.insert(var, sum);
        }
        Ok(())
    }

    /// Checks that all workers hold the same bits in all variables, and returns their hash.
    ///
    /// # Errors
    /// [`Error::Strategy`] with the ranks that differ, [`Error::Candle`].
    #[track_caller]
    pub fn verify(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<u64, Error> {
        self.read_values()?;
        Ok(strategy.verify_replicas(self.values.as_mut_slice())?)
    }

    fn read_values(&mut self) -> Result<(), Error> {
        for (index, var) in self.vars.iter().enumerate() {
            read(var.as_tensor(), self.values.gradient_mut(index))?;
        }
        Ok(())
    }

    fn write_values(&self) -> Result<(), Error> {
        for (index, var) in self.vars.iter().enumerate() {
            var.set(&Tensor::from_slice(
                self.values.gradient(index),
                var.shape(),
                var.device(),
            )?)?;
        }
        Ok(())
    }
}

fn by_name(model: &VarMap) -> Vec<(String, Var)> {
    // A panic inside candle cannot leave a map of handles half changed.
    let vars = model
        .data()
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut named: Vec<_> = vars
        .iter()
        .map(|(name, var)| (name.clone(), var.clone()))
        .collect();
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    named
}

/// Copies the values of `tensor`, row-major, without an allocation where it is contiguous in host
/// memory.
fn read(tensor: &Tensor, into: &mut [f32]) -> Result<(), Error> {
    let (storage, layout) = tensor.storage_and_layout();
    if let (Storage::Cpu(values), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
        into.copy_from_slice(&values.as_slice::<f32>()?[start..end]);
        return Ok(());
    }
    drop(storage);
    into.copy_from_slice(&tensor.flatten_all()?.to_vec1::<f32>()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use candle_core::Device;
    use candle_nn::{Init, Optimizer, SGD};
    use meshwork_collectives::Group;
    use meshwork_strategy::{CommunicationOptions, Cursor};

    use super::*;

    fn each<R: Send>(
        world: u32,
        program: impl Fn(MultiWorkerMirroredStrategy) -> R + Sync,
    ) -> Vec<R> {
        thread::scope(|scope| {
            let program = &program;
            let ranks: Vec<_> = Group::local(world)
                .unwrap()
                .into_iter()
                .map(|group| {
                    scope.spawn(move || program(MultiWorkerMirroredStrategy::over(group).unwrap()))
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    fn model(initial: f64) -> VarMap {
        let model = VarMap::new();
        for name in ["z", "a", "m"] {
            model
                .get((2, 3), name, Init::Const(initial), DType::F32, &Device::Cpu)
                .unwrap();
        }
        model
    }

    fn var(model: &VarMap, name: &str) -> Var {
        model.data().lock().unwrap()[name].clone()
    }

    fn values(var: &Var) -> Vec<f32> {
        var.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn all_workers_take_rank_0s_values_in_the_order_of_names() {
        each(3, |mut strategy| {
            let model = model(f64::from(strategy.rank().number()) + 1.0);
            let mirrored = MirroredVars::new(&mut strategy, &model).unwrap();
            let names: Vec<_> = mirrored.specs().iter().map(VariableSpec::name).collect();
            assert_eq!(names, ["a", "m", "z"]);
            assert_eq!(values(&var(&model, "m")), [1.0; 6]);
            strategy.leave().unwrap();
        });
    }

    #[test]
    fn gradients_are_summed_with_their_weights_and_the_optimizer_applies_the_sum() {
        each(2, |mut strategy| {
            let model = model(1.0);
            let mut mirrored = MirroredVars::with_extra(&mut strategy, &model, 1).unwrap();
            let own = f64::from(strategy.rank().number()) + 1.0;
            // d/da = own, transposed on the way so that the gradient is not contiguous; z is unused.
            let a = (var(&model, "a").t().unwrap() * own)
                .unwrap()
                .sum_all()
                .unwrap();
            let m = (var(&model, "m").as_tensor() * (own * 2.0))
                .unwrap()
                .sum_all()
                .unwrap();
            let mut gradients = (a + m).unwrap().backward().unwrap();
            mirrored.extra_mut().unwrap()[0] = 0.25;
            let step = strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 0.5));
            step.unwrap();
            assert_eq!(mirrored.extra(), [0.5]);
            let mut optimizer = SGD::new(model.all_vars(), 1.0).unwrap();
            optimizer.step(&gradients).unwrap();
            // 0.5 * (1 + 2) for a, twice that for m, nothing for z.
            assert_eq!(values(&var(&model, "a")), [-0.5; 6]);
            assert_eq!(values(&var(&model, "m")), [-2.0; 6]);
            assert_eq!(values(&var(&model, "z")), [1.0; 6]);
            mirrored.verify(&mut strategy).unwrap();
            strategy.leave().unwrap();
        });
    }

    #[test]
    fn packs_give_the_sums_of_one_buffer_and_rounded_ones_come_close() {
        for (bytes, wire) in [
            (0, Wire::F32),
            (1, Wire::F32),
            (30, Wire::F32),
            (0, Wire::Bf16),
        ] {
            each(2, |strategy| {
                let options = CommunicationOptions::new().with_bytes_per_pack(bytes);
                let mut strategy = strategy.with_options(options);
                let model = model(1.0);
                let mut mirrored = MirroredVars::new(&mut strategy, &model)
                    .unwrap()
                    .with_wire(wire);
                let own = f64::from(strategy.rank().number()) + 1.0;
                for _ in 0..3 {
                    let loss = (var(&model, "a").as_tensor() * own)
                        .unwrap()
                        .sum_all()
                        .unwrap();
                    let mut gradients = loss.backward().unwrap();
                    strategy
                        .run(|replica| mirrored.all_reduce(replica, &mut gradients, 0.5))
                        .unwrap();
                    let sum = gradients
                        .get(&var(&model, "a"))
                        .unwrap()
                        .flatten_all()
                        .unwrap();
                    assert_eq!(sum.to_vec1::<f32>().unwrap(), [1.5; 6]);
                }
                strategy.leave().unwrap();
            });
        }
    }

    #[test]
    fn values_come_back_from_a_snapshot() {
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let saved = model(3.0);
        let mut mirrored = MirroredVars::new(&mut strategy, &saved).unwrap();
        let snapshot = mirrored.save(Snapshot::new(1, Cursor::start())).unwrap();
        let other = model(7.0);
        let mut restored = MirroredVars::new(&mut strategy, &other).unwrap();
        restored.restore(&snapshot).unwrap();
        assert_eq!(values(&var(&other, "m")), [3.0; 6]);
        let names: Vec<_> = restored.named().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "m", "z"]);
    }

    #[test]
    fn a_copy_that_was_changed_on_one_worker_is_found() {
        each(2, |mut strategy| {
            let model = model(1.0);
            let mut mirrored = MirroredVars::new(&mut strategy, &model).unwrap();
            mirrored.verify(&mut strategy).unwrap();
            if !strategy.is_chief() {
                let m = var(&model, "m");
                m.set(&(m.as_tensor() * 1.5).unwrap()).unwrap();
            }
            let error = mirrored.verify(&mut strategy).unwrap_err().to_string();
            assert!(error.contains("rank 1 differ from rank 0's"), "{error}");
            strategy.leave().unwrap();
        });
    }

    #[test]
    fn variables_of_another_type_are_refused_by_name() {
        let model = VarMap::new();
        model
            .get(2, "half", Init::Const(0.0), DType::F64, &Device::Cpu)
            .unwrap();
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let error = MirroredVars::new(&mut strategy, &model)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "variable half holds F64 values: only F32 variables can be mirrored"
        );
    }
}
