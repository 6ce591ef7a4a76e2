//! Judgements on a host's preflight facts: a healthy machine gives nothing but what is fine, and
//! each fault alone gives one entry with its level and subject.

use meshwork_collectives::OperationError;

use super::*;

fn member(rank: u32, addresses: &[&str]) -> Member {
    Member {
        rank: Rank::new(rank),
        address: format!("host{rank}:4000"),
        found: Ok(addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect()),
    }
}

/// A machine on which nothing is wrong.
fn healthy() -> Facts {
    Facts {
        rank: Rank::CHIEF,
        members: vec![member(0, &["10.0.0.1:4000"]), member(1, &["10.0.0.2:4000"])],
        port: Some(("10.0.0.1:4000".parse().unwrap(), None)),
        tcp_port: Some(("10.0.0.1:4000".parse().unwrap(), None)),
        mtu: Some(1500),
        receive_buffer: Some(BUFFER),
        send_buffer: Some(BUFFER),
        cores: 1,
        secret: Some(SecretSource::Variable),
        not_joined: None,
    }
}

fn pair(one: u32, other: u32) -> RankPair {
    RankPair {
        one: Rank::new(one),
        other: Rank::new(other),
        latency: 1e-5,
        bandwidth: 1e9,
        clock: 0.001,
    }
}

/// What is not fine, as level, subject and text.
fn troubles(facts: &Facts, pairs: &[RankPair]) -> Vec<(Level, &'static str, String)> {
    let found = findings(facts, pairs);
    for finding in &found {
        assert_eq!(finding.level == Level::Fine, finding.remedy.is_none());
    }
    let found = found.into_iter();
    let troubles = found.filter(|finding| finding.level > Level::Fine);
    troubles
        .map(|finding| (finding.level, finding.subject, finding.what))
        .collect()
}

#[track_caller]
fn finds(facts: &Facts, pairs: &[RankPair], level: Level, subject: &str) {
    let found = troubles(facts, pairs);
    assert!(
        matches!(found.as_slice(), [one] if (one.0, one.1) == (level, subject)),
        "{found:?}"
    );
}

#[test]
fn where_nothing_is_wrong_nothing_is_found() {
    let pairs = [pair(0, 1), pair(0, 2), pair(1, 2)];
    assert_eq!(troubles(&healthy(), &pairs), []);
}

#[test]
fn each_trouble_is_found_alone_with_its_weight() {
    type Change = fn(&mut Facts);
    let cases: [(Change, Level, &str); 11] = [
        (
            |facts| facts.members[1].found = Err(ErrorKind::NotFound),
            Level::Problem,
            "names",
        ),
        (
            |facts| facts.members[1] = member(1, &["[2001:db8::2]:4000"]),
            Level::Problem,
            "address family",
        ),
        (
            |facts| facts.members[1] = member(1, &["127.0.1.1:4000"]),
            Level::Problem,
            "addresses",
        ),
        (
            |facts| facts.port = facts.port.map(|(own, _)| (own, Some(ErrorKind::AddrInUse))),
            Level::Problem,
            "port",
        ),
        (|facts| facts.port = None, Level::Warning, "port"),
        (|facts| facts.mtu = Some(1247), Level::Problem, "mtu"),
        (
            |facts| facts.receive_buffer = Some(212_992),
            Level::Warning,
            "udp buffers",
        ),
        (
            |facts| facts.send_buffer = Some(BUFFER - 1),
            Level::Warning,
            "udp buffers",
        ),
        (
            |facts| facts.members.push(member(2, &["10.0.0.1:4001"])),
            Level::Warning,
            "cores",
        ),
        (
            |facts| facts.not_joined = Some(ConfigError::SecretMissing.into()),
            Level::Warning,
            "join",
        ),
        (
            |facts| facts.not_joined = Some(OperationError::InsideAsync.into()),
            Level::Problem,
            "join",
        ),
    ];
    for (change, level, subject) in cases {
        let mut facts = healthy();
        change(&mut facts);
        finds(&facts, &[], level, subject);
    }
}

#[test]
fn an_own_name_that_means_loopback_is_doubted_and_an_address_is_wrong() {
    let mut facts = healthy();
    facts.members[0] = member(0, &["127.0.1.1:4000"]);
    finds(&facts, &[], Level::Warning, "addresses");
    facts.members.push(member(2, &["127.0.1.1:4001"]));
    facts.cores = 2;
    finds(&facts, &[], Level::Problem, "addresses");
    facts.members[2].address = "host0:4001".to_owned();
    finds(&facts, &[], Level::Warning, "addresses");
    facts.members[0].address = "127.0.1.1:4000".to_owned();
    finds(&facts, &[], Level::Problem, "addresses");
}

#[test]
fn a_rank_that_cannot_exist_is_a_problem_with_both_numbers() {
    let facts = Facts {
        rank: Rank::new(5),
        port: None,
        tcp_port: None,
        ..healthy()
    };
    let told = "rank 5 is outside a group of 2 ranks, numbered from 0".to_owned();
    assert_eq!(troubles(&facts, &[]), [(Level::Problem, "port", told)]);
}

#[test]
fn a_port_that_tcp_cannot_have_is_found_with_what_to_do_instead() {
    for kind in [ErrorKind::AddrInUse, ErrorKind::PermissionDenied] {
        let mut facts = healthy();
        facts.tcp_port = facts.port.map(|(own, _)| (own, Some(kind)));
        finds(&facts, &[], Level::Problem, "tcp port");
        let found = tcp_port(&facts).unwrap();
        assert!(found.what.contains("10.0.0.1:4000"), "{}", found.what);
        assert!(found.remedy.unwrap().contains("MESHWORK_CARRIER=quic"));
    }
}

#[test]
fn what_the_system_does_not_tell_is_no_trouble() {
    let facts = Facts {
        tcp_port: None,
        mtu: None,
        receive_buffer: None,
        send_buffer: None,
        ..healthy()
    };
    assert_eq!(troubles(&facts, &[]), []);
}

#[test]
fn jobs_on_one_machine_may_use_its_loopback_address() {
    let facts = Facts {
        members: vec![
            member(0, &["127.0.0.1:4000"]),
            member(1, &["127.0.0.1:4001"]),
        ],
        cores: 2,
        ..healthy()
    };
    assert_eq!(troubles(&facts, &[]), []);
}

#[test]
fn the_worst_pair_of_clocks_is_judged_whichever_is_ahead() {
    for (clock, level) in [(-0.2, Level::Warning), (7200.0, Level::Problem)] {
        let apart = RankPair {
            clock,
            ..pair(0, 1)
        };
        let found = troubles(&healthy(), &[pair(1, 2), apart]);
        assert_eq!((found[0].0, found[0].1), (level, "clocks"));
        assert!(found[0].2.contains("rank 0 and rank 1"), "{found:?}");
    }
}

#[test]
fn a_pair_that_is_much_worse_than_most_is_named() {
    let usual = [pair(0, 1), pair(0, 2)];
    let far = RankPair {
        latency: 1e-3,
        ..pair(1, 2)
    };
    finds(
        &healthy(),
        &[usual[0], usual[1], far],
        Level::Warning,
        "latency",
    );
    let thin = RankPair {
        bandwidth: 1e8,
        ..pair(1, 2)
    };
    finds(
        &healthy(),
        &[usual[0], usual[1], thin],
        Level::Warning,
        "bandwidth",
    );
    assert_eq!(troubles(&healthy(), &[usual[0], far]), []);
}
