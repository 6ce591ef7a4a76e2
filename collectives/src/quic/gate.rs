//! Who may be half-way through proving who it is, and for how long.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quinn::Incoming;

/// Callers that may be half done at a time; more are turned away and try again.
const HALF_OPEN: usize = 128;
/// How long a caller may take to prove who it is.
const PROVING: Duration = Duration::from_secs(10);
/// And how long in a crowd, in which those who say nothing must not keep others out.
const HURRY: Duration = Duration::from_millis(500);
/// Places in a crowd that callers from one site may have.
const SHARE: usize = 16;

/// Places for callers that have not proved who they are, through all epochs of a process.
///
/// The first half is for anybody, and for long, so that slow callers always get on. Once it is taken
/// there is a crowd: whoever comes then has to show that it can be answered at its address, has
/// little time, and few others from where it is.
#[derive(Default)]
pub(super) struct Gate(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    patient: usize,
    /// By site, each at least once.
    hurried: BTreeMap<IpAddr, usize>,
}

/// A caller's place, which it has until this is dropped.
pub(super) struct Place {
    gate: Arc<Gate>,
    /// Where the caller is, if it has to hurry.
    hurried: Option<IpAddr>,
}

/// Where a caller is.
#[derive(Clone, Copy, Debug)]
enum Caller {
    /// The address that it gives may be somebody else's.
    Unproved,
    /// It can be answered there.
    At(IpAddr),
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Full {
    /// There is a crowd, in which callers have to prove their address.
    Unproved,
    Crowd,
}

impl Gate {
    /// Gives a caller a place, or sends it away.
    pub(super) fn admit(self: &Arc<Self>, incoming: Incoming) -> Option<(Incoming, Place)> {
        let caller = match incoming.remote_address_validated() {
            true => Caller::At(incoming.remote_address().ip()),
            false => Caller::Unproved,
        };
        match self.place(caller) {
            Ok(place) => return Some((incoming, place)),
            Err(Full::Unproved) if incoming.may_retry() => {
                // Asked before: it may.
                let _ = incoming.retry();
            }
            Err(_) => incoming.refuse(),
        }
        None
    }

    fn place(self: &Arc<Self>, caller: Caller) -> Result<Place, Full> {
        let mut taken = self.taken();
        if taken.patient < HALF_OPEN / 2 {
            taken.patient += 1;
            return Ok(self.taken_by(None));
        }
        let Caller::At(address) = caller else {
            return Err(Full::Unproved);
        };
        let site = site(address);
        let own = taken.hurried.get(&site).copied().unwrap_or_default();
        if own >= SHARE || taken.hurried.values().sum::<usize>() >= HALF_OPEN / 2 {
            return Err(Full::Crowd);
        }
        taken.hurried.insert(site, own + 1);
        Ok(self.taken_by(Some(site)))
    }

    fn taken_by(self: &Arc<Self>, hurried: Option<IpAddr>) -> Place {
        let gate = self.clone();
        Place { gate, hurried }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Nothing that holds the lock can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// How long whoever has it may take to prove who it is.
    pub(super) fn patience(&self) -> Duration {
        match self.hurried {
            None => PROVING,
            Some(_) => HURRY,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.gate.taken();
        match self.hurried {
            None => taken.patient -= 1,
            Some(site) => {
                if let Some(others @ 2..) = taken.hurried.remove(&site) {
                    taken.hurried.insert(site, others - 1);
                }
            }
        }
    }
}

/// What one caller can have many addresses of: of IPv6, usually a network of 64 bits.
fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Caller {
        Caller::At(host.parse().unwrap())
    }

    fn patient_half(gate: &Arc<Gate>) -> Vec<Place> {
        let places = (0..HALF_OPEN / 2).map(|_| gate.place(Caller::Unproved));
        places.map(Result::unwrap).collect()
    }

    #[test]
    fn in_a_crowd_callers_have_to_show_their_address_and_to_hurry() {
        let gate = Arc::new(Gate::default());
        let mut patient = patient_half(&gate);
        assert!(patient.iter().all(|place| place.patience() == PROVING));
        let proved = at("198.51.100.7");
        let refused = gate.place(Caller::Unproved).err();
        assert_eq!(refused, Some(Full::Unproved));
        assert_eq!(gate.place(proved).unwrap().patience(), HURRY);
        patient.pop();
        let place = gate.place(Caller::Unproved).unwrap();
        assert_eq!(place.patience(), PROVING);
    }

    #[test]
    fn in_a_crowd_one_site_leaves_places_for_others() {
        let gate = Arc::new(Gate::default());
        let _patient = patient_half(&gate);
        for host in ["198.51.100.7", "2001:db8::1"] {
            let mut places: Vec<_> = (0..SHARE).map(|_| gate.place(at(host)).unwrap()).collect();
            assert_eq!(gate.place(at(host)).err(), Some(Full::Crowd));
            places.pop();
            places.push(gate.place(at(host)).unwrap());
            assert!(gate.place(at("198.51.100.8")).is_ok());
        }
        assert!(gate.taken().hurried.is_empty());
    }

    #[test]
    fn of_a_network_of_64_bits_all_addresses_are_one_site() {
        let site = |host: &str| site(host.parse().unwrap());
        assert_eq!(site("2001:db8::1"), site("2001:db8::ffff:1"));
        assert_ne!(site("2001:db8::1"), site("2001:db8:0:1::1"));
        assert_eq!(site("::ffff:192.0.2.1"), site("192.0.2.1"));
        assert_ne!(site("192.0.2.1"), site("192.0.2.2"));
    }

    #[test]
    fn there_are_never_more_than_all_places() {
        let gate = Arc::new(Gate::default());
        let hosts = (0..=u8::MAX).cycle().take(10 * HALF_OPEN);
        let callers = hosts.filter_map(|host| gate.place(at(&format!("198.51.100.{host}"))).ok());
        assert_eq!(callers.collect::<Vec<_>>().len(), HALF_OPEN);
        assert_eq!(gate.taken().patient, 0);
    }
}
