//! Operations over links: which schedule, and how long it may take.

use std::cell::Cell;
use std::panic::Location;
use std::time::Duration;

use meshwork_accel::Element;
use tokio::time::timeout;

use super::hierarchical::HierarchicalGroups;
use super::session::{ABORT_GRACE, Medium, Session, Work, failed};
use crate::contract::{Call, Contract, Kind, site};
use crate::execute::{Operation, Scratch, Stopped};
use crate::flight_recorder::Serial;
use crate::links::Links;
use crate::schedule::{Algorithm, Collective, Hosts, Order, Schedule};
use crate::shm::OnArrival;
use crate::{Choices, Communication, CostModel, Error};

/// Between two looks at whom a long operation waits for.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of all blocks from which on to cross to another host only once is worth meeting twice
/// more: with two hosts of two ranks as fast at 1 MiB, two thirds to three quarters of the time at
/// 8 MiB.
const LONG: u64 = 2 << 20;

impl Session {
    pub(super) fn over_links<T: Element>(
        &mut self,
        (contract, digest): (Contract, u64),
        (caller, serial): (&'static Location<'static>, Serial),
        work: Work<'_, T>,
    ) -> Result<(), Error> {
        let algorithm = self.algorithm(&contract, &work);
        if let (
            Some(Algorithm::Hierarchical),
            Work::Reduce { root: None, .. } | Work::Broadcast { .. } | Work::Pull(_),
        ) = (algorithm, &work)
            && let Some(mut hierarchical) = self.hierarchical.take()
        {
            let done = self.hierarchically(
                &mut hierarchical,
                (contract, digest),
                (caller, serial),
                work,
            );
            self.hierarchical = Some(hierarchical);
            return done;
        }
        let contract = Contract {
            algorithm,
            ..contract
        };
        let call = Call::new(contract, site(caller));
        let waits_for = Cell::new(self.rank);
        let operation = Operation {
            me: self.rank,
            world: self.world,
            call: &call,
            contract,
            digest,
            waits_for: &waits_for,
        };
        let stopped = self.until_done(&operation, serial, work)?;
        match stopped {
            Some(Stopped::Error(error)) => Err(self.better_known(self.by_name(error))),
            Some(Stopped::Link(broken)) => Err(self.verdict(broken)),
            Some(Stopped::TimedOut) => Err(Error::TimedOut {
                rank: self.name_of(self.rank),
                peer: self.name_of(waits_for.get()),
                waited: self.timeouts.operation(),
                call: Box::new(call),
            }),
            None => Ok(()),
        }
    }

    /// Makes sure that all ranks make this call, and then makes it host by host.
    fn hierarchically<T: Element>(
        &mut self,
        hierarchical: &mut HierarchicalGroups,
        (contract, digest): (Contract, u64),
        (caller, serial): (&'static Location<'static>, Serial),
        work: Work<'_, T>,
    ) -> Result<(), Error> {
        self.over_links((contract, digest), (caller, serial), Work::<T>::Agree)?;
        // From here on others wait for the parts.
        self.log.agreed();
        match work {
            Work::Reduce {
                buffer,
                reduction,
                root: None,
            } => hierarchical.all_reduce(&contract, caller, (buffer, reduction), self.world),
            Work::Broadcast { buffer, root } => {
                hierarchical.broadcast(caller, buffer, root.index())
            }
            Work::Pull(transfer) => match transfer.then {
                OnArrival::Copy => hierarchical.all_gather(caller, transfer),
                OnArrival::Fold(reduction) => hierarchical.reduce_scatter(
                    caller,
                    (transfer.outgoing_blocks, transfer.output),
                    reduction,
                ),
            },
            Work::Reduce { root: Some(_), .. }
            | Work::Meet
            | Work::Agree
            | Work::Send { .. }
            | Work::Receive { .. } => unreachable!("`over_links` sends no such work here"),
        }
    }

    /// By which algorithm the work is done, if there are several; all ranks come to the same one.
    fn algorithm<T: Element>(
        &mut self,
        contract: &Contract,
        work: &Work<'_, T>,
    ) -> Option<Algorithm> {
        let collective = match *work {
            Work::Reduce { root: None, .. } => Collective::AllReduce,
            Work::Reduce {
                root: Some(root), ..
            } => Collective::Reduce { root },
            Work::Broadcast { root, .. } => Collective::Broadcast { root },
            Work::Agree => return Some(Algorithm::Hierarchical),
            Work::Pull(_) => return self.hierarchical_algorithm(contract),
            Work::Meet | Work::Send { .. } | Work::Receive { .. } => return None,
        };
        // Hosts hand each other what is rounded.
        let in_steps = |op| Order::Any.keeps_means(op, T::TYPE);
        if let (Communication::Auto, Collective::AllReduce | Collective::Broadcast { .. }, Some(_)) =
            (self.communication, collective, &self.hierarchical)
            && contract.op.is_none_or(in_steps)
        {
            return Some(Algorithm::Hierarchical);
        }
        let hosts = Hosts::apart(self.world);
        let model = CostModel::over(self.context.control.data_transport());
        let choices = self
            .choices
            .get_or_insert_with(|| Choices::new(&hosts, model));
        let count = usize::try_from(contract.count).expect("the length of a buffer here");
        let buffer = (contract.op, T::TYPE, count);
        Some(choices.choose(self.communication, collective, buffer))
    }

    /// Exchanges of blocks go straight from rank to rank, or host by host where they are long.
    fn hierarchical_algorithm(&self, contract: &Contract) -> Option<Algorithm> {
        let bytes = contract
            .count
            .saturating_mul(contract.element.size() as u64);
        let in_steps = |op| Order::Any.keeps_means(op, contract.element);
        let hierarchically = match self.communication {
            Communication::Auto => bytes >= LONG && contract.op.is_none_or(in_steps),
            other => other == Communication::Hierarchical,
        };
        let has_hierarchical = matches!(contract.kind, Kind::AllGather | Kind::ReduceScatter);
        (hierarchically && has_hierarchical && self.hierarchical.is_some())
            .then_some(Algorithm::Hierarchical)
    }

    /// An error of an operation with the ranks called as in the group that was joined.
    fn by_name(&self, mut error: Error) -> Error {
        match &mut error {
            Error::Disagreement { rank, peer, .. } | Error::Uneven { rank, peer, .. } => {
                (*rank, *peer) = (self.name_of(*rank), self.name_of(*peer));
            }
            Error::Protocol { peer, .. } => *peer = self.name_of(*peer),
            _ => {}
        }
        error
    }

    /// A chunk tells of another call, but not from where it was made; its sender's successor knows,
    /// and tells soon.
    fn better_known(&self, error: Error) -> Error {
        match &error {
            Error::Disagreement { theirs, .. } if theirs.site().is_empty() => {
                self.failure_within(ABORT_GRACE).unwrap_or(error)
            }
            _ => error,
        }
    }

    /// Runs the operation until it is done, its time is up, or the group has failed.
    fn until_done<T: Element>(
        &mut self,
        operation: &Operation<'_>,
        serial: Serial,
        work: Work<'_, T>,
    ) -> Result<Option<Stopped>, Error> {
        let waited = self.timeouts.operation();
        let mut failure = self.context.control.failure();
        let (context, members) = (self.context.clone(), self.members.clone());
        let stall_observer = self.log.stall_observer();
        let looking_on = async {
            loop {
                tokio::time::sleep(LOOK).await;
                let awaited = operation.waits_for.get();
                if awaited != operation.me {
                    context.waits(&stall_observer, serial, members[awaited.index()].rank());
                }
            }
        };
        let Medium::Links(links, scratch) = &mut self.medium else {
            unreachable!("only what has links is carried out over them")
        };
        Ok(self.context.driver.carry_out(async {
            let run = timeout(waited, operation.carry_out(links, scratch, work));
            tokio::select! {
                biased;
                done = run => match done {
                    Ok(done) => done.err(),
                    Err(_) => Some(Stopped::TimedOut),
                },
                error = failed(&mut failure) => Some(Stopped::Error(error)),
                never = looking_on => never,
            }
        }))
    }
}

impl Operation<'_> {
    async fn carry_out<T: Element>(
        &self,
        links: &mut Links,
        scratch: &mut Scratch,
        work: Work<'_, T>,
    ) -> Result<(), Stopped> {
        let (me, world) = (self.me, self.world);
        let algorithm = self.contract.algorithm.unwrap_or(Algorithm::Tree);
        let hosts = Hosts::apart(world);
        let schedule = |collective| Schedule::new(collective, algorithm, &hosts, me);
        match work {
            Work::Meet => {
                let barrier = schedule(Collective::Barrier);
                self.run::<u8>(barrier, links, scratch, &mut []).await
            }
            Work::Reduce {
                buffer,
                root: Some(root),
                ..
            } if root != me => {
                // The result is for the root alone; this rank keeps its contribution.
                let mut passing = buffer.to_vec();
                let reduce = schedule(Collective::Reduce { root });
                self.run(reduce, links, scratch, &mut passing).await
            }
            Work::Reduce { buffer, root, .. } => {
                let reduce = |root| Collective::Reduce { root };
                let reduce = schedule(root.map_or(Collective::AllReduce, reduce));
                self.run(reduce, links, scratch, buffer).await
            }
            Work::Broadcast { buffer, root } => {
                let broadcast = schedule(Collective::Broadcast { root });
                self.run(broadcast, links, scratch, buffer).await
            }
            Work::Agree => self.agree(links, scratch).await,
            Work::Pull(transfer) => self.exchange(links, scratch, transfer).await,
            Work::Send { input, to } => self.send(links, input, to).await,
            Work::Receive { output, from } => self.receive(links, scratch, (output, from)).await,
        }
    }
}
