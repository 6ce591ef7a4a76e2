//! Sees everything, and notices what must never happen.

use std::collections::BTreeMap;

use super::Problem;
use super::net::{MILLISECOND, SECOND, Time};
use super::program::{Plan, Step, result};
use crate::agreement::Seat;
use crate::wire::{Decision, Newcomer};

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// The members of each epoch, in the order of their ranks.
    epochs: BTreeMap<u64, Vec<Newcomer>>,
    decisions: BTreeMap<u64, Decision>,
    /// What each operation of each epoch is, and what it gives every rank.
    operations: BTreeMap<(u64, u64), (Step, Vec<i64>)>,
    pub(super) problem: Option<Problem>,
    /// What happened, if it is to be told.
    pub(super) story: Option<Vec<String>>,
    /// Whether all that a process has reached stays within its reach.
    pub(super) reach_is_lasting: bool,
    pub(super) works: u64,
    /// Processes that came to the end of the program.
    pub(super) finished: u64,
}

impl Oracle {
    pub(super) fn founded(&mut self, members: Vec<Newcomer>) {
        self.epochs.insert(1, members);
    }

    /// Epochs so far.
    pub(super) fn epochs(&self) -> u64 {
        self.epochs.len() as u64
    }

    pub(super) fn note(&mut self, now: Time, of: Newcomer, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let (seconds, millis) = (now / SECOND, now % SECOND / MILLISECOND);
            let Newcomer { seat, incarnation } = of;
            story.push(format!(
                "{seconds:3}.{millis:03} s  seat {seat}.{incarnation} {}",
                what()
            ));
        }
    }

    /// Validity, and agreement on every operation.
    pub(super) fn completed(
        &mut self,
        (by, operation): (Newcomer, (u64, u64)),
        step: Step,
        plan: &Plan,
        buffer: &[i64],
    ) {
        let (epoch, sequence) = operation;
        self.works += u64::from(matches!(step, Step::Work(_)));
        let members = self.epochs.get(&epoch).map_or(&[][..], Vec::as_slice);
        let first = || match step {
            Step::Work(number) => (step, result(plan, members, number)),
            _ => (step, buffer.to_vec()),
        };
        let (expected_step, expected) = self.operations.entry(operation).or_insert_with(first);
        if (*expected_step, expected.as_slice()) != (step, buffer) {
            let seat = by.seat;
            self.found(Problem::WrongValue {
                epoch,
                sequence,
                seat,
            });
        }
    }

    /// Agreement on who follows; gives the members, in the order of their ranks.
    pub(super) fn decided(&mut self, by: Newcomer, decision: &Decision) -> Vec<Newcomer> {
        let epoch = decision.epoch;
        let first = self
            .decisions
            .entry(epoch)
            .or_insert_with(|| decision.clone());
        if first != decision {
            let seat = by.seat;
            self.found(Problem::TwoDecisions { epoch, seat });
        }
        let voters = self.epochs.get(&(epoch - 1)).map_or(&[][..], Vec::as_slice);
        let voted = |survivor: &Newcomer| voters.contains(survivor);
        if !decision.survivors.iter().all(voted) {
            let seat = by.seat;
            self.found(Problem::TwoDecisions { epoch, seat });
        }
        let members: Vec<_> = decision.members().collect();
        self.epochs.entry(epoch).or_insert_with(|| members.clone());
        members
    }

    /// No survivor is held to have completed what it has not.
    pub(super) fn outcome(&mut self, (by, epoch): (Newcomer, u64), behind: Behind) {
        if behind == Behind::TheDecision {
            let seat = by.seat;
            self.found(Problem::NotCompleted { epoch, seat });
        }
    }

    /// Nobody gives up while a majority could be reached.
    pub(super) fn gave_up(&mut self, epoch: u64, present: &[Seat]) {
        let voters = self.epochs.get(&epoch).map_or(0, Vec::len);
        if self.reach_is_lasting && 2 * present.len() > voters {
            self.found(Problem::MajorityStopped { epoch });
        }
    }

    pub(super) fn garbled(&mut self, seat: Seat) {
        self.found(Problem::Garbled { seat });
    }

    pub(super) fn found(&mut self, problem: Problem) {
        self.problem.get_or_insert(problem);
    }
}

/// How a survivor stands to what the decision says of all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Behind {
    TheDecision,
    Nobody,
}
