//! Ranks that share cores reckon with it, all alike, in every group and every epoch.

use std::sync::Barrier;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::*;
use crate::CostModel;

/// Lets this thread, and those that it starts, run on one core alone: the same for all.
fn pin() {
    let own = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|core| own.is_set(*core)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
}

fn model(group: &Group) -> CostModel {
    let session = group.settled();
    match &session.context.control {
        ControlPlane::Remote(remote) => remote.cost_model(&session.members),
        ControlPlane::Local(_) => panic!("threads have no links"),
    }
}

fn shared_by(ranks: f64) -> CostModel {
    CostModel::QUIC.with_ranks_per_core(ranks)
}

#[test]
fn every_group_and_epoch_reckons_with_the_most_shared_host_of_its_ranks() {
    let (members, secret) = (free_addresses(4), JobSecret::generate().unwrap());
    let groups = each(Rank::all(4), |rank| {
        pin();
        let host = if rank.number() < 3 { "a" } else { "b" };
        let config = config(&members, rank, &secret).with_host(host);
        Group::connect(&config.with_transport(Transport::Quic)).unwrap()
    });
    let all_here = Barrier::new(4);
    let next = each(groups, |mut group| {
        pin();
        assert_eq!(model(&group), shared_by(3.0));
        let rank = group.rank().number();
        let halves = group.split(Some(rank / 2), 0).unwrap().unwrap();
        assert_eq!(model(&halves), shared_by(3.0));
        let here = group.split(Some(rank / 3), 0).unwrap().unwrap();
        assert_eq!(
            model(&here),
            shared_by(if rank < 3 { 3.0 } else { 1.0 }),
            "{rank}"
        );
        drop((halves, here));
        // Whoever is gone is lost to all who still wait for anybody.
        all_here.wait();
        if rank == 1 {
            return None;
        }
        group.barrier().unwrap_err();
        group.shrink().unwrap();
        assert_eq!(model(&group), shared_by(2.0));
        Some(group)
    });
    // Nobody ends before the others have seen what they see.
    assert_eq!(next.into_iter().flatten().count(), 3);
}
