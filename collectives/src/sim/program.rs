//! What every rank of a simulated job does, and which values must come out.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use meshwork_accel::{Element, ReduceOp};

use super::Plant;
use super::dice::hash;
use crate::agreement::{MemberId, TwoMemberPolicy};
use crate::contract::{Contract, Kind};
use crate::failure::Unexplained;
use crate::links::{CallGraph, LinkOperation, Links, Scratch, WaitState};
use crate::operation::Request;
use crate::schedule::{Algorithm, Collective, Hosts, Schedule};
use crate::wire::{MemberProcess, NewcomerOffer};
use crate::{OperationError, Rank};

/// What all processes of a job know before it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) seed: u64,
    /// Those that the job begins with.
    pub(super) member_ids: usize,
    /// How many works the program has.
    pub(super) works: u64,
    /// Which of two ranks may go on alone.
    pub(super) pair: TwoMemberPolicy,
}

impl Job {
    /// Whom a newcomer asks first: all others that are listed, or two of them if it is not.
    pub(super) fn seeds_of(&self, member_id: MemberId) -> BTreeSet<MemberId> {
        let listed: Vec<MemberId> = (0..).take(self.member_ids).collect();
        if listed.contains(&member_id) {
            let others = listed.into_iter().filter(|other| *other != member_id);
            return others.collect();
        }
        let first = below(hash(&[self.seed, member_id.into()]), listed.len());
        let pair = [first, (first + 1) % listed.len()];
        pair.map(|place| listed[place]).into()
    }
}

/// The next operation of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Rank 0 tells how far the program is: the first operation of every epoch.
    Resume,
    /// Work of the program, with its number.
    Work(u64),
    /// The ranks find out who of them knows of most newcomers.
    Census,
    /// That one tells the others.
    Admit { root: Rank, words: usize },
    /// All have finished with the epoch, or with the program.
    Leave,
}

/// Works between two looks at who wants to join.
pub(super) const BETWEEN_CENSUSES: u64 = 3;

/// Which operation is the one with this number in an epoch that begins with so many works done.
pub(super) fn step_at(start: u64, sequence: u64, works: u64) -> Step {
    let Some(index) = sequence.checked_sub(2) else {
        return Step::Resume;
    };
    let looks = index / (BETWEEN_CENSUSES + 1);
    let work = start + index - looks;
    match index % (BETWEEN_CENSUSES + 1) {
        _ if work >= works => Step::Leave,
        BETWEEN_CENSUSES => Step::Census,
        _ => Step::Work(work),
    }
}

/// One operation, the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) collective: Collective,
    algorithm: Algorithm,
    op: Option<ReduceOp>,
    pub(super) count: usize,
}

impl Plan {
    pub(super) fn of(step: Step, job: &Job, world: u32) -> Self {
        let root = Rank::CHIEF;
        match step {
            Step::Resume => Self::new(Collective::Broadcast { root }, Algorithm::Tree, None, 1),
            Step::Census => Self::new(
                Collective::AllReduce,
                Algorithm::Tree,
                Some(ReduceOp::Max),
                1,
            ),
            Step::Admit { root, words } => {
                Self::new(Collective::Broadcast { root }, Algorithm::Tree, None, words)
            }
            Step::Leave => Self::new(Collective::Barrier, Algorithm::Tree, None, 0),
            Step::Work(number) => {
                let dice = hash(&[job.seed, number]);
                let algorithms = [
                    Algorithm::Ring,
                    Algorithm::Tree,
                    Algorithm::Direct,
                    Algorithm::Halving,
                    Algorithm::OneShot,
                ];
                let algorithm = algorithms[below(dice, algorithms.len())];
                let count = match dice >> 8 & 15 {
                    0 => 0,
                    1 => 2_000,
                    _ => below(dice >> 16, 50),
                };
                let root = u32::try_from((dice >> 32) % u64::from(world));
                let root = root.map_or(Rank::CHIEF, Rank::new);
                match dice >> 4 & 3 {
                    0 => Self::new(Collective::Broadcast { root }, algorithm, None, count),
                    _ => Self::new(Collective::AllReduce, algorithm, Some(ReduceOp::Sum), count),
                }
            }
        }
    }

    fn new(
        collective: Collective,
        algorithm: Algorithm,
        op: Option<ReduceOp>,
        count: usize,
    ) -> Self {
        Self {
            collective,
            algorithm,
            op,
            count,
        }
    }

    fn contract(&self, sequence: u64) -> Contract {
        let (kind, root) = match self.collective {
            Collective::Broadcast { root } => (Kind::Broadcast, Some(root)),
            Collective::Barrier => (Kind::Barrier, None),
            _ => (Kind::AllReduce, None),
        };
        Contract {
            epoch: 0,
            group: 0,
            sequence,
            kind,
            algorithm: Some(self.algorithm),
            element: i64::TYPE,
            count: self.count as u64,
            op: self.op,
            root,
        }
    }
}

fn below(dice: u64, limit: usize) -> usize {
    usize::try_from(dice % limit as u64).unwrap_or_default()
}

/// What this process brings to a work, element by element.
pub(super) fn contribution(process: MemberProcess, number: u64, count: usize) -> Vec<i64> {
    let value = |index: usize| {
        let words = [
            process.member_id.into(),
            process.incarnation,
            number,
            index as u64,
        ];
        (hash(&words) % 1_000_003).cast_signed()
    };
    (0..count).map(value).collect()
}

/// What comes out of a work of these processes, in the order of their ranks.
pub(super) fn result(plan: &Plan, members: &[MemberProcess], number: u64) -> Vec<i64> {
    if let Collective::Broadcast { root } = plan.collective {
        return contribution(members[root.index()], number, plan.count);
    }
    let mut sum = vec![0; plan.count];
    for member in members {
        let part = contribution(*member, number, plan.count);
        sum.iter_mut()
            .zip(part)
            .for_each(|(sum, part)| *sum += part);
    }
    sum
}

/// What is left of an operation.
pub(super) struct Finished {
    pub(super) means: Means,
    pub(super) buffer: Vec<i64>,
    pub(super) done: Result<(), Result<OperationError, Unexplained>>,
}

/// What operations of one epoch share.
pub(super) struct Means {
    pub(super) links: Links,
    pub(super) scratch: Scratch,
}

pub(super) type Task = Pin<Box<dyn Future<Output = Finished>>>;

/// One call of one rank.
pub(super) struct Begin {
    pub(super) me: Rank,
    pub(super) world: u32,
    pub(super) sequence: u64,
    pub(super) plan: Plan,
    pub(super) plant: Plant,
}

impl Begin {
    /// The operation as the product carries it out, to be polled whenever bytes arrive.
    pub(super) fn task(self, mut means: Means, mut buffer: Vec<i64>) -> Task {
        Box::pin(async move {
            let done = self.run(&mut means, &mut buffer).await;
            Finished {
                means,
                buffer,
                done,
            }
        })
    }

    async fn run(
        &self,
        means: &mut Means,
        buffer: &mut [i64],
    ) -> Result<(), Result<OperationError, Unexplained>> {
        let (me, world) = (self.me, self.world);
        if world == 1 {
            // The product does not send to itself either.
            return Ok(());
        }
        let mut contract = self.plan.contract(self.sequence);
        let is_last = me.number() + 1 == world;
        if self.plant == Plant::OtherContract && self.sequence == 3 && is_last {
            contract.count += 1;
        }
        let request = Request::unrecorded(contract);
        let operation = LinkOperation {
            me,
            world,
            request: &request,
            call_graph: CallGraph::among(world),
            ring: None,
            wait: &WaitState::new(me),
        };
        let hosts = Hosts::apart(world);
        let schedule = Schedule::new(self.plan.collective, self.plan.algorithm, &hosts, me);
        let Means { links, scratch } = means;
        let run = operation.walk(schedule, links, scratch, bytemuck::cast_slice_mut(buffer));
        let done = match self.plant {
            Plant::EarlyReturn => at_once(run).await.unwrap_or(Ok(())),
            _ => run.await,
        };
        done.map_err(|failure| failure.into_error(me, || request.call(), |rank| rank))
    }
}

/// What a future gives when it is polled once.
async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        })
    })
    .await
}

/// A list of newcomers, as the product writes it, in a buffer.
pub(super) fn words_of(list: &[u8]) -> Vec<i64> {
    let words = list.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        i64::from_le_bytes(word)
    });
    words.collect()
}

/// Inverse of [`words_of`], for so many bytes.
pub(super) fn list_of(words: &[i64], bytes: usize) -> Vec<u8> {
    let all = words.iter().flat_map(|word| word.to_le_bytes());
    all.take(bytes).collect()
}

/// The operation that follows a census with this result, if one does.
pub(super) fn after_census(buffer: &[i64]) -> Option<Step> {
    let offer = buffer.first().map(|word| word.cast_unsigned());
    let NewcomerOffer { bytes, root } = NewcomerOffer::read(offer?)?;
    let words = bytes.div_ceil(8);
    Some(Step::Admit { root, words })
}
