//! States of which a part is lent, among threads.

use meshwork_collectives::{Group, Rank};
use meshwork_testing::in_threads;

use super::*;
use crate::{Cursor, VariableSpec};

/// A state of which the weights are lent and the bias is not.
struct Model {
    weights: Vec<f32>,
    bias: f32,
    steps: u64,
}

impl Model {
    fn new(weights: usize, value: f32) -> Self {
        Self {
            weights: vec![value; weights],
            bias: value,
            steps: 0,
        }
    }
}

impl Training for Model {
    type Error = Error;

    fn regroup(&mut self, _: &mut MultiWorkerMirroredStrategy, _: &Change) -> Result<(), Error> {
        Ok(())
    }

    fn step(&mut self, _: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        Ok(Progress::Done)
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        Snapshot::new(self.steps, Cursor::start())
            .with_array(&VariableSpec::new("bias", &[1])?, &[self.bias])
    }

    fn lend(&mut self) -> LentArrays<'_> {
        LentArrays::new().with(&mut self.weights)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.bias = snapshot.array(&VariableSpec::new("bias", &[1])?)?[0];
        Ok(())
    }
}

/// Trains these, a worker each.
fn train(models: Vec<Model>) -> Vec<(Model, Result<(), Error>)> {
    let groups = Group::local(u32::try_from(models.len()).unwrap()).unwrap();
    in_threads(groups.into_iter().zip(models), |(group, mut model)| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let trained = strategy.train(&mut model);
        if trained.is_ok() {
            strategy.leave().unwrap();
        }
        (model, trained)
    })
}

#[test]
fn what_is_lent_and_what_is_not_become_the_chiefs() {
    // More than a chunk.
    let models = [1.0, 2.0, 3.0].map(|value| Model::new(300_001, value));
    for (model, trained) in train(models.into()) {
        assert_eq!(trained, Ok(()));
        assert!(model.bias == 1.0 && model.weights == vec![1.0; 300_001]);
    }
}

#[test]
fn a_worker_that_lends_other_arrays_is_named_to_all() {
    for weights in [2, 4] {
        let ended = train(vec![Model::new(3, 1.0), Model::new(weights, 2.0)]);
        let [(_, first), (_, second)] = ended.try_into().ok().unwrap();
        let unlike = StateError::Lent {
            rank: Rank::new(1),
            lent: 4 * weights,
            giver: Rank::CHIEF,
            total: 16,
        };
        assert_eq!(first.unwrap_err().rank_at_fault(), Some(Rank::new(1)));
        assert_eq!(second, Err(unlike.into()));
    }
}

#[test]
fn who_has_met_others_anew_is_to_ask_again_whether_anything_is_left() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let mut model = Model::new(3, 1.0);
    let mut session = Session::new(&mut strategy, &mut model);
    assert_eq!(session.turn(), Ok(Progress::Done));
    assert!(session.is_done);
    let change = Change::to(session.strategy.group.epoch());
    session.assemble(&change).unwrap();
    assert!(!session.is_done);
    strategy.leave().unwrap();
}

#[test]
fn a_state_that_was_overwritten_by_half_is_nothing_to_begin_from() {
    let group = Group::local(1).unwrap().remove(0);
    let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
    let gift = Gift {
        givers: vec![Rank::CHIEF],
        takers: Vec::new(),
    };
    let mut given = Model::new(3, 1.0);
    let outline = given.snapshot().unwrap().outline();
    let manifest = Manifest::of(outline, &Parts::new(Vec::new()).with(given.lend()), 4);
    let terms = state_transfer::agree(&mut strategy.group, &gift, Some(&manifest)).unwrap();
    let mut model = Model::new(3, 2.0);
    let mut session = Session::new(&mut strategy, &mut model);
    let taken = Taken {
        snapshot: Snapshot::new(0, Cursor::start()),
        lent: 12,
    };
    session.partial = Some(Partial::new(&terms, taken));
    let error = session.run().unwrap_err();
    let rank = Rank::CHIEF;
    assert_eq!(error, StateError::HalfTaken { rank }.into());
    assert!(error.is_retryable());
    strategy.leave().unwrap();
}

#[test]
fn who_is_to_take_over_a_state_has_not_trained_to_the_end() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let gift = Gift {
        givers: vec![Rank::CHIEF],
        takers: Vec::new(),
    };
    // Fewer weights than the taker lends: nothing can be taken.
    let mut given = Model::new(2, 1.0);
    let outline = given.snapshot().unwrap().outline();
    let manifest = Manifest::of(outline, &Parts::new(Vec::new()).with(given.lend()), 4);
    let terms = state_transfer::agree(&mut strategy.group, &gift, Some(&manifest)).unwrap();
    let mut model = Model::new(3, 2.0);
    let mut session = Session::new(&mut strategy, &mut model);
    session.is_done = true;
    assert!(session.take(&terms).is_err());
    assert!(!session.is_done);
    strategy.leave().unwrap();
}
