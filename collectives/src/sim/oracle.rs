//! Sees everything, and notices what must never happen.
//!
//! What must come out is computed from what went in, whoever is the first to have a result.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::Problem;
use super::faults::Faults;
use super::net::{MILLISECOND, SECOND, Time};
use super::program::{Job, Plan, Step, after_census, result, step_at};
use crate::OperationError;
use crate::agreement::{MemberId, TwoMemberPolicy};
use crate::schedule::Collective;
use crate::wire::{Decision, MemberProcess};

#[derive(Debug)]
pub(super) struct Oracle {
    job: Job,
    epochs: BTreeMap<u64, Record>,
    /// Member ids that nothing ever happens to.
    innocent: BTreeSet<MemberId>,
    /// Nothing goes wrong.
    is_calm: bool,
    pub(super) problem: Option<Problem>,
    /// What happened, if it is to be told.
    pub(super) story: Option<Vec<String>>,
    pub(super) works: u64,
    /// Processes that came to the end of the program.
    pub(super) finished: u64,
}

/// What is known of an epoch.
#[derive(Debug, Default)]
struct Record {
    /// In the order of their ranks.
    members: Vec<MemberProcess>,
    /// What began it; the first began with nothing.
    decision: Option<Decision>,
    /// Works that the program has behind it when the epoch begins.
    start: u64,
    /// Members that have met all the others.
    met: BTreeSet<MemberProcess>,
    /// Processes that have ended it for themselves, and how many operations they had completed.
    left: BTreeMap<MemberProcess, u64>,
    /// What each member brought to each operation.
    begun: BTreeMap<u64, BTreeMap<MemberProcess, Vec<i64>>>,
    /// The operation that settles whom the epoch lets in; after it all leave the epoch.
    admit: Option<(u64, Step)>,
}

impl Record {
    /// Which operation has this number.
    fn step_at(&self, sequence: u64, works: u64) -> Step {
        match self.admit {
            Some((number, step)) if number == sequence => step,
            Some((number, _)) if number < sequence => Step::Leave,
            _ => step_at(self.start, sequence, works),
        }
    }

    /// What is wrong with what a decision says that all survivors of this epoch have completed.
    fn misjudged(&self, decision: &Decision) -> Option<Problem> {
        let (epoch, agreed) = (decision.epoch - 1, decision.completed);
        let standing = |survivor: &MemberProcess| {
            let completed = self.left.get(survivor).copied();
            (completed.unwrap_or_default(), survivor.member_id)
        };
        let (completed, member_id) = decision.survivors.iter().map(standing).min()?;
        // A process that has forgotten what was before is heard by whoever has not met the one that
        // it follows, who passes on how little it has completed.
        let is_forgotten = |(process, completed): (&MemberProcess, &u64)| {
            !self.members.contains(process) && *completed == agreed
        };
        match agreed.cmp(&completed) {
            Ordering::Greater => Some(Problem::NotCompleted { epoch, member_id }),
            Ordering::Less if !self.left.iter().any(is_forgotten) => Some(Problem::ThrownAway {
                epoch,
                completed,
                agreed,
            }),
            Ordering::Less | Ordering::Equal => None,
        }
    }
}

impl Oracle {
    /// Watches over a job in which this goes wrong.
    pub(super) fn new(job: Job, faults: &Faults) -> Self {
        let first = Record {
            members: faults.founders(),
            ..Record::default()
        };
        Self {
            job,
            epochs: BTreeMap::from([(1, first)]),
            innocent: faults.innocent(),
            is_calm: faults.none(),
            problem: None,
            story: None,
            works: 0,
            finished: 0,
        }
    }

    /// Epochs so far.
    pub(super) fn epochs(&self) -> u64 {
        self.epochs.len() as u64
    }

    pub(super) fn note(&mut self, now: Time, of: MemberProcess, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let (seconds, millis) = (now / SECOND, now % SECOND / MILLISECOND);
            let MemberProcess {
                member_id,
                incarnation,
            } = of;
            story.push(format!(
                "{seconds:3}.{millis:03} s  member {member_id}.{incarnation} {}",
                what()
            ));
        }
    }

    /// A process has met all other members of its epoch.
    pub(super) fn met(&mut self, by: MemberProcess, epoch: u64) {
        if let Some(record) = self.epochs.get_mut(&epoch) {
            record.met.insert(by);
        }
    }

    /// Whether all members of the first epoch have met at least once.
    pub(super) fn founded(&self) -> bool {
        let first = self.epochs.get(&1);
        first.is_some_and(|first| {
            first
                .members
                .iter()
                .all(|member| first.met.contains(member))
        })
    }

    /// A process takes no more part in its epoch, of which it has completed so many operations.
    pub(super) fn left(&mut self, by: MemberProcess, epoch: u64, completed: u64) {
        if let Some(record) = self.epochs.get_mut(&epoch) {
            record.left.insert(by, completed);
        }
    }

    /// Nobody is called lost whom nothing has happened to, and who has not ended the epoch itself.
    pub(super) fn blamed(&mut self, by: MemberProcess, epoch: u64, blamed: MemberId) {
        let left = |record: &Record| record.left.keys().any(|member| member.member_id == blamed);
        let left = self.epochs.get(&epoch).is_some_and(left);
        if self.innocent.contains(&blamed) && !left {
            let member_id = by.member_id;
            self.found(Problem::WrongBlame { member_id, blamed });
        }
    }

    /// An epoch fails for nothing but a loss, and only where something goes wrong.
    pub(super) fn failed(&mut self, by: MemberProcess, epoch: u64, error: &OperationError) {
        // Of whoever gave up for another reason, that reason is seen.
        let is_loss = error.is_loss() || matches!(error, OperationError::Aborted { .. });
        if self.is_calm || !is_loss {
            self.found(Problem::WrongFailure {
                epoch,
                member_id: by.member_id,
                error: error.to_string(),
            });
        }
    }

    /// A process begins an operation with this in its buffer.
    pub(super) fn began(&mut self, by: MemberProcess, operation: Place, buffer: &[i64]) {
        if let Some(record) = self.epochs.get_mut(&operation.epoch) {
            let begun = record.begun.entry(operation.sequence).or_default();
            begun.insert(by, buffer.to_vec());
        }
    }

    /// Validity of what an operation gave a process, and of its coming back at all.
    pub(super) fn completed(
        &mut self,
        by: MemberProcess,
        operation: Place,
        step: Step,
        buffer: &[i64],
    ) {
        self.works += u64::from(matches!(step, Step::Work(_)));
        let Place { epoch, sequence } = operation;
        let member_id = by.member_id;
        let wrong = Problem::WrongValue {
            epoch,
            sequence,
            member_id,
        };
        let Some(record) = self.epochs.get(&epoch) else {
            return self.found(wrong);
        };
        let expected = record.step_at(sequence, self.job.works);
        if step != expected {
            return self.found(wrong);
        }
        let world = u32::try_from(record.members.len()).unwrap_or(u32::MAX);
        let plan = Plan::of(step, &self.job, world);
        let begun = record.begun.get(&sequence);
        let has_begun = |member: &MemberProcess| begun.is_some_and(|all| all.contains_key(member));
        let early = match plan.collective {
            Collective::Barrier => !record.members.iter().all(has_begun),
            // Nothing comes of nothing, and nobody waits for it.
            _ if plan.count == 0 => false,
            Collective::Broadcast { root } => !has_begun(&record.members[root.index()]),
            _ => !record.members.iter().all(has_begun),
        };
        if early {
            return self.found(Problem::TooEarly {
                epoch,
                sequence,
                member_id,
            });
        }
        let right = match step {
            Step::Resume => vec![record.start.cast_signed()],
            Step::Leave => Vec::new(),
            Step::Work(number) => result(&plan, &record.members, number),
            Step::Census => largest(begun.into_iter().flat_map(BTreeMap::values), plan.count),
            Step::Admit { root, .. } => {
                let root = record.members.get(root.index());
                let told = root.and_then(|root| begun?.get(root));
                told.cloned().unwrap_or_default()
            }
        };
        if buffer != right {
            return self.found(wrong);
        }
        if step == Step::Census
            && let Some(step) = after_census(buffer)
            && let Some(record) = self.epochs.get_mut(&epoch)
        {
            record.admit = Some((sequence + 1, step));
        }
    }

    /// Agreement on who follows, process by process: a member id's next process is another one.
    pub(super) fn decided(&mut self, by: MemberProcess, decision: &Decision) {
        let epoch = decision.epoch;
        self.learned(by, decision);
        let member = |record: &Record| record.members.contains(&by);
        if !self.epochs.get(&epoch).is_some_and(member) {
            self.parted(by, epoch);
        }
    }

    /// A process learns what was decided, be it in the next epoch or not.
    pub(super) fn learned(&mut self, by: MemberProcess, decision: &Decision) {
        let epoch = decision.epoch;
        if let Some(known) = self.epochs.get(&epoch) {
            if known.decision.as_ref() != Some(decision) {
                self.parted(by, epoch);
            }
            return;
        }
        let voted = |previous_epoch: &&Record| {
            let mut survivors = decision.survivors.iter();
            survivors.all(|survivor| previous_epoch.members.contains(survivor))
        };
        // Newcomers are others than those who vote, and no more of them.
        let new = |previous_epoch: &&Record| {
            let mut newcomers = decision.newcomers.iter();
            decision.newcomers.len() <= decision.survivors.len()
                && newcomers.all(|newcomer| !previous_epoch.members.contains(&newcomer.process))
        };
        let previous_epoch = self.epochs.get(&(epoch - 1)).filter(voted).filter(new);
        let Some(previous_epoch) = previous_epoch else {
            return self.parted(by, epoch);
        };
        if let Some(problem) = previous_epoch.misjudged(decision) {
            return self.found(problem);
        }
        let works = self.job.works;
        let steps =
            (1..=decision.completed).map(|sequence| previous_epoch.step_at(sequence, works));
        let done = steps.filter(|step| matches!(step, Step::Work(_))).count();
        let record = Record {
            members: decision.members().collect(),
            decision: Some(decision.clone()),
            start: previous_epoch.start + done as u64,
            ..Record::default()
        };
        self.epochs.insert(epoch, record);
    }

    /// A process is in another epoch than others with the same number.
    fn parted(&mut self, by: MemberProcess, epoch: u64) {
        let member_id = by.member_id;
        self.found(Problem::TwoDecisions { epoch, member_id });
    }

    /// Whether a process of an epoch that is not decided yet may not give up, since those that it
    /// hears could go on.
    pub(super) fn must_go_on(&self, by: MemberProcess, heard: &Heard<'_>) -> bool {
        let Some(record) = self.epochs.get(&heard.epoch) else {
            return false;
        };
        let here = |member: &&MemberProcess| **member == by || (heard.living)(**member);
        if !record.members.contains(&by) {
            return false;
        }
        let present: BTreeSet<_> = record.members.iter().filter(here).copied().collect();
        let (all, count) = (record.members.len(), present.len());
        let chief = present.contains(&record.members[0]);
        match (all, count, self.job.pair) {
            (2, 1, TwoMemberPolicy::Stop) => false,
            (2, 1, TwoMemberPolicy::Chief) => chief,
            (2, 1, TwoMemberPolicy::Proven) => {
                let mut others = record.members.iter().filter(|member| **member != by);
                record.met.contains(&by) && others.all(|other| (heard.buried)(*other))
            }
            _ => 2 * count > all || (2 * count == all && chief),
        }
    }

    /// The last epoch, if these are a majority of it and come from the epoch before.
    pub(super) fn lives_on(&self, these: impl Fn(MemberProcess) -> bool) -> Option<u64> {
        let (epoch, record) = self.epochs.last_key_value()?;
        let survived = |member: &MemberProcess| match self.epochs.get(&(epoch - 1)) {
            Some(previous_epoch) => previous_epoch.members.contains(member),
            None => true,
        };
        let members = record.members.iter();
        let here = members.filter(|member| survived(member) && these(**member));
        (2 * here.count() > record.members.len()).then_some(*epoch)
    }

    pub(super) fn garbled(&mut self, member_id: MemberId) {
        self.found(Problem::Garbled { member_id });
    }

    pub(super) fn found(&mut self, problem: Problem) {
        self.problem.get_or_insert(problem);
    }
}

/// An operation: its epoch, and its number there, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
}

/// What a process has of the members of its epoch when it gives up.
pub(super) struct Heard<'a> {
    pub(super) epoch: u64,
    /// Whether a member takes part, and has been within reach for long.
    pub(super) living: &'a dyn Fn(MemberProcess) -> bool,
    /// Whether the kernel has told long ago that it has ended.
    pub(super) buried: &'a dyn Fn(MemberProcess) -> bool,
}

fn largest<'a>(buffers: impl Iterator<Item = &'a Vec<i64>>, count: usize) -> Vec<i64> {
    let mut most = vec![i64::MIN; count];
    for buffer in buffers {
        let pairs = most.iter_mut().zip(buffer);
        pairs.for_each(|(most, value)| *most = (*most).max(*value));
    }
    most
}
