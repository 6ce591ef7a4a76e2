//! Claims about the network between ranks that hold for every way to use it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::Congestion;

/// Two groups of the same ranks, one split from the other, do this on every rank.
fn sums_are_right(networks: &[Network], elements: usize) {
    let (members, secret) = (
        free_addresses(u32::try_from(networks.len()).unwrap()),
        JobSecret::generate().unwrap(),
    );
    let ranks = Rank::all(u32::MAX).zip(networks);
    let world = networks.len() as f32;
    each(ranks, |(rank, network)| {
        let config = config(&members, rank, &secret)
            .with_transport(Transport::Quic)
            .with_network(*network);
        let mut group = Group::connect(&config).unwrap();
        let mut other = group.split(Some(0), 0).unwrap().unwrap();
        for repeat in 0..2 {
            for group in [&mut group, &mut other] {
                let own = |at: usize| (at % 1000 + rank.index() + repeat) as f32;
                let mut buffer: Vec<f32> = (0..elements).map(own).collect();
                group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
                let others = (0..networks.len()).sum::<usize>() as f32;
                let sum = |at: usize| world * (at % 1000 + repeat) as f32 + others;
                assert!((0..elements).all(|at| buffer[at].to_bits() == sum(at).to_bits()));
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
    for carrier in CARRIERS {
        let cubic = Network::default().with_carrier(carrier);
        let bbr = cubic.with_congestion(Congestion::Bbr);
        sums_are_right(&[bbr, cubic], 1_000_000);
        sums_are_right(&[bbr; 2], 1_000_000);
    }
}

#[test]
fn several_connections_carry_the_same() {
    for carrier in CARRIERS {
        for connections in [2, 3, 16] {
            let network = Network::default().with_carrier(carrier);
            let network = network.with_connections(connections).unwrap();
            sums_are_right(&[network; 3], 300_001);
        }
    }
}

/// What rank 1 is refused for whose network is not that of rank 0.
fn refusal_between(networks: [Network; 2]) -> Refusal {
    let (members, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let short = Timeouts::default().with_join(Duration::from_millis(600));
    let mut errors = each(Rank::all(2), |rank| {
        let config = config(&members, rank, &secret)
            .with_timeouts(short)
            .with_network(networks[rank.index()]);
        Group::connect(&config).unwrap_err()
    });
    match errors.remove(1) {
        Error::Refused { reason, .. } => reason,
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
fn ranks_with_different_carriers_refuse_each_other_and_say_so() {
    for [expected, found] in [[Carrier::Quic, Carrier::Tls], [Carrier::Tls, Carrier::Quic]] {
        let networks = [expected, found].map(|carrier| Network::default().with_carrier(carrier));
        let refusal = refusal_between(networks);
        assert_eq!(refusal, Refusal::Carrier { expected, found });
        let text =
            format!("the carrier {expected} and this process with {found}; give all the same");
        assert!(refusal.to_string().contains(&text), "{refusal}");
    }
}

/// Rank 0 is reached by a relay of datagrams only, as behind a firewall that knows nothing of TCP.
#[test]
fn a_member_whose_port_is_open_for_udp_alone_is_named_with_what_to_do() {
    let (relay, back) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    let place = free_addresses(1).remove(0);
    let members = [
        relay.local_addr().unwrap().to_string(),
        free_addresses(1).remove(0),
    ];
    let secret = JobSecret::generate().unwrap();
    let short = Timeouts::default().with_join(Duration::from_secs(4));
    let over = AtomicBool::new(false);
    let errors = thread::scope(|scope| {
        scope.spawn(|| passes_on(&relay, &back, &place, &over));
        scope.spawn(|| passes_on(&back, &relay, &members[1], &over));
        let errors = each(Rank::all(2), |rank| {
            let mut config = config(&members, rank, &secret).with_timeouts(short);
            if rank == Rank::CHIEF {
                config = config.with_bind(place.parse().unwrap());
            }
            Group::connect(&over_tls(config, Network::default())).unwrap_err()
        });
        over.store(true, Ordering::SeqCst);
        errors
    });
    let Error::TcpUnreached { peer, .. } = &errors[1] else {
        panic!("{}", errors[1])
    };
    assert_eq!(peer.rank(), Rank::CHIEF);
    let text = errors[1].to_string();
    assert!(text.contains("open the port for TCP too"), "{text}");
    assert!(
        matches!(errors[0], Error::NotJoined { .. }),
        "{}",
        errors[0]
    );
}

/// Passes datagrams on until all is over.
fn passes_on(from: &UdpSocket, by: &UdpSocket, to: &str, over: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut datagram = [0; 65_536];
    while !over.load(Ordering::SeqCst) {
        if let Ok((bytes, _)) = from.recv_from(&mut datagram) {
            // A datagram that is lost is sent again.
            let _ = by.send_to(&datagram[..bytes], to);
        }
    }
}

#[test]
fn a_lost_rank_is_named_over_several_connections_too() {
    CARRIERS.into_iter().for_each(one_of_two_is_lost);
}

fn one_of_two_is_lost(carrier: Carrier) {
    let (members, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let network = Network::default().with_carrier(carrier);
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
    let Some(Error::RankLost { peer, cause, .. }) = &lost[0] else {
        panic!("{:?}", lost[0])
    };
    assert_eq!((peer.rank(), cause), (Rank::new(1), &LossCause::Left));
}
