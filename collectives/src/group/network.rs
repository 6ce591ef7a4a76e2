//! Operations over links: which schedule, and how long it may take.

use std::cell::Cell;
use std::panic::Location;

use meshwork_accel::Element;
use tokio::time::timeout;

use super::engine::{Engine, Transport, Work, failed};
use crate::Error;
use crate::contract::{Call, Contract, site};
use crate::execute::{Operation, Scratch, Stopped};
use crate::links::Links;
use crate::schedule::{Algorithm, Schedule};

impl Engine {
    pub(super) fn over_links<T: Element>(
        &mut self,
        contract: Contract,
        caller: &'static Location<'static>,
        work: Work<'_, T>,
    ) -> Result<(), Error> {
        let bytes = size_of::<T>() * usize::try_from(contract.count).unwrap_or(usize::MAX);
        let algorithm = match work {
            Work::Meet => Some(Algorithm::Tree),
            Work::Reduce { .. } | Work::Broadcast { .. } => {
                Some(self.communication.choose(self.world, bytes))
            }
            Work::Pull(_) | Work::Send { .. } | Work::Receive { .. } => None,
        };
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
            waits_for: &waits_for,
        };
        let stopped = self.until_done(&operation, work)?;
        match stopped {
            Some(Stopped::Error(error)) => Err(self.by_name(error)),
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

    /// Runs the operation until it is done, its time is up, or the group has failed.
    fn until_done<T: Element>(
        &mut self,
        operation: &Operation<'_>,
        work: Work<'_, T>,
    ) -> Result<Option<Stopped>, Error> {
        let waited = self.timeouts.operation();
        let mut failure = self.ties.bond.failure();
        let Transport::Links(links, scratch) = &mut self.transport else {
            return Ok(None);
        };
        Ok(self.ties.runtime()?.block_on(async {
            let run = timeout(waited, operation.carry_out(links, scratch, work));
            tokio::select! {
                biased;
                done = run => match done {
                    Ok(done) => done.err(),
                    Err(_) => Some(Stopped::TimedOut),
                },
                error = failed(&mut failure) => Some(Stopped::Error(error)),
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
        let all_reduce = Schedule::all_reduce(algorithm, world, me);
        match work {
            Work::Meet => self.run::<u8>(all_reduce, links, scratch, &mut []).await,
            Work::Reduce { buffer, root, .. } if root.is_none_or(|root| root == me) => {
                self.run(all_reduce, links, scratch, buffer).await
            }
            Work::Reduce { buffer, .. } => {
                // The result is for the root alone; this rank keeps its contribution.
                let mut passing = buffer.to_vec();
                self.run(all_reduce, links, scratch, &mut passing).await
            }
            Work::Broadcast { buffer, root } => {
                let schedule = Schedule::broadcast(algorithm, world, me, root);
                self.run(schedule, links, scratch, buffer).await
            }
            Work::Pull(errand) => self.exchange(links, scratch, errand).await,
            Work::Send { input, to } => self.send(links, input, to).await,
            Work::Receive { output, from } => self.receive(links, scratch, (output, from)).await,
        }
    }
}
