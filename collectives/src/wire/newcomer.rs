//! Who asks to be let in, and where everybody is: what a process tells that the start list does
//! not.

use rkyv::{Archive, Deserialize, Serialize, rancor};

use super::{MemberProcess, Message, WireError};
use crate::Rank;

/// Newcomers that one step admits at most; the others are admitted in the next.
pub(crate) const NEWCOMERS: usize = 64;

/// Bytes of an address: a name of DNS has up to 253, and a port up to 5.
const ADDRESS_LIMIT: usize = 259;

/// Bytes that a list of [`NEWCOMERS`] may take on the wire.
const NEWCOMERS_BYTES: usize = 32 << 10;

/// A process that asks to be let in, and where it is: no start list says so.
#[derive(Archive, Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Newcomer {
    pub(crate) process: MemberProcess,
    /// Where others reach it.
    pub(crate) address: String,
    /// The process id, meaningful only to a process on the same host.
    pub(crate) process_id: u32,
    /// Of the name of its host, as in a [`MemberRecord`](super::MemberRecord).
    pub(crate) host: [u8; 16],
    /// Whether its port, when it asked, refused no datagram: if it does later, nobody listens.
    pub(crate) port_is_telling: bool,
}

impl Newcomer {
    /// One of which nothing is known but where it is.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn at(process: MemberProcess, address: impl Into<String>) -> Self {
        Self {
            process,
            address: address.into(),
            process_id: 0,
            host: [0; 16],
            port_is_telling: false,
        }
    }

    /// Whether its address can be one, and is fit to be shown.
    pub(super) fn makes_sense(&self) -> bool {
        is_address(&self.address)
    }
}

fn is_address(address: &str) -> bool {
    address.len() <= ADDRESS_LIMIT && !address.contains(|c: char| c.is_control())
}

/// Newcomers as the bytes that one member broadcasts to the others; none for none.
pub(crate) fn encode_newcomers(newcomers: &[Newcomer]) -> Vec<u8> {
    if newcomers.is_empty() {
        return Vec::new();
    }
    let bytes = rkyv::to_bytes::<rancor::Error>(&newcomers.to_vec());
    let bytes = bytes.expect("serialising numbers and short texts into memory cannot fail");
    bytes.to_vec()
}

/// Inverse of [`encode_newcomers`].
pub(crate) fn decode_newcomers(bytes: &[u8]) -> Result<Vec<Newcomer>, WireError> {
    let malformed = WireError::Body {
        kind: super::message::SPOKEN,
    };
    let newcomers: Result<Vec<Newcomer>, rancor::Error> = rkyv::from_bytes(bytes);
    match newcomers {
        Ok(newcomers)
            if newcomers.len() <= NEWCOMERS && newcomers.iter().all(Newcomer::makes_sense) =>
        {
            Ok(newcomers)
        }
        Ok(_) | Err(_) => Err(malformed),
    }
}

/// What a rank brings when all settle whom they let in: the more it has to tell, the greater is its
/// word, and the rank with the greatest tells the others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NewcomerOffer {
    /// Of its list.
    pub(crate) bytes: usize,
    pub(crate) root: Rank,
}

impl NewcomerOffer {
    pub(crate) fn of(list: &[u8], root: Rank) -> Self {
        let bytes = list.len();
        Self { bytes, root }
    }

    pub(crate) fn word(self) -> u64 {
        let bytes = u64::try_from(self.bytes).expect("a list of newcomers is short");
        bytes << 32 | u64::from(self.root.number())
    }

    /// Inverse of [`word`](Self::word); `None` where nobody has anybody to tell of.
    pub(crate) fn read(word: u64) -> Option<Self> {
        let half = |bits: u64| u32::try_from(bits).expect("half of 64 bits");
        let bytes = half(word >> 32) as usize;
        let root = Rank::new(half(word & u64::from(u32::MAX)));
        // A longer one is none: the list is refused when it is read.
        let bytes = bytes.min(NEWCOMERS_BYTES);
        (bytes > 0).then_some(Self { bytes, root })
    }
}

/// Where members are, for one that has no start list, or an old one.
#[derive(Archive, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Directory {
    /// The epoch whose members they are.
    pub(crate) epoch: u64,
    /// The most members that the group may have.
    pub(crate) most: u32,
    /// Member ids and addresses.
    pub(crate) entries: Vec<(u32, String)>,
}

impl Directory {
    /// Members that one message tells of.
    pub(crate) const LIMIT: usize = 100;

    /// The same in as many messages as it takes.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        self.entries.chunks(Self::LIMIT).map(|entries| {
            Message::Directory(Self {
                entries: entries.to_vec(),
                ..*self
            })
        })
    }

    /// Whether its addresses can be some.
    pub(super) fn makes_sense(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.all(|(_, address)| is_address(address))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn longest(member_id: u32) -> Newcomer {
        Newcomer {
            process: MemberProcess {
                member_id,
                incarnation: u64::MAX,
            },
            address: "a".repeat(ADDRESS_LIMIT),
            process_id: u32::MAX,
            host: [255; 16],
            port_is_telling: true,
        }
    }

    #[test]
    fn newcomers_are_read_as_they_were_written_however_many_there_may_be() {
        assert!(encode_newcomers(&[]).is_empty());
        for count in [1, 2, NEWCOMERS] {
            let all: Vec<_> = (0..).take(count).map(longest).collect();
            let bytes = encode_newcomers(&all);
            assert!(bytes.len() <= NEWCOMERS_BYTES, "{} bytes", bytes.len());
            assert_eq!(decode_newcomers(&bytes), Ok(all));
        }
    }

    #[test]
    fn the_longest_list_is_the_greatest_offer_and_no_list_is_none() {
        let words = |lengths: [usize; 3]| {
            let offers = Rank::all(3).zip(lengths);
            offers.map(|(rank, bytes)| NewcomerOffer::of(&vec![0; bytes], rank).word())
        };
        let greatest = |lengths| NewcomerOffer::read(words(lengths).max().unwrap());
        assert_eq!(greatest([0, 0, 0]), None);
        let (bytes, root) = (80, Rank::new(1));
        assert_eq!(greatest([0, 80, 40]), Some(NewcomerOffer { bytes, root }));
        assert_eq!(greatest([80, 80, 40]), Some(NewcomerOffer { bytes, root }));
        let most = NewcomerOffer::read(u64::MAX).map(|offer| offer.bytes);
        assert_eq!(most, Some(NEWCOMERS_BYTES));
    }

    #[test]
    fn too_many_newcomers_and_addresses_that_are_none_are_no_list() {
        let many: Vec<_> = (0..).take(NEWCOMERS + 1).map(longest).collect();
        assert!(decode_newcomers(&encode_newcomers(&many)).is_err());
        for wrong in ["a".repeat(ADDRESS_LIMIT + 1), "a\nb:1".to_owned()] {
            let newcomer = Newcomer {
                address: wrong,
                ..longest(1)
            };
            assert!(decode_newcomers(&encode_newcomers(&[newcomer])).is_err());
        }
    }

    #[test]
    fn a_directory_of_many_is_told_in_several_messages() {
        let entries: Vec<_> = (0..250).map(|id| (id, format!("10.0.0.1:{id}"))).collect();
        let directory = Directory {
            epoch: 3,
            most: 300,
            entries: entries.clone(),
        };
        let mut told = Vec::new();
        for message in directory.messages() {
            let Message::Directory(part) = message else {
                panic!("{message:?}");
            };
            assert_eq!((part.epoch, part.most), (3, 300));
            told.extend(part.entries);
        }
        assert_eq!(told, entries);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_list_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_newcomers(&bytes);
        }
    }
}
