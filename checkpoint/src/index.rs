//! What the last file of a generation says.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::str::FromStr;

use twox_hash::XxHash3_64;

use crate::{Error, FileDamage, Generation};

/// A file of a generation, as its index describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    length: u64,
    head: u64,
    hash: u64,
    part: String,
}

impl Entry {
    /// A file with these bytes. The index answers for the first `head` of them; whoever writes
    /// fewer than all keeps in them what is needed to check the rest.
    ///
    /// # Errors
    /// [`Error::Part`], [`Error::Head`].
    pub(crate) fn of(part: &str, bytes: &[u8], head: usize) -> Result<Self, Error> {
        let length = bytes.len() as u64;
        let hashed = bytes.get(..head).ok_or(Error::Head {
            length,
            head: head as u64,
        })?;
        if !is_part(part) {
            return Err(Error::Part {
                part: part.to_owned(),
            });
        }
        Ok(Self {
            length,
            head: head as u64,
            hash: XxHash3_64::oneshot(hashed),
            part: part.to_owned(),
        })
    }

    /// The suffix of its name, after that of the generation.
    #[must_use]
    pub fn part(&self) -> &str {
        &self.part
    }

    /// Bytes of the file.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its first bytes that the hash is of.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The hash of these.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether a head is the one that was saved.
    pub(crate) fn check(&self, head: &[u8]) -> Result<(), FileDamage> {
        match XxHash3_64::oneshot(head) {
            found if found == self.hash => Ok(()),
            found => Err(FileDamage::Hash {
                stated: self.hash,
                found,
            }),
        }
    }
}

/// The form that [`FromStr`] reads: a line of an index, which writers of one generation also send
/// each other.
impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { length, head, .. } = self;
        write!(f, "{length} {head} {:016x} {}", self.hash, self.part)
    }
}

impl FromStr for Entry {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = || {
            let mut words = text.splitn(4, ' ');
            let mut word = || words.next();
            let entry = Self {
                length: word()?.parse().ok()?,
                head: word()?.parse().ok()?,
                hash: u64::from_str_radix(word()?, 16).ok()?,
                part: word().filter(|part| is_part(part))?.to_owned(),
            };
            (entry.head <= entry.length && entry.to_string() == text).then_some(entry)
        };
        parsed().ok_or_else(|| Error::NoEntry {
            text: text.to_owned(),
        })
    }
}

/// All files of a generation, and its writer's own data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Index {
    generation: Generation,
    files: Vec<Entry>,
    body: Vec<u8>,
}

impl Index {
    /// The index that makes a generation complete. `body` is the writer's own data.
    ///
    /// # Errors
    /// [`Error::Part`] for two files of one name.
    pub fn new(
        generation: Generation,
        files: impl IntoIterator<Item = Entry>,
        body: Vec<u8>,
    ) -> Result<Self, Error> {
        let files: Vec<Entry> = files.into_iter().collect();
        let mut parts = BTreeSet::new();
        match files.iter().find(|file| !parts.insert(file.part())) {
            Some(twice) => Err(Error::Part {
                part: twice.part.clone(),
            }),
            None => Ok(Self {
                generation,
                files,
                body,
            }),
        }
    }

    /// The generation that it makes whole.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The files, in the order in which they were given.
    #[must_use]
    pub fn files(&self) -> &[Entry] {
        &self.files
    }

    /// The writer's own bytes.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The bytes of its file: lines for the generation and each file, the body, and a hash of all
    /// that.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{MAGIC}{FORMAT}\n{}", self.generation);
        for file in &self.files {
            text += &format!("\n{file}");
        }
        let mut bytes = text.into_bytes();
        bytes.extend(BODY);
        bytes.extend(&self.body);
        let hash = last_line(&bytes);
        bytes.extend(hash.as_bytes());
        bytes
    }

    /// The inverse of [`to_bytes`](Self::to_bytes), whatever the bytes are.
    ///
    /// # Errors
    /// [`FileDamage::Index`]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FileDamage> {
        Self::parsed(bytes).ok_or(FileDamage::Index)
    }

    fn parsed(bytes: &[u8]) -> Option<Self> {
        let content = intact(bytes)?;
        let end = content.windows(BODY.len()).position(|part| part == BODY)?;
        let (lines, body) = content.split_at(end);
        let mut lines = str::from_utf8(lines).ok()?.split('\n');
        if lines.next()?.strip_prefix(MAGIC)? != FORMAT.to_string() {
            return None;
        }
        let generation = lines.next()?.parse().ok()?;
        let files = lines.map(|line| line.parse().ok());
        let files: Vec<Entry> = files.collect::<Option<_>>()?;
        Self::new(generation, files, body[BODY.len()..].to_vec()).ok()
    }
}

/// The format of an intact index, where it is another than the one that is read.
pub(crate) fn other_format(bytes: &[u8]) -> Option<u32> {
    let first = intact(bytes)?.split(|byte| *byte == b'\n').next()?;
    let format = str::from_utf8(first).ok()?.strip_prefix(MAGIC)?;
    format.parse().ok().filter(|format| *format != FORMAT)
}

/// What comes before the hash, if it is the hash of that.
fn intact(bytes: &[u8]) -> Option<&[u8]> {
    let (content, last) = bytes.split_at_checked(bytes.len().checked_sub(LAST_LINE)?)?;
    (last == last_line(content).as_bytes()).then_some(content)
}

/// Whether a file of a generation may be called so: in one way only, by which it is found again.
pub(crate) fn is_part(part: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let (first, _) = part.split_once('.').unwrap_or((part, ""));
    !first.is_empty()
        && part.bytes().all(known)
        && first != INDEX
        && first.parse::<Generation>().is_err()
}

/// Bytes that need not be an index, as fuzz targets have them, and the same with the hash that
/// belongs to them: what is read is written so that it reads the same.
#[cfg(any(test, feature = "testing"))]
pub fn decode_index(bytes: &[u8]) {
    let sealed = [bytes, last_line(bytes).as_bytes()].concat();
    for bytes in [bytes, &sealed] {
        if let Ok(index) = Index::from_bytes(bytes) {
            assert_eq!(Index::from_bytes(&index.to_bytes()), Ok(index));
        }
    }
}

pub(crate) fn last_line(content: &[u8]) -> String {
    format!("\nhash {:016x}\n", XxHash3_64::oneshot(content))
}

/// The suffix of the index file, after the name of its generation.
pub(crate) const INDEX: &str = "index";

/// Begins the first line, which ends with the format.
const MAGIC: &str = "meshwork checkpoint ";

/// Raised when an index says things in another way.
pub(crate) const FORMAT: u32 = 2;

/// Stands before the writer's own bytes. No line of a file is like it.
const BODY: &[u8] = b"\nbody\n";

/// Bytes of the last line.
const LAST_LINE: usize = "\nhash 0123456789abcdef\n".len();

#[cfg(test)]
mod tests;
