//! Variables whose workers are lost, and newcomers: the others go on with the bits of a checkpoint
//! of the last step that was made.

use std::sync::Barrier;

use super::*;
use crate::StateError;

type Worker = (
    MultiWorkerMirroredStrategy,
    Library,
    ShardedVariables<AdamW>,
);

const KINDS: [Shard; 3] = [Shard::Nothing, Shard::Optimizer, Shard::Gradients];
/// Steps before the one in which a worker is lost.
const BEFORE: u64 = 2;
/// Steps of the whole training.
const ALL: u64 = 4;

/// Where in a step a worker is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Dies {
    /// With gradients that nobody else has.
    AfterPass,
    /// When all have what the update takes.
    BeforeUpdate,
    /// The same, and one of the others has made the step.
    InUpdate,
}

#[derive(Clone, Copy, Debug)]
struct Loss {
    sharding: Sharding,
    workers: u32,
    victim: u32,
    dies: Dies,
}

fn unit() -> UnitSpec {
    units(&[Shapes::new(&[&[7, 3], &[], &[2]], &[&[5]])]).remove(0)
}

impl Loss {
    fn made(self) -> u64 {
        match self.dies {
            Dies::AfterPass | Dies::BeforeUpdate => BEFORE,
            Dies::InUpdate => BEFORE + 1,
        }
    }

    fn worker(self, strategy: MultiWorkerMirroredStrategy) -> Worker {
        let library = Library::of(&unit(), strategy.rank().index());
        let (lent, optimizer) = (Box::new(library.clone()), AdamW::new(0.01));
        let variables =
            ShardedVariables::elastic(&strategy, self.sharding, unit(), lent, optimizer);
        (strategy, library, variables.unwrap())
    }

    fn founder(self, strategy: MultiWorkerMirroredStrategy) -> Worker {
        let (mut strategy, library, mut variables) = self.worker(strategy);
        assert_eq!(variables.regroup(&mut strategy), Ok(Regrouped::New));
        let initialized = strategy.run(|replica| variables.initialize(replica));
        initialized.unwrap();
        (strategy, library, variables)
    }

    fn survivors(self) -> Vec<Worker> {
        let met = Barrier::new(self.workers as usize);
        let first = u32::from(self.victim == 0);
        let trained = each(self.workers, |strategy| {
            let rank = strategy.rank().number();
            let mut worker = self.founder(strategy);
            (0..BEFORE).for_each(|_| step(&mut worker).unwrap());
            let (strategy, library, variables) = &mut worker;
            let gradients = Box::new(library.gradients(&unit(), rank as usize, 0));
            let added = strategy.run(|replica| variables.add_gradients(replica, gradients));
            if self.dies == Dies::AfterPass {
                added.unwrap();
                met.wait();
                if rank == self.victim {
                    return None;
                }
                strategy.run(|replica| variables.step(replica)).unwrap_err();
                return Some(worker);
            }
            let model = &mut variables.model;
            let prepared = strategy.run(|replica| {
                model.start_last_reduce(replica)?;
                model.prepare_update(replica)
            });
            prepared.unwrap();
            met.wait();
            if rank == self.victim {
                return None;
            }
            if self.dies == Dies::InUpdate && rank == first {
                model.begin_update();
                model.update_unit(0).unwrap();
            }
            Some(worker)
        });
        trained.into_iter().flatten().collect()
    }

    /// A worker of this group, and how one that was there before has met the others then.
    fn old_or_new(
        self,
        group: Group,
        old: Option<Worker>,
    ) -> (Option<MultiWorkerMirroredStrategy>, Worker) {
        let strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        match old {
            Some((old, library, variables)) => (Some(old), (strategy, library, variables)),
            None => (None, self.worker(strategy)),
        }
    }

    /// The survivors, and as many newcomers, train to the end.
    fn ends(self, newcomers: usize) -> Vec<Vec<Vec<f32>>> {
        let left = self.survivors().into_iter().map(Some);
        let all: Vec<_> = left.chain((0..newcomers).map(|_| None)).collect();
        let groups = Group::local(u32::try_from(all.len()).unwrap()).unwrap();
        in_threads(groups.into_iter().zip(all), |(group, old)| {
            let (old, (mut strategy, library, mut variables)) = self.old_or_new(group, old);
            assert_eq!(variables.regroup(&mut strategy), Ok(Regrouped::Kept));
            drop(old);
            assert_eq!(variables.steps(), self.made(), "{self:?}");
            let mut worker = (strategy, library, variables);
            (self.made()..ALL).for_each(|_| step(&mut worker).unwrap());
            worker.0.leave().unwrap();
            worker.1.values()
        })
    }

    /// The same by a checkpoint.
    fn expected(self, left: u32) -> Vec<Vec<f32>> {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = ShardedCheckpoints::new(folder.path());
        each(self.workers, |strategy| {
            let mut worker = self.founder(strategy);
            (0..self.made()).for_each(|_| step(&mut worker).unwrap());
            let (strategy, _, variables) = &mut worker;
            let saved = strategy.run(|replica| {
                variables.save(replica, &checkpoints)?;
                variables.finish_save(replica)
            });
            saved.unwrap();
        });
        let mut ended = each(left, |strategy| {
            let mut worker = self.founder(strategy);
            let (strategy, _, variables) = &mut worker;
            let loaded = strategy.run(|replica| variables.load(replica, &checkpoints));
            assert_eq!(loaded.unwrap().into_first(), Some(self.made()));
            (self.made()..ALL).for_each(|_| step(&mut worker).unwrap());
            worker.1.values()
        });
        ended.swap_remove(0)
    }
}

fn step(worker: &mut Worker) -> Result<(), Error> {
    let (strategy, library, variables) = worker;
    let gradients = Box::new(library.gradients(&unit(), strategy.rank().index(), 0));
    let stepped = strategy.run(|replica| {
        variables.add_gradients(replica, gradients)?;
        variables.step(replica)
    });
    stepped.map(drop)
}

#[test]
fn lent_variables_go_on_to_the_bit_whichever_worker_is_lost() {
    for (workers, shard) in [2, 3].into_iter().flat_map(|n| KINDS.map(|kind| (n, kind))) {
        let sharding = Sharding::new(shard).with_max_norm(0.5);
        let sharding = sharding.with_neighbour_copies();
        let of = |dies, victim| Loss {
            sharding,
            workers,
            victim,
            dies,
        };
        for newcomers in [0, 2] {
            let left = workers - 1 + newcomers;
            let expected = [Dies::BeforeUpdate, Dies::InUpdate].map(|dies| {
                let loss = of(dies, 0);
                (loss.made(), loss.expected(left))
            });
            for dies in [Dies::AfterPass, Dies::BeforeUpdate, Dies::InUpdate] {
                for victim in 0..if newcomers == 0 { workers } else { 1 } {
                    let loss = of(dies, victim);
                    let expected = expected.iter().find(|(made, _)| *made == loss.made());
                    let expected = &expected.unwrap().1;
                    let ended = loss.ends(newcomers as usize);
                    assert!(ended.iter().all(|values| values == expected), "{loss:?}");
                }
            }
        }
    }
}

#[test]
fn state_that_two_neighbours_had_is_lost_and_variables_are_not() {
    let loss = Loss {
        sharding: Sharding::new(Shard::Optimizer),
        workers: 2,
        victim: 1,
        dies: Dies::AfterPass,
    };
    let (old, library, mut variables) = loss.survivors().remove(0);
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let trained = library.values();
    let lost = Regrouped::Lost { parts: vec![1] };
    assert_eq!(variables.regroup(&mut strategy), Ok(lost));
    drop(old);
    assert_eq!((variables.steps(), library.values()), (0, trained));
    let mut worker = (strategy, library, variables);
    let parts = vec![1];
    assert_eq!(
        step(&mut worker),
        Err(StateError::PartsLost { parts }.into())
    );
    let (strategy, _, variables) = &mut worker;
    strategy
        .run(|replica| variables.initialize(replica))
        .unwrap();
    step(&mut worker).unwrap();
}

#[test]
fn variables_that_are_made_as_in_a_new_job_get_the_values_of_the_others() {
    for shard in KINDS {
        let sharding = Sharding::new(shard).with_neighbour_copies();
        let loss = Loss {
            sharding,
            workers: 2,
            victim: 1,
            dies: Dies::BeforeUpdate,
        };
        let left = loss.survivors().into_iter().map(Some);
        let all = Group::local(2).unwrap().into_iter().zip(left.chain([None]));
        let ended = in_threads(all, |(group, old)| {
            let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
            let mut worker = match old {
                Some((_old, library, mut variables)) => {
                    assert_eq!(variables.regroup(&mut strategy), Ok(Regrouped::Kept));
                    (strategy, library, variables)
                }
                None => {
                    let library = Library::of(&unit(), 1);
                    let (lent, optimizer) = (Box::new(library.clone()), AdamW::new(0.01));
                    let made =
                        ShardedVariables::new(&mut strategy, sharding, unit(), lent, optimizer);
                    (strategy, library, made.unwrap())
                }
            };
            (loss.made()..ALL).for_each(|_| step(&mut worker).unwrap());
            worker.0.leave().unwrap();
            worker.1.values()
        });
        let expected = loss.expected(2);
        assert!(ended.iter().all(|values| *values == expected), "{shard:?}");
    }
}

#[test]
fn values_that_some_forget_come_from_the_others_and_are_lost_without_any() {
    let loss = Loss {
        sharding: Sharding::new(Shard::Optimizer).with_neighbour_copies(),
        workers: 3,
        victim: 0,
        dies: Dies::AfterPass,
    };
    let parts = Vec::new();
    for (forgetful, regrouped) in [(1, Regrouped::Kept), (3, Regrouped::Lost { parts })] {
        for found in each(3, |strategy| {
            let mut worker = loss.founder(strategy);
            step(&mut worker).unwrap();
            let (strategy, library, variables) = &mut worker;
            let trained = library.values();
            if strategy.rank().index() < forgetful {
                library.with(0, &mut |values| values.fill(7.0));
                variables.forget_values();
            }
            let regrouped = variables.regroup(strategy).unwrap();
            let is_there = library.values() == trained;
            let refused = step(&mut worker).err();
            if is_there {
                worker.0.leave().unwrap();
            }
            (regrouped, is_there, refused)
        }) {
            let is_there = regrouped == Regrouped::Kept;
            let refused = (!is_there).then(|| Error::from(StateError::NoValues));
            assert_eq!(found, (regrouped.clone(), is_there, refused));
        }
    }
}

/// Of two workers with copies, the second is lost when a newcomer has all that it misses, and the
/// newcomer's library goes back to what it had before.
#[test]
fn what_came_before_a_loss_is_forgotten_too() {
    let loss = Loss {
        sharding: Sharding::new(Shard::Optimizer).with_neighbour_copies(),
        workers: 2,
        victim: 1,
        dies: Dies::AfterPass,
    };
    let trained = each(2, |strategy| {
        let mut worker = loss.founder(strategy);
        step(&mut worker).unwrap();
        worker
    });
    let groups = Group::local(3).unwrap().into_iter();
    let all = groups.zip(trained.into_iter().map(Some).chain([None]));
    let left = in_threads(all, |(group, old)| {
        let (_old, (mut strategy, library, mut variables)) = loss.old_or_new(group, old);
        if strategy.rank() == Rank::new(1) {
            variables.model.takes_part(&mut strategy, usize::MAX);
            return None;
        }
        variables.regroup(&mut strategy).unwrap_err();
        Some((strategy, library, variables))
    });
    let mut left: Vec<Worker> = left.into_iter().flatten().collect();
    let trained = left[0].1.values();
    let (_, library, variables) = &mut left[1];
    assert_eq!(library.values()[0], trained[0], "it has come");
    library.with(0, &mut |values| values.fill(7.0));
    variables.forget_values();
    let groups = Group::local(2).unwrap().into_iter();
    for found in in_threads(groups.zip(left), |(group, worker)| {
        let (_old, (mut strategy, library, mut variables)) = loss.old_or_new(group, Some(worker));
        assert_eq!(variables.regroup(&mut strategy), Ok(Regrouped::Kept));
        strategy.leave().unwrap();
        library.values()
    }) {
        assert_eq!(found, trained);
    }
}
