//! Words and numbers as bytes, which are read in the order in which they were written.

/// Puts them together.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn words(&mut self, words: impl IntoIterator<Item = u64>) {
        self.0.extend(words.into_iter().flat_map(u64::to_le_bytes));
    }

    pub(super) fn numbers(&mut self, numbers: &[f32]) {
        self.0
            .extend(numbers.iter().flat_map(|one| one.to_le_bytes()));
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Takes them apart: each answer is `None` where no more is there.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    pub(super) fn words<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.word()?;
        }
        Some(words)
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
        let (numbers, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let (numbers, _) = numbers.as_chunks();
        Some(numbers.iter().map(|one| f32::from_le_bytes(*one)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
