//! What stands behind every operation of a group: its contract, its deadline, and its end.

use std::cell::Cell;
use std::io;
use std::panic::Location;

use meshwork_accel::{Element, ElementType, ReduceOp};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Bond, Group, State, no_runtime, outside_async};
use crate::contract::{Call, Contract, Kind, site};
use crate::execute::{Operation, Stopped};
use crate::links::Broken;
use crate::schedule::{Algorithm, Schedule};
use crate::{Error, LossCause, Rank};

impl Group {
    /// A collective of no elements, by the algorithm with the fewest rounds.
    pub(super) fn meet(&mut self, kind: Kind, caller: &Location<'_>) -> Result<(), Error> {
        let algorithm = Algorithm::Tree;
        let schedule = Schedule::all_reduce(algorithm, self.world, self.rank);
        let asked = Asked {
            kind,
            op: None,
            root: None,
            algorithm,
            schedule,
        };
        self.perform::<u8>(asked, caller, &mut [])
    }

    pub(super) fn perform<T: Element>(
        &mut self,
        asked: Asked,
        caller: &Location<'_>,
        buffer: &mut [T],
    ) -> Result<(), Error> {
        outside_async()?;
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        self.sequence += 1;
        if self.world == 1 {
            return Ok(());
        }
        let contract = asked.contract(self.sequence, T::TYPE, buffer.len() as u64);
        let call = Call::new(contract, site(caller));
        self.execute(&call, asked.schedule, contract, buffer)
            .map_err(|error| self.end(error))
    }

    fn execute<T: Element>(
        &mut self,
        call: &Call,
        schedule: Schedule,
        contract: Contract,
        buffer: &mut [T],
    ) -> Result<(), Error> {
        let waits_for = Cell::new(self.rank);
        let waits = &waits_for;
        let operation = Operation {
            me: self.rank,
            world: self.world,
            call,
            contract,
            schedule,
            waits_for: waits,
        };
        let waited = self.timeouts.operation();
        let mut failure = self.bond.failure();
        let Some(runtime) = &self.runtime else {
            return Err(no_runtime(io::ErrorKind::NotFound.into()));
        };
        let (links, scratch) = (&mut self.links, &mut self.scratch);
        let stopped = runtime.block_on(async {
            let run = timeout(waited, operation.run(links, scratch, buffer));
            tokio::select! {
                biased;
                done = run => done,
                error = failed(&mut failure) => Ok(Err(Stopped::Error(error))),
            }
        });
        match stopped {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Stopped::Error(error))) => Err(error),
            Ok(Err(Stopped::Link(broken))) => Err(self.verdict(broken)),
            Err(_) => {
                let (call, rank, peer) = (Box::new(call.clone()), self.rank, waits_for.get());
                Err(Error::TimedOut {
                    call,
                    rank,
                    peer,
                    waited,
                })
            }
        }
    }

    /// Why a link broke. Membership knows soon: it sees the same connection end.
    fn verdict(&self, Broken(rank): Broken) -> Error {
        let mut failure = self.bond.failure();
        let peer = self.members[rank.index()].clone();
        let unexplained = Error::RankLost {
            peer,
            cause: LossCause::Disconnected,
            reporter: None,
        };
        let Some(runtime) = &self.runtime else {
            return unexplained;
        };
        runtime.block_on(async {
            timeout(self.timeouts.silence(), failed(&mut failure))
                .await
                .unwrap_or(unexplained)
        })
    }

    /// Ends the group with `error`, or the one it has ended with before, and tells the others.
    pub(super) fn end(&mut self, error: Error) -> Error {
        if let State::Failed(earlier) = &self.state {
            return earlier.clone();
        }
        let mut failure = self.bond.failure();
        let error = match &self.runtime {
            Some(runtime) => runtime.block_on(async {
                self.bond.give_up(error.clone()).await;
                timeout(self.timeouts.silence(), failed(&mut failure))
                    .await
                    .unwrap_or(error)
            }),
            None => error,
        };
        self.state = State::Failed(error.clone());
        error
    }
}

/// What a caller asked for, before the element type and the count are known.
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) op: Option<ReduceOp>,
    pub(super) root: Option<Rank>,
    pub(super) algorithm: Algorithm,
    pub(super) schedule: Schedule,
}

impl Asked {
    fn contract(&self, sequence: u64, element: ElementType, count: u64) -> Contract {
        let Self {
            kind,
            op,
            root,
            algorithm,
            ..
        } = *self;
        Contract {
            sequence,
            kind,
            algorithm,
            element,
            count,
            op,
            root,
        }
    }
}

impl Bond {
    pub(super) fn failure(&self) -> watch::Receiver<Option<Error>> {
        match self {
            Self::Local(hub) => hub.failure(),
            Self::Remote(remote) => remote.failure(),
        }
    }

    pub(super) async fn give_up(&self, error: Error) {
        match self {
            Self::Local(hub) => hub.give_up(error),
            Self::Remote(remote) => remote.give_up(error).await,
        }
    }

    pub(super) async fn leave(&mut self, world: u32) {
        match self {
            Self::Local(hub) => hub.leave(world).await,
            Self::Remote(remote) => remote.leave().await,
        }
    }
}

/// Returns when the group is over, with the reason.
pub(super) async fn failed(failure: &mut watch::Receiver<Option<Error>>) -> Error {
    match failure
        .wait_for(Option::is_some)
        .await
        .map(|error| error.clone())
    {
        Ok(Some(error)) => error,
        // The driver is gone: either the group was left, and nobody waits here, or it has
        // reported its failure in the channel's last value.
        Ok(None) | Err(_) => std::future::pending().await,
    }
}
