//! When an exchange begins, and late workers in virtual time against sums made by hand.

mod threads;

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroUsize};

use proptest::prelude::*;

use super::super::NotFinite;
use super::super::rounds::{Contribution, Seal};
use super::super::tests::bits;
use super::common::{Decision, Report};
use super::shared::Offer;
use super::state::{Cut, Own};
use super::*;

const HOUR: Duration = Duration::from_hours(1);

fn quorum(workers: usize, patience: Duration) -> Quorum {
    Quorum::new(NonZeroUsize::new(workers).unwrap(), patience)
}

#[test]
fn an_exchange_begins_with_all_or_with_a_quorum_that_has_waited() {
    use Report::{Begun, Finished, Ready, Waiting, Working};
    let second = Duration::from_secs;
    let decide = |workers, reports: &[Report]| quorum(workers, second(10)).decide(reports);
    let (short, long) = (Waiting(second(9)), Waiting(second(10)));
    for (workers, reports, expected) in [
        (1, vec![Working, Working], Decision::Wait),
        (1, vec![short, Working], Decision::Wait),
        (1, vec![long, Working], Decision::Exchange),
        (2, vec![long, Working], Decision::Wait),
        (2, vec![long, short, Working], Decision::Wait),
        (2, vec![long, long, Working], Decision::Exchange),
        (3, vec![short, short, short], Decision::Exchange),
        // Those who have finished are not waited for.
        (3, vec![Finished, short, short], Decision::Exchange),
        (3, vec![Finished, long, Working], Decision::Wait),
        (3, vec![Finished, Finished, Working], Decision::Wait),
        (2, vec![Finished, long, Working], Decision::Wait),
        (1, vec![Finished, long, Working], Decision::Exchange),
        (3, vec![Finished, Finished, Finished], Decision::End),
        // Those who were late have something to give, and do not wait.
        (2, vec![long, Ready, Working], Decision::Exchange),
        (2, vec![short, Ready, Working], Decision::Wait),
        (2, vec![short, Ready], Decision::Exchange),
        (1, vec![Ready, Ready], Decision::Wait),
        (1, vec![Finished, Ready], Decision::Wait),
        // What a loss has interrupted is made, whoever is left.
        (3, vec![Begun, Working, Working], Decision::Exchange),
        (2, vec![Begun, Finished], Decision::Exchange),
    ] {
        assert_eq!(
            decide(workers, &reports),
            expected,
            "{workers} of {reports:?}"
        );
    }
}

#[test]
fn in_every_small_world_nobody_is_left_behind_without_a_quorum_and_an_end_is_everybodys() {
    let kinds = [
        Report::Working,
        Report::Finished,
        Report::Ready,
        Report::Waiting(Duration::ZERO),
        Report::Waiting(HOUR),
    ];
    for world in 1..=4_u32 {
        for (code, workers) in
            (0..5_usize.pow(world)).flat_map(|code| (1..=world).map(move |one| (code, one)))
        {
            let kind = |rank| kinds[code / 5_usize.pow(rank) % 5];
            let reports: Vec<Report> = (0..world).map(kind).collect();
            let is = |kind: Report| reports.iter().filter(|one| **one == kind).count();
            let [working, finished, ready, just_here, patient] = kinds.map(is);
            let workers = workers as usize;
            match quorum(workers, HOUR).decide(&reports) {
                Decision::End => assert_eq!(finished, reports.len()),
                Decision::Exchange => {
                    assert!(just_here + patient > 0, "nobody waits of {reports:?}");
                    let least = workers.min(reports.len() - finished);
                    let is_left_behind = working > 0;
                    assert!(!is_left_behind || patient + ready >= least, "{reports:?}");
                    assert!(!is_left_behind || patient > 0, "{reports:?}");
                }
                Decision::Wait => {
                    assert!(finished < reports.len());
                    let all_came = working == 0 && just_here + patient > 0;
                    assert!(!all_came && patient < workers, "{reports:?}");
                    // Whoever waits does so for somebody, whose training may hang.
                    let waits = finished + just_here + patient > 0;
                    let is_waited_for = |one: &Report| one.is_waited_for(&reports);
                    assert_eq!(waits, reports.iter().any(is_waited_for), "{reports:?}");
                }
            }
        }
    }
}

#[test]
fn only_those_are_waited_for_without_whom_others_do_not_go_on() {
    use Report::{Begun, Finished, Ready, Waiting, Working};
    let waiting = Waiting(Duration::ZERO);
    for (report, others, expected) in [
        (Working, [waiting, Ready], true),
        (Working, [Finished, Working], true),
        (Working, [Working, Ready], false),
        (Ready, [Finished, Working], true),
        // Not for what it gives, but for the one that works.
        (Ready, [waiting, Working], false),
        (waiting, [Finished, Working], false),
        (Finished, [waiting, Working], false),
        (Begun, [waiting, Finished], false),
    ] {
        let reports = [report, others[0], others[1]];
        assert_eq!(report.is_waited_for(&reports), expected, "{reports:?}");
    }
}

#[test]
fn a_sum_that_is_too_large_is_refused_and_its_exchange_is_not_made() {
    let settings = LowCommunication::new(NonZeroU32::MIN);
    let rounds = Rounds::new(settings, &[2], &[1.0; 2]).unwrap();
    let mut common = Common { rounds };
    let seal = Seal {
        weight: 2.0,
        ..Seal::default()
    };
    let refused = common.take_in(&[0.0, f32::INFINITY], seal);
    assert_eq!(refused, Err(LowCommunicationError::SumNotFinite));
    assert_eq!(common.made(), 0);
    assert_eq!(common.rounds.agreed, [1.0; 2]);
}

#[test]
fn words_and_reports_are_inverse() {
    let waits = [0, 1, 1_000].map(|millis| Report::Waiting(Duration::from_millis(millis)));
    let others = [
        Report::Working,
        Report::Finished,
        Report::Ready,
        Report::Begun,
    ];
    for report in others.into_iter().chain(waits) {
        assert_eq!(Report::read(report.word()), report);
    }
    let longest = Report::read(Report::Waiting(Duration::MAX).word());
    assert!(matches!(longest, Report::Waiting(time) if time > HOUR));
}

/// One worker in virtual time: it learns by a number of its own in each step.
struct Worker {
    follower: Follower,
    own: Vec<f32>,
    /// Of each offer, whether it is one that another may stand for.
    offers: VecDeque<(Contribution, bool)>,
    /// What it has learnt, and what exchanges have had of that, of each element.
    learnt: Vec<f32>,
    given: Vec<f32>,
}

/// Two tensors in two fragments, exchanged after 2 and 4 steps of each round.
const PARTS: [std::ops::Range<usize>; 2] = [0..3, 3..5];

/// What a value of a contribution stands for; nothing in one that no inner step is behind.
fn learnt_of(value: f32, contribution: &Contribution) -> f32 {
    match contribution.weight > 0.0 {
        true => value / contribution.weight,
        false => value,
    }
}

struct World {
    common: Common,
    workers: Vec<Worker>,
    /// Exchanges that have begun; the last one's contributions, while it is under way.
    begun: u64,
    under_way: Option<Vec<Contribution>>,
    /// What all agree on, as worked out here.
    agreed: Vec<f32>,
}

impl World {
    fn new(workers: usize, late: Late) -> Self {
        let settings = LowCommunication::new(NonZeroU32::new(4).unwrap())
            .with_fragments(NonZeroUsize::new(2).unwrap())
            .with_outer(1.0, 0.0)
            .with_not_finite(NotFinite::Exclude);
        let rounds = Rounds::new(settings, &[2, 3], &[0.0; 5]).unwrap();
        let common = Common { rounds };
        let worker = |_| Worker {
            follower: Follower::new(&common, late),
            own: vec![0.0; 5],
            offers: VecDeque::new(),
            learnt: vec![0.0; 5],
            given: vec![0.0; 5],
        };
        let workers = (0..workers).map(worker).collect();
        Self {
            workers,
            common,
            begun: 0,
            under_way: None,
            agreed: vec![0.0; 5],
        }
    }

    /// A worker makes an inner step, unless it waits for an exchange.
    fn step(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        if worker.follower.due().is_none() {
            for (place, own) in worker.own.iter_mut().enumerate() {
                let learns = (at + 1) as f32 + place as f32 / 8.0;
                *own += learns;
                worker.learnt[place] += learns;
            }
            // Whether a step has nothing else to it is known before it is made.
            if worker.follower.step_alone(&self.common, self.begun) {
                assert!(worker.follower.due().is_none());
                assert!(worker.follower.offer(&mut worker.own, self.begun).is_none());
                return;
            }
            worker.follower.made_inner_step(self.begun);
        }
        loop {
            let Worker {
                follower,
                own,
                offers,
                ..
            } = &mut self.workers[at];
            follower.catch_up(&self.common, self.begun, own);
            if let Some(contribution) = follower.offer(own, self.begun) {
                offers.retain(|(_, is_early)| !is_early);
                offers.push_back((contribution, false));
                continue;
            }
            match follower.due() {
                Some(number) if number < self.common.made() => {
                    follower.take_over(&self.common, own);
                }
                Some(_) => return,
                None => break,
            }
        }
        let Worker {
            follower,
            own,
            offers,
            ..
        } = &mut self.workers[at];
        if let Some(contribution) = follower.offer_early(own, self.begun) {
            offers.retain(|(_, is_early)| !is_early);
            offers.push_back((contribution, true));
        }
    }

    /// All are started again from what they have, unless an exchange is under way, which a
    /// checkpoint never is.
    fn restart(&mut self) {
        if self.under_way.is_some() {
            return;
        }
        let rounds = &self.common.rounds;
        for worker in &mut self.workers {
            let since = |is_early: bool| (!is_early).then(Instant::now);
            let offers = worker
                .offers
                .drain(..)
                .map(|(contribution, is_early)| Offer {
                    contribution,
                    since: since(is_early),
                });
            let cut = Cut {
                exchanges: rounds.sealed,
                rank: Rank::CHIEF,
                common: rounds.package(),
                residual: rounds.residuals.concat(),
                offers: offers.collect(),
            };
            let state = cut.with_own(&worker.follower, &worker.own);
            let own = Own::read(&state.own, rounds, Late::Merge).unwrap();
            (worker.follower, worker.own) = (own.follower, own.parameters);
            let offers = own.offers.into_iter();
            let offers = offers.map(|one| (one.contribution, one.since.is_none()));
            worker.offers = offers.collect();
        }
    }

    /// An exchange begins with what is offered, or one that has begun is made.
    fn exchange(&mut self) {
        let fragment = self.common.fragment();
        let range = PARTS[fragment].clone();
        let Some(all) = self.under_way.take() else {
            let length = range.len();
            let mut all = Vec::new();
            for worker in &mut self.workers {
                let own = worker.offers.pop_front().map(|(own, _)| own);
                if let Some(own) = &own {
                    for (given, value) in worker.given[range.clone()].iter_mut().zip(&own.values) {
                        *given += learnt_of(*value, own);
                    }
                }
                all.push(own.unwrap_or_else(|| Contribution::none(length)));
            }
            self.begun += 1;
            self.under_way = Some(all);
            return;
        };
        let weight: f32 = all.iter().map(|one| one.weight).sum();
        let sum_at = |at: usize| all.iter().map(|one| one.values[at]).sum::<f32>();
        let sum: Vec<f32> = (0..range.len()).map(sum_at).collect();
        if weight > 0.0 {
            for (agreed, sum) in self.agreed[range].iter_mut().zip(&sum) {
                *agreed -= sum / weight;
            }
        }
        let seal = Seal {
            weight,
            ..Seal::default()
        };
        self.common.take_in(&sum, seal).unwrap();
    }
}

#[test]
fn a_worker_that_never_makes_the_steps_of_a_round_has_a_part_in_every_exchange_but_the_first() {
    let mut world = World::new(2, Late::Merge);
    for number in 1..=10 {
        // One takes over, makes two steps, and waits; the other makes one.
        (0..3).for_each(|_| world.step(0));
        world.step(1);
        (0..2).for_each(|_| world.exchange());
        assert_eq!(world.common.made(), number);
    }
    let slow = &world.workers[1];
    assert_eq!(slow.follower.missed, 1);
    assert!(
        slow.given.iter().all(|given| *given <= -2.0),
        "{:?}",
        slow.given
    );
}

#[test]
fn a_late_worker_without_numbers_begins_anew_and_gives_what_it_learns_from_there() {
    let mut world = World::new(2, Late::Merge);
    (0..2).for_each(|_| world.step(0));
    (0..2).for_each(|_| world.exchange());
    // In the fragment behind that which it is late for.
    world.workers[1].own[4] = f32::NAN;
    world.step(1);
    let worker = &world.workers[1];
    let (early, _) = worker.offers.front().unwrap();
    assert!(!early.is_finite);
    assert_eq!((worker.follower.missed, worker.follower.resets), (1, 1));
    assert_eq!(worker.own, world.common.rounds.agreed);
    // It makes a step while that is under way, and one behind it.
    world.exchange();
    world.step(1);
    world.exchange();
    world.step(1);
    let worker = &world.workers[1];
    let expected: Vec<f32> = (0..5).map(|at| -2.0 * (2.0 + at as f32 / 8.0)).collect();
    let offered = worker.follower.difference(&worker.own);
    assert_eq!((offered, worker.follower.resets), (expected, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn however_late_a_worker_is_each_of_its_inner_steps_counts_once_after_restarts_too(
        workers in 1_usize..4,
        events in prop::collection::vec((0_u8..5, 0_usize..4), 0..200),
    ) {
        let mut world = World::new(workers, Late::Merge);
        for (kind, which) in events {
            match kind {
                0 => world.exchange(),
                1 => world.restart(),
                _ => world.step(which % workers),
            }
        }
        // All that was offered goes out, and all take it over.
        for turn in 0.. {
            if turn >= 8 && world.under_way.is_none() {
                break;
            }
            world.exchange();
        }
        for at in 0..workers {
            world.step(at);
            let Worker { follower, own, learnt, given, offers } = &world.workers[at];
            prop_assert!(offers.len() <= 1);
            // What was given early stands for what is still to come.
            let last = offers.front().filter(|(_, is_early)| !is_early);
            let offered = last.map(|(one, _)| (one, &PARTS[world.common.fragment()]));
            for place in 0..5 {
                // Exchanged, offered for the next one, or still to come.
                let mut has_given = given[place];
                if let Some((one, range)) = offered && range.contains(&place) {
                    has_given += learnt_of(one.values[place - range.start], one);
                } else {
                    has_given += follower.difference(own)[place];
                }
                let all = -learnt[place];
                let error = (has_given - all).abs();
                prop_assert!(error <= 1e-4 * all.abs() + 1e-3, "{has_given} {all}");
            }
        }
        prop_assert_eq!(bits(&world.common.rounds.agreed), bits(&world.agreed));
    }

    #[test]
    fn no_bytes_make_the_reader_of_a_workers_own_state_panic(
        words in prop::collection::vec(0_u64..9, 0..40), bytes in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let rounds = World::new(1, Late::Merge).common.rounds;
        let mut read: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        read.extend(&bytes);
        prop_assert!(Own::read(&read, &rounds, Late::Merge).is_err());
        prop_assert!(Own::read(&bytes, &rounds, Late::Merge).is_err());
    }

    #[test]
    fn a_worker_whose_late_steps_are_dropped_begins_from_what_all_agree_on(
        late_by in 1_u64..6,
    ) {
        let mut world = World::new(2, Late::Drop);
        world.step(1);
        for _ in 0..2 * late_by {
            world.exchange();
        }
        let learns = 2.0;
        world.step(1);
        let worker = &world.workers[1];
        prop_assert_eq!(worker.follower.missed, late_by);
        prop_assert_eq!(worker.follower.step, 2 * late_by);
        // Nobody had anything to give, and its two steps are gone.
        let touched = late_by.min(2);
        let kept = worker.own.iter().filter(|own| **own >= 2.0 * learns).count();
        prop_assert_eq!(kept, if touched == 2 { 0 } else { 2 });
    }
}
