//! Operations over links: by which schedule, how long they may take, and when they go host by host.

use std::pin::{Pin, pin};
use std::time::Duration;

use meshwork_accel::Element;
use tokio::time::timeout;

use super::hierarchy::{Hierarchy, Planned};
use super::operation::{BytesWork, CallGraph, LinkOperation, Route, Scratch, WaitState};
use super::{Links, Traffic};
use crate::communication::SMALL_WORLD;
use crate::contract::{Contract, Kind};
use crate::failure::Failure;
use crate::medium::Conditions;
use crate::operation::{Request, Work, WorkKind};
use crate::schedule::{Algorithm, Collective, Hosts, Order, RingOrder};
use crate::session::{Session, failed};
use crate::{Choices, Communication, CostModel, MeasuredLinks, Payload};

/// Before the first look at whom an operation waits for, of a rank with a core of its own; each
/// later one comes after twice the time, up to nearly as long as it takes for a wait to matter to
/// others, which is [`SELDOM`] or more.
const LOOK: Duration = Duration::from_millis(5);
const SELDOM: Duration = Duration::from_millis(40);
/// Bytes of all blocks from which on to cross to another host only once is worth meeting twice
/// more: with two hosts of two ranks as fast at 1 MiB, two thirds to three quarters of the time at
/// 8 MiB.
const LONG: u64 = 2 << 20;
/// Up to so many ranks, all-to-all goes straight from each to each.
const MEDIUM_WORLD: u32 = 16;
/// Bytes of a block up to which all-to-all passes blocks on: what that saves in messages is more
/// than what moving each block several times takes.
const SHORT_BLOCK: u64 = 2 << 10;
/// Bytes of a rank's block up to which a gather or scatter goes along a tree.
const SHORT_TREE_BLOCK: u64 = 64 << 10;

/// Streams between all ranks of a group, and what operations over them need besides.
pub(crate) struct LinkMedium {
    links: Links,
    scratch: Scratch,
    world: u32,
    /// What the rounds of an algorithm take.
    model: CostModel,
    /// What the algorithms would take, once that was asked for.
    choices: Option<Choices>,
    /// In which order what goes around a ring takes the ranks, where links were measured.
    ring: Option<RingOrder>,
    /// The groups inside hosts and across them, where there are such.
    hierarchy: Option<Box<Hierarchy>>,
}

impl LinkMedium {
    pub(crate) fn new(links: Links, world: u32, model: CostModel) -> Self {
        Self {
            links,
            scratch: Scratch::new(),
            world,
            model,
            choices: None,
            ring: None,
            hierarchy: None,
        }
    }

    /// From now on operations go host by host where that is faster, or asked for.
    pub(crate) fn set_hierarchy(&mut self, hierarchy: Hierarchy) {
        self.hierarchy = Some(Box::new(hierarchy));
    }

    /// From now on algorithms are chosen by these links, and rings go in their order.
    pub(crate) fn go_by(&mut self, links: &MeasuredLinks) {
        self.choices = Some(Choices::measured(links));
        self.ring = Some(links.ring().clone());
        if let Some(hierarchy) = &mut self.hierarchy {
            hierarchy.go_by(links);
        }
    }

    /// The group across hosts that operations go by, if this rank is in one.
    pub(crate) fn across(&mut self) -> Option<&mut Session> {
        self.hierarchy.as_mut()?.across()
    }

    /// Whether this work goes host by host, as [`Planned`] has it.
    pub(crate) fn goes_by_parts(&self, algorithm: Option<Algorithm>, work: WorkKind) -> bool {
        let by_hosts = self.hierarchy.is_some() && algorithm == Some(Algorithm::Hierarchical);
        by_hosts
            && matches!(
                work,
                WorkKind::Reduce { root: None } | WorkKind::Broadcast { .. } | WorkKind::Exchange
            )
    }

    pub(crate) fn run<T: Element>(
        &mut self,
        conditions: &Conditions<'_>,
        request: &Request,
        work: Work<'_, T>,
    ) -> Result<(), Failure> {
        let by_hosts = request.contract.algorithm == Some(Algorithm::Hierarchical);
        let Some(mut hierarchy) = self.hierarchy.take_if(|_| by_hosts) else {
            return self.run_flat(conditions, request, work.into());
        };
        let done = match Planned::of(request.contract.kind, work) {
            Planned::ByHosts(work) => self
                .agree(conditions, request)
                .and_then(|()| hierarchy.run(request, work)),
            Planned::Flat(work) => self.run_flat(conditions, request, work.into()),
        };
        self.hierarchy = Some(hierarchy);
        done
    }

    fn run_flat(
        &mut self,
        conditions: &Conditions<'_>,
        request: &Request,
        work: BytesWork<'_>,
    ) -> Result<(), Failure> {
        self.until_done(conditions, request, async |operation, links, scratch| {
            let peers = || operation.peers(&work);
            let _held = links.reach(peers, operation.wait).await?;
            operation.carry_out(links, scratch, work).await
        })
    }

    /// Makes sure that all ranks make this call, before any of them goes on with parts of it.
    fn agree(&mut self, conditions: &Conditions<'_>, request: &Request) -> Result<(), Failure> {
        self.until_done(conditions, request, async |operation, links, scratch| {
            let peers = || operation.call_peers();
            let _held = links.reach(peers, operation.wait).await?;
            operation.agree(links, scratch).await
        })?;
        // From here on others wait for the parts.
        conditions.log.agreed();
        Ok(())
    }

    /// By which algorithm the work is done, if there are several; all ranks come to the same one.
    pub(crate) fn algorithm(
        &mut self,
        contract: &Contract,
        digest: u64,
        work: WorkKind,
        communication: Communication,
    ) -> Option<Algorithm> {
        let collective = match work {
            WorkKind::Reduce { root: None } => Collective::AllReduce,
            WorkKind::Reduce { root: Some(root) } => Collective::Reduce { root },
            WorkKind::Broadcast { root } => Collective::Broadcast { root },
            WorkKind::Exchange => return self.exchange_algorithm(contract, digest, communication),
            // Of many ranks, some share cores, and the time of each for messages adds up.
            WorkKind::Barrier => {
                return (self.world as usize > SMALL_WORLD).then_some(Algorithm::Knomial);
            }
            WorkKind::Agree | WorkKind::Send | WorkKind::Receive => return None,
        };
        if let (Communication::Auto, Collective::AllReduce | Collective::Broadcast { .. }, Some(_)) =
            (communication, collective, &self.hierarchy)
            && keeps_means_in_steps(contract)
        {
            return Some(Algorithm::Hierarchical);
        }
        Some(self.choose(contract, communication, collective))
    }

    fn choose(
        &mut self,
        contract: &Contract,
        communication: Communication,
        collective: Collective,
    ) -> Algorithm {
        let choices = self.choices.get_or_insert_with(|| {
            let hosts = Hosts::apart(self.world);
            Choices::new(&hosts, self.model)
        });
        let count = usize::try_from(contract.count).expect("the length of a buffer here");
        let moved = Payload::new(contract.element, count);
        let payload = contract.op.map_or(moved, |op| moved.reduced_by(op));
        choices.choose(communication, collective, payload)
    }

    /// Exchanges of blocks go host by host where they are long, straight from rank to rank in small
    /// worlds, and otherwise so that a rank needs few others.
    fn exchange_algorithm(
        &mut self,
        contract: &Contract,
        digest: u64,
        communication: Communication,
    ) -> Option<Algorithm> {
        if self.hierarchy.is_some() && goes_by_hosts(contract, digest, communication) {
            return Some(Algorithm::Hierarchical);
        }
        let algorithm = match communication.algorithm() {
            None if self.world as usize <= SMALL_WORLD => None,
            None => self.exchange_among_many(contract, communication),
            always => always,
        };
        let agreed = Contract {
            algorithm,
            ..*contract
        };
        algorithm.filter(|_| !matches!(Route::of(&agreed, digest), Route::Direct))
    }

    fn exchange_among_many(
        &mut self,
        contract: &Contract,
        communication: Communication,
    ) -> Option<Algorithm> {
        let world = u64::from(self.world);
        match contract.kind {
            Kind::AllGather => Some(self.choose(contract, communication, Collective::AllGather)),
            Kind::ReduceScatter => {
                Some(self.choose(contract, communication, Collective::ReduceScatter))
            }
            Kind::Gather | Kind::Scatter => {
                (bytes(contract) <= SHORT_TREE_BLOCK).then_some(Algorithm::Knomial)
            }
            Kind::AllToAll => {
                let is_short = bytes(contract) <= SHORT_BLOCK.saturating_mul(world);
                (is_short && self.world > MEDIUM_WORLD).then_some(Algorithm::Tree)
            }
            Kind::AllReduce
            | Kind::Broadcast
            | Kind::Barrier
            | Kind::Leave
            | Kind::Reduce
            | Kind::Permute
            | Kind::Send => None,
        }
    }

    /// Runs an operation until it is done, its time is up, or the group has failed.
    fn until_done(
        &mut self,
        conditions: &Conditions<'_>,
        request: &Request,
        run: impl AsyncFnOnce(&LinkOperation<'_>, &mut Links, &mut Scratch) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let wait = WaitState::new(conditions.rank);
        let operation = LinkOperation {
            me: conditions.rank,
            world: self.world,
            request,
            call_graph: CallGraph::among(self.world),
            ring: self.ring.as_ref(),
            wait: &wait,
        };
        let traffic = self.links.traffic().clone();
        let (links, scratch) = (&mut self.links, &mut self.scratch);
        let running = pin!(run(&operation, links, scratch));
        let running = while_moving(&traffic, conditions.limit, &wait, running);
        until_over(conditions, request, &wait, running)
    }
}

/// Into how many parts the time without a byte is cut; it may be longer by one of them.
const WINDOWS: u32 = 4;

/// Drives an operation until it is done, or for so long no byte has gone over any stream.
async fn while_moving(
    traffic: &Traffic,
    limit: Duration,
    wait: &WaitState,
    mut running: Pin<&mut dyn Future<Output = Result<(), Failure>>>,
) -> Result<(), Failure> {
    let mut stillness = Stillness::default();
    while !stillness.is_over(traffic.bytes()) {
        if let Ok(done) = timeout(limit / WINDOWS, running.as_mut()).await {
            return done;
        }
    }
    Err(Failure::TimedOut(wait.awaited()))
}

/// Since when no byte has gone over any stream, in parts of the time that is allowed.
#[derive(Debug, Default)]
struct Stillness {
    last: Option<u64>,
    windows: u32,
}

impl Stillness {
    /// Whether the time is up, at the beginning and after each part of it.
    fn is_over(&mut self, bytes: u64) -> bool {
        self.windows = match self.last.replace(bytes) {
            Some(last) if last == bytes => self.windows + 1,
            Some(_) | None => 0,
        };
        self.windows == WINDOWS
    }
}

/// Drives an operation until it is done, its time is up, or the group has failed.
fn until_over(
    conditions: &Conditions<'_>,
    request: &Request,
    wait: &WaitState,
    running: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut failure = conditions.failure.clone();
    conditions.context.driver.carry_out(async {
        tokio::select! {
            biased;
            done = running => done,
            _ = failed(&mut failure) => Err(Failure::GroupOver),
            never = report_stalls(conditions, request, wait) => never,
        }
    })
}

/// Looks now and then, and when others ask, at whom an operation waits for at length.
async fn report_stalls<N>(conditions: &Conditions<'_>, request: &Request, wait: &WaitState) -> N {
    let stall_observer = conditions.log.stall_observer();
    // A look takes a core from another rank where they share one.
    let mut pause = match conditions.context.driver.spins() {
        true => LOOK,
        false => SELDOM,
    };
    let longest = SELDOM.max(conditions.context.recorder.patience() * 4 / 5);
    loop {
        let context = conditions.context;
        context.until_look(pause).await;
        if pause >= longest {
            wait.lasts();
        }
        pause = longest.min(2 * pause);
        let awaited = wait.awaited();
        if awaited != conditions.rank {
            let awaited = conditions.members[awaited.index()].rank();
            context.waits(&stall_observer, request.serial, awaited);
        }
    }
}

/// Whether an exchange of blocks goes host by host, where there are several hosts.
fn goes_by_hosts(contract: &Contract, digest: u64, communication: Communication) -> bool {
    let pays = match contract.kind {
        Kind::AllGather | Kind::ReduceScatter => {
            bytes(contract) >= LONG && keeps_means_in_steps(contract)
        }
        // Ranks that pass blocks on have to know how long those are. Among hosts of four ranks it
        // takes as long for short blocks, and longer for long ones.
        Kind::AllToAll if digest == 0 => false,
        Kind::AllToAll
        | Kind::AllReduce
        | Kind::Broadcast
        | Kind::Barrier
        | Kind::Leave
        | Kind::Reduce
        | Kind::Gather
        | Kind::Scatter
        | Kind::Permute
        | Kind::Send => return false,
    };
    match communication {
        Communication::Auto => pays,
        other => other == Communication::Hierarchical,
    }
}

/// Bytes of the buffer that the contract counts the elements of.
fn bytes(contract: &Contract) -> u64 {
    contract
        .count
        .saturating_mul(contract.element.size() as u64)
}

/// Whether a reduction may go by steps: hosts hand each other what is rounded.
fn keeps_means_in_steps(contract: &Contract) -> bool {
    let keeps = |op| Order::Any.keeps_means(op, contract.element);
    contract.op.is_none_or(keeps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_may_take_as_long_as_bytes_come() {
        let mut stillness = Stillness::default();
        let mut looks = |bytes: &[u64]| -> Vec<bool> {
            let looks = bytes.iter().map(|bytes| stillness.is_over(*bytes));
            looks.collect()
        };
        assert_eq!(looks(&[0, 0, 0, 0, 1]), [false; 5]);
        assert_eq!(looks(&[1, 1, 1, 2, 2, 2, 2]), [false; 7]);
        assert_eq!(looks(&[2]), [true]);
    }
}
