//! The corpus of the fuzz targets, replayed: each input whole, cut short at every byte, and with
//! every byte changed.

#[path = "../../fuzz/checks/mesh.rs"]
mod checks;

use std::path::Path;

#[track_caller]
fn replay(target: &str, check: fn(&[u8])) {
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

#[test]
fn device_names_are_read_or_refused() {
    replay("device_spec", checks::device_spec);
}

#[test]
fn mesh_texts_are_read_or_refused() {
    replay("mesh_string", checks::mesh_string);
}

#[test]
fn mesh_bytes_are_read_or_refused() {
    replay("mesh_proto", checks::mesh_proto);
}
