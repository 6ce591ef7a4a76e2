//! Every collective by every algorithm, in every small world, through the checker.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What a collective has to reach.
fn goal(collective: Collective) -> Goal {
    match collective {
        Collective::AllReduce => Goal::AllReduce,
        Collective::Reduce { root } => Goal::Reduce(root),
        Collective::Broadcast { root } => Goal::Broadcast(root),
        Collective::ReduceScatter => Goal::ReduceScatter,
        Collective::AllGather => Goal::AllGather,
        Collective::Gather { root } => Goal::Gather(root),
        Collective::Scatter { root } => Goal::Scatter(root),
        Collective::AllToAll => Goal::AllToAll,
        Collective::Barrier => Goal::Barrier,
    }
}

fn rootless() -> [Collective; 4] {
    [
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::Barrier,
    ]
}

fn rooted(root: u32) -> [Collective; 4] {
    let root = Rank::new(root);
    [
        Collective::Reduce { root },
        Collective::Broadcast { root },
        Collective::Gather { root },
        Collective::Scatter { root },
    ]
}

/// Asks for the proofs that take minutes too, where it is `all`.
const PROOFS: &str = "MESHWORK_PROOFS";

/// With every root. Where not all proofs are asked for, worlds of more than 16 have the first root
/// and an odd one, and few of them all-to-all, whose proof is a cube of the world's size.
fn every_collective(world: u32) -> Vec<Collective> {
    let all = world <= 16 || std::env::var_os(PROOFS).is_some_and(|proofs| proofs == "all");
    let roots = match all {
        true => (0..world).collect(),
        false => vec![0, (world / 2) | 1],
    };
    let rooted = roots.into_iter().flat_map(rooted);
    let mut every: Vec<_> = rootless().into_iter().chain(rooted).collect();
    if all || world.is_multiple_of(16) {
        every.push(Collective::AllToAll);
    }
    every
}

fn plan(collective: Collective, algorithm: Algorithm, hosts: &Hosts) -> (Vec<Vec<Round>>, usize) {
    let world = u32::try_from(hosts.world()).unwrap();
    let schedule = |rank| Schedule::new(collective, algorithm, hosts, rank);
    let plan = Rank::all(world).map(|rank| schedule(rank).rounds().collect());
    (plan.collect(), schedule(Rank::CHIEF).blocks())
}

#[track_caller]
fn proves(collective: Collective, algorithm: Algorithm, hosts: &Hosts) {
    let (plan, blocks) = plan(collective, algorithm, hosts);
    let found = check(&plan, blocks, &goal(collective));
    let sure = algorithm.order(collective, hosts);
    assert!(
        found.as_ref().is_ok_and(|order| *order >= sure),
        "{collective:?} by {algorithm} among {hosts:?}: {found:?}, not {sure:?}"
    );
}

#[test]
fn every_collective_is_proved_for_every_algorithm_and_every_world_up_to_64() {
    for algorithm in Algorithm::ALL {
        for world in 1..=64 {
            let hosts = Hosts::apart(world);
            for collective in every_collective(world) {
                proves(collective, algorithm, &hosts);
            }
        }
    }
}

/// Hosts of equally many ranks, in rows and in turn; of 1, 1, 2, 4, 8 …; one of most and many of
/// one.
fn placements(world: u32) -> Vec<Hosts> {
    let rows = |size: u32| Hosts::of((0..world).map(|rank| rank / size));
    let in_turn = |hosts: u32| Hosts::of((0..world).map(|rank| rank % hosts));
    let growing = Hosts::of((0..world).map(|rank| rank.checked_ilog2()));
    let lopsided = Hosts::of((0..world).map(|rank| if rank % 5 == 3 { rank } else { u32::MAX }));
    vec![
        rows(world),
        rows(2),
        rows(3),
        rows(8),
        in_turn(2),
        in_turn(3),
        growing,
        lopsided,
    ]
}

#[test]
fn hierarchical_schedules_are_proved_wherever_the_ranks_are() {
    for world in 1..=64 {
        // All placements of small worlds, and of each larger one another.
        let (all, one) = (placements(world), world as usize % 8);
        let chosen = if world <= 16 { 0..8 } else { one..one + 1 };
        for hosts in &all[chosen] {
            for collective in every_collective(world) {
                proves(collective, Algorithm::Hierarchical, hosts);
            }
        }
    }
}

#[test]
fn an_all_to_all_by_hosts_crosses_between_equal_local_ranks_and_else_stays_on_the_host() {
    for world in 1..=16 {
        for hosts in placements(world) {
            for rank in Rank::all(world) {
                let me = rank.index();
                let by_hosts = Algorithm::Hierarchical;
                let schedule = Schedule::new(Collective::AllToAll, by_hosts, &hosts, rank);
                for (index, round) in schedule.rounds().enumerate() {
                    let to: BTreeSet<usize> =
                        round.sends().iter().map(|send| send.to.index()).collect();
                    let expected = |to: &usize| match index {
                        1 => hosts.local_rank(*to) == hosts.local_rank(me),
                        _ => hosts.share(*to, me),
                    };
                    assert!(to.iter().all(expected), "{hosts:?}, {rank}: {to:?}");
                }
            }
        }
    }
}

#[test]
fn hierarchical_schedules_are_proved_for_every_placement_of_up_to_five_ranks() {
    for world in 1..=5_u32 {
        for code in 0..world.pow(world) {
            let hosts = Hosts::of((0..world).map(|rank| code / world.pow(rank) % world));
            for collective in every_collective(world) {
                proves(collective, Algorithm::Hierarchical, &hosts);
            }
        }
    }
}

#[test]
fn orders_are_as_good_as_promised_and_no_better_where_it_matters() {
    let found = |algorithm, hosts: &Hosts| {
        let (plan, blocks) = plan(Collective::AllReduce, algorithm, hosts);
        check(&plan, blocks, &Goal::AllReduce).unwrap()
    };
    let apart = Hosts::apart(8);
    assert_eq!(found(Algorithm::Direct, &apart), Order::BalancedAtOnce);
    assert_eq!(found(Algorithm::OneShot, &apart), Order::BalancedAtOnce);
    assert_eq!(found(Algorithm::Tree, &apart), Order::Balanced);
    assert_eq!(found(Algorithm::Knomial, &apart), Order::BalancedAtOnce);
    assert_eq!(found(Algorithm::Halving, &apart), Order::Balanced);
    assert_eq!(found(Algorithm::Ring, &apart), Order::Any);
    let aligned = Hosts::of([0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(found(Algorithm::Hierarchical, &aligned), Order::Balanced);
    let shifted = Hosts::of([0, 1, 1, 2, 2, 3, 3, 0]);
    assert_eq!(found(Algorithm::Hierarchical, &shifted), Order::Any);
    assert_eq!(found(Algorithm::Tree, &Hosts::apart(7)), Order::Balanced);
    assert_eq!(
        found(Algorithm::Knomial, &Hosts::apart(20)),
        Order::Balanced
    );
    assert_eq!(found(Algorithm::Halving, &Hosts::apart(5)), Order::Any);
}

/// That ranks send to these targets, and receive from whoever has them as a target.
#[track_caller]
fn proves_permutation(targets: Vec<Option<Rank>>) {
    let world = u32::try_from(targets.len()).unwrap();
    let plan: Vec<Vec<Round>> = Rank::all(world)
        .map(|rank| {
            let from = targets.iter().position(|to| *to == Some(rank));
            let schedule = Schedule::permute(world, rank, targets[rank.index()], from.map(rank_at));
            schedule.rounds().collect()
        })
        .collect();
    let (blocks, goal) = (targets.len(), Goal::Permute(targets));
    let found = check(&plan, blocks, &goal);
    assert!(found.is_ok(), "{goal:?}: {found:?}");
}

#[test]
fn every_permutation_of_up_to_five_ranks_and_every_partial_one_is_proved() {
    for world in 1..=5_u32 {
        for code in 0..(world + 1).pow(world) {
            let target = |rank: u32| match code / (world + 1).pow(rank) % (world + 1) {
                to if to == world => None,
                to => Some(Rank::new(to)),
            };
            let targets: Vec<_> = (0..world).map(target).collect();
            let mut named: Vec<_> = targets.iter().flatten().collect();
            named.sort();
            if named.windows(2).all(|pair| pair[0] != pair[1]) {
                proves_permutation(targets);
            }
        }
    }
}

proptest! {
    #[test]
    fn permutations_of_up_to_64_ranks_are_proved_whole_and_in_part(
        (order, part) in (1..=64_u32).prop_flat_map(|world| {
            let order: Vec<u32> = (0..world).collect();
            (Just(order).prop_shuffle(), vec(any::<bool>(), world as usize))
        })
    ) {
        let sends = order.into_iter().zip(part);
        proves_permutation(sends.map(|(to, sends)| sends.then(|| Rank::new(to))).collect());
    }
}

#[test]
fn every_single_change_to_a_schedule_is_found() {
    for algorithm in Algorithm::ALL {
        for hosts in [
            Hosts::apart(2),
            Hosts::apart(3),
            Hosts::of([0, 0, 1]),
            Hosts::of([0, 0, 1, 1]),
        ] {
            let world = u32::try_from(hosts.world()).unwrap();
            for collective in every_collective(world) {
                let (sound, blocks) = plan(collective, algorithm, &hosts);
                for mutant in mutants(&sound, world) {
                    let verdict = check(&mutant, blocks, &goal(collective));
                    assert!(
                        verdict.is_err(),
                        "{collective:?} by {algorithm} of {world}: {mutant:?}"
                    );
                }
            }
        }
    }
}

/// Each schedule that differs from `sound` in one field of one transfer of one rank.
fn mutants(sound: &[Vec<Round>], world: u32) -> Vec<Vec<Vec<Round>>> {
    let mut mutants = Vec::new();
    for (rank, rounds) in sound.iter().enumerate() {
        for (index, round) in rounds.iter().enumerate() {
            for changed in changes(round, world) {
                let mut mutant = sound.to_vec();
                mutant[rank][index] = changed;
                mutants.push(mutant);
            }
        }
    }
    mutants
}

fn changes(round: &Round, world: u32) -> Vec<Round> {
    let next = |rank: Rank| Rank::new((rank.number() + 1) % world);
    let mut changes = Vec::new();
    let mut change = |edit: &dyn Fn(&mut Round)| {
        let mut changed = round.clone();
        edit(&mut changed);
        changes.push(changed);
    };
    for (at, send) in round.sends.iter().enumerate() {
        change(&|round| {
            round.sends.remove(at);
        });
        change(&|round| round.sends[at].to = next(send.to));
        change(&|round| round.sends[at].blocks.end += 1);
        change(&|round| round.sends.push(send.clone()));
    }
    for (at, receive) in round.receives.iter().enumerate() {
        change(&|round| {
            round.receives.remove(at);
        });
        change(&|round| round.receives[at].from = next(receive.from));
        change(&|round| round.receives[at].blocks.start += 1);
        // A barrier moves nothing that could be reduced.
        if !receive.blocks.is_empty() {
            change(&|round| {
                round.receives[at].then = match receive.then {
                    OnReceive::Reduce => OnReceive::Replace,
                    OnReceive::Replace => OnReceive::Reduce,
                }
            });
        }
    }
    changes
}

#[test]
fn no_transfer_can_be_left_out() {
    let collectives = [
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::AllToAll,
        Collective::Gather { root: Rank::new(1) },
        Collective::Scatter { root: Rank::new(1) },
        Collective::Barrier,
    ];
    for algorithm in Algorithm::ALL {
        for hosts in [
            Hosts::apart(5),
            Hosts::of([0, 0, 1, 1, 1]),
            Hosts::of([0, 1, 0, 2, 1]),
        ] {
            for collective in collectives {
                let (sound, blocks) = plan(collective, algorithm, &hosts);
                for without in with_one_transfer_less(&sound) {
                    let verdict = check(&without, blocks, &goal(collective));
                    assert!(
                        verdict.is_err(),
                        "{collective:?} by {algorithm}: {without:?}"
                    );
                }
            }
        }
    }
}

/// Each schedule that lacks one transfer, on both of its sides.
fn with_one_transfer_less(sound: &[Vec<Round>]) -> Vec<Vec<Vec<Round>>> {
    let mut all = Vec::new();
    for (rank, rounds) in sound.iter().enumerate() {
        for (index, round) in rounds.iter().enumerate() {
            for (at, send) in round.sends.iter().enumerate() {
                let mut without = sound.to_vec();
                without[rank][index].sends.remove(at);
                let receives = &mut without[send.to.index()][index].receives;
                let other = |receive: &Receive| {
                    receive.from.index() == rank && receive.blocks == send.blocks
                };
                let other = receives.iter().position(other).unwrap();
                receives.remove(other);
                all.push(without);
            }
        }
    }
    all
}

/// Where a block, a root or a target is missing, an empty schedule would do.
#[test]
fn goals_that_fit_other_ranks_or_blocks_are_not_reached() {
    let none = |world| vec![Vec::new(); world];
    let beyond = Rank::new(4);
    for goal in [
        Goal::Reduce(beyond),
        Goal::Broadcast(beyond),
        Goal::Gather(beyond),
        Goal::Scatter(beyond),
        Goal::Permute(vec![None, Some(beyond), None, None]),
    ] {
        let (rank, world) = (beyond, 4);
        let expected = Violation::RankOutside { rank, world };
        assert_eq!(check(&none(4), 4, &goal), Err(expected), "{goal:?}");
    }
    let root = Rank::CHIEF;
    for (goal, blocks, expected) in [
        (Goal::AllReduce, 0, 1),
        (Goal::Reduce(root), 0, 1),
        (Goal::Broadcast(root), 0, 1),
        (Goal::ReduceScatter, 0, 4),
        (Goal::AllGather, 0, 4),
        (Goal::Gather(root), 3, 4),
        (Goal::Scatter(root), 5, 4),
        (Goal::Permute(vec![None; 4]), 0, 4),
        (Goal::AllToAll, 0, 16),
        (Goal::AllToAll, 4, 16),
    ] {
        let found = check(&none(4), blocks, &goal);
        let expected = Violation::BlockCount {
            blocks,
            expected,
            world: 4,
        };
        assert_eq!(found, Err(expected), "{goal:?}");
    }
    let (targets, world) = (0, 4);
    let expected = Violation::TargetCount { targets, world };
    assert_eq!(
        check(&none(4), 4, &Goal::Permute(Vec::new())),
        Err(expected)
    );
}

#[test]
fn a_broadcast_of_one_block_is_no_all_gather() {
    let root = Rank::CHIEF;
    let (spread, blocks) = plan(
        Collective::Broadcast { root },
        Algorithm::Tree,
        &Hosts::apart(3),
    );
    assert!(check(&spread, blocks, &Goal::Broadcast(root)).is_ok());
    let expected = Violation::BlockCount {
        blocks: 1,
        expected: 3,
        world: 3,
    };
    assert_eq!(check(&spread, blocks, &Goal::AllGather), Err(expected));
}

#[test]
fn the_checker_names_what_is_wrong() {
    let apart = Hosts::apart(2);
    let (mut ring, blocks) = plan(Collective::AllReduce, Algorithm::Ring, &apart);
    ring[1].pop();
    let expected = Violation::RoundCount {
        rank: Rank::new(1),
        rounds: 1,
        expected: 2,
    };
    assert_eq!(check(&ring, blocks, &Goal::AllReduce), Err(expected));
    let (mut tree, blocks) = plan(Collective::AllReduce, Algorithm::Tree, &apart);
    tree[0][0].receives.clear();
    let expected = Violation::UnmatchedSend {
        round: 0,
        rank: Rank::new(1),
        to: Rank::new(0),
        blocks: 0..1,
    };
    assert_eq!(check(&tree, blocks, &Goal::AllReduce), Err(expected));
    let (mut direct, blocks) = plan(Collective::AllToAll, Algorithm::Direct, &Hosts::apart(3));
    direct[1][0].sends.reverse();
    let expected = Violation::OutOfOrder {
        round: 0,
        rank: Rank::new(1),
        peer: Rank::new(2),
    };
    assert_eq!(check(&direct, blocks, &Goal::AllToAll), Err(expected));
}

#[test]
fn rounds_and_blocks_are_those_of_the_textbook() {
    let sent = |collective, algorithm, world| {
        let (plan, blocks) = plan(collective, algorithm, &Hosts::apart(world));
        let of_rank = |rounds: &Vec<Round>| {
            let sends = rounds.iter().flat_map(|round| round.sends());
            sends.map(|send| send.blocks.len()).sum::<usize>()
        };
        let most = plan.iter().map(of_rank).max().unwrap();
        (plan[0].len(), most, blocks)
    };
    let all_reduce = Collective::AllReduce;
    assert_eq!(sent(all_reduce, Algorithm::Ring, 8), (14, 14, 8));
    assert_eq!(sent(all_reduce, Algorithm::Direct, 8), (2, 14, 8));
    assert_eq!(sent(all_reduce, Algorithm::Halving, 8), (6, 14, 8));
    assert_eq!(sent(all_reduce, Algorithm::Halving, 9), (8, 22, 8));
    assert_eq!(sent(all_reduce, Algorithm::Tree, 8), (6, 3, 1));
    assert_eq!(sent(all_reduce, Algorithm::Knomial, 8), (2, 7, 1));
    assert_eq!(sent(all_reduce, Algorithm::Knomial, 64), (4, 14, 1));
    assert_eq!(sent(all_reduce, Algorithm::OneShot, 8), (1, 7, 1));
    assert_eq!(sent(all_reduce, Algorithm::Ring, 1), (0, 0, 1));
    assert_eq!(sent(Collective::AllToAll, Algorithm::Tree, 8), (3, 12, 64));
    assert_eq!(sent(Collective::Barrier, Algorithm::Ring, 9), (4, 0, 0));
    assert_eq!(sent(Collective::Barrier, Algorithm::Tree, 9), (8, 0, 0));
    assert_eq!(sent(Collective::Barrier, Algorithm::Knomial, 9), (4, 0, 0));
}

#[test]
fn between_hosts_a_hierarchical_all_reduce_moves_the_fewest_blocks_and_every_rank_its_share() {
    // 3 hosts of 4 ranks: a host must send 2(3-1)/3 of the buffer, a rank a quarter of that.
    let hosts = Hosts::of((0..12).map(|rank| rank / 4));
    let (plan, blocks) = plan(Collective::AllReduce, Algorithm::Hierarchical, &hosts);
    for (rank, rounds) in plan.iter().enumerate() {
        let sends = rounds.iter().flat_map(|round| round.sends());
        let abroad = sends.filter(|send| !hosts.share(rank, send.to.index()));
        let sent: usize = abroad.map(|send| send.blocks.len()).sum();
        assert_eq!(sent * 12, blocks * 4, "rank {rank}");
    }
}

#[test]
fn codes_and_algorithms_are_inverse() {
    let known: Vec<u8> = (0..=u8::MAX)
        .filter(|code| Algorithm::from_code(*code).is_some())
        .collect();
    assert_eq!(known, Algorithm::ALL.map(Algorithm::code));
}
