//! A run whose chief cannot save what it ends with.

use std::fs;

use meshwork_strategy::{Checkpoints, Snapshot};

use crate::{apart, data_folder};

#[test]
fn the_next_chief_saves_the_last_step_where_the_first_cannot() {
    let folder = data_folder();
    // A file can be made in the chief's folder, and no save can follow that one.
    let full = folder.path().join("full");
    fs::create_dir(&full).expect("a new folder");
    let last = format!("checkpoint.g{}-{:016x}.step-1.safetensors", u64::MAX, 0);
    fs::write(full.join(last), []).expect("a new file");
    let [first, later] = ["full", "saved"].map(|saved| ["--checkpoint", saved]);
    let elastic = [("MESHWORK_RESTARTS", "0")];
    let ended = apart(folder.path(), [&first, &later, &later], &elastic);
    let [chief, others @ ..] = &ended;
    let stderr = String::from_utf8_lossy(&chief.stderr);
    assert!(!chief.status.success(), "{stderr}");
    assert!(stderr.contains("no generation can follow"), "{stderr}");
    for other in others {
        assert!(other.status.success(), "{other:?}");
    }
    let saved = Checkpoints::new(folder.path().join("saved")).load();
    let saved = saved.expect("a folder that can be read");
    // 40 images in batches of 16.
    assert_eq!(saved.snapshot().map(Snapshot::step), Some(3));
}
