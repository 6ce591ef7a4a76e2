//! From one epoch to the next neighbours keep their connections, and nothing that was sent on them.

use std::collections::BTreeMap;
use std::sync::Barrier;

use quinn::Connection;
use tokio::time::timeout;

use super::*;
use crate::{ConnectionCounts, overlay};

/// The connections of a rank by who is at the other end, and the rank that it has in this epoch.
type Connections = BTreeMap<u32, (Rank, Connection)>;

/// A group and who its ranks were in its first epoch.
struct Member {
    group: Group,
    founders: Vec<u32>,
}

impl Member {
    fn founder(group: Group) -> Self {
        let founders = (0..group.world()).collect();
        Self { group, founders }
    }

    fn connections(&self) -> Connections {
        let session = self.group.settled();
        let ControlPlane::Remote(remote) = &session.context.control else {
            panic!("a group of processes");
        };
        let others = Rank::all(self.group.world()).zip(&self.founders);
        others
            .filter_map(|(rank, founder)| Some((*founder, (rank, remote.connection(rank)?))))
            .collect()
    }

    fn counts(&self) -> ConnectionCounts {
        self.group.statistics().connections
    }

    /// Goes on without a founder, who is lost.
    fn goes_on_without(&mut self, lost: u32) {
        let place = self.founders.iter().position(|founder| *founder == lost);
        let place = Rank::at(place.unwrap());
        let Err(OperationError::RankLost { peer, .. }) = self.group.receive(&mut [0_u8], place)
        else {
            panic!("a rank is lost");
        };
        assert_eq!(peer.rank(), place);
        self.group.shrink().unwrap();
        self.founders.retain(|founder| *founder != lost);
        assert_eq!(self.group.world() as usize, self.founders.len());
        self.sum();
    }

    /// All work together.
    fn sum(&mut self) {
        self.group.set_communication(Communication::Tree);
        let mut sum = vec![self.group.rank().number(); 5000];
        self.group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        let world = self.group.world();
        assert_eq!(sum, [world * (world - 1) / 2; 5000]);
    }

    fn is_neighbour(&self, rank: Rank) -> bool {
        overlay::adjacent(self.group.rank(), rank, self.group.world())
    }
}

/// With how many others `after` has the connection of `before`, and with how many another one.
fn kept_and_new(before: &Connections, after: &Connections) -> (usize, usize) {
    let is_kept = |founder: &u32| {
        let ids = [before, after].map(|all| all.get(founder).map(|(_, one)| one.stable_id()));
        ids[0] == ids[1]
    };
    let kept = after.keys().filter(|founder| is_kept(founder)).count();
    (kept, after.len() - kept)
}

/// Waits until a connection has ended, which may be as long as last words go over it.
fn closes(connection: &Connection) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let deadline = Duration::from_secs(20);
    let ended = runtime.block_on(async { timeout(deadline, connection.closed()).await });
    assert!(ended.is_ok(), "it stays open");
}

fn members(world: u32, network: Network) -> Vec<Member> {
    let groups = connected(world, |config| {
        config.with_transport(Transport::Quic).with_network(network)
    });
    let founders = groups.into_iter().map(Member::founder);
    each(founders, |mut member| {
        member.sum();
        member
    })
}

/// Of 9 ranks each has 6 neighbours: those at a distance of 3 are none.
#[test]
fn neighbours_that_stay_keep_their_connections_and_only_others_are_dialled() {
    let mut members = members(9, Network::default());
    for lost in [4, 0] {
        let place = members[0].founders.iter().position(|one| *one == lost);
        drop(members.remove(place.unwrap()));
        let changed = each(members, |mut member| {
            let (before, counted) = (member.connections(), member.counts());
            member.goes_on_without(lost);
            let after = member.connections();
            let stay = |founder: &u32, rank: Rank| {
                before.contains_key(founder) && member.is_neighbour(rank)
            };
            let expected = after
                .iter()
                .filter(|(founder, (rank, _))| stay(founder, *rank));
            let (kept, new) = kept_and_new(&before, &after);
            assert_eq!(kept, expected.count(), "{before:?} {after:?}");
            let counted_as_kept = member.counts().kept - counted.kept;
            assert_eq!(counted_as_kept, kept as u64);
            // What neither end needs is closed.
            for (founder, (_, dropped)) in before {
                if !after.contains_key(&founder) {
                    closes(&dropped);
                }
            }
            (member, kept, new)
        });
        assert!(changed.iter().any(|(_, kept, _)| *kept > 0));
        assert!(changed.iter().any(|(_, _, new)| *new > 0));
        members = changed.into_iter().map(|(member, ..)| member).collect();
    }
    each(members, |member| member.group.leave().unwrap());
}

#[test]
fn over_tls_and_over_several_connections_all_are_dialled_anew() {
    let tls = Network::default().with_data_transport(DataTransport::Tls);
    let several = Network::default().with_connections(2).unwrap();
    for network in [tls, several] {
        let mut members = members(3, network);
        drop(members.remove(1));
        each(members, |mut member| {
            let before = member.connections();
            member.goes_on_without(1);
            assert_eq!(kept_and_new(&before, &member.connections()), (0, 1));
            assert_eq!(member.counts().kept, 0);
            member.group.leave().unwrap();
        });
    }
}

/// What all but one of so many ranks dial while they agree to go on without it and meet again, and
/// how many connections they keep, at both ends, each with such a group besides, if any.
fn counted_in_a_change(world: u32, besides: fn(&mut Group) -> Option<Group>) -> [u64; 2] {
    let mut members = each(members(world, Network::default()), |mut member| {
        let other = besides(&mut member.group);
        (member, other)
    });
    drop(members.remove(5));
    let counted = each(members, |(mut member, other)| {
        let before = member.counts();
        member.goes_on_without(5);
        let after = member.counts();
        drop(other);
        member.group.leave().unwrap();
        [after.dialled - before.dialled, after.kept - before.kept]
    });
    [0, 1].map(|column| counted.iter().map(|counts| counts[column]).sum())
}

/// `MESHWORK_SOAK` takes the ranks of which the benchmarks' page has the figures.
#[test]
fn neighbours_meet_over_what_is_kept_and_dial_the_others() {
    let world = match std::env::var("MESHWORK_SOAK") {
        Ok(_) => 16,
        Err(_) => 9,
    };
    let pairs: usize = Rank::all(world - 1)
        .map(|rank| overlay::neighbours(rank, world - 1).len())
        .sum();
    let pairs = pairs as u64 / 2;
    let [dialled, kept] = counted_in_a_change(world, |_| None);
    let [all, none] = counted_in_a_change(world, |group| group.split(Some(0), 0).unwrap());
    println!("{pairs} pairs: dialled {dialled}, kept {kept} ends; without, dialled {all}");
    assert_eq!(none, 0);
    // Agreeing takes handshakes too.
    assert!(all >= pairs, "{all} of {pairs}");
    let met = dialled + kept / 2;
    assert!(kept > 0 && met >= pairs, "{met} of {pairs}, {kept} kept");
}

#[test]
fn nothing_that_was_sent_in_one_epoch_is_received_in_the_next() {
    let mut members = members(3, Network::default());
    members[1]
        .group
        .send(&[7_u32; 10_000], Rank::CHIEF)
        .unwrap();
    drop(members.remove(2));
    each(members, |mut member| {
        let me = member.group.rank().number();
        let before = member.connections();
        member.goes_on_without(2);
        assert_eq!(kept_and_new(&before, &member.connections()), (1, 0));
        let mut told = [0_u32; 10_000];
        match me {
            1 => member.group.send(&[8_u32; 10_000], Rank::CHIEF).unwrap(),
            _ => {
                let sender = Rank::new(1);
                member.group.receive(&mut told, sender).unwrap();
                assert_eq!(told, [8; 10_000]);
            }
        }
        member.sum();
        member.group.leave().unwrap();
    });
}

/// Their streams would be open on the connection for as long as such a group lives.
#[test]
fn while_a_group_lives_that_was_split_from_the_last_epoch_all_are_dialled_anew() {
    let members = members(3, Network::default());
    let mut split = each(members, |mut member| {
        let mut other = member.group.split(Some(0), 0).unwrap().unwrap();
        other.barrier().unwrap();
        (member, other)
    });
    drop(split.pop());
    each(split, |(mut member, mut other)| {
        let before = member.connections();
        member.goes_on_without(2);
        assert_eq!(kept_and_new(&before, &member.connections()), (0, 1));
        assert!(other.barrier().is_err());
        drop(other);
        // Groups that are split from now on have streams of their own.
        let mut next = member.group.split(Some(0), 0).unwrap().unwrap();
        next.barrier().unwrap();
        member.sum();
        member.group.leave().unwrap();
    });
}

#[test]
fn a_connection_that_one_end_has_closed_meanwhile_is_dialled_anew() {
    for closes in [0, 1] {
        let mut members = members(3, Network::default());
        drop(members.remove(2));
        let both_are_over = Barrier::new(2);
        each(members, |mut member| {
            let before = member.connections();
            assert!(member.group.barrier().is_err());
            both_are_over.wait();
            if member.group.rank().number() == closes {
                let (_, connection) = &before[&(1 - closes)];
                connection.close(quinn::VarInt::from_u32(9), b"cut");
            }
            member.group.shrink().unwrap();
            member.founders = vec![0, 1];
            member.sum();
            assert_eq!(kept_and_new(&before, &member.connections()), (0, 1));
            member.group.leave().unwrap();
        });
    }
}

/// The members of an epoch that grows say goodbye, and meet again on the same connections.
#[test]
fn who_lets_others_in_keeps_its_connections() {
    let (addresses, secret) = (free_addresses(3), JobSecret::generate().unwrap());
    let configured = |rank| config(&addresses, rank, &secret).with_transport(Transport::Quic);
    let founded = each(Rank::all(3), |rank| {
        Group::connect(&configured(rank)).unwrap()
    });
    let mut members: Vec<Member> = founded.into_iter().map(Member::founder).collect();
    drop(members.remove(1));
    thread::scope(|scope| {
        let again = scope.spawn(|| {
            let group = Group::rejoin(&configured(Rank::new(1))).unwrap();
            let founders = vec![0, 2, 1];
            let mut member = Member { group, founders };
            assert_eq!(member.group.rank().number(), 2);
            member.sum();
            member.group.leave().unwrap();
        });
        let stayed = each(members, |mut member| {
            let before = member.connections();
            member.goes_on_without(1);
            while member.group.world() < 3 {
                member.group.grow().unwrap();
            }
            member.founders.push(1);
            assert_eq!(member.group.settled().communication, Communication::Tree);
            member.sum();
            let (kept, new) = kept_and_new(&before, &member.connections());
            member.group.leave().unwrap();
            (kept, new)
        });
        assert_eq!(stayed, [(1, 1); 2]);
        again.join().unwrap();
    });
}
