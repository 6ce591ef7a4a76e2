//! By which way buffers of devices go between ranks, and why: pure.

use std::fmt::{self, Display};

use meshwork_accel as accel;

use crate::Rank;

/// How far a communicator of devices may reach.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CommunicatorScope {
    /// The ranks of one host, which nothing leaves. Over several hosts buffers are staged, and so
    /// are encrypted on their way.
    OneHost,
    /// Any hosts. **What devices send between hosts then crosses the network in clear text**, and
    /// nothing proves who sent it: for networks that nobody else is on. Operations are still
    /// announced, and failures told, over the group's encrypted connections.
    ClearTextBetweenHosts,
}

/// By which way the buffers of a [`DeviceGroup`](crate::DeviceGroup) go between ranks: the same on
/// all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Route {
    /// From device to device, by a communicator of the backend. Elements and ops that its library
    /// lacks are staged.
    Direct {
        /// The library, with its version.
        library: String,
    },
    /// Through host memory.
    Staged(FallbackReason),
}

/// Why buffers go through host memory. Ranks are those of this group, also where it was split from
/// another.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FallbackReason {
    /// The program has not asked for more, by [`Group::staged_on`](crate::Group::staged_on).
    NotAsked,
    /// The model library of a rank lends no memory of its tensors, as they are not on a device that
    /// can be worked on by others.
    NotLent {
        /// The first such rank.
        rank: Rank,
    },
    /// A rank has no library for communicators, or cannot use it.
    NoLibrary {
        /// The first such rank.
        rank: Rank,
        /// What is missing; only that rank knows.
        error: Option<Box<accel::Error>>,
    },
    /// Ranks have libraries that are not the same.
    Libraries {
        /// The first rank.
        rank: Rank,
        /// What it has.
        library: String,
        /// The first that has another.
        peer: Rank,
        /// What that has.
        theirs: String,
    },
    /// A rank's device has no address, so nobody can tell whether another rank has the same.
    NoAddress {
        /// The first such rank.
        rank: Rank,
    },
    /// Two ranks have one device.
    DeviceShared {
        /// One of them.
        rank: Rank,
        /// The other.
        peer: Rank,
    },
    /// The ranks are on several hosts, and a rank does not allow clear text between them.
    SeveralHosts {
        /// The first rank that does not.
        rank: Rank,
        /// One that is on another host.
        peer: Rank,
    },
    /// A rank could not join the others in time, or was refused.
    NotJoined {
        /// The first such rank.
        rank: Rank,
        /// Why; only that rank knows.
        error: Option<Box<accel::Error>>,
    },
}

impl Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct { library } => write!(f, "from device to device by {library}"),
            Self::Staged(fallback_reason) => write!(f, "through host memory, as {fallback_reason}"),
        }
    }
}

/// Reads on after "as".
impl Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |error: &Option<Box<accel::Error>>| {
            error
                .as_ref()
                .map_or_else(String::new, |error| format!(": {error}"))
        };
        match self {
            Self::NotAsked => f.write_str("the program has not asked for a communicator"),
            Self::NotLent { rank } => {
                write!(
                    f,
                    "the tensors of {rank} are in no memory that its library lends"
                )
            }
            Self::NoLibrary { rank, error } => {
                write!(f, "{rank} has no library for communicators{}", known(error))
            }
            Self::Libraries {
                rank,
                library,
                peer,
                theirs,
            } => write!(f, "{rank} has {library} and {peer} has {theirs}"),
            Self::NoAddress { rank } => write!(
                f,
                "the device of {rank} has no address, by which it is told from others"
            ),
            Self::DeviceShared { rank, peer } => write!(f, "{rank} and {peer} have one device"),
            Self::SeveralHosts { rank, peer } => write!(
                f,
                "{rank} and {peer} are on two hosts, between which {rank} does not allow clear text"
            ),
            Self::NotJoined { rank, error } => {
                write!(f, "{rank} could not join the communicator{}", known(error))
            }
        }
    }
}

/// What a rank tells all others before a communicator is made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Capabilities {
    /// The library, cut to what fits; none if it cannot be used.
    pub(super) library: Option<String>,
    /// Stands for the device's address on its host; none if it has none.
    pub(super) device: Option<u64>,
    pub(super) reach: CommunicatorScope,
}

impl Capabilities {
    /// As sent: flags, the device, and the text of the library.
    pub(super) const BYTES: usize = 9 + TEXT;

    pub(super) fn new(
        library: Option<&str>,
        address: Option<&str>,
        reach: CommunicatorScope,
    ) -> Self {
        Self {
            library: library.map(|text| text[..text.floor_char_boundary(TEXT)].to_owned()),
            device: address.map(fnv),
            reach,
        }
    }

    /// Inverse of [`decode`](Self::decode).
    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let text = self.library.as_deref().unwrap_or_default().as_bytes();
        bytes[0] = u8::from(self.library.is_some())
            | u8::from(self.device.is_some()) << 1
            | u8::from(self.reach == CommunicatorScope::ClearTextBetweenHosts) << 2;
        bytes[1..9].copy_from_slice(&self.device.unwrap_or_default().to_le_bytes());
        bytes[9..9 + text.len()].copy_from_slice(text);
        bytes
    }

    /// Any bytes are an offer; inverse of [`encode`](Self::encode).
    pub(super) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let has = |bit: u8| bytes[0] & 1 << bit != 0;
        let mut device = [0; 8];
        device.copy_from_slice(&bytes[1..9]);
        let text = String::from_utf8_lossy(&bytes[9..]);
        Self {
            library: has(0).then(|| text.trim_end_matches('\0').to_owned()),
            device: has(1).then(|| u64::from_le_bytes(device)),
            reach: if has(2) {
                CommunicatorScope::ClearTextBetweenHosts
            } else {
                CommunicatorScope::OneHost
            },
        }
    }
}

/// Offers that need not be a rank's, as fuzz targets have them: whatever they say, it is decided.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn decide_any(bytes: &[u8]) {
    let (offers, _) = bytes.as_chunks();
    let offers: Vec<Capabilities> = offers.iter().map(Capabilities::decode).collect();
    for offer in &offers {
        let sent = offer.library.as_deref().unwrap_or_default();
        if sent.len() <= TEXT {
            assert_eq!(Capabilities::decode(&offer.encode()), *offer);
        }
    }
    let hosts: Vec<usize> = (0..offers.len()).map(|rank| rank / 2).collect();
    if !offers.is_empty() {
        let _ = decide(&offers, &hosts).map_err(|fallback_reason| fallback_reason.to_string());
    }
}

/// The library by which all ranks can join, or why they cannot: from what all have offered, by
/// rank, and the host that each is on.
pub(super) fn decide(offers: &[Capabilities], hosts: &[usize]) -> Result<String, FallbackReason> {
    let ranks: Vec<Rank> = (0..).map(Rank::new).take(offers.len()).collect();
    let first = |wanted: &dyn Fn(usize) -> bool| {
        let mut ranks = ranks.iter().copied();
        ranks.find(|rank| wanted(rank.index()))
    };
    if let Some(rank) = first(&|at| offers[at].library.is_none()) {
        return Err(FallbackReason::NoLibrary { rank, error: None });
    }
    let of = |rank: Rank| offers[rank.index()].library.clone().unwrap_or_default();
    let library = of(Rank::CHIEF);
    if let Some(peer) = first(&|at| offers[at].library != offers[0].library) {
        return Err(FallbackReason::Libraries {
            rank: Rank::CHIEF,
            library,
            peer,
            theirs: of(peer),
        });
    }
    if let Some(rank) = first(&|at| offers[at].device.is_none()) {
        return Err(FallbackReason::NoAddress { rank });
    }
    let member_id = |at: usize| (hosts[at], offers[at].device);
    for peer in ranks.iter().copied() {
        let before = first(&|at| at < peer.index() && member_id(at) == member_id(peer.index()));
        if let Some(rank) = before {
            return Err(FallbackReason::DeviceShared { rank, peer });
        }
    }
    if let Some(rank) = first(&|at| offers[at].reach == CommunicatorScope::OneHost)
        && let Some(peer) = first(&|at| hosts[at] != hosts[rank.index()])
    {
        return Err(FallbackReason::SeveralHosts { rank, peer });
    }
    Ok(library)
}

/// FNV-1a.
fn fnv(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Bytes of a library's name and version.
const TEXT: usize = 39;

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(library: &str, address: &str) -> Capabilities {
        Capabilities::new(Some(library), Some(address), CommunicatorScope::OneHost)
    }

    #[test]
    fn what_is_told_arrives_and_any_bytes_are_understood() {
        let long = "é".repeat(TEXT);
        for library in [None, Some(""), Some("NCCL 2.30.7"), Some(&*long)] {
            for address in [None, Some("0000:17:00.0")] {
                for reach in [
                    CommunicatorScope::OneHost,
                    CommunicatorScope::ClearTextBetweenHosts,
                ] {
                    let told = Capabilities::new(library, address, reach);
                    assert_eq!(Capabilities::decode(&told.encode()), told);
                }
            }
        }
        let torn = Capabilities::decode(&[0xff; Capabilities::BYTES]);
        assert_eq!(torn.device, Some(u64::MAX));
    }

    #[test]
    fn ranks_with_one_library_and_devices_of_their_own_join_and_all_others_say_why_not() {
        let rank = Rank::new;
        let (one, two) = (offer("N 1", "a"), offer("N 1", "b"));
        let far = |offer: &Capabilities| Capabilities {
            reach: CommunicatorScope::ClearTextBetweenHosts,
            ..offer.clone()
        };
        let none = Capabilities::new(None, Some("b"), CommunicatorScope::OneHost);
        let blind = Capabilities::new(Some("N 1"), None, CommunicatorScope::OneHost);
        let other = offer("N 2", "b");
        let (here, apart) = ([0, 0], [0, 1]);
        let cases = [
            ([&one, &two], here, "N 1"),
            (
                [&one, &none],
                here,
                "rank 1 has no library for communicators",
            ),
            ([&one, &other], here, "rank 0 has N 1 and rank 1 has N 2"),
            (
                [&blind, &one],
                here,
                "the device of rank 0 has no address, by which it is told from others",
            ),
            ([&one, &one], here, "rank 0 and rank 1 have one device"),
            (
                [&far(&one), &one],
                apart,
                "rank 1 and rank 0 are on two hosts, between which rank 1 does not allow clear text",
            ),
            ([&far(&one), &far(&one)], apart, "N 1"),
        ];
        for (offers, hosts, expected) in cases {
            let decided = decide(&offers.map(Clone::clone), &hosts);
            let text = decided.unwrap_or_else(|fallback_reason| fallback_reason.to_string());
            assert_eq!(text, expected);
        }
        let shared = decide(&[one.clone(), two, one], &[0; 3]);
        let (rank, peer) = (rank(0), rank(2));
        assert_eq!(shared, Err(FallbackReason::DeviceShared { rank, peer }));
    }
}
