//! A run whose chief cannot save what it ends with.

use std::fs;
use std::process::Stdio;

use meshwork_strategy::{Checkpoints, JobSecret, Snapshot};
use meshwork_testing::{free_addresses, tf_config};

use crate::{command, data_folder};

#[test]
fn the_next_chief_saves_the_last_step_where_the_first_cannot() {
    let folder = data_folder();
    // A file can be made in the chief's folder, and no save can follow that one.
    let full = folder.path().join("full");
    fs::create_dir(&full).expect("a new folder");
    let last = format!("checkpoint.g{}-{:016x}.step-1.safetensors", u64::MAX, 0);
    fs::write(full.join(last), []).expect("a new file");
    let secret = JobSecret::generate().expect("random bytes");
    let addresses = free_addresses(3);
    let workers = [(0, "full"), (1, "saved"), (2, "saved")].map(|(index, saved)| {
        command(folder.path(), &["--checkpoint", saved])
            .env("TF_CONFIG", tf_config(&addresses, index))
            .env("MESHWORK_RESTARTS", "0")
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    });
    let ended = workers.map(|worker| worker.wait_with_output().expect("the program ends"));
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
