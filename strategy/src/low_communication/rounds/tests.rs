//! Workers that die, come in and go on, in virtual time, against a naive replay by one process that
//! knows only when who was there.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};

use proptest::prelude::*;

use super::super::standing::{self, Progress, Standing};
use super::*;

const LENGTHS: [usize; 3] = [2, 1, 3];
const ELEMENTS: usize = 6;
const LAST: u64 = 24;

fn settings() -> LowCommunication {
    LowCommunication::new(NonZeroU32::new(6).unwrap())
        .with_fragments(NonZeroUsize::new(3).unwrap())
        .with_delay(3)
        .with_local_share(0.5)
}

fn beginning() -> Vec<f32> {
    (0..ELEMENTS).map(|at| (at as f32 * 0.7).sin()).collect()
}

fn inner_step(own: &mut [f32], worker: usize, step: u64) {
    for (at, own) in own.iter_mut().enumerate() {
        let goal = ((at + worker * 31) as f32 + step as f32 * 0.3).cos();
        *own -= 0.1 * (*own - goal);
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[derive(Clone)]
struct Worker {
    name: usize,
    rounds: Rounds,
    own: Vec<f32>,
    joined_at: u64,
}

/// Workers, and a network that sums contributions up and may be cut off by a death at any moment.
struct World {
    workers: Vec<Worker>,
    names: usize,
    /// By exchange, counted from 1: whose contributions it has.
    contributors: BTreeMap<u64, Vec<usize>>,
    seals: BTreeMap<u64, Seal>,
    /// When each came in, and the last step that it made.
    lives: BTreeMap<usize, (u64, u64)>,
    /// Whether somebody waits to be let in.
    waits: bool,
}

impl World {
    fn new(workers: usize) -> Self {
        let worker = |name| Worker {
            name,
            rounds: Rounds::new(settings(), &LENGTHS, &beginning()).unwrap(),
            own: beginning(),
            joined_at: 0,
        };
        Self {
            workers: (0..workers).map(worker).collect(),
            names: workers,
            contributors: BTreeMap::new(),
            seals: BTreeMap::new(),
            lives: (0..workers).map(|name| (name, (0, 0))).collect(),
            waits: false,
        }
    }

    /// The exchange that all have begun and not all have sealed, if there is one.
    fn is_begun_by_all(&mut self) -> bool {
        let sealed = self.workers.iter().map(|one| one.rounds.sealed).min();
        self.workers
            .iter_mut()
            .all(|one| Some(one.rounds.sealed) > sealed || one.rounds.unsealed().is_some())
    }

    /// One worker's part of the network's work: it gets the sum, or learns that all have it.
    fn deliver(&mut self, at: usize) {
        if !self.is_begun_by_all() {
            return;
        }
        let lowest = self
            .workers
            .iter()
            .map(|one| one.rounds.sealed)
            .min()
            .unwrap();
        if self.workers[at].rounds.sealed > lowest {
            return;
        }
        // Those who have sealed it have no contribution left, and so the sum is known to all.
        let all_summed = self
            .workers
            .iter_mut()
            .all(|one| one.rounds.sealed > lowest || one.rounds.unsealed().unwrap().sum.is_some());
        if all_summed {
            let names = self.contributors[&(lowest + 1)].iter();
            let weights = names.map(|name| weight(lowest + 1, self.lives[name].0));
            // The same on all, whatever happens in between.
            let seal = *self.seals.entry(lowest + 1).or_insert_with(|| Seal {
                weight: weights.sum(),
                not_finite: None,
                has_newcomers: self.waits,
                is_slow: false,
            });
            assert!(self.workers[at].rounds.seal(seal));
            return;
        }
        let parts: Vec<Contribution> = self
            .workers
            .iter_mut()
            .map(|one| one.rounds.unsealed().unwrap().contribution.clone().unwrap())
            .collect();
        let length = parts[0].values.len();
        let sum_at = |at: usize| parts.iter().map(|part| part.values[at]).sum::<f32>();
        let values = (0..length).map(sum_at).collect();
        let left_out = Vec::new();
        self.workers[at].rounds.unsealed().unwrap().sum = Some(Sum { values, left_out });
        let names = self.workers.iter().map(|one| one.name).collect();
        self.contributors.insert(lowest + 1, names);
    }

    /// One worker computes, as far as it can without waiting.
    fn compute(&mut self, at: usize) -> bool {
        let worker = &mut self.workers[at];
        if worker.rounds.is_due() {
            let Some(seal) = worker.rounds.apply(&mut worker.own).unwrap() else {
                return false;
            };
            return seal.has_newcomers;
        }
        if worker.rounds.step < LAST {
            inner_step(&mut worker.own, worker.name, worker.rounds.step + 1);
            worker.rounds.made_inner_step();
            worker.rounds.advance(&worker.own);
            self.lives.get_mut(&worker.name).unwrap().1 = worker.rounds.step;
        }
        false
    }

    /// A worker dies, and the others bring themselves together.
    fn kill(&mut self, at: usize) {
        self.workers.remove(at);
        let standings: Vec<Standing> = self.workers.iter().map(standing).collect();
        for (rank, worker) in (0_u32..).map(Rank::new).zip(&mut self.workers) {
            if let Some(seal) = standing::missed(&standings, rank).unwrap() {
                assert!(worker.rounds.seal(seal), "it has no sum");
            }
            worker.rounds.forget_sums();
            worker.rounds.forget_requests();
        }
        let all_sealed: Vec<u64> = self.workers.iter().map(|one| one.rounds.sealed).collect();
        assert!(all_sealed.windows(2).all(|two| two[0] == two[1]));
        // Whoever alone had sealed another one is dead.
        self.seals.retain(|number, _| *number <= all_sealed[0]);
    }

    /// A process comes in while all are at the same step and what is under way has come.
    fn admit(&mut self) {
        let steps: Vec<u64> = self.workers.iter().map(|one| one.rounds.step).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
        while self
            .workers
            .iter_mut()
            .any(|one| one.rounds.unsealed().is_some())
        {
            (0..self.workers.len()).for_each(|at| self.deliver(at));
        }
        self.workers
            .iter_mut()
            .for_each(|one| one.rounds.forget_requests());
        let packages: Vec<Vec<u8>> = self
            .workers
            .iter()
            .map(|one| one.rounds.package())
            .collect();
        assert!(packages.iter().all(|one| *one == packages[0]));
        let mut rounds = Rounds::new(settings(), &LENGTHS, &[9.0; ELEMENTS]).unwrap();
        rounds.take_over(&packages[0]).unwrap();
        let (name, step) = (self.names, rounds.step);
        self.workers.push(Worker {
            name,
            own: rounds.agreed.clone(),
            rounds,
            joined_at: step,
        });
        self.lives.insert(name, (step, step));
        (self.names, self.waits) = (name + 1, false);
    }
}

fn standing(worker: &Worker) -> Standing {
    Standing {
        progress: Progress::Running,
        settings: 0,
        tensors: 0,
        step: worker.rounds.step,
        state: 0,
        sealed: worker.rounds.sealed,
        seal: worker.rounds.last_seal,
        under_way: worker.rounds.exchanges.len() as u64,
    }
}

/// By hand: fragments begin after steps 2, 4 and 6 of each round, and are applied 3 steps later.
const RANGES: [Range<usize>; 3] = [0..2, 2..4, 4..6];

fn began_after(number: u64) -> u64 {
    2 * number
}

fn weight(number: u64, joined_at: u64) -> f32 {
    let began = began_after(number);
    let whole = began.min(6);
    whole.min(began - joined_at) as f32 / whole as f32
}

/// What each worker had and all agreed on after all steps.
fn replayed(world: &World) -> (BTreeMap<usize, Vec<f32>>, Vec<f32>) {
    let (mut agreed, mut velocity) = (beginning(), vec![0.0_f32; ELEMENTS]);
    let mut own: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
    let mut gradients: Vec<Vec<f32>> = Vec::new();
    for step in 0..=LAST {
        for (name, own) in &mut own {
            inner_step(own, *name, step);
        }
        if step >= 2 && step % 2 == 0 {
            let number = step / 2;
            let range = RANGES[((number - 1) % 3) as usize].clone();
            let gradient = range.map(|at| {
                let each = world.contributors[&number].iter();
                let parts = each
                    .clone()
                    .map(|name| weight(number, world.lives[name].0) * (agreed[at] - own[name][at]));
                let sum: f32 = parts.sum();
                let weights: f32 = each.map(|name| weight(number, world.lives[name].0)).sum();
                sum / weights
            });
            gradients.push(gradient.collect());
        }
        if step >= 5 && step % 2 == 1 {
            let number = (step - 3) / 2;
            let range = RANGES[((number - 1) % 3) as usize].clone();
            for (at, gradient) in range.zip(&gradients[number as usize - 1]) {
                velocity[at] = 0.9 * velocity[at] + gradient;
                agreed[at] -= 0.7 * (gradient + 0.9 * velocity[at]);
                for own in own.values_mut() {
                    own[at] = 0.5 * own[at] + 0.5 * agreed[at];
                }
            }
        }
        for (name, (joined, _)) in &world.lives {
            if *joined == step {
                own.insert(*name, agreed.clone());
            }
        }
    }
    (own, agreed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whoever_dies_or_comes_in_at_any_moment_the_others_lose_nothing_and_agree(
        workers in 2_usize..5,
        events in prop::collection::vec((0_u8..40, any::<usize>()), 0..600),
    ) {
        let mut world = World::new(workers);
        let mut events = events.into_iter().chain(
            (0..40_000).map(|turn| (4 + u8::from(turn / 7 % 2 == 0), turn)),
        );
        while world.workers.iter().any(|one| one.rounds.step < LAST || one.rounds.is_due())
            || !world.workers.iter().all(|one| one.rounds.sealed == LAST / 2)
        {
            let (event, which) = events.next().expect("it comes to an end");
            let at = which % world.workers.len();
            match event {
                0 if world.workers.len() > 2 => world.kill(at),
                1 => world.waits = world.workers.len() < 5,
                event if event % 2 == 0 => world.deliver(at),
                _ => if world.compute(at) {
                    // All apply the same exchange at the same step, and then let newcomers in.
                    let step = world.workers[at].rounds.step;
                    let applied = world.workers[at].rounds.exchanges.len();
                    for other in 0..world.workers.len() {
                        let is_behind = |worker: &Worker| worker.rounds.step < step
                            || worker.rounds.exchanges.len() > applied;
                        while is_behind(&world.workers[other]) {
                            world.compute(other);
                            (0..world.workers.len()).for_each(|at| world.deliver(at));
                        }
                    }
                    world.admit();
                },
            }
        }
        let (own, _) = replayed(&world);
        for worker in &world.workers {
            prop_assert_eq!(bits(&worker.rounds.agreed), bits(&world.workers[0].rounds.agreed));
            prop_assert_eq!(bits(&worker.own), bits(&own[&worker.name]), "worker {}", worker.name);
            // None of its steps was lost.
            for (number, names) in &world.contributors {
                let is_in = names.contains(&worker.name);
                prop_assert_eq!(is_in, began_after(*number) > worker.joined_at, "exchange {}", number);
            }
        }
    }
}

#[test]
fn a_sum_that_is_too_large_is_refused_and_what_all_agree_on_stays() {
    let large = Contribution::new(&[0.0; ELEMENTS], &[-f32::MAX; ELEMENTS], 1.0);
    assert!(large.is_finite);
    let values: Vec<f32> = large.values.iter().map(|one| one + one).collect();
    for not_finite in [NotFinite::Stop, NotFinite::Exclude] {
        let settings = LowCommunication::new(NonZeroU32::MIN).with_not_finite(not_finite);
        let mut rounds = Rounds::new(settings, &LENGTHS, &beginning()).unwrap();
        let mut own = beginning();
        rounds.made_inner_step();
        assert_eq!(rounds.advance(&own), 1);
        rounds.unsealed().unwrap().sum = Some(Sum {
            values: values.clone(),
            left_out: Vec::new(),
        });
        assert!(rounds.seal(Seal {
            weight: 2.0,
            ..Seal::default()
        }));
        let refused = rounds.apply(&mut own);
        assert_eq!(refused, Err(LowCommunicationError::SumNotFinite));
        assert_eq!(bits(&rounds.agreed), bits(&beginning()));
        assert_eq!(rounds.velocity, [0.0; ELEMENTS]);
    }
}

#[test]
fn a_package_that_is_cut_off_or_of_another_model_is_refused() {
    let mut rounds = Rounds::new(settings(), &LENGTHS, &beginning()).unwrap();
    for _ in 0..4 {
        rounds.made_inner_step();
        rounds.advance(&[0.5; ELEMENTS]);
    }
    for _ in 0..2 {
        let (values, left_out) = (vec![1.0; 2], Vec::new());
        rounds.unsealed().unwrap().sum = Some(Sum { values, left_out });
        assert!(rounds.seal(Seal {
            weight: 1.0,
            ..Seal::default()
        }));
    }
    let package = rounds.package();
    let mut other = Rounds::new(settings(), &LENGTHS, &[7.0; ELEMENTS]).unwrap();
    for length in 0..package.len() {
        let error = other.take_over(&package[..length]).unwrap_err();
        assert_eq!(error, LowCommunicationError::Package { bytes: length });
    }
    let untouched = Rounds::new(settings(), &LENGTHS, &[7.0; ELEMENTS]).unwrap();
    assert_eq!(other, untouched);
    other.take_over(&package).unwrap();
    assert_eq!(other.package(), package);
    let mut model = Rounds::new(settings(), &[2, 1, 4], &[0.0; 7]).unwrap();
    assert!(model.take_over(&package).is_err());
}
