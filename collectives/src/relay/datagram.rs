//! What ranks and a relay say to each other, a datagram each. Pure.
//!
//! ```text
//!   rank                                          relay
//!     Hello       member, session, nonce   ──>
//!                              nonce, cookie <──  Challenge    of a caller without a session
//!     Register    nonce, cookie, proof     ──>
//!                      nonce, session, proof <──  Registered   or Refused, with why
//!     Data        session, to, packet      ──>
//!                      session, from, packet <──  Data         to another rank
//!     Hello       every few seconds        ──>
//!                                      nonce <──  Alive
//! ```
//!
//! No answer is longer than what it answers, so that nobody makes a relay send more than they do.

use crate::RelayRefusal;

/// Of this protocol and version.
const MAGIC: [u8; 3] = *b"mw1";
/// What stands before the packet of a rank.
pub(super) const HEAD: usize = 16;
/// As long as the longest answer to it.
const HELLO: usize = 48;

pub(super) type Nonce = [u8; 16];
pub(super) type Cookie = [u8; 16];
pub(super) type Proof = [u8; 32];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Datagram<'a> {
    Hello {
        member: u32,
        /// 0 of a rank that has none.
        session: u64,
        nonce: Nonce,
    },
    Challenge {
        nonce: Nonce,
        cookie: Cookie,
    },
    Register {
        member: u32,
        nonce: Nonce,
        cookie: Cookie,
        proof: Proof,
    },
    Registered {
        nonce: Nonce,
        session: u64,
        proof: Proof,
    },
    Alive {
        nonce: Nonce,
    },
    Refused {
        nonce: Nonce,
        reason: RelayRefusal,
    },
    Data {
        session: u64,
        /// Whom it is for, and of whom it is for whoever gets it.
        member: u32,
        packet: &'a [u8],
    },
}

impl<'a> Datagram<'a> {
    /// `None` for anything else than a datagram of this protocol.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let [kind] = take(&mut rest)?;
        let datagram = match kind {
            1 => {
                let hello = Self::Hello {
                    member: u32::from_le_bytes(take(&mut rest)?),
                    session: u64::from_le_bytes(take(&mut rest)?),
                    nonce: take(&mut rest)?,
                };
                return (bytes.len() == HELLO).then_some(hello);
            }
            2 => Self::Challenge {
                nonce: take(&mut rest)?,
                cookie: take(&mut rest)?,
            },
            3 => Self::Register {
                member: u32::from_le_bytes(take(&mut rest)?),
                nonce: take(&mut rest)?,
                cookie: take(&mut rest)?,
                proof: take(&mut rest)?,
            },
            4 => Self::Registered {
                nonce: take(&mut rest)?,
                session: u64::from_le_bytes(take(&mut rest)?),
                proof: take(&mut rest)?,
            },
            5 => Self::Alive {
                nonce: take(&mut rest)?,
            },
            6 => Self::Refused {
                nonce: take(&mut rest)?,
                reason: match take(&mut rest)? {
                    [1] => RelayRefusal::Token,
                    [2] => RelayRefusal::Full,
                    _ => return None,
                },
            },
            7 => {
                return Some(Self::Data {
                    session: u64::from_le_bytes(take(&mut rest)?),
                    member: u32::from_le_bytes(take(&mut rest)?),
                    packet: rest,
                });
            }
            _ => return None,
        };
        rest.is_empty().then_some(datagram)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        match *self {
            Self::Hello {
                member,
                session,
                nonce,
            } => {
                bytes.push(1);
                bytes.extend(member.to_le_bytes());
                bytes.extend(session.to_le_bytes());
                bytes.extend(nonce);
                bytes.resize(HELLO, 0);
            }
            Self::Challenge { nonce, cookie } => {
                bytes.push(2);
                bytes.extend(nonce);
                bytes.extend(cookie);
            }
            Self::Register {
                member,
                nonce,
                cookie,
                proof,
            } => {
                bytes.push(3);
                bytes.extend(member.to_le_bytes());
                bytes.extend(nonce);
                bytes.extend(cookie);
                bytes.extend(proof);
            }
            Self::Registered {
                nonce,
                session,
                proof,
            } => {
                bytes.push(4);
                bytes.extend(nonce);
                bytes.extend(session.to_le_bytes());
                bytes.extend(proof);
            }
            Self::Alive { nonce } => {
                bytes.push(5);
                bytes.extend(nonce);
            }
            Self::Refused { nonce, reason } => {
                bytes.push(6);
                bytes.extend(nonce);
                bytes.push(number(reason));
            }
            Self::Data {
                session,
                member,
                packet,
            } => {
                bytes.extend(&data_head(session, member)[MAGIC.len()..]);
                bytes.extend(packet);
            }
        }
        bytes
    }
}

const fn number(reason: RelayRefusal) -> u8 {
    match reason {
        RelayRefusal::Token => 1,
        RelayRefusal::Full => 2,
    }
}

/// What stands before a packet, so that it need not be copied.
pub(super) fn data_head(session: u64, member: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..3].copy_from_slice(&MAGIC);
    head[3] = 7;
    head[4..12].copy_from_slice(&session.to_le_bytes());
    head[12..].copy_from_slice(&member.to_le_bytes());
    head
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

/// For the fuzz target: what is read is written so that it reads the same.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn decode_any(bytes: &[u8]) {
    if let Some(datagram) = Datagram::decode(bytes) {
        assert_eq!(Datagram::decode(&datagram.encode()), Some(datagram));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NONCE: Nonce = [1; 16];
    const COOKIE: Cookie = [2; 16];
    const PROOF: Proof = [3; 32];

    fn all() -> [Datagram<'static>; 7] {
        let (member, session, nonce, cookie, proof) = (5, 6, NONCE, COOKIE, PROOF);
        [
            Datagram::Hello {
                member,
                session,
                nonce,
            },
            Datagram::Challenge { nonce, cookie },
            Datagram::Register {
                member,
                nonce,
                cookie,
                proof,
            },
            Datagram::Registered {
                nonce,
                session,
                proof,
            },
            Datagram::Alive { nonce },
            Datagram::Refused {
                nonce,
                reason: RelayRefusal::Full,
            },
            Datagram::Data {
                session,
                member,
                packet: b"sealed",
            },
        ]
    }

    #[test]
    fn datagrams_and_bytes_are_inverse_and_parts_of_them_are_none() {
        for datagram in all() {
            let bytes = datagram.encode();
            assert_eq!(Datagram::decode(&bytes), Some(datagram));
            let least = match datagram {
                Datagram::Data { .. } => HEAD,
                _ => bytes.len(),
            };
            for len in 0..least {
                assert_eq!(Datagram::decode(&bytes[..len]), None, "{datagram:?}");
            }
        }
    }

    #[test]
    fn no_answer_is_longer_than_what_it_answers() {
        let [hello, challenge, register, registered, alive, refused, _] =
            all().map(|one| one.encode().len());
        assert!(challenge.max(alive) <= hello);
        assert!(registered.max(refused) <= register);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100), kind in 0_u8..9) {
            decode_any(&bytes);
            decode_any(&[&MAGIC[..], &[kind], &bytes].concat());
        }
    }
}
