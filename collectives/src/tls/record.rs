//! Records of TLS 1.3 (RFC 8446, section 5), sealed and opened where they lie.
//!
//! rustls makes the connection and its keys, and derives new ones; it hands them over for exactly
//! this (`rustls::kernel`). Its own records would be copied once more at either end.

use std::io;

use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;

/// Bytes of others' that one record carries at most.
pub(super) const MOST: usize = 16 << 10;
/// Bytes before each: its type, its version, and how many follow.
pub(super) const HEAD_BYTES: usize = 5;
/// The longest record that may arrive, padding included (section 5.2).
pub(super) const LONGEST: usize = HEAD_BYTES + MOST + 256;
/// All records look like this from outside.
const OUTER: [u8; 3] = [APPLICATION_DATA, 3, 3];

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// "From here on I use the next key", and no wish that the other does (section 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// A key and a sequence number, as they come from rustls.
pub(super) type Secret = (u64, ConnectionTrafficSecrets);

/// One direction's key, and the number of the next record.
struct Cipher {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

/// Seals what is sent.
pub(super) struct Sealer(Cipher);

/// Opens what is received.
pub(super) struct Opener(Cipher);

/// What was in a record.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Opened<'a> {
    Data(&'a [u8]),
    /// The records that follow have the next key.
    NextKey,
}

impl Cipher {
    fn new(secret: Secret) -> io::Result<Self> {
        let (sequence, secrets) = secret;
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| malformed())?;
        Ok(Self {
            key: LessSafeKey::new(key),
            iv: iv.as_ref().try_into().map_err(|_| malformed())?,
            sequence,
        })
    }

    /// Never the same twice (section 5.3): the number goes up, and never round.
    fn nonce(&mut self) -> io::Result<Nonce> {
        let number = self.sequence;
        self.sequence = number.checked_add(1).ok_or_else(malformed)?;
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

impl Sealer {
    pub(super) fn new(secret: Secret) -> io::Result<Self> {
        Cipher::new(secret).map(Self)
    }

    /// Appends a record with these bytes, of which there are no more than [`MOST`].
    pub(super) fn data(&mut self, bytes: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
        self.seal(APPLICATION_DATA, bytes, to)
    }

    /// Appends the record after which the next key is used.
    pub(super) fn next_key(&mut self, to: &mut Vec<u8>) -> io::Result<()> {
        self.seal(HANDSHAKE, &KEY_UPDATE, to)
    }

    /// Records under this key so far.
    pub(super) fn records(&self) -> u64 {
        self.0.sequence
    }

    pub(super) fn seal(&mut self, kind: u8, bytes: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
        let nonce = self.0.nonce()?;
        let algorithm = self.0.key.algorithm();
        let length = bytes.len() + 1 + algorithm.tag_len();
        let [high, low] = u16::try_from(length)
            .map_err(|_| malformed())?
            .to_be_bytes();
        let head = [OUTER[0], OUTER[1], OUTER[2], high, low];
        to.extend_from_slice(&head);
        let begin = to.len();
        to.extend_from_slice(bytes);
        to.push(kind);
        let body = &mut to[begin..];
        let tag = self
            .0
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(head), body);
        to.extend_from_slice(tag.map_err(|_| malformed())?.as_ref());
        Ok(())
    }
}

impl Opener {
    pub(super) fn new(secret: Secret) -> io::Result<Self> {
        Cipher::new(secret).map(Self)
    }

    /// Opens a whole record, head included.
    ///
    /// # Errors
    /// `InvalidData` if it was not sealed by the other end, or says what this side never hears;
    /// `ConnectionAborted` for an alert.
    pub(super) fn open<'a>(&mut self, record: &'a mut [u8]) -> io::Result<Opened<'a>> {
        let nonce = self.0.nonce()?;
        let (head, body) = record
            .split_first_chunk_mut::<HEAD_BYTES>()
            .ok_or_else(malformed)?;
        let opened = self.0.key.open_in_place(nonce, Aad::from(*head), body);
        let inner: &[u8] = opened.map_err(|_| malformed())?;
        // The type stands behind the bytes, and padding of zeros may follow.
        let end = inner.iter().rposition(|byte| *byte != 0);
        let end = end.ok_or_else(malformed)?;
        match (inner[end], &inner[..end]) {
            (APPLICATION_DATA, bytes) => Ok(Opened::Data(bytes)),
            (HANDSHAKE, bytes) if *bytes == KEY_UPDATE => Ok(Opened::NextKey),
            (ALERT, _) => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => Err(malformed()),
        }
    }
}

/// Bytes of the record that begins like this, its head included; `None` while that is not whole.
///
/// # Errors
/// `InvalidData` if it is no record that may come after the handshake, or too long for one.
pub(super) fn length(begun: &[u8]) -> io::Result<Option<usize>> {
    let Some((head, _)) = begun.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let body = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let whole = HEAD_BYTES + body;
    if head[..3] != OUTER || whole > LONGEST {
        return Err(malformed());
    }
    Ok(Some(whole))
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use rustls::crypto::cipher::{AeadKey, Iv};

    use super::*;

    /// The same key for both ends.
    pub(in crate::tls) fn secret(key: u8) -> Secret {
        let key = AeadKey::from([key; 32]);
        let iv = Iv::from([3; NONCE_LEN]);
        (0, ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv })
    }

    fn ends() -> (Sealer, Opener) {
        let (near, far) = (Sealer::new(secret(1)), Opener::new(secret(1)));
        (near.unwrap(), far.unwrap())
    }

    fn kind(result: io::Result<Opened<'_>>) -> io::ErrorKind {
        result.unwrap_err().kind()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_sealed_is_opened(parts in prop::collection::vec(
            prop::collection::vec(any::<u8>(), 0..3000), 1..5,
        )) {
            let (mut near, mut far) = ends();
            for part in &parts {
                let mut record = Vec::new();
                near.data(part, &mut record).unwrap();
                prop_assert_eq!(length(&record).unwrap(), Some(record.len()));
                let hidden = part.len() < 16 || !record.windows(part.len()).any(|at| at == part);
                prop_assert!(hidden);
                prop_assert_eq!(far.open(&mut record).unwrap(), Opened::Data(part));
            }
        }

        #[test]
        fn no_changed_byte_is_taken_in(at in any::<prop::sample::Index>(), change in 1_u8..) {
            let (mut near, mut far) = ends();
            let mut record = Vec::new();
            near.data(b"some bytes", &mut record).unwrap();
            let at = at.index(record.len());
            record[at] ^= change;
            prop_assert!(far.open(&mut record).is_err());
        }

        #[test]
        fn no_bytes_make_the_opener_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = length(&bytes);
            prop_assert!(ends().1.open(&mut bytes).is_err());
        }
    }

    #[test]
    fn records_cannot_be_left_out_repeated_or_changed_in_order() {
        let (mut near, _) = ends();
        let mut records = [Vec::new(), Vec::new()];
        for record in &mut records {
            near.data(b"bytes", record).unwrap();
        }
        let [first, second] = records;
        let (_, mut far) = ends();
        assert!(far.open(&mut second.clone()).is_err());
        let (_, mut far) = ends();
        far.open(&mut first.clone()).unwrap();
        assert!(far.open(&mut first.clone()).is_err());
    }

    #[test]
    fn the_longest_record_is_taken_and_a_longer_one_is_refused_by_its_head() {
        let (mut near, mut far) = ends();
        let (all, mut record) = (vec![7; MOST], Vec::new());
        near.data(&all, &mut record).unwrap();
        assert!(record.len() <= LONGEST);
        assert_eq!(far.open(&mut record).unwrap(), Opened::Data(&all));
        let limit = u16::try_from(LONGEST - HEAD_BYTES).unwrap();
        let head = |bytes: u16| [&OUTER[..], &bytes.to_be_bytes()].concat();
        assert_eq!(length(&head(limit)).unwrap(), Some(LONGEST));
        assert!(length(&head(limit + 1)).is_err());
        assert_eq!(length(&head(limit)[..4]).unwrap(), None);
        assert!(length(b"GET / HTTP/1.1").is_err());
    }

    #[test]
    fn only_data_and_a_new_key_are_heard_and_an_alert_is_the_end() {
        let said = |kind: u8, bytes: &[u8]| {
            let ((mut near, far), mut record) = (ends(), Vec::new());
            near.seal(kind, bytes, &mut record).unwrap();
            (far, record)
        };
        let (mut far, mut record) = said(HANDSHAKE, &KEY_UPDATE);
        assert_eq!(far.open(&mut record).unwrap(), Opened::NextKey);
        let (mut far, mut record) = said(ALERT, &[1, 0]);
        assert_eq!(
            kind(far.open(&mut record)),
            io::ErrorKind::ConnectionAborted
        );
        // A wish for a new key, a ticket, half of an update, padding alone.
        let others: [(u8, &[u8]); 4] = [
            (HANDSHAKE, &[24, 0, 0, 1, 1]),
            (HANDSHAKE, &[4, 0, 0, 0]),
            (HANDSHAKE, &KEY_UPDATE[..3]),
            (0, &[0; 8]),
        ];
        for (other, bytes) in others {
            let (mut far, mut record) = said(other, bytes);
            assert_eq!(kind(far.open(&mut record)), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn padding_is_no_part_of_the_bytes() {
        let ((mut near, mut far), mut record) = (ends(), Vec::new());
        // The type, and zeros; `seal` puts one more type behind, which is a zero here.
        near.seal(0, &[b'x', APPLICATION_DATA, 0, 0], &mut record)
            .unwrap();
        assert_eq!(far.open(&mut record).unwrap(), Opened::Data(b"x"));
    }
}
