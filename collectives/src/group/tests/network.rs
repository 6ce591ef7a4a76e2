//! Claims about the network between ranks that hold for every way to use it.

use super::*;
use crate::Congestion;

/// So many elements, of which each is that 1,000 before it.
fn waves(elements: usize, of: impl Fn(usize) -> usize) -> Vec<f32> {
    let wave: Vec<f32> = (0..1000).map(|at| of(at) as f32).collect();
    let mut waves = wave.repeat(elements.div_ceil(wave.len()));
    waves.truncate(elements);
    waves
}

/// Two groups of the same ranks, one split from the other, do this on every rank.
fn sums_are_right(networks: &[Network], elements: usize) {
    let (members, secret) = (
        free_addresses(networks.len()),
        JobSecret::generate().unwrap(),
    );
    let ranks = Rank::all(u32::MAX).zip(networks);
    let world = networks.len();
    let others = (0..world).sum::<usize>();
    each(ranks, |(rank, network)| {
        let config = config(&members, rank, &secret)
            .with_transport(Transport::Quic)
            .with_network(*network);
        let mut group = Group::connect(&config).unwrap();
        let mut other = group.split(Some(0), 0).unwrap().unwrap();
        for repeat in 0..2 {
            for group in [&mut group, &mut other] {
                let mut buffer = waves(elements, |at| at + rank.index() + repeat);
                group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                let sum = waves(elements, |at| world * (at + repeat) + others);
                assert!(same_bits(&buffer, &sum));
            }
        }
        group.leave().unwrap();
    });
}

#[test]
fn packets_of_every_size_carry_the_same() {
    for bytes in [1200, 1452, 8952, 20_000, 65_507] {
        let network = Network::default().with_largest_packet(bytes).unwrap();
        sums_are_right(&[network; 2], 1_000_000);
    }
}

#[test]
fn ranks_may_bound_their_packets_differently() {
    let small = Network::default().with_largest_packet(1200).unwrap();
    let large = Network::default().with_largest_packet(65_507).unwrap();
    sums_are_right(&[small, large, Network::default()], 300_000);
}

#[test]
fn either_congestion_control_on_either_side_carries_the_same() {
    for data_transport in DATA_TRANSPORTS {
        let cubic = Network::default().with_data_transport(data_transport);
        let bbr = cubic.with_congestion(Congestion::Bbr);
        sums_are_right(&[bbr, cubic], 1_000_000);
        sums_are_right(&[bbr; 2], 1_000_000);
    }
}

#[test]
fn several_connections_carry_the_same() {
    for data_transport in DATA_TRANSPORTS {
        for connections in [2, 3, 16] {
            let network = Network::default().with_data_transport(data_transport);
            let network = network.with_connections(connections).unwrap();
            sums_are_right(&[network; 3], 300_001);
        }
    }
}

/// What rank 1 is refused for whose network is not that of rank 0.
fn refusal_between(networks: [Network; 2]) -> Refusal {
    let (members, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let mut errors = each(Rank::all(2), |rank| {
        let config = config(&members, rank, &secret).with_network(networks[rank.index()]);
        let error = Group::connect(&config).unwrap_err();
        if rank != Rank::CHIEF {
            // Rank 0 need not wait for it any longer.
            quic::announce_loss(&members[..1], &secret, rank, PATIENCE).unwrap();
        }
        error
    });
    match errors.remove(1) {
        Error::Join(JoinError::Refused { reason, .. }) => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn ranks_with_different_numbers_of_connections_refuse_each_other() {
    let of = |connections| Network::default().with_connections(connections).unwrap();
    let expected = Refusal::Connections {
        expected: 1,
        found: 2,
    };
    assert_eq!(refusal_between([of(1), of(2)]), expected);
}

#[test]
fn ranks_with_different_data_transports_refuse_each_other_and_say_so() {
    for [expected, found] in [
        [DataTransport::Quic, DataTransport::Tls],
        [DataTransport::Tls, DataTransport::Quic],
    ] {
        let networks = [expected, found]
            .map(|data_transport| Network::default().with_data_transport(data_transport));
        let refusal = refusal_between(networks);
        assert_eq!(refusal, Refusal::DataTransport { expected, found });
        let text =
            format!("the carrier {expected} and this process with {found}; give all the same");
        assert!(refusal.to_string().contains(&text), "{refusal}");
    }
}

#[test]
fn a_lost_rank_is_named_over_several_connections_too() {
    DATA_TRANSPORTS.into_iter().for_each(one_of_two_is_lost);
}

fn one_of_two_is_lost(data_transport: DataTransport) {
    let (members, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let network = Network::default().with_data_transport(data_transport);
    let network = network.with_connections(4).unwrap();
    let groups = each(Rank::all(2), |rank| {
        let config = config(&members, rank, &secret)
            .with_transport(Transport::Quic)
            .with_network(network);
        Group::connect(&config).unwrap()
    });
    let lost = each(groups, |mut group| {
        group.set_operation_timeout(PATIENCE);
        if group.rank() == Rank::new(1) {
            return None;
        }
        let mut buffer = vec![1.0_f32; 1 << 20];
        Some(group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap_err())
    });
    let Some(OperationError::RankLost { peer, cause, .. }) = &lost[0] else {
        panic!("{:?}", lost[0])
    };
    assert_eq!((peer.rank(), cause), (Rank::new(1), &LossCause::Left));
}

/// Of 24 ranks each has 8 neighbours: rank 0 has 1, 2, 4, 8 and 16, and 23, 22 and 20. Operations
/// go along a tree, in which it has 1 to 7, 8 and 16.
#[test]
fn ranks_are_connected_with_neighbours_and_with_others_when_a_message_needs_them() {
    let by_network = |config: GroupConfig| config.with_transport(Transport::Quic);
    let groups = connected(24, by_network);
    assert!(groups.iter().all(|group| group.connections() == 8));
    each(groups, |mut group| {
        group.barrier().unwrap();
        let mut buffer = [group.rank().number(); 3];
        group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        assert_eq!(buffer, [23 * 12; 3]);
        let connected = match group.rank().number() {
            0 | 8 | 16 => 12,
            other if [3, 5, 6, 7].contains(&(other % 8)) => 9,
            _ => 8,
        };
        // Who receives may have dialled the sender by now.
        let needed = usize::from([0, 12].contains(&group.rank().number()));
        assert!((connected..=connected + needed).contains(&group.connections()));
        match group.rank().number() {
            0 => group.send(&[5_u8], Rank::new(12)).unwrap(),
            12 => group.receive(&mut [0_u8], Rank::CHIEF).unwrap(),
            _ => {}
        }
        assert_eq!(group.connections(), connected + needed);
        group.leave().unwrap();
    });
}
