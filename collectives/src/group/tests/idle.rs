//! Connections beyond the budget are closed while nothing needs them, and nothing is lost by it.

use super::*;

/// What this rank tells another in a round.
fn told(from: u32, to: u32, round: u32) -> u32 {
    (round * 1000 + from) * 1000 + to
}

/// Everybody tells everybody, straight.
fn tell_all(group: &mut Group, round: u32) {
    let (me, world) = (group.rank().number(), group.world());
    let input: Vec<u32> = (0..world).map(|to| told(me, to, round)).collect();
    let expected: Vec<u32> = (0..world).map(|from| told(from, me, round)).collect();
    let mut output = vec![0; input.len()];
    group.all_to_all(&input, &mut output).unwrap();
    assert_eq!(output, expected, "to {me} in round {round}");
}

/// Everybody tells the rank so far ahead.
fn tell_one(group: &mut Group, distance: u32, round: u32) {
    let (me, world) = (group.rank().number(), group.world());
    let (to, from) = ((me + distance) % world, (me + world - distance) % world);
    let mut output = [0];
    group.send(&[told(me, to, round)], Rank::new(to)).unwrap();
    group.receive(&mut output, Rank::new(from)).unwrap();
    assert_eq!(output, [told(from, me, round)], "to {me} in round {round}");
}

/// Waits until every rank is connected with as many others as it should be. Rings need neighbours
/// only, and of more than 8 ranks those who tell each other their calls.
fn until_connections(group: &mut Group, fit: impl Fn(usize) -> bool) {
    let began = Instant::now();
    group.set_communication(Communication::Ring);
    loop {
        let connections = group.connections();
        let mut unfit = [u8::from(!fit(connections))];
        group.all_reduce(&mut unfit, ReduceOp::Max).unwrap();
        if unfit == [0] {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "with {connections} others");
    }
    group.set_communication(Communication::Auto);
}

fn with_budget(
    world: u32,
    budget: impl Fn(Rank) -> Network + Sync,
    data_transport: DataTransport,
) -> Vec<Group> {
    connected(world, |config| {
        let network = budget(config.rank()).with_data_transport(data_transport);
        config.with_transport(Transport::Quic).with_network(network)
    })
}

/// Of 9 ranks each has 6 neighbours, and not those at a distance of 3. Rank 0 hears of the calls of
/// 3 and 6 besides.
#[test]
fn connections_beyond_the_budget_are_closed_once_idle_and_dialled_again_at_use() {
    for data_transport in DATA_TRANSPORTS {
        let network = Network::default()
            .with_connection_budget(5)
            .with_idle(Duration::from_millis(20));
        let ended = each(with_budget(9, |_| network, data_transport), |mut group| {
            group.set_operation_timeout(PATIENCE);
            let mut odd = group.split(Some(group.rank().number() % 2), 0);
            let other = odd.as_mut().unwrap().as_mut().unwrap();
            for round in 0..2 {
                tell_all(&mut group, round);
                tell_all(other, round);
                tell_one(&mut group, 3, round);
                let callers = match group.rank().number() {
                    0 => 2,
                    3 | 6 => 1,
                    _ => 0,
                };
                // What comes next needs the others.
                until_connections(&mut group, |others| others == 6 + callers);
            }
            group
        });
        the_end_of_a_rank_is_named_by_all_who_go_on(ended);
    }
}

/// Also by those that are not connected with it. Of 8 ranks, each has 5 neighbours.
fn the_end_of_a_rank_is_named_by_all_who_go_on(mut groups: Vec<Group>) {
    let lost = Rank::new(8);
    drop(groups.pop());
    each(groups, |mut group| {
        let error = group.receive(&mut [0_u8], lost).unwrap_err();
        let OperationError::RankLost { peer, cause, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!((peer.rank(), cause), (lost, &LossCause::Left), "{error}");
        group.shrink().unwrap();
        for round in 0..2 {
            tell_one(&mut group, 3, round);
            until_connections(&mut group, |others| others == 5);
        }
        group.leave().unwrap();
    });
}

/// Of 8 ranks each has 5 neighbours, and not those at a distance of 3. Connections are closed after
/// a millisecond, so operations begin while that is asked for, agreed on and done, at either end.
#[test]
fn operations_that_begin_while_connections_are_closed_go_on() {
    for data_transport in DATA_TRANSPORTS {
        let network = Network::default()
            .with_connections(2)
            .unwrap()
            .with_connection_budget(0)
            .with_idle(Duration::from_millis(1));
        each(with_budget(8, |_| network, data_transport), |mut group| {
            group.set_operation_timeout(PATIENCE);
            let mut other = group.split(Some(0), 0).unwrap().unwrap();
            for round in 0..5 {
                let late = group.rank().number() * 7 + round * 5;
                (0..late % 4).for_each(|_| thread::yield_now());
                tell_one(&mut group, 3, round);
                // Barriers need neighbours only, and take the time in which others are closed.
                (0..round % 5).for_each(|_| group.barrier().unwrap());
                tell_one(&mut other, 5, round);
            }
            until_connections(&mut group, |others| others == 5);
            group.leave().unwrap();
        });
    }
}

/// Rank 0 has room for all, so it keeps whatever it is connected with.
#[test]
fn a_connection_stays_if_one_end_has_room_for_all() {
    let small = Network::default()
        .with_connection_budget(0)
        .with_idle(Duration::from_millis(1));
    let of = |rank: Rank| match rank {
        Rank::CHIEF => Network::default(),
        _ => small,
    };
    each(with_budget(8, of, DataTransport::Quic), |mut group| {
        group.set_operation_timeout(PATIENCE);
        tell_all(&mut group, 0);
        let stays = match group.rank().number() {
            0 => 7,
            3 | 5 => 6,
            _ => 5,
        };
        until_connections(&mut group, |others| others == stays);
        group.leave().unwrap();
    });
}
