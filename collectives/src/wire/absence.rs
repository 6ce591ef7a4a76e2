//! Who has not come in time, and who was not let in meanwhile, which is often why.

use rkyv::{Archive, Deserialize, Serialize};

use super::message::Refusal;
use crate::{UnauthenticatedCause, UnauthenticatedPeer};

const OTHER_JOB: u8 = 1;
const EXPIRED: u8 = 2;
const REFUSED: u8 = 3;
const OTHER_RANK: u8 = 4;

/// Who does not take part, as far as one member knows.
#[derive(Archive, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Absence {
    /// Ranks that have not come.
    pub(crate) ranks: Vec<u32>,
    /// Processes that have asked to join and were not let in.
    pub(crate) refused: Vec<Stranger>,
}

/// A process that was not let in.
#[derive(Archive, Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Stranger {
    /// Where it called from.
    address: String,
    cause: u8,
    /// Why, where it belongs to the job.
    refusal: Refusal,
}

impl From<&UnauthenticatedPeer> for Stranger {
    fn from(peer: &UnauthenticatedPeer) -> Self {
        let (cause, refusal) = match peer.cause() {
            UnauthenticatedCause::OtherJob => (OTHER_JOB, Refusal::none()),
            UnauthenticatedCause::OtherRank => (OTHER_RANK, Refusal::none()),
            UnauthenticatedCause::Expired => (EXPIRED, Refusal::none()),
            UnauthenticatedCause::Refused(refusal) => (REFUSED, refusal.into()),
        };
        Self {
            address: peer.address().to_string(),
            cause,
            refusal,
        }
    }
}

impl Stranger {
    /// Inverse of the above; `None` for one that called from no address or for no cause.
    pub(crate) fn peer(&self) -> Option<UnauthenticatedPeer> {
        let cause = match self.cause {
            OTHER_JOB => UnauthenticatedCause::OtherJob,
            OTHER_RANK => UnauthenticatedCause::OtherRank,
            EXPIRED => UnauthenticatedCause::Expired,
            REFUSED => UnauthenticatedCause::Refused(self.refusal.clone().into()),
            _ => return None,
        };
        Some(UnauthenticatedPeer::new(self.address.parse().ok()?, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataTransport;

    #[test]
    fn strangers_are_told_as_they_were_met() {
        use crate::Refusal as Reason;

        let reasons = [
            Reason::Members,
            Reason::World {
                expected: 8,
                found: 9,
            },
            Reason::DataTransport {
                expected: DataTransport::Tls,
                found: DataTransport::Quic,
            },
        ];
        let mut causes = vec![
            UnauthenticatedCause::OtherJob,
            UnauthenticatedCause::OtherRank,
            UnauthenticatedCause::Expired,
        ];
        causes.extend(reasons.map(UnauthenticatedCause::Refused));
        for cause in causes {
            for address in ["10.0.0.9:5", "[fd00::9]:65535"] {
                let peer = UnauthenticatedPeer::new(address.parse().unwrap(), cause);
                assert_eq!(Stranger::from(&peer).peer(), Some(peer));
            }
        }
    }

    #[test]
    fn who_called_from_no_address_or_for_no_cause_is_nobody() {
        for (address, cause) in [
            ("10.0.0.9:5\nrank 3 was lost", EXPIRED),
            ("10.0.0.9:5", 0),
            ("10.0.0.9:5", OTHER_RANK + 1),
        ] {
            let stranger = Stranger {
                address: address.to_owned(),
                cause,
                refusal: Refusal::none(),
            };
            assert_eq!(stranger.peer(), None, "{address}, {cause}");
        }
    }
}
