//! A folder of text, its characters, and batches of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Error;
use crate::initial::fnv1a;

/// Text as numbers of its characters: the first nine tenths to learn from, the rest to be measured
/// on.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// In ascending order.
    characters: Vec<char>,
    train: Vec<u32>,
    validation: Vec<u32>,
    context: usize,
}

/// Rows of text, and for each character the one that follows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub(crate) inputs: Vec<u32>,
    pub(crate) targets: Vec<u32>,
    pub(crate) context: usize,
}

impl Corpus {
    /// Reads all text files below `folder`, in the order of their paths, for rows of `context`
    /// characters.
    ///
    /// Files that are no UTF-8 are passed over, as are links, names that begin with a dot, and
    /// folders that say by a `CACHEDIR.TAG` that they can be made again, such as cargo's.
    ///
    /// # Errors
    /// [`Error::DataRead`], [`Error::DataNone`], [`Error::DataTooLong`], [`Error::DataTooShort`].
    pub fn read(folder: &Path, context: usize) -> Result<Self, Error> {
        Self::read_where(folder, context, |_| true)
    }

    /// The same of the files whose paths `is_text` takes.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_where(
        folder: &Path,
        context: usize,
        is_text: impl Fn(&Path) -> bool,
    ) -> Result<Self, Error> {
        let mut text = String::new();
        let mut passed_over = 0_usize;
        for path in files(folder)?.into_iter().filter(|path| is_text(path)) {
            match fs::read_to_string(&path) {
                Ok(file) if file.contains('\0') => passed_over += 1,
                Ok(file) => text.push_str(&file),
                Err(error) if error.kind() == ErrorKind::InvalidData => passed_over += 1,
                Err(source) => return Err(Error::DataRead { path, source }),
            }
            if text.len() > MOST_BYTES {
                return Err(Error::DataTooLong {
                    path: folder.to_owned(),
                    most: MOST_BYTES,
                });
            }
        }
        if text.is_empty() {
            return Err(Error::DataNone {
                path: folder.to_owned(),
                passed_over,
            });
        }
        Self::from_text(&text, context)
    }

    /// The characters of `text`, for rows of `context` characters.
    ///
    /// # Errors
    /// [`Error::DataTooShort`] if a tenth of it holds no row.
    pub fn from_text(text: &str, context: usize) -> Result<Self, Error> {
        let characters: BTreeSet<char> = text.chars().collect();
        let characters: Vec<char> = characters.into_iter().collect();
        let numbers: Vec<u32> = text
            .chars()
            .map(|c| u32::try_from(characters.partition_point(|&known| known < c)))
            .collect::<Result<_, _>>()
            .expect("there are fewer characters than 2^32");
        let len = numbers.len();
        let (train, validation) = numbers.split_at(len / 10 * 9 + len % 10 * 9 / 10);
        // A row, and the character behind it.
        if context == 0 || validation.len() <= context {
            return Err(Error::DataTooShort {
                characters: len,
                context,
            });
        }
        Ok(Self {
            characters,
            train: train.to_vec(),
            validation: validation.to_vec(),
            context,
        })
    }

    /// How many different characters there are.
    #[must_use]
    pub fn characters(&self) -> usize {
        self.characters.len()
    }

    /// How many characters there are to learn from, and to be measured on.
    #[must_use]
    pub fn lens(&self) -> [usize; 2] {
        [self.train.len(), self.validation.len()]
    }

    /// A number that differs where the text does, but for one chance in 2^64.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        let characters = self.characters.iter().map(|&one| u32::from(one));
        let numbers = self.train.iter().chain(&self.validation).copied();
        fnv1a(characters.chain(numbers))
    }

    /// The rows with these numbers of the batch of `step`. A row depends on seed, step and its
    /// number only: however a batch is divided, it is the same one.
    #[must_use]
    pub fn batch(&self, seed: u64, step: usize, rows: Range<usize>) -> Batch {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(step as u64);
        let offsets = rows.map(|row| {
            random.set_word_pos(row as u128 * WORDS_PER_ROW);
            random.random_range(0..self.train.len() - self.context)
        });
        self.rows(&self.train, offsets)
    }

    /// The validation text in rows one behind the other, [`VALIDATION_CHARACTERS`] at most.
    pub(crate) fn validation_rows(&self) -> usize {
        (self.validation.len() - 1).min(VALIDATION_CHARACTERS) / self.context
    }

    /// Rows of the validation text.
    pub(crate) fn validation_batch(&self, rows: impl Iterator<Item = usize>) -> Batch {
        self.rows(&self.validation, rows.map(|row| row * self.context))
    }

    /// The numbers of the validation text's first characters.
    pub(crate) fn prompt(&self) -> &[u32] {
        &self.validation[..self.context]
    }

    pub(crate) fn decode(&self, numbers: &[u32]) -> String {
        numbers
            .iter()
            .map(|&number| self.characters[number as usize])
            .collect()
    }

    fn rows(&self, text: &[u32], offsets: impl Iterator<Item = usize>) -> Batch {
        let context = self.context;
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for offset in offsets {
            inputs.extend_from_slice(&text[offset..offset + context]);
            targets.extend_from_slice(&text[offset + 1..offset + 1 + context]);
        }
        Batch {
            inputs,
            targets,
            context,
        }
    }
}

/// All files below `folder` that may be text, in the order of their paths.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let cannot = |source| Error::DataRead {
            path: folder.clone(),
            source,
        };
        for entry in fs::read_dir(&folder).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let kind = entry.file_type().map_err(cannot)?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            if kind.is_file() {
                found.push(path);
            } else if kind.is_dir() && !path.join("CACHEDIR.TAG").exists() {
                folders.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// More is not for a model of this size, and the numbers take four times as much memory.
const MOST_BYTES: usize = 1 << 30;

/// Enough for the third digit of a loss.
const VALIDATION_CHARACTERS: usize = 40_000;

/// Random numbers between the places that two rows are drawn from: a draw takes two at most words,
/// with the chance of 2^-64 that it takes more.
const WORDS_PER_ROW: u128 = 16;

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn folder(files: &[(&str, &[u8])]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        folder
    }

    fn line(error: &Error) -> String {
        let line = crate::one_line(error);
        assert!(!line.contains('\n') && line.contains("--data"), "{line}");
        line
    }

    #[test]
    fn text_files_are_joined_by_path_and_others_passed_over() {
        let folder = folder(&[
            ("b.txt", b"bbbbbbbbbb"),
            ("a/x.txt", b"aaaaaaaaaa"),
            ("a/image", b"\xff\xfe"),
            ("a/binary", b"c\0c"),
            (".git/config", b"dddd"),
            ("target/CACHEDIR.TAG", b"Signature"),
            ("target/out.txt", b"eeee"),
        ]);
        let corpus = Corpus::read(folder.path(), 1).unwrap();
        assert_eq!(corpus.characters, ['a', 'b']);
        assert_eq!(corpus.lens(), [18, 2]);
        assert_eq!(corpus.decode(&corpus.train), "aaaaaaaaaabbbbbbbb");
    }

    #[test]
    fn files_that_are_not_taken_are_no_text() {
        let folder = folder(&[("a.txt", b"aaaaaaaaaaaaaaaaaaaa"), ("log.json", b"bbbb")]);
        let is_text = |path: &Path| path.extension().is_some_and(|end| end == "txt");
        let corpus = Corpus::read_where(folder.path(), 1, is_text).unwrap();
        assert_eq!((corpus.characters(), corpus.lens()), (1, [18, 2]));
        assert_eq!(Corpus::read(folder.path(), 1).unwrap().characters(), 2);
        let none = Corpus::read_where(folder.path(), 1, |_| false).unwrap_err();
        assert!(line(&none).contains("where 0 files are"), "{none}");
    }

    #[test]
    fn the_same_text_has_the_same_checksum_and_no_other() {
        let text = "abcd".repeat(100);
        let of = |text: &str| Corpus::from_text(text, 4).unwrap().checksum();
        assert_eq!(of(&text), of(&text));
        let swapped = format!("ba{}", &text[2..]);
        for other in [swapped, text.replace('a', "e"), format!("{text}a")] {
            assert_ne!(of(&text), of(&other));
        }
    }

    #[test]
    fn a_folder_without_text_is_named() {
        let missing = Corpus::read(Path::new("nowhere"), 4).unwrap_err();
        assert!(line(&missing).contains("nowhere"));
        let empty = folder(&[]);
        assert!(line(&Corpus::read(empty.path(), 4).unwrap_err()).contains("no text"));
        let binary = folder(&[("a", b"\xff\xff")]);
        assert!(line(&Corpus::read(binary.path(), 4).unwrap_err()).contains("1 file"));
        let short = folder(&[("a", b"short")]);
        let error = line(&Corpus::read(short.path(), 4).unwrap_err());
        assert!(
            error.contains("5 characters") && error.contains("--context"),
            "{error}"
        );
    }

    #[test]
    fn the_shortest_text_has_one_row_of_validation() {
        for context in 1..20 {
            let least = (1..).find(|&len| Corpus::from_text(&"x".repeat(len), context).is_ok());
            let corpus = Corpus::from_text(&"x".repeat(least.unwrap()), context).unwrap();
            assert_eq!(
                (corpus.lens()[1], corpus.validation_rows()),
                (context + 1, 1)
            );
        }
    }

    #[test]
    fn targets_follow_inputs_and_a_batch_is_the_same_however_it_is_divided() {
        let text: String = ('a'..='z').cycle().take(2_600).collect();
        let corpus = Corpus::from_text(&text, 8).unwrap();
        for step in [0, 1, 1_000] {
            let whole = corpus.batch(7, step, 0..6);
            let parts = [0..1, 1..4, 4..6].map(|rows| corpus.batch(7, step, rows));
            let inputs: Vec<u32> = parts.iter().flat_map(|part| part.inputs.clone()).collect();
            assert_eq!(whole.inputs, inputs);
            for (input, target) in whole.inputs.iter().zip(&whole.targets) {
                assert_eq!((input + 1) % 26, *target);
            }
            assert_ne!(whole.inputs, corpus.batch(8, step, 0..6).inputs);
            assert_ne!(whole.inputs, corpus.batch(7, step + 1, 0..6).inputs);
        }
    }
}
