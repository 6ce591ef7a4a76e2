use std::collections::HashMap;
use std::hash::Hash;

/// The most recently used values, up to a fixed number.
#[derive(Debug)]
pub(super) struct LruCache<K, V> {
    known: HashMap<K, (u64, V)>,
    uses: u64,
    most: usize,
}

impl<K: Clone + Eq + Hash, V: Clone> LruCache<K, V> {
    /// Nothing yet, and never more than `most`, which is not zero.
    pub(super) fn of(most: usize) -> Self {
        Self {
            known: HashMap::new(),
            uses: 0,
            most,
        }
    }

    /// Finds it, which is a use of it.
    pub(super) fn find(&mut self, key: &K) -> Option<V> {
        self.uses += 1;
        let (used, value) = self.known.get_mut(key)?;
        *used = self.uses;
        Some(value.clone())
    }

    /// Keeps it, in place of what was not used for the longest time if there is no room.
    pub(super) fn keep(&mut self, key: K, value: V) {
        self.uses += 1;
        if self.known.len() >= self.most && !self.known.contains_key(&key) {
            let oldest = self.known.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(key, (self.uses, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_the_longest_time_makes_room() {
        let mut recent = LruCache::of(2);
        recent.keep("a", 1);
        recent.keep("b", 2);
        assert_eq!(recent.find(&"a"), Some(1));
        recent.keep("c", 3);
        let found = ["a", "b", "c"].map(|key| recent.find(&key));
        assert_eq!(found, [Some(1), None, Some(3)]);
    }

    #[test]
    fn what_is_known_takes_no_room_of_others() {
        let mut recent = LruCache::of(2);
        for (key, value) in [("a", 1), ("b", 2), ("b", 3)] {
            recent.keep(key, value);
        }
        assert_eq!((recent.find(&"a"), recent.find(&"b")), (Some(1), Some(3)));
    }
}
