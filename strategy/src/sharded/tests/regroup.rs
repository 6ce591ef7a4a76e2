//! Workers that are lost, and those who are left: these go on with the bits of a checkpoint of the
//! last step that was made, wherever in a step the others were lost.

use super::*;
use std::sync::Barrier;
use std::time::Duration;

use meshwork_collectives::{JobSecret, Timeouts};
use meshwork_testing::{free_addresses, tf_config};

use crate::sharded::relayout::{Arriving, Message};
use crate::sharded::survivors::Decision;
use crate::{CommunicationOptions, DifferenceError, JoinMode, StateError, TfConfigResolver};

type Worker = (MultiWorkerMirroredStrategy, ShardedModel<AdamW>);

/// Where in a step a worker is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Dies {
    First,
    InBackward,
    /// When it has all gradients, and the others wait for it.
    BeforeUpdate,
    /// The same, and one of the others has made the step.
    InUpdate,
    Last,
}

const DIES: [Dies; 5] = [
    Dies::First,
    Dies::InBackward,
    Dies::BeforeUpdate,
    Dies::InUpdate,
    Dies::Last,
];

#[derive(Clone, Copy, Debug)]
struct Loss {
    run: Run,
    dies: Dies,
}

/// Steps before the one in which workers are lost.
const BEFORE: u64 = 2;
/// Steps of the whole training.
const ALL: u64 = 5;

impl Loss {
    fn new(sharding: Sharding, workers: u32, dies: Dies) -> Self {
        let mut run = Run::new(sharding.shard, workers);
        run.sharding = sharding;
        Self { run, dies }
    }

    /// Steps that count after the loss.
    fn made(self) -> u64 {
        match self.dies {
            Dies::First | Dies::InBackward | Dies::BeforeUpdate => BEFORE,
            Dies::InUpdate | Dies::Last => BEFORE + 1,
        }
    }

    /// Trains until these workers are lost, and returns the others in their order.
    fn survivors(self, units: &[UnitSpec], victims: &[u32]) -> Vec<Worker> {
        let first = (0..self.run.workers).find(|rank| !victims.contains(rank));
        let met = Barrier::new(self.run.workers as usize);
        let trained = each(self.run.workers, |mut strategy| {
            let (rank, optimizer) = (strategy.rank().number(), AdamW::new(0.01));
            let sharding = self.run.sharding;
            let mut model =
                ShardedModel::new(&mut strategy, sharding, units, optimizer, initial).unwrap();
            for _ in 0..BEFORE {
                self.run.step(&mut strategy, &mut model, units);
            }
            match self.dies {
                Dies::First | Dies::InBackward if victims.contains(&rank) => {
                    self.begins_step(&mut strategy, &mut model, units);
                    return None;
                }
                Dies::First | Dies::InBackward => {
                    let step = self.run.try_step(&mut strategy, &mut model, units);
                    step.unwrap_err();
                }
                Dies::BeforeUpdate | Dies::InUpdate => {
                    let worker = strategy.rank().index();
                    let prepared = strategy.run(|replica| {
                        self.run.passes_of(replica, &mut model, units, worker)?;
                        model.prepare_update(replica)
                    });
                    prepared.unwrap();
                    met.wait();
                }
                Dies::Last => {
                    self.run.step(&mut strategy, &mut model, units);
                    met.wait();
                }
            }
            if victims.contains(&rank) {
                return None;
            }
            if self.dies == Dies::InUpdate && first == Some(rank) {
                // As if it were the only one to hear that all are ready.
                model.begin_update();
                (0..units.len()).for_each(|unit| model.update_unit(unit).unwrap());
            }
            Some((strategy, model))
        });
        trained.into_iter().flatten().collect()
    }

    /// What a victim does of a step.
    fn begins_step(
        self,
        strategy: &mut MultiWorkerMirroredStrategy,
        model: &mut ShardedModel<AdamW>,
        units: &[UnitSpec],
    ) {
        let done = strategy.run(|replica| {
            if self.dies == Dies::First {
                return Ok::<_, Error>(());
            }
            for unit in 0..units.len() {
                model.forward(replica, unit, |_| ())?;
            }
            let last = units.len() - 1;
            model.backward(replica, last, |_, gradients| {
                let tensors = 0..units[last].trainable().len();
                tensors.for_each(|tensor| gradients[tensor].fill(1.0));
            })
        });
        done.unwrap();
    }

    /// The same by a checkpoint, which as many workers load as are left.
    fn expected(self, units: &[UnitSpec], left: u32) -> Vec<Vec<Vec<f32>>> {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = ShardedCheckpoints::new(folder.path());
        let make = |strategy: &mut MultiWorkerMirroredStrategy| {
            let optimizer = AdamW::new(0.01);
            ShardedModel::new(strategy, self.run.sharding, units, optimizer, initial).unwrap()
        };
        each(self.run.workers, |mut strategy| {
            let mut model = make(&mut strategy);
            for _ in 0..self.made() {
                self.run.step(&mut strategy, &mut model, units);
            }
            save_whole(&mut strategy, &mut model, &checkpoints);
            strategy.leave().unwrap();
        });
        let mut all = each(left, |mut strategy| {
            let mut model = make(&mut strategy);
            let loaded = strategy.run(|replica| model.load(replica, &checkpoints));
            assert_eq!(loaded.unwrap().into_first(), Some(self.made()));
            for _ in self.made()..ALL {
                self.run.step(&mut strategy, &mut model, units);
            }
            let values = values(&mut strategy, &mut model, units);
            strategy.leave().unwrap();
            values
        });
        all.swap_remove(0)
    }

    /// The workers that are left go on, with as many newcomers.
    fn goes_on(self, units: &[UnitSpec], left: Vec<Worker>, newcomers: usize) {
        let world = u32::try_from(left.len() + newcomers).unwrap();
        let expected = self.expected(units, world);
        self.goes_on_as(units, left, newcomers, &expected);
    }

    fn goes_on_as(
        self,
        units: &[UnitSpec],
        left: Vec<Worker>,
        newcomers: usize,
        expected: &[Vec<Vec<f32>>],
    ) {
        let left = left.into_iter().map(Some);
        let all: Vec<_> = left.chain((0..newcomers).map(|_| None)).collect();
        for (regrouped, steps, values) in
            regroup(self.run.sharding, units, all, |strategy, model| {
                for _ in model.steps()..ALL {
                    self.run.step(strategy, model, units);
                }
                values(strategy, model, units)
            })
        {
            assert_eq!(
                (regrouped, steps),
                (Regrouped::Kept, self.made()),
                "{self:?}"
            );
            assert!(values == expected, "{self:?} with {newcomers} newcomers");
        }
    }
}

/// Workers that were in other groups, and newcomers, come together in one.
fn regroup<R: Send>(
    sharding: Sharding,
    units: &[UnitSpec],
    all: Vec<Option<Worker>>,
    then: impl Fn(&mut MultiWorkerMirroredStrategy, &mut ShardedModel<AdamW>) -> R + Sync,
) -> Vec<(Regrouped, u64, R)> {
    let groups = Group::local(u32::try_from(all.len()).unwrap()).unwrap();
    in_threads(groups.into_iter().zip(all), |(group, worker)| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let (old, mut model) = of_old_or_new(worker, &strategy, sharding, units);
        let regrouped = model.regroup(&mut strategy).unwrap();
        drop(old);
        let steps = model.steps();
        let then = then(&mut strategy, &mut model);
        strategy.leave().unwrap();
        (regrouped, steps, then)
    })
}

/// The strategy and the model that a worker has, and for a newcomer a model without parameters.
fn of_old_or_new(
    worker: Option<Worker>,
    strategy: &MultiWorkerMirroredStrategy,
    sharding: Sharding,
    units: &[UnitSpec],
) -> (Option<MultiWorkerMirroredStrategy>, ShardedModel<AdamW>) {
    match worker {
        Some((old, model)) => (Some(old), model),
        None => {
            let optimizer = AdamW::new(0.01);
            let model = ShardedModel::elastic(strategy, sharding, units, optimizer);
            (None, model)
        }
    }
}

fn some_units() -> Vec<UnitSpec> {
    units(&[
        Shapes::new(&[&[7, 3], &[3], &[]], &[&[5, 2]]),
        Shapes::new(&[&[2, 0], &[1, 40]], &[]),
        Shapes::new(&[], &[&[3]]),
        Shapes::new(&[&[30, 4]], &[]),
    ])
}

#[test]
fn training_goes_on_to_the_bit_whichever_worker_is_lost_wherever_in_a_step() {
    let units = some_units();
    let kinds = (2..5).flat_map(|workers| KINDS.map(|shard| (workers, shard)));
    for (workers, shard) in kinds {
        let sharding = Sharding::new(shard).with_neighbour_copies();
        let of = |dies| Loss::new(sharding.with_max_norm(0.5), workers, dies);
        let expected = [Dies::First, Dies::Last].map(|dies| {
            let loss = of(dies);
            (loss.made(), loss.expected(&units, workers - 1))
        });
        for (victim, dies) in (0..workers).flat_map(|victim| DIES.map(|dies| (victim, dies))) {
            let loss = of(dies);
            let left = loss.survivors(&units, &[victim]);
            let expected = expected.iter().find(|(made, _)| *made == loss.made());
            loss.goes_on_as(&units, left, 0, &expected.unwrap().1);
        }
    }
}

#[test]
fn newcomers_get_their_parts_from_the_others() {
    let units = some_units();
    for shard in KINDS {
        let sharding = Sharding::new(shard).with_neighbour_copies();
        for (workers, newcomers) in [(2, 1), (3, 2), (2, 3)] {
            let loss = Loss::new(sharding, workers, Dies::InUpdate);
            let left = loss.survivors(&units, &[1]);
            loss.goes_on(&units, left, newcomers);
        }
    }
}

#[test]
fn a_newcomer_that_is_made_as_in_a_new_job_gets_its_part_all_the_same() {
    let units = some_units();
    for shard in KINDS {
        let sharding = Sharding::new(shard).with_neighbour_copies();
        let loss = Loss::new(sharding, 3, Dies::InUpdate);
        let left = loss.survivors(&units, &[1]).into_iter().map(Some);
        let groups = Group::local(3).unwrap();
        let all = groups.into_iter().zip(left.chain([None]));
        let ended = in_threads(all, |(group, worker)| {
            let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
            let mut model = match worker {
                Some((_old, mut model)) => {
                    assert_eq!(model.regroup(&mut strategy), Ok(Regrouped::Kept));
                    model
                }
                None => {
                    let optimizer = AdamW::new(0.01);
                    ShardedModel::new(&mut strategy, sharding, &units, optimizer, initial).unwrap()
                }
            };
            for _ in model.steps()..ALL {
                loss.run.step(&mut strategy, &mut model, &units);
            }
            let values = values(&mut strategy, &mut model, &units);
            strategy.leave().unwrap();
            values
        });
        let expected = loss.expected(&units, 3);
        assert!(ended.iter().all(|values| *values == expected), "{shard:?}");
    }
}

#[test]
fn several_passes_are_made_again_as_one_step() {
    let units = some_units();
    for shard in KINDS {
        let passes = NonZeroU32::new(2).unwrap();
        let sharding = Sharding::new(shard)
            .with_accumulation(passes)
            .with_neighbour_copies();
        for dies in DIES {
            let loss = Loss::new(sharding, 3, dies);
            let left = loss.survivors(&units, &[2]);
            loss.goes_on(&units, left, 0);
        }
    }
}

#[test]
fn what_two_neighbours_had_is_lost_with_both_and_nothing_else_is() {
    let units = some_units();
    for victims in [[0, 1], [1, 2], [2, 3], [0, 3], [0, 2], [1, 3]] {
        let sharding = Sharding::new(Shard::Parameters).with_neighbour_copies();
        let loss = Loss::new(sharding, 4, Dies::BeforeUpdate);
        let left = loss.survivors(&units, &victims);
        if victims[1] - victims[0] == 2 {
            loss.goes_on(&units, left, 0);
            continue;
        }
        // The first of the two, whose copy the second had.
        let part = if victims == [0, 3] {
            3
        } else {
            victims[0] as usize
        };
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = ShardedCheckpoints::new(folder.path());
        let all = left.into_iter().map(Some).collect();
        for (regrouped, steps, loaded) in regroup(sharding, &units, all, |strategy, model| {
            // Nothing has come in between.
            let parts = vec![part];
            assert_eq!(model.regroup(strategy), Ok(Regrouped::Lost { parts }));
            let loaded = strategy.run(|replica| {
                let parts = vec![part];
                let refused = Error::from(StateError::PartsLost { parts });
                assert_eq!(model.forward(replica, 0, |_| ()), Err(refused.clone()));
                assert_eq!(model.backward(replica, 0, |_, _| ()), Err(refused.clone()));
                assert_eq!(model.step(replica), Err(refused.clone()));
                assert_eq!(model.save(replica, &checkpoints), Err(refused));
                let loaded = model.load(replica, &checkpoints)?;
                model.initialize(replica, initial)?;
                Ok::<_, Error>(loaded)
            });
            loss.run.step(strategy, model, &units);
            loaded.unwrap().into_first()
        }) {
            let parts = vec![part];
            assert_eq!(
                (regrouped, steps, loaded),
                (Regrouped::Lost { parts }, 0, None)
            );
        }
    }
}

#[test]
fn without_copies_a_part_is_lost_with_its_worker_unless_another_group_has_it() {
    let units = some_units();
    for shard in [Shard::Optimizer, Shard::Gradients, Shard::Parameters] {
        let loss = Loss::new(Sharding::new(shard), 3, Dies::First);
        let left = loss.survivors(&units, &[1]);
        let all = left.into_iter().map(Some).collect();
        for (regrouped, ..) in regroup(loss.run.sharding, &units, all, |_, _| ()) {
            assert_eq!(regrouped, Regrouped::Lost { parts: vec![1] });
        }
        let two = ShardGroup::Workers(NonZeroU32::new(2).unwrap());
        let sharding = Sharding::new(shard).with_group(two).with_neighbour_copies();
        let loss = Loss::new(sharding, 4, Dies::InUpdate);
        let left = loss.survivors(&units, &[0, 3]);
        loss.goes_on(&units, left, 2);
    }
}

#[test]
fn newcomers_are_told_that_a_model_was_lost_before() {
    let units = some_units();
    let loss = Loss::new(Sharding::new(Shard::Parameters), 3, Dies::First);
    let lost = Regrouped::Lost { parts: vec![1] };
    let groups = Group::local(2).unwrap().into_iter();
    let left = loss.survivors(&units, &[1]);
    let left = in_threads(groups.zip(left), |(group, (_old, mut model))| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        assert_eq!(model.regroup(&mut strategy), Ok(lost.clone()));
        (strategy, model)
    });
    let all = left.into_iter().map(Some).chain([None]).collect();
    for (regrouped, ..) in regroup(loss.run.sharding, &units, all, |_, _| ()) {
        assert_eq!(regrouped, lost);
    }
}

/// Of two groups of two, the last worker is lost when its group has the gradients of the last unit,
/// and before the other group has them from it: the second worker misses them, the others do not.
#[test]
fn groups_of_an_elastic_job_make_a_step_together_or_not_at_all() {
    let units = some_units();
    let two = ShardGroup::Workers(NonZeroU32::new(2).unwrap());
    let sharding = Sharding::new(Shard::Parameters).with_group(two);
    let loss = Loss::new(sharding, 4, Dies::BeforeUpdate);
    let (have_all, addresses) = (Barrier::new(3), free_addresses(4));
    let secret = JobSecret::generate().unwrap();
    let left = in_threads(0..4, |worker| {
        let mut strategy = founder(&addresses, &secret, worker);
        let optimizer = AdamW::new(0.01);
        let mut model =
            ShardedModel::new(&mut strategy, sharding, &units, optimizer, initial).unwrap();
        for _ in 0..BEFORE {
            loss.run.step(&mut strategy, &mut model, &units);
        }
        let stepped = strategy.run(|replica| match worker {
            0 | 2 => {
                loss.run.passes_of(replica, &mut model, &units, worker)?;
                model.prepare_update(replica)?;
                have_all.wait();
                model.update(replica).map(drop)
            }
            1 => {
                loss.run.passes_of(replica, &mut model, &units, worker)?;
                model.step(replica).map(drop)
            }
            _ => {
                model.keeps_last_unit_in_its_group(replica, &units)?;
                have_all.wait();
                Ok(())
            }
        });
        assert_eq!(stepped.is_ok(), worker == 3, "{worker}: {stepped:?}");
        (worker < 3).then_some((strategy, model))
    });
    loss.goes_on(&units, left.into_iter().flatten().collect(), 1);
}

impl ShardedModel<AdamW> {
    /// Passes as if another one of the first unit were to come.
    fn keeps_last_unit_in_its_group(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        units: &[UnitSpec],
    ) -> Result<(), Error> {
        for unit in 0..units.len() {
            self.forward(replica, unit, |_| ())?;
        }
        for unit in (0..units.len()).rev() {
            if unit == 0 {
                self.sharding.passes = NonZeroU32::new(2);
            }
            self.backward(replica, unit, |_, gradients| {
                let tensors = 0..units[unit].trainable().len();
                tensors.for_each(|tensor| gradients[tensor].fill(1.0));
            })?;
        }
        self.finish_reducing(0)
    }
}

/// One of those who begin an elastic job.
fn founder(addresses: &[String], secret: &JobSecret, worker: usize) -> MultiWorkerMirroredStrategy {
    let resolver = TfConfigResolver::from_json(tf_config(addresses, worker));
    // Half of it is waited for who has left with an error, while its process lives.
    let timeouts = Timeouts::default().with_join(Duration::from_secs(10));
    let options = CommunicationOptions::new().with_timeouts(timeouts);
    let (secret, entry) = (secret.clone(), JoinMode::Founding);
    MultiWorkerMirroredStrategy::elastic(&resolver, secret, options, entry).unwrap()
}

/// Of four, worker 1 is lost, and then worker 3 after it has given so many units of the model.
fn dies_again(sharding: Sharding, units: &[UnitSpec], given: usize) {
    let loss = Loss::new(sharding, 4, Dies::InUpdate);
    let left = loss.survivors(units, &[1]);
    let groups = Group::local(3).unwrap();
    let again = in_threads(groups.into_iter().zip(left), |(group, (old, mut model))| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        if strategy.rank() == Rank::new(2) {
            let (decision, layout) = model.settle_in(&mut strategy).unwrap();
            let Decision::Kept { units, .. } = decision else {
                panic!("all parts are there: {decision:?}");
            };
            let group = strategy.group_mut();
            for (index, sources) in units.iter().enumerate().take(given) {
                model.take_unit_over(group, index, sources, layout).unwrap();
            }
            return None;
        }
        model.regroup(&mut strategy).unwrap_err();
        drop(old);
        Some((strategy, model))
    });
    loss.goes_on(units, again.into_iter().flatten().collect(), 0);
}

#[test]
fn a_worker_lost_while_the_model_is_divided_anew_costs_no_more_than_its_part() {
    let units = some_units();
    for shard in KINDS {
        for given in 0..=units.len() {
            dies_again(Sharding::new(shard).with_neighbour_copies(), &units, given);
        }
    }
}

/// Of two workers that have all of a model between them, and copies, the second is lost when it has
/// taken part in so many messages of the first unit to a newcomer. What the newcomer has by then,
/// and what it has after it has gone on.
fn dies_in_a_unit(sharding: Sharding, units: &[UnitSpec], messages: usize) -> (usize, usize) {
    let loss = Loss::new(sharding, 2, Dies::Last);
    let left = loss.survivors(units, &[]).into_iter().map(Some);
    let groups = Group::local(3).unwrap();
    let all = groups.into_iter().zip(left.chain([None]));
    let again = in_threads(all, |(group, worker)| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let (old, mut model) = of_old_or_new(worker, &strategy, sharding, units);
        if strategy.rank() == Rank::new(1) {
            model.takes_part(&mut strategy, messages);
            return None;
        }
        model.regroup(&mut strategy).unwrap_err();
        drop(old);
        Some((strategy, model))
    });
    let left: Vec<Worker> = again.into_iter().flatten().collect();
    let came = left[1].1.units[0]
        .arriving
        .as_ref()
        .map_or(0, Arriving::came);
    let groups = Group::local(2).unwrap().into_iter();
    let sent = in_threads(groups.zip(left), |(group, (old, mut model))| {
        let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let sent = model.takes_part(&mut strategy, usize::MAX);
        drop(old);
        strategy.leave().unwrap();
        sent
    });
    (came, sent[1])
}

impl ShardedModel<AdamW> {
    /// Takes part in so many messages of the first unit, and returns how many elements all have.
    pub(super) fn takes_part(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        messages: usize,
    ) -> usize {
        let (decision, layout) = self.settle_in(strategy).unwrap();
        let Decision::Kept { units, .. } = decision else {
            panic!("all parts are there: {decision:?}");
        };
        let mut arriving = self.arriving(0, &layout);
        let relayout = self.relayout(0, &units[0]);
        let (group, unit) = (strategy.group_mut(), &mut self.units[0]);
        let planned = relayout.plan(group, unit, &mut arriving).unwrap();
        for message in planned.iter().take(messages) {
            let is_whole = relayout.exchange(group, unit, &mut arriving, message);
            assert!(is_whole.unwrap());
        }
        planned.iter().map(Message::len).sum()
    }
}

#[test]
fn what_has_come_of_a_unit_is_not_sent_again_after_a_loss() {
    let units = units(&[Shapes::new(&[&[20, 3], &[5]], &[&[7]])]);
    // Parameters, two moments, and what is not trained: by copies, a part of two workers is all.
    let all = 3 * 65 + 7;
    let sharding = Sharding::new(Shard::Parameters).with_neighbour_copies();
    for messages in [0, 1, 2, 5, 20] {
        let (came, more) = dies_in_a_unit(sharding, &units, messages);
        // The other may give more before it learns of the loss.
        assert!(came > 0 || messages < 2, "{messages}");
        assert_eq!(came + more, all, "{messages}");
    }
}

#[test]
fn an_elastic_job_goes_on_without_a_worker_that_is_given_another_sharding() {
    let units = some_units();
    let (secret, addresses) = (JobSecret::generate().unwrap(), free_addresses(3));
    let ended = in_threads(0..3, |worker| {
        let mut strategy = founder(&addresses, &secret, worker);
        let mut run = Run::new(Shard::Parameters, 2);
        run.sharding = run.sharding.with_prefetch(1 + worker / 2);
        let optimizer = AdamW::new(0.01);
        let mut model = ShardedModel::elastic(&strategy, run.sharding, &units, optimizer);
        let regrouped = model.regroup(&mut strategy);
        let regrouped = regrouped.or_else(|error| model.go_on(&mut strategy, error))?;
        strategy.run(|replica| model.initialize(replica, initial))?;
        run.step(&mut strategy, &mut model, &units);
        strategy.leave()?;
        Ok::<_, Error>((regrouped, model.steps()))
    });
    let rank = Rank::new(2);
    let what = "number of units gathered ahead";
    let expected = [
        Ok((Regrouped::New, 1)),
        Ok((Regrouped::New, 1)),
        Err(Error::from(DifferenceError::Sharding { rank, what })),
    ];
    assert_eq!(ended, expected);
}

#[test]
fn a_model_is_not_used_before_it_is_divided() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let (units, optimizer) = (some_units(), AdamW::new(0.1));
    let sharding = Sharding::new(Shard::Parameters);
    let mut model = ShardedModel::elastic(&strategy, sharding, &units, optimizer);
    let used = strategy.run(|replica| model.forward(replica, 0, |_| ()));
    assert_eq!(
        used.unwrap_err(),
        Error::WorkersChanged { sharded: 0, now: 1 }
    );
    assert_eq!(model.regroup(&mut strategy), Ok(Regrouped::New));
    assert_eq!(model.regroup(&mut strategy), Ok(Regrouped::New));
    let used = strategy.run(|replica| model.forward(replica, 0, |_| ()));
    assert_eq!(used.unwrap_err(), StateError::NoValues.into());
    let filled = strategy.run(|replica| model.initialize(replica, initial));
    filled.unwrap();
    assert_eq!(model.regroup(&mut strategy), Ok(Regrouped::Kept));
}
