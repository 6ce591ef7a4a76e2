//! `Follower`: a worker whose exchanges may be made without it. Pure.
//!
//! It offers a contribution when it has come to the step of an exchange. Where it comes too late,
//! it goes on from the step at which the others are, and offers what it has learnt by then for the
//! next exchange, anew after each inner step, without waiting for it. So also a worker that never
//! makes as many steps as the others has a part in all.

mod saved;

use std::collections::VecDeque;
use std::ops::Range;

use super::super::rounds::{Contribution, take_over};
use super::super::{LowCommunication, NotFinite};
use super::Late;
use super::common::Common;

#[derive(Debug)]
pub(super) struct Follower {
    settings: LowCommunication,
    late: Late,
    ranges: Vec<Range<usize>>,
    /// What this worker's next differences are from: what all agree on, as far as it has taken that
    /// over, or its own parameters as it has given them.
    base: Vec<f32>,
    /// What all agree on, as far as this worker has taken it over.
    pub(super) agreed: Vec<f32>,
    /// How far the schedule has come here.
    pub(super) step: u64,
    /// Inner steps that no contribution has, of each fragment.
    made: Vec<u64>,
    /// The first exchange that this worker neither waits for, nor has behind it.
    next: u64,
    offered: VecDeque<Offered>,
    early: Option<Early>,
    /// From an exchange that was made without it to one that it comes to by its own steps.
    is_late: bool,
    /// Exchanges that were made without this worker.
    pub(super) missed: u64,
    /// How often it went on from what all agree on, as a difference was not finite.
    pub(super) resets: u64,
}

/// An exchange whose step this worker has come to, and which it has not taken over.
#[derive(Debug)]
struct Offered {
    number: u64,
    fragment: usize,
    taken_over_after: u64,
    is_finite: bool,
}

/// What this worker has given the next exchange, or will have given if that begins before its next
/// inner step.
#[derive(Debug)]
struct Early {
    fragment: usize,
    /// Its parameters then, and the inner steps that they stand for.
    own: Vec<f32>,
    made: u64,
    is_finite: bool,
    has_begun: bool,
}

impl Follower {
    pub(super) fn new(common: &Common, late: Late) -> Self {
        let rounds = &common.rounds;
        Self {
            settings: rounds.settings,
            late,
            ranges: rounds.ranges.clone(),
            base: rounds.agreed.clone(),
            agreed: rounds.agreed.clone(),
            step: rounds.step,
            made: vec![0; rounds.ranges.len()],
            next: common.made(),
            offered: VecDeque::new(),
            early: None,
            is_late: false,
            missed: 0,
            resets: 0,
        }
    }

    /// While the next exchange, one of those that have begun, is under way without waiting for this
    /// worker, its schedule does not run past the one behind that: it would be ahead of the others.
    pub(super) fn made_inner_step(&mut self, begun: u64) {
        let behind = self.settings.exchange(self.next.saturating_add(1)).step;
        if self.next >= begun || self.step + 1 < behind {
            self.step += 1;
        }
        for made in &mut self.made {
            *made += 1;
        }
    }

    /// Makes an inner step after which this worker has nothing to give or take over, if it is one.
    pub(super) fn step_alone(&mut self, common: &Common, begun: u64) -> bool {
        let has_come = |step: u64| step <= self.step + 1;
        let is_alone = !self.is_late
            && self.next >= begun.max(common.made())
            && !has_come(self.settings.exchange(self.next).step)
            && !self
                .offered
                .front()
                .is_some_and(|one| has_come(one.taken_over_after));
        if is_alone {
            self.made_inner_step(begun);
        }
        is_alone
    }

    /// Goes to where the others are, who have begun so many exchanges.
    pub(super) fn catch_up(&mut self, common: &Common, begun: u64, own: &mut [f32]) {
        self.note_early_begun(begun);
        while self.next < common.made() {
            let made = self.settings.exchange(self.next);
            self.step = self.step.max(made.step);
            self.next += 1;
            match self.early.take() {
                Some(early) if early.is_finite => {
                    self.keep_distance(made.fragment, common, own);
                }
                Some(_) => self.begin_anew(made.fragment, common, own),
                None => {
                    self.missed += 1;
                    self.is_late = true;
                    self.go_on_without(made.fragment, common, own);
                }
            }
        }
    }

    /// What was given before the next exchange began, it has: further steps are for later ones.
    fn note_early_begun(&mut self, begun: u64) {
        if let Some(early) = &mut self.early
            && self.next < begun
            && !early.has_begun
        {
            early.has_begun = true;
            self.made[early.fragment] -= early.made;
            self.base[self.ranges[early.fragment].clone()].copy_from_slice(&early.own);
        }
    }

    fn go_on_without(&mut self, fragment: usize, common: &Common, own: &mut [f32]) {
        // What it waits for, it takes over as it is by then.
        if self.waits_for(fragment) {
            return;
        }
        match self.late {
            Late::Merge => self.keep_distance(fragment, common, own),
            Late::Drop => self.begin_anew(fragment, common, own),
        }
    }

    fn waits_for(&self, fragment: usize) -> bool {
        self.offered.iter().any(|one| one.fragment == fragment)
    }

    /// What it has come to since is added to what all agree on.
    fn keep_distance(&mut self, fragment: usize, common: &Common, own: &mut [f32]) {
        let range = self.ranges[fragment].clone();
        let agreed = &common.rounds.agreed[range.clone()];
        let places = own[range.clone()].iter_mut().zip(agreed);
        for ((own, agreed), base) in places.zip(&self.base[range.clone()]) {
            *own += agreed - base;
        }
        self.base[range.clone()].copy_from_slice(agreed);
        self.agreed[range].copy_from_slice(agreed);
    }

    fn begin_anew(&mut self, fragment: usize, common: &Common, own: &mut [f32]) {
        self.made[fragment] = 0;
        self.mix(fragment, 0.0, common, own);
    }

    fn mix(&mut self, fragment: usize, share: f32, common: &Common, own: &mut [f32]) {
        let range = self.ranges[fragment].clone();
        let agreed = &common.rounds.agreed[range.clone()];
        take_over(agreed, share, &mut own[range.clone()]);
        self.base[range.clone()].copy_from_slice(agreed);
        self.agreed[range].copy_from_slice(agreed);
    }

    /// What this worker gives the next exchange, if it has come to its step. So many have begun:
    /// where the next is one of them, it comes too late.
    pub(super) fn offer(&mut self, own: &mut [f32], begun: u64) -> Option<Contribution> {
        let next = self.settings.exchange(self.next);
        (next.step <= self.step && self.next >= begun).then_some(())?;
        let contribution = self.contribution(own);
        self.made[next.fragment] = 0;
        self.offered.push_back(Offered {
            number: self.next,
            fragment: next.fragment,
            taken_over_after: next.step.saturating_add(self.settings.delay.into()),
            is_finite: contribution.is_finite,
        });
        (self.early, self.is_late) = (None, false);
        self.next += 1;
        self.reset_if_excluded(&contribution, own);
        Some(contribution)
    }

    /// What a late worker gives the next exchange if that begins before its next inner step.
    pub(super) fn offer_early(&mut self, own: &mut [f32], begun: u64) -> Option<Contribution> {
        let next = self.settings.exchange(self.next);
        let has_some = self.made[next.fragment] > 0 && !self.waits_for(next.fragment);
        (self.is_late && self.next >= begun && has_some).then_some(())?;
        let contribution = self.contribution(own);
        let is_reset = self.reset_if_excluded(&contribution, own);
        self.early = Some(Early {
            fragment: next.fragment,
            own: own[self.ranges[next.fragment].clone()].to_vec(),
            made: self.made[next.fragment],
            is_finite: contribution.is_finite || is_reset,
            has_begun: false,
        });
        Some(contribution)
    }

    /// Goes on from what all agree on, as far as this worker has taken that over, where the
    /// training goes on without what it has to give. In all fragments, as a step would carry what
    /// is no number from one to the others.
    fn reset_if_excluded(&mut self, contribution: &Contribution, own: &mut [f32]) -> bool {
        let is_reset = !contribution.is_finite && self.settings.not_finite == NotFinite::Exclude;
        if is_reset {
            own.copy_from_slice(&self.agreed);
            self.base.copy_from_slice(&self.agreed);
            self.made.fill(0);
            self.resets += 1;
        }
        is_reset
    }

    fn contribution(&self, own: &[f32]) -> Contribution {
        let next = self.settings.exchange(self.next);
        let range = self.ranges[next.fragment].clone();
        let made = self.made[next.fragment];
        let weight = made as f32 / self.settings.steps_between(next.step) as f32;
        Contribution::new(&self.base[range.clone()], &own[range], weight)
    }

    /// How far this worker has come of which no exchange has anything.
    #[cfg(test)]
    pub(super) fn difference(&self, own: &[f32]) -> Vec<f32> {
        self.base
            .iter()
            .zip(own)
            .map(|(base, own)| base - own)
            .collect()
    }

    /// The exchange that is to be taken over at this step.
    pub(super) fn due(&self) -> Option<u64> {
        let first = self.offered.front()?;
        (first.taken_over_after <= self.step).then_some(first.number)
    }

    /// Takes over the first exchange that this worker waits for, which was made.
    pub(super) fn take_over(&mut self, common: &Common, own: &mut [f32]) {
        if let Some(first) = self.offered.pop_front() {
            let share = match first.is_finite {
                true => self.settings.local_share,
                false => 0.0,
            };
            self.mix(first.fragment, share, common, own);
        }
    }

    /// All are where this worker has what all agree on.
    pub(super) fn finish(&mut self, common: &Common) {
        self.early = None;
        self.agreed.copy_from_slice(&common.rounds.agreed);
        self.base.copy_from_slice(&common.rounds.agreed);
    }
}
