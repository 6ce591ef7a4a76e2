//! What the workers that share an input have to have in common, in numbers that they can compare.

use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

/// How many files an input has, their names in order, and how it is shared. Nothing of an input
/// that a worker has for itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Common([u64; 3]);

impl Common {
    pub(super) fn new(files: &[PathBuf], policy: u64) -> Self {
        // The hash so far is the next one's seed.
        let names = files.iter().fold(0, |names, file| {
            XxHash3_64::oneshot_with_seed(names, name(file))
        });
        Self([files.len() as u64, names, policy])
    }

    /// Files first.
    pub(super) fn words(self) -> [u64; 3] {
        self.0
    }

    /// A hash of 48 bits: the sum of those of as many workers as there can be is exact.
    pub(super) fn digest(self) -> u64 {
        XxHash3_64::oneshot(bytemuck::cast_slice(&self.0)) >> 16
    }
}

/// Without folders, as each host may have its data elsewhere.
fn name(file: &Path) -> &[u8] {
    let name = file.file_name().unwrap_or(file.as_os_str());
    name.as_encoded_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&str], policy: u64) -> u64 {
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        Common::new(&files, policy).digest()
    }

    #[test]
    fn names_order_number_and_policy_count_and_folders_do_not() {
        let own = of(&["/data/a", "/data/b"], 1);
        assert_eq!(own, of(&["elsewhere/a", "b"], 1));
        for other in [
            of(&["/data/b", "/data/a"], 1),
            of(&["/data/a"], 1),
            of(&["/data/a", "/data/b", "/data/b"], 1),
            of(&["/data/a", "/data/c"], 1),
            of(&["/data/ab", ""], 1),
            of(&["/data/a", "/data/b"], 2),
            of(&[], 1),
        ] {
            assert_ne!(own, other);
        }
    }

    #[test]
    fn all_builds_have_the_same_numbers() {
        let files = ["a", "b"].map(PathBuf::from);
        let first = XxHash3_64::oneshot(b"a");
        let both = XxHash3_64::oneshot_with_seed(first, b"b");
        assert_eq!(Common::new(&files, 3).words(), [2, both, 3]);
    }
}
