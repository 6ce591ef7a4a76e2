//! Who has come to a rendezvous, and whether the next one belongs there: pure.

use std::net::{IpAddr, SocketAddr};

use crate::wire::Registration;
use crate::{Rank, Refusal};

/// The addresses that are known so far, in order of rank.
#[derive(Debug)]
pub(super) struct Registrations {
    addresses: Vec<Option<String>>,
}

impl Registrations {
    /// Of so many ranks, of which the first is known.
    pub(super) fn new(world: u32, chief: String) -> Self {
        let others = std::iter::repeat_n(None, world as usize - 1);
        Self {
            addresses: std::iter::once(Some(chief)).chain(others).collect(),
        }
    }

    /// Takes in a rank that has come from here. `host` is what others reach the host of rank 0 by,
    /// for those who are on it.
    pub(super) fn register(
        &mut self,
        said: Registration,
        from: SocketAddr,
        host: &str,
    ) -> Result<(), Refusal> {
        let world = u32::try_from(self.addresses.len()).expect("it was made of a `u32`");
        if said.world != world {
            let (expected, found) = (world, said.world);
            return Err(Refusal::World { expected, found });
        }
        let claimed = said.rank;
        let place = match self.addresses.get_mut(claimed as usize) {
            Some(place) if claimed != Rank::CHIEF.number() => place,
            Some(_) | None => return Err(Refusal::RankUnexpected { claimed }),
        };
        let address = match from.ip().to_canonical() {
            ip if ip.is_loopback() => format!("{host}:{}", said.port),
            IpAddr::V4(ip) => format!("{ip}:{}", said.port),
            IpAddr::V6(ip) => format!("[{ip}]:{}", said.port),
        };
        match place {
            // The same process, whose first connection broke.
            Some(known) if *known == address => Ok(()),
            Some(_) => Err(Refusal::RankTaken),
            None => {
                *place = Some(address);
                Ok(())
            }
        }
    }

    /// Who has not come.
    pub(super) fn missing(&self) -> Vec<Rank> {
        let ranks = Rank::all(u32::MAX).zip(&self.addresses);
        ranks
            .filter(|(_, address)| address.is_none())
            .map(|(rank, _)| rank)
            .collect()
    }

    /// All addresses, if all have come.
    pub(super) fn complete(&self) -> Option<Vec<String>> {
        self.addresses.iter().cloned().collect()
    }
}

/// Whether an address means a host on one link only, which it does not name: others that are told
/// of it cannot dial it.
pub(super) fn is_of_one_link(address: SocketAddr) -> bool {
    match address.ip().to_canonical() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "10.0.0.2:555";

    fn said(rank: u32) -> Registration {
        Registration {
            rank,
            world: 3,
            port: 61_000,
        }
    }

    fn register(known: &mut Registrations, said: Registration, from: &str) -> Result<(), Refusal> {
        known.register(said, from.parse().unwrap(), "h0")
    }

    #[test]
    fn all_are_known_once_all_have_come() {
        let mut known = Registrations::new(3, "h0:1".into());
        assert_eq!(known.missing(), [1, 2].map(Rank::new));
        register(&mut known, said(2), "[::ffff:10.0.0.2]:555").unwrap();
        assert_eq!(
            (known.missing(), known.complete()),
            (vec![Rank::new(1)], None)
        );
        register(&mut known, said(1), "[2001:db8::7]:555").unwrap();
        let all = ["h0:1", "[2001:db8::7]:61000", "10.0.0.2:61000"].map(str::to_owned);
        assert_eq!(known.complete().unwrap(), all);
    }

    #[test]
    fn a_rank_beside_rank_0_is_reached_as_rank_0_is() {
        let mut known = Registrations::new(3, "h0:1".into());
        register(&mut known, said(1), "127.0.0.1:555").unwrap();
        register(&mut known, said(2), "[::1]:555").unwrap();
        let addresses = known.complete().unwrap();
        assert_eq!(addresses[1..], ["h0:61000", "h0:61000"]);
    }

    #[test]
    fn only_addresses_that_lack_their_link_are_of_one() {
        for (address, is_of_one) in [
            ("[fe80::7%3]:555", true),
            ("[fe80::7]:555", true),
            ("[2001:db8::7]:555", false),
            ("[fd00::7]:555", false),
            ("[::ffff:169.254.0.7]:555", false),
            ("169.254.0.7:555", false),
        ] {
            let found = is_of_one_link(address.parse().unwrap());
            assert_eq!(found, is_of_one, "{address}");
        }
    }

    #[test]
    fn a_rank_that_comes_again_is_the_same_only_from_where_it_was() {
        let mut known = Registrations::new(3, "h0:1".into());
        for _ in 0..2 {
            register(&mut known, said(1), HERE).unwrap();
        }
        let other = register(&mut known, said(1), "10.0.0.3:555");
        assert_eq!(other, Err(Refusal::RankTaken));
    }

    #[test]
    fn who_does_not_belong_is_told_why() {
        let mut known = Registrations::new(3, "h0:1".into());
        for claimed in [0, 3, u32::MAX] {
            let refused = register(&mut known, said(claimed), HERE);
            assert_eq!(refused, Err(Refusal::RankUnexpected { claimed }));
        }
        let larger = Registration {
            world: 4,
            ..said(1)
        };
        let (expected, found) = (3, 4);
        let refused = register(&mut known, larger, HERE);
        assert_eq!(refused, Err(Refusal::World { expected, found }));
        assert_eq!(known.missing().len(), 2);
    }
}
