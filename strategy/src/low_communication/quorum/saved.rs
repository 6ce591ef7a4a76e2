//! Words and numbers as bytes, in the order in which they are read again.

const WORD: usize = size_of::<u64>();

/// Puts them together.
#[derive(Debug, Default)]
pub(super) struct Writer {
    words: Vec<u64>,
    numbers: Vec<f32>,
}

impl Writer {
    pub(super) fn words(&mut self, words: impl IntoIterator<Item = u64>) {
        self.words.extend(words);
    }

    pub(super) fn numbers(&mut self, numbers: &[f32]) {
        self.numbers.extend_from_slice(numbers);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        let count = self.words.len() as u64;
        let words = [count].into_iter().chain(self.words);
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.extend(self.numbers.iter().flat_map(|one| one.to_le_bytes()));
        bytes
    }
}

/// Takes them apart: each answer is `None` where no more is there.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    words: &'a [u8],
    numbers: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk::<WORD>()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let (words, numbers) = rest.split_at_checked(count.checked_mul(WORD)?)?;
        Some(Self { words, numbers })
    }

    pub(super) fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.words.split_first_chunk::<WORD>()?;
        self.words = rest;
        Some(u64::from_le_bytes(*word))
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.word()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// A number below this.
    pub(super) fn index(&mut self, end: usize) -> Option<usize> {
        let index = usize::try_from(self.word()?).ok()?;
        (index < end).then_some(index)
    }

    pub(super) fn numbers(&mut self, count: usize) -> Option<Vec<f32>> {
        let length = count.checked_mul(size_of::<f32>())?;
        let (numbers, rest) = self.numbers.split_at_checked(length)?;
        self.numbers = rest;
        let (numbers, _) = numbers.as_chunks();
        Some(numbers.iter().map(|one| f32::from_le_bytes(*one)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.numbers.is_empty()
    }
}
