//! Members that move while their connections live: each tells those that have called it, and they
//! go on there. QUIC itself follows who has called.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use quinn::Connection;
use tokio::time::{sleep, timeout};

use super::dial::{ATTEMPT, Attempt, connect, greet_on};
use super::{Admission, lock};
use crate::host::{from_here_to, is_here};
use crate::notice::say;
use crate::quic::UNNEEDED;
use crate::quic::roaming::LOOK;
use crate::wire::{Hello, MemberProcess};
use crate::{DataTransport, Rank};

/// A member that has called this one, at an address of this machine that is none of it any more.
struct Caller {
    rank: Rank,
    address: SocketAddr,
    /// From where it is reached now.
    from: IpAddr,
}

/// Tells members that have called this one where it is, whenever it has moved; for as long as the
/// epoch lasts.
pub(in crate::quic) async fn tell_where_this_is(admission: Arc<Admission>) {
    // What goes over TCP ends with its address.
    while !admission.events.is_closed() && admission.data_transport() == DataTransport::Quic {
        sleep(LOOK).await;
        for caller in admission.callers_to_tell() {
            let told = timeout(ATTEMPT, tell(&admission, &caller)).await;
            match told {
                Ok(Ok(()) | Err(Attempt::Hopeless(_))) => admission.is_told(&caller),
                // Either is on its way: the next look finds the same.
                Ok(Err(Attempt::Failed | Attempt::Slow)) | Err(_) => {}
            }
        }
    }
}

/// Greets it once more: who greets has moved if there is a connection already.
async fn tell(admission: &Admission, caller: &Caller) -> Result<(), Attempt> {
    let peer = admission.member(caller.rank);
    let endpoint = &admission.node.endpoint;
    let connection = connect(admission, endpoint, caller.address, &peer).await?;
    let greeted = greet_on(admission, &peer, connection).await?;
    greeted.close(UNNEEDED);
    Ok(())
}

impl Admission {
    /// Members that have called this one, directly, and do not know where it is.
    fn callers_to_tell(&self) -> Vec<Caller> {
        let admitted = self.admitted();
        let callers = admitted.iter().filter(|(rank, _)| **rank > self.me);
        let callers: Vec<(Rank, Connection)> = callers
            .filter_map(|(rank, member)| {
                let connection = member.control_sender.connections().first()?;
                Some((*rank, connection.clone()))
            })
            .collect();
        // The kernel is asked for each, which nobody else waits for.
        drop(admitted);
        let callers = callers.iter();
        callers
            .filter_map(|(rank, connection)| self.caller_to_tell(*rank, connection))
            .collect()
    }

    fn caller_to_tell(&self, rank: Rank, connection: &Connection) -> Option<Caller> {
        let called_at = connection.local_ip()?;
        if called_at.is_loopback() {
            return None;
        }
        if !is_here(called_at) {
            self.node.moves.lose(called_at);
        }
        let address = connection.remote_address();
        if !self.node.ways.is_direct(address) {
            return None;
        }
        let member = self.process(rank)?;
        let told = lock(&self.node.told).get(&member).copied();
        let knows = match told {
            Some(told) => is_here(told),
            None => !self.node.moves.is_lost(called_at),
        };
        // Without any way there is nobody to tell it.
        let from = (!knows).then(|| from_here_to(address).ok()).flatten();
        from.map(|from| Caller {
            rank,
            address,
            from,
        })
    }

    fn is_told(&self, caller: &Caller) {
        if let Some(member) = self.process(caller.rank) {
            lock(&self.node.told).insert(member, caller.from);
        }
    }

    /// The process with this rank, where it is known.
    pub(super) fn process(&self, rank: Rank) -> Option<MemberProcess> {
        let member_id = self.member_id(rank);
        let incarnation = *lock(&self.incarnations).get(&member_id)?;
        Some(MemberProcess {
            member_id,
            incarnation,
        })
    }

    /// Whether whoever greets on this connection is a member that this one has called before: from
    /// now on it is where it greets from.
    pub(super) fn has_moved(&self, connection: &Connection, hello: &Hello) -> bool {
        let rank = Rank::new(hello.rank);
        let (Some(known), Some(member)) = (self.called_at(rank), self.process(rank)) else {
            return false;
        };
        let now = connection.remote_address();
        let is_it = self.identity.is(connection, self.role(rank))
            && self.examine(hello).is_ok()
            && member.incarnation == hello.incarnation
            && self.node.ways.is_direct(now);
        if is_it && self.node.moves.note(member, known, now) {
            let (member, now) = (self.member(rank), now.ip());
            say(format_args!(
                "{member} is at {now} now: its connection goes on there"
            ));
        }
        is_it
    }

    /// The address by which QUIC knows a member that this one has called directly.
    fn called_at(&self, rank: Rank) -> Option<SocketAddr> {
        if rank >= self.me {
            return None;
        }
        let called = self.connections(rank)?.first()?.remote_address();
        self.node.ways.is_direct(called).then_some(called)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::sync::mpsc;

    use super::*;
    use crate::quic::admission::Kept;
    use crate::quic::node::Node;
    use crate::quic::testing::Job;
    use crate::wire::{Decision, Newcomer};

    #[tokio::test]
    async fn a_member_that_was_started_again_is_told_anew() {
        let node = Node::open(&Job::new(2).config(0)).await.unwrap();
        let member = |incarnation| MemberProcess {
            member_id: 1,
            incarnation,
        };
        let begin = |epoch, survivors, newcomers| {
            let view = node.view(Decision {
                epoch,
                survivors,
                newcomers,
                completed: 0,
            });
            let (events, _inbox) = mpsc::channel(1);
            Admission::new(&node, view.unwrap(), Kept::new(), events)
        };
        lock(&node.told).insert(member(1), Ipv4Addr::LOCALHOST.into());
        begin(2, vec![node.me, member(1)], vec![]);
        assert!(lock(&node.told).contains_key(&member(1)));
        let again = Newcomer::at(member(2), "127.0.0.1:1");
        begin(3, vec![node.me], vec![again]);
        assert!(lock(&node.told).is_empty());
    }
}
