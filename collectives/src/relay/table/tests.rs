//! Ranks and strangers at a relay, in virtual time.

use super::*;
use crate::JobSecret;

const START: Duration = Duration::from_secs(100);

fn address(host: u8) -> SocketAddr {
    ([192, 0, 2, host], 4000).into()
}

/// Each host knows the relay by another address.
fn path(host: u8) -> Path {
    Path {
        rank: address(host),
        relay: Some([198, 51, 100, host].into()),
    }
}

fn heard(now: Duration, host: u8) -> Heard {
    let path = path(host);
    Heard { now, path }
}

struct Relayed {
    table: Table,
    token: RelayToken,
}

fn relay(limits: RelayLimits) -> Relayed {
    let token = RelayToken::of(&JobSecret::generate().unwrap());
    let table = Table::new(token.clone(), &[7; 32], limits);
    Relayed { table, token }
}

fn answered(outcome: Outcome) -> Option<Vec<u8>> {
    match outcome {
        Outcome::Answer(bytes, _) => Some(bytes),
        Outcome::Nothing => None,
        Outcome::Forward { .. } => panic!("it was passed on"),
    }
}

impl Relayed {
    fn hello(&mut self, now: Duration, host: u8, member: u32, session: u64) -> Option<Vec<u8>> {
        let nonce = [host; 16];
        let hello = Datagram::Hello {
            member,
            session,
            nonce,
        };
        answered(self.table.handle(heard(now, host), &hello.encode()))
    }

    /// What is answered to the register of a rank that has got this cookie.
    fn register(
        &mut self,
        now: Duration,
        host: u8,
        member: u32,
        cookie: Cookie,
    ) -> Option<Vec<u8>> {
        answered(self.registers(now, host, member, cookie))
    }

    fn registers(&mut self, now: Duration, host: u8, member: u32, cookie: Cookie) -> Outcome {
        let nonce = [host; 16];
        let proof = self.token.of_rank(member, &nonce, &cookie);
        let register = Datagram::Register {
            member,
            nonce,
            cookie,
            proof,
        };
        self.table.handle(heard(now, host), &register.encode())
    }

    fn cookie(&mut self, now: Duration, host: u8, member: u32) -> Cookie {
        let bytes = self.hello(now, host, member, 0).unwrap();
        let Some(Datagram::Challenge { nonce, cookie }) = Datagram::decode(&bytes) else {
            panic!("no challenge")
        };
        assert_eq!(nonce, [host; 16]);
        cookie
    }

    fn registered(&mut self, now: Duration, host: u8, member: u32) -> u64 {
        let cookie = self.cookie(now, host, member);
        let bytes = self.register(now, host, member, cookie).unwrap();
        let Some(Datagram::Registered {
            nonce,
            session,
            proof,
        }) = Datagram::decode(&bytes)
        else {
            panic!("not registered")
        };
        assert!(self.token.is_of_relay(&nonce, session, &proof));
        session
    }

    /// Where a packet of this length goes, and as whose.
    #[expect(
        clippy::too_many_arguments,
        reason = "all of them differ between claims"
    )]
    fn sent(
        &mut self,
        now: Duration,
        host: u8,
        session: u64,
        to: u32,
        len: usize,
    ) -> Option<(Path, u32)> {
        let packet = vec![0; len];
        let data = Datagram::Data {
            session,
            member: to,
            packet: &packet,
        };
        match self.table.handle(heard(now, host), &data.encode()) {
            Outcome::Forward { to, head } => {
                let Some(Datagram::Data { member, .. }) = Datagram::decode(&head) else {
                    panic!("no head")
                };
                Some((to, member))
            }
            Outcome::Nothing => None,
            Outcome::Answer(..) => panic!("data are not answered"),
        }
    }
}

#[test]
fn packets_go_between_registered_ranks_and_to_and_from_nobody_else() {
    let mut relay = relay(RelayLimits::default());
    let [one, two] = [1, 2].map(|host| relay.registered(START, host, u32::from(host)));
    assert_eq!(relay.sent(START, 1, one, 2, 9), Some((path(2), 1)));
    assert_eq!(relay.sent(START, 2, two, 1, 9), Some((path(1), 2)));
    // To itself, to nobody, from another address, with another session, without one.
    for (host, session, to) in [
        (1, one, 1),
        (1, one, 3),
        (3, one, 2),
        (1, two, 2),
        (1, 0, 2),
    ] {
        assert_eq!(relay.sent(START, host, session, to, 9), None, "{host} {to}");
    }
}

#[test]
fn a_cookie_is_of_one_address_one_rank_and_one_minute() {
    let mut relay = relay(RelayLimits::default());
    let cookie = relay.cookie(START, 1, 5);
    assert_eq!(relay.register(START, 2, 5, cookie), None);
    assert_eq!(relay.register(START, 1, 6, cookie), None);
    assert_eq!(relay.register(START + 2 * COOKIE, 1, 5, cookie), None);
    assert!(relay.register(START + COOKIE, 1, 5, cookie).is_some());
}

#[test]
fn another_token_is_refused_with_the_reason() {
    let mut relay = relay(RelayLimits::default());
    let cookie = relay.cookie(START, 1, 5);
    relay.token = RelayToken::of(&JobSecret::generate().unwrap());
    let bytes = relay.register(START, 1, 5, cookie).unwrap();
    let (nonce, reason) = ([1; 16], RelayRefusal::Token);
    let expected = Datagram::Refused { nonce, reason };
    assert_eq!(Datagram::decode(&bytes), Some(expected));
    assert!(relay.table.ranks.is_empty());
}

#[test]
fn a_rank_with_another_address_registers_anew_and_its_old_session_is_none() {
    let mut relay = relay(RelayLimits::default());
    let other = relay.registered(START, 9, 9);
    let before = relay.registered(START, 1, 5);
    // An answer that was lost is given again.
    assert_eq!(relay.registered(START, 1, 5), before);
    let alive = relay.hello(START, 1, 5, before).unwrap();
    assert_eq!(
        Datagram::decode(&alive),
        Some(Datagram::Alive { nonce: [1; 16] })
    );
    let after = relay.registered(START, 2, 5);
    assert_ne!(after, before);
    assert_eq!(relay.sent(START, 9, other, 5, 9), Some((path(2), 9)));
    assert_eq!(relay.sent(START, 1, before, 9, 9), None);
    assert_eq!(relay.table.members.len(), relay.table.ranks.len());
}

#[test]
fn there_are_no_more_ranks_than_may_be_and_silent_ones_make_room() {
    let mut relay = relay(RelayLimits {
        ranks: 2,
        ..RelayLimits::default()
    });
    let one = relay.registered(START, 1, 1);
    relay.registered(START, 2, 2);
    let cookie = relay.cookie(START, 3, 3);
    let bytes = relay.register(START, 3, 3, cookie).unwrap();
    let (nonce, reason) = ([3; 16], RelayRefusal::Full);
    assert_eq!(
        Datagram::decode(&bytes),
        Some(Datagram::Refused { nonce, reason })
    );
    // One goes on saying that it is there.
    let later = START + EXPIRY / 2;
    assert!(relay.hello(later, 1, 1, one).is_some());
    let end = START + EXPIRY;
    assert_eq!(relay.sent(end, 1, one, 2, 9), None);
    let three = relay.registered(end, 3, 3);
    assert_eq!(relay.sent(end, 3, three, 1, 9), Some((path(1), 3)));
    assert_eq!(relay.table.ranks.len(), 2);
}

#[test]
fn a_rank_sends_at_its_rate_and_others_are_not_held_up() {
    let mut relay = relay(RelayLimits {
        bytes_per_second: 100_000,
        ..RelayLimits::default()
    });
    let [one, two] = [1, 2].map(|host| relay.registered(START, host, u32::from(host)));
    let mut passed = 0;
    for millis in 0..1000 {
        let now = START + Duration::from_millis(millis);
        passed += usize::from(relay.sent(now, 1, one, 2, 984).is_some());
    }
    // 100 in a second, and a burst of a fifth.
    assert!((119..=122).contains(&passed), "{passed}");
    assert!(relay.sent(START, 2, two, 1, 984).is_some());
}

#[test]
fn a_rank_that_registers_elsewhere_has_sent_what_it_has_sent() {
    let mut relay = relay(RelayLimits {
        bytes_per_second: 100_000,
        ..RelayLimits::default()
    });
    let [one, _] = [1, 2].map(|host| relay.registered(START, host, u32::from(host)));
    while relay.sent(START, 1, one, 2, 984).is_some() {}
    let moved = relay.registered(START, 3, 1);
    assert_eq!(relay.sent(START, 3, moved, 2, 984), None);
    let later = START + BURST;
    assert_eq!(relay.sent(later, 3, moved, 2, 984), Some((path(2), 1)));
}

#[test]
fn a_rank_is_answered_from_the_address_of_the_relay_at_which_it_asked_last() {
    let mut relay = relay(RelayLimits::default());
    let [one, two] = [1, 2].map(|host| relay.registered(START, host, u32::from(host)));
    let elsewhere = Heard {
        now: START,
        path: Path {
            relay: Some([203, 0, 113, 1].into()),
            ..path(2)
        },
    };
    let hello = Datagram::Hello {
        member: 2,
        session: two,
        nonce: [2; 16],
    };
    let bytes = answered(relay.table.handle(elsewhere, &hello.encode())).unwrap();
    let Some(Datagram::Challenge { nonce, cookie }) = Datagram::decode(&bytes) else {
        panic!("it has a session of another address")
    };
    let proof = relay.token.of_rank(2, &nonce, &cookie);
    let register = Datagram::Register {
        member: 2,
        nonce,
        cookie,
        proof,
    };
    assert!(answered(relay.table.handle(elsewhere, &register.encode())).is_some());
    let sent = relay.sent(START, 1, one, 2, 9);
    assert_eq!(sent, Some((elsewhere.path, 1)));
}

/// How many events there are of so many registers, one after another.
fn events(registers: usize, mut register: impl FnMut(usize) -> Outcome) -> usize {
    let told = |outcome| matches!(outcome, Outcome::Answer(_, Some(_)));
    (0..registers).filter(|at| told(register(*at))).count()
}

#[test]
fn refusals_are_told_a_few_times_and_hide_nobody_who_registers() {
    let mut relay = relay(RelayLimits::default());
    let [known, cookie] = [1, 2].map(|host| relay.cookie(START, host, 5));
    let token = relay.token.clone();
    relay.token = RelayToken::of(&JobSecret::generate().unwrap());
    let told = events(30_000, |_| relay.registers(START, 2, 5, cookie));
    assert_eq!(told, EVENTS as usize);
    let told = events(9, |_| relay.registers(START + EVENT, 2, 5, cookie));
    assert_eq!(told, 1, "a second later");
    relay.token = token;
    assert_eq!(events(1, |_| relay.registers(START, 1, 5, known)), 1);
}

#[test]
fn who_registers_from_two_ports_in_turn_is_told_no_more_often_than_all_ranks_together() {
    let mut relay = relay(RelayLimits::default());
    let cookies = [1, 2].map(|host| relay.cookie(START, host, 5));
    let told = events(30_000, |at| match at % 2 {
        0 => relay.registers(START, 1, 5, cookies[0]),
        _ => relay.registers(START, 2, 5, cookies[1]),
    });
    assert_eq!(told, RelayLimits::default().ranks as usize);
}

#[test]
fn strangers_get_a_bounded_number_of_answers_and_leave_nothing_behind() {
    let mut relay = relay(RelayLimits::default());
    let session = relay.registered(START, 1, 1);
    let answers = (0..30_000)
        .filter(|_| relay.hello(START, 2, 2, 0).is_some())
        .count();
    assert!((9_990..=10_001).contains(&answers), "{answers}");
    assert_eq!(relay.table.ranks.len(), 1);
    // Those who are registered are answered all the same.
    assert!(relay.hello(START, 1, 1, session).is_some());
}
