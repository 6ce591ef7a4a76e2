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
/// The first half is for anybody, and for long, so that slow callers always get on. Once it is
/// taken there is a crowd: whoever comes then has to show that it can be answered at its address,
/// has little time, and few others from where it is.
#[derive(Default)]
pub(super) struct HandshakeLimiter(Mutex<PermitsTaken>);

#[derive(Default)]
struct PermitsTaken {
    patient: usize,
    /// By site, each at least once.
    hurried: BTreeMap<IpAddr, usize>,
}

/// A caller's place, which it has until this is dropped.
pub(super) struct HandshakePermit {
    handshake_limiter: Arc<HandshakeLimiter>,
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
enum Refused {
    /// There is a crowd, in which callers have to prove their address.
    Unproved,
    Crowd,
}

impl HandshakeLimiter {
    /// Gives a caller a place, or sends it away.
    pub(super) fn admit(
        self: &Arc<Self>,
        incoming: Incoming,
    ) -> Option<(Incoming, HandshakePermit)> {
        let caller = match incoming.remote_address_validated() {
            true => Caller::At(incoming.remote_address().ip()),
            false => Caller::Unproved,
        };
        match self.permit(caller) {
            Ok(permit) => return Some((incoming, permit)),
            Err(Refused::Unproved) if incoming.may_retry() => {
                // Asked before: it may.
                let _ = incoming.retry();
            }
            Err(_) => incoming.refuse(),
        }
        None
    }

    fn permit(self: &Arc<Self>, caller: Caller) -> Result<HandshakePermit, Refused> {
        let mut taken = self.taken();
        if taken.patient < HALF_OPEN / 2 {
            taken.patient += 1;
            return Ok(self.taken_by(None));
        }
        let Caller::At(address) = caller else {
            return Err(Refused::Unproved);
        };
        let site = site(address);
        let own = taken.hurried.get(&site).copied().unwrap_or_default();
        if own >= SHARE || taken.hurried.values().sum::<usize>() >= HALF_OPEN / 2 {
            return Err(Refused::Crowd);
        }
        taken.hurried.insert(site, own + 1);
        Ok(self.taken_by(Some(site)))
    }

    fn taken_by(self: &Arc<Self>, hurried: Option<IpAddr>) -> HandshakePermit {
        let handshake_limiter = self.clone();
        HandshakePermit {
            handshake_limiter,
            hurried,
        }
    }

    fn taken(&self) -> MutexGuard<'_, PermitsTaken> {
        // Nothing that holds the lock can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandshakePermit {
    /// How long whoever has it may take to prove who it is.
    pub(super) fn patience(&self) -> Duration {
        match self.hurried {
            None => PROVING,
            Some(_) => HURRY,
        }
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let mut taken = self.handshake_limiter.taken();
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
pub(super) fn site(address: IpAddr) -> IpAddr {
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

    fn patient_half(handshake_limiter: &Arc<HandshakeLimiter>) -> Vec<HandshakePermit> {
        let places = (0..HALF_OPEN / 2).map(|_| handshake_limiter.permit(Caller::Unproved));
        places.map(Result::unwrap).collect()
    }

    #[test]
    fn in_a_crowd_callers_have_to_show_their_address_and_to_hurry() {
        let handshake_limiter = Arc::new(HandshakeLimiter::default());
        let mut patient = patient_half(&handshake_limiter);
        assert!(patient.iter().all(|permit| permit.patience() == PROVING));
        let proved = at("198.51.100.7");
        let refused = handshake_limiter.permit(Caller::Unproved).err();
        assert_eq!(refused, Some(Refused::Unproved));
        assert_eq!(handshake_limiter.permit(proved).unwrap().patience(), HURRY);
        patient.pop();
        let permit = handshake_limiter.permit(Caller::Unproved).unwrap();
        assert_eq!(permit.patience(), PROVING);
    }

    #[test]
    fn in_a_crowd_one_site_leaves_places_for_others() {
        let handshake_limiter = Arc::new(HandshakeLimiter::default());
        let _patient = patient_half(&handshake_limiter);
        for host in ["198.51.100.7", "2001:db8::1"] {
            let mut places: Vec<_> = (0..SHARE)
                .map(|_| handshake_limiter.permit(at(host)).unwrap())
                .collect();
            assert_eq!(
                handshake_limiter.permit(at(host)).err(),
                Some(Refused::Crowd)
            );
            places.pop();
            places.push(handshake_limiter.permit(at(host)).unwrap());
            assert!(handshake_limiter.permit(at("198.51.100.8")).is_ok());
        }
        assert!(handshake_limiter.taken().hurried.is_empty());
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
        let handshake_limiter = Arc::new(HandshakeLimiter::default());
        let hosts = (0..=u8::MAX).cycle().take(10 * HALF_OPEN);
        let callers = hosts.filter_map(|host| {
            handshake_limiter
                .permit(at(&format!("198.51.100.{host}")))
                .ok()
        });
        assert_eq!(callers.collect::<Vec<_>>().len(), HALF_OPEN);
        assert_eq!(handshake_limiter.taken().patient, 0);
    }
}
