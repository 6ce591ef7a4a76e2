/// Numbers that look random and follow from a seed: SplitMix64 (Steele, Lea, Flood, 2014).
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of their own for something with this name.
    pub(super) fn split(&self, name: u64) -> Self {
        Self(hash(&[self.0, name]))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from `low` on, below `high`; `low` where there is none.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % high.saturating_sub(low).max(1)
    }

    /// Whether something happens that does so this often in a thousand times.
    pub(super) fn happens(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }
}

/// Numbers as one.
pub(super) fn hash(words: &[u64]) -> u64 {
    let step = |hash: u64, word: &u64| mix(hash ^ word.wrapping_add(0x9e37_79b9_7f4a_7c15));
    words.iter().fold(0, step)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
