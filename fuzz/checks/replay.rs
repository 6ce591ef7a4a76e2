//! The corpus of a fuzz target, replayed by the tests of the crate that it is for.

use std::path::Path;

/// Feeds each input to the check: whole, cut short at every byte, and with every byte changed.
#[track_caller]
pub(crate) fn replay(target: &str, mut check: impl FnMut(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let inputs = std::fs::read_dir(corpus.join(target)).expect("the corpus is in the repository");
    let read = |input: std::io::Result<std::fs::DirEntry>| std::fs::read(input?.path());
    let inputs: Vec<Vec<u8>> = inputs
        .map(read)
        .collect::<Result<_, _>>()
        .expect("readable files");
    assert!(
        inputs.len() >= 20,
        "{target} has only {} inputs",
        inputs.len()
    );
    for input in inputs {
        check(&input);
        for place in 0..input.len() {
            check(&input[..place]);
            for change in [0x01, 0x10, 0x80, 0xff] {
                let mut changed = input.clone();
                changed[place] ^= change;
                check(&changed);
            }
        }
    }
}
