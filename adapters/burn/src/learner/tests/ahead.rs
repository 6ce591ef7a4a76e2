//! A chief that takes over the state of others who have made the step that has failed here.

use burn_train::{
    SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader, TrainingComponents,
    TrainingStrategy, ValidLoader,
};
use meshwork_strategy::{Change, Progress, Snapshot, Training, VariableSpec};

use super::*;
use crate::learner::run::{Data, Run};
use crate::learner::wire::{State, Told};

/// A training whose first step of batches fails on the chief behind the exchange of outputs.
struct Fails(Mutex<MultiWorkerMirroredStrategy>);

struct Failing<'a>(Run<'a, Line>);

impl SupervisedLearningStrategy<Line> for Fails {
    fn fit(
        &self,
        components: TrainingComponents<Line>,
        learner: Learner<Line>,
        train: TrainLoader<Line>,
        valid: ValidLoader<Line>,
        first_epoch: usize,
    ) -> (Line, SupervisedTrainingEventProcessor<Line>) {
        let mut strategy = self.0.lock().unwrap();
        let data = Data::default();
        let mut run = Run::new(learner, (train, valid), components, first_epoch, &data);
        run.prepare(&strategy, None, "");
        let mut failing = Failing(run);
        let error = strategy.train(&mut failing).unwrap_err().to_string();
        assert!(error.contains("the same calls"), "{error}");
        failing.0.into_parts()
    }
}

impl Training for Failing<'_> {
    type Error = Error;

    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        change: &Change,
    ) -> Result<(), Error> {
        self.0.regroup(strategy, change)
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        if self.steps() == 0 || strategy.is_chief() {
            return self.0.step(strategy).inspect_err(|_| self.take_over());
        }
        let told = Told {
            samples: 0,
            state: State::Last,
            place: None,
            fields: Vec::new(),
        };
        let failed = strategy.run(|replica| {
            replica.all_gather_bytes(&told.to_bytes())?;
            // What the chief waits for is the sum of gradients.
            replica.all_gather_bytes(&[])?;
            Ok::<_, Error>(Progress::Done)
        });
        Ok(failed?.into_first())
    }

    fn steps(&self) -> u64 {
        self.0.steps()
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.0.snapshot()
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.0.restore(snapshot)
    }
}

impl Failing<'_> {
    /// The state of others, who are a step ahead.
    fn take_over(&mut self) {
        let own = self.0.snapshot().unwrap();
        let mut others = Snapshot::new(own.step() + 1, own.cursor());
        for (name, shape) in [("weight", &[2, 2][..]), ("bias", &[2])] {
            let spec = VariableSpec::new(name, shape).unwrap();
            others = others.with_array(&spec, own.array(&spec).unwrap()).unwrap();
        }
        for part in ["state", "optimizer", "scheduler"] {
            let name = format!("burn.learner.{part}");
            let bytes = own.bytes(&name).unwrap();
            others = others.with_bytes(&name, bytes).unwrap();
        }
        self.0.restore(&others).unwrap();
    }
}

#[test]
fn the_chief_tells_of_a_batch_whose_sum_only_others_have() {
    let ran = each(2, |strategy| {
        let job = Job {
            interrupter: Interrupter::new(),
            ..Job::new(16, 4)
        };
        let fails = TrainingStrategy::Custom(Arc::new(Fails(Mutex::new(strategy))));
        job.launch(0.0, |training| training.with_training_strategy(fails))
    });
    assert_eq!(ran[0].seen[0], [[0, 1, 2, 3]]);
    // The first of the scheduler's.
    let [rate] = ran[0].rates[..] else {
        panic!("{ran:?}");
    };
    assert!((rate - 0.2).abs() < 1e-9, "{rate}");
    assert!(ran[1].seen[0].is_empty());
}
