//! `Training` as the elastic strategy calls it: steps over buckets or over replicas, regrouping
//! when workers change, snapshots, and the lines that tests read on standard output.

use std::time::Instant;

use meshwork_integration_tests::say;
use meshwork_strategy::{
    Batch, Change, Cursor, DataEpoch, DistributedDataset, Error, Fingerprint, GradientBuckets,
    LentArrays, MultiWorkerMirroredStrategy, PerReplica, Progress, ReplicaReduceOp, Snapshot,
    Training, VariableSpec,
};

use crate::args::Args;
use crate::model::Model;

/// The training of one worker.
pub(crate) struct Run {
    args: Args,
    model: Model,
    ballast: Vec<f32>,
    specs: [VariableSpec; 2],
    steps: u64,
    /// Behind the samples of all steps that were made.
    cursor: Cursor,
    data: DistributedDataset,
    /// What is left of the epoch; `None` before it is taken up from the cursor.
    batches: Option<DataEpoch>,
    gradients: Gradients,
    membership: u64,
    /// When a worker was lost, until the first step without it is made.
    lost: Option<Instant>,
}

/// Where gradients are summed: in buckets, or in a buffer for each of several replicas.
enum Gradients {
    Buckets(GradientBuckets),
    Buffers(PerReplica<Vec<f32>>),
}

impl Run {
    pub(crate) fn new(
        args: &Args,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<Self, Error> {
        let model = Model::new(args.inputs());
        let specs = model.specs()?;
        Ok(Self {
            gradients: Gradients::new(strategy, &specs)?,
            data: data(args, strategy)?,
            args: args.clone(),
            model,
            ballast: args.ballast(),
            specs,
            steps: 0,
            cursor: Cursor::start(),
            batches: None,
            membership: 0,
            lost: None,
        })
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    fn say_ballast(&self) {
        if !self.ballast.is_empty() {
            say!("ballast {:016x}", Fingerprint::of(&self.ballast).value());
        }
    }

    pub(crate) fn made(&self) -> u64 {
        self.steps
    }

    /// The next batch, and where the data stand behind it; `None` behind the last epoch.
    fn next_batch(&mut self) -> Result<Option<(Batch, Cursor)>, Error> {
        let mut batches = match self.batches.take() {
            Some(batches) => batches,
            None => self.data.resume(self.cursor)?,
        };
        let mut next = batches.next();
        let following = batches.cursor().epoch() + 1;
        if next.is_none() && following < self.args.epochs() {
            batches = self.data.epoch(following);
            next = batches.next();
        }
        let cursor = batches.cursor();
        self.batches = Some(batches);
        Ok(next.map(|batch| (batch, cursor)))
    }

    /// Sums the gradient over all workers.
    fn gradient(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        batch: &Batch,
    ) -> Result<Vec<f32>, Error> {
        let scale = 1.0 / batch.global_len() as f32;
        let (model, len) = (&self.model, self.model.values().len());
        let part_of = |indices: &[usize]| {
            let mut part = vec![0.0; len];
            for index in indices {
                model.accumulate(*index, scale, &mut part);
            }
            part
        };
        match &mut self.gradients {
            Gradients::Buckets(buckets) => {
                let part = part_of(batch.indices());
                let (weight, bias) = part.split_at(self.specs[0].len());
                strategy.run(|replica| {
                    for (index, part) in [(1, bias), (0, weight)] {
                        buckets.gradient_mut(index)?.copy_from_slice(part);
                        buckets.ready(replica, index)?;
                    }
                    buckets.finish(replica)
                })?;
                Ok([buckets.gradient(0), buckets.gradient(1)].concat())
            }
            Gradients::Buffers(buffers) => {
                let replicas = strategy.local_replicas();
                let sums = strategy.run_with(buffers, |replica, buffer| {
                    let share = batch.indices().len().div_ceil(replicas).max(1);
                    let own = batch.indices().chunks(share).nth(replica.local_id());
                    *buffer = part_of(own.unwrap_or_default());
                    replica.all_reduce(ReplicaReduceOp::Sum, buffer)?;
                    Ok::<_, Error>(buffer.clone())
                })?;
                Ok(sums.into_first())
            }
        }
    }
}

impl Gradients {
    fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        specs: &[VariableSpec],
    ) -> Result<Self, Error> {
        if strategy.local_replicas() > 1 {
            return Ok(Self::Buffers(strategy.per_replica(|_| Vec::new())));
        }
        GradientBuckets::new(strategy, specs, 0).map(Self::Buckets)
    }
}

fn data(
    args: &Args,
    strategy: &mut MultiWorkerMirroredStrategy,
) -> Result<DistributedDataset, Error> {
    let data = strategy.distribute_dataset(args.samples(), args.global_batch())?;
    Ok(data.shuffled(1))
}

impl Training for Run {
    type Error = Error;

    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        change: &Change,
    ) -> Result<(), Error> {
        strategy.scope(|scope| scope.compare(&self.specs))?;
        self.gradients = Gradients::new(strategy, &self.specs)?;
        self.data = data(&self.args, strategy)?;
        self.batches = None;
        self.membership = change.epoch();
        if let Some(cause) = change.cause() {
            say!("lost: {cause}");
            self.lost = Some(change.noticed());
        }
        let workers = strategy.num_replicas_in_sync() / strategy.local_replicas();
        let rank = strategy.rank().number();
        say!("membership {}: {rank} of {workers}", change.epoch());
        Ok(())
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        let Some((batch, cursor)) = self.next_batch()? else {
            return Ok(Progress::Done);
        };
        let (step, membership) = (self.steps + 1, self.membership);
        let last = strategy.num_replicas_in_sync() / strategy.local_replicas() - 1;
        let founded = membership == 1 && strategy.rank().index() == last;
        if founded && self.args.fails_before() == Some(step) {
            strategy.abort("its data cannot be read");
            return Err(Error::NoSamples);
        }
        let epoch = cursor.epoch();
        say!(
            "tries {step} of {epoch} in {membership}: {:?}",
            batch.indices()
        );
        std::thread::sleep(self.args.pause());
        let gradient = self.gradient(strategy, &batch)?;
        self.model.apply(&gradient);
        self.steps = step;
        self.cursor = cursor;
        say!("made {step} in {membership}");
        if let Some(lost) = self.lost.take() {
            say!("goes on {} ms after the loss", lost.elapsed().as_millis());
        }
        Ok(Progress::Step)
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let all = VariableSpec::new("values", &[self.model.values().len()])?;
        let moving = VariableSpec::new("velocity", &[self.model.velocity().len()])?;
        Snapshot::new(self.steps, self.cursor)
            .with_array(&all, self.model.values())?
            .with_array(&moving, self.model.velocity())
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let len = self.model.values().len();
        let values = snapshot.array(&VariableSpec::new("values", &[len])?)?;
        let velocity = snapshot.array(&VariableSpec::new("velocity", &[len])?)?;
        self.model.set(values, velocity);
        (self.steps, self.cursor) = (snapshot.step(), snapshot.cursor());
        self.batches = None;
        self.say_ballast();
        Ok(())
    }

    fn lend(&mut self) -> LentArrays<'_> {
        match self.ballast.as_mut_slice() {
            [] => LentArrays::new(),
            ballast => {
                say!("lends");
                LentArrays::new().with(ballast)
            }
        }
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.say_ballast();
        Ok(())
    }
}
