//! The program as a user runs it: several workers with one summary, each with dropout of its own, a
//! worker that is killed and others that go on without it or all from the last checkpoint, and data
//! that is not there, cut off, of other sizes, or not the same on all workers.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with them")]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use meshwork_strategy::JobSecret;
use meshwork_testing::{free_addresses, tf_config};

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_burn-mnist"));
    command
        .args(["--limit", "48", "--folder"])
        .arg(folder)
        .args(args)
        .env_remove("TF_CONFIG");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn two_workers_train_and_one_of_them_tells_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let two = run(folder.path(), &["--workers", "2", "--batch", "8"]);
    let (said, errors) = (text(&two.stdout), text(&two.stderr));
    assert!(two.status.success(), "{said}{errors}");
    assert_eq!(said.matches("Learner Summary").count(), 1, "{said}");
    assert!(said.contains("| Valid | Accuracy |"), "{said}");
    // The samples of both are counted.
    assert!(
        said.contains("items_processed: 48, items_total: 48"),
        "{said}"
    );
    let logged = folder.path().join("valid/epoch-1/Accuracy.log");
    // Three batches of 16, and their mean.
    assert_eq!(std::fs::read_to_string(logged).unwrap().lines().count(), 4);
}

/// All images are one, and models begin with the same values: with the same neurons dropped on all
/// workers, the loss of two would be that of one.
#[test]
fn each_worker_drops_neurons_of_its_own() {
    let [alone, together] = [("1", 4), ("2", 8)].map(|(workers, images)| {
        let folder = tempfile::tempdir().unwrap();
        write_equal_images(folder.path(), &vec![7; images]);
        let data = folder.path().to_str().unwrap();
        let args = ["--workers", workers, "--batch", "4", "--data", data];
        let ended = run(folder.path(), &args);
        assert!(ended.status.success(), "{}", text(&ended.stderr));
        let logged = folder.path().join("train/epoch-1/Loss.log");
        let logged = std::fs::read_to_string(logged).unwrap();
        // Of the only batch, before the first update.
        let (loss, _) = logged.split_once(',').unwrap();
        loss.parse::<f64>().unwrap()
    });
    assert!((alone - together).abs() > 1e-4, "{alone} {together}");
}

/// Files of MNIST's form, to train with and to validate with, that show one image for each label.
fn write_equal_images(folder: &Path, labels: &[u8]) {
    let count = u32::try_from(labels.len()).unwrap();
    write_images(folder, [count, 28, 28], labels);
}

/// The same, with a header of images that may say something else.
fn write_images(folder: &Path, sizes: [u32; 3], labels: &[u8]) {
    let header = |kind: u8, sizes: &[u32]| {
        let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
        [0, 0, 8, kind]
            .into_iter()
            .chain(sizes)
            .collect::<Vec<u8>>()
    };
    let image: Vec<u8> = (0..=250).cycle().take(28 * 28).collect();
    let images = [header(3, &sizes), image.repeat(labels.len())].concat();
    let labels = [&header(1, &sizes[..1])[..], labels].concat();
    for part in ["train", "t10k"] {
        for (bytes, kind) in [(&images, "images-idx3"), (&labels, "labels-idx1")] {
            let file = folder.join(format!("{part}-{kind}-ubyte.gz"));
            let mut file = GzEncoder::new(File::create(file).unwrap(), Compression::fast());
            file.write_all(bytes).unwrap();
            file.finish().unwrap();
        }
    }
}

/// Who looks for the worker to kill finds it in `/proc`.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_worker_costs_what_came_behind_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--workers", "2", "--batch", "8", "--epochs", "3"];
    let (summary, errors) = kill_second(folder.path(), &[&args[..], &["--resume"]].concat());
    let behind = errors
        .lines()
        .filter_map(|line| line.split_once("goes on behind epoch "));
    let epochs: Vec<usize> = behind.map(|(_, epoch)| epoch.parse().unwrap()).collect();
    assert!(
        !epochs.is_empty() && epochs.iter().all(|epoch| (1..3).contains(epoch)),
        "{errors}"
    );
    assert!(summary.contains("| Valid | Accuracy |"), "{summary}");
    assert!(folder.path().join("valid/epoch-3/Accuracy.log").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn the_others_go_on_without_a_killed_worker() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--workers", "3", "--batch", "4", "--epochs", "3"];
    let (summary, errors) = kill_second(folder.path(), &[&args[..], &["--elastic"]].concat());
    assert!(!errors.contains("burn-mnist: error"), "{errors}");
    assert_eq!(summary.matches("Learner Summary").count(), 1, "{summary}");
    assert!(summary.contains("| Valid | Accuracy |"), "{summary}");
    // Each image once, in the epochs with the loss too.
    let in_all = "items_processed: 48, items_total: 48";
    assert!(summary.contains(in_all), "{summary}");
    assert!(folder.path().join("valid/epoch-3/Accuracy.log").exists());
}

/// Runs a job whose second worker is killed in the second epoch, until all have ended well: what
/// it said from then on, and its complaints.
#[cfg(target_os = "linux")]
#[track_caller]
fn kill_second(folder: &Path, args: &[&str]) -> (String, String) {
    let mut command = command(folder, args);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = piped.spawn().unwrap();
    // The summary of what is read comes at the end.
    let mut said = BufReader::new(job.stdout.take().unwrap()).lines();
    let in_second = |line: &io::Result<String>| {
        line.as_ref()
            .unwrap()
            .contains("processed: 2, items_total: 3")
    };
    assert!(said.any(|line| in_second(&line)), "no second epoch");
    let children = format!("/proc/{0}/task/{0}/children", job.id());
    let children = std::fs::read_to_string(children).unwrap();
    let second = children.split_whitespace().nth(1).unwrap();
    let killed = Command::new("kill")
        .args(["-KILL", second])
        .status()
        .unwrap();
    assert!(killed.success());
    let summary: Vec<String> = said.map(Result::unwrap).collect();
    let ended = job.wait_with_output().unwrap();
    let errors = text(&ended.stderr);
    assert!(ended.status.success(), "{errors}");
    assert!(errors.contains("killed by signal 9"), "{errors}");
    (summary.join("\n"), errors)
}

#[test]
fn a_file_of_images_that_is_cut_off_is_named_and_ends_all_workers() {
    let folder = tempfile::tempdir().unwrap();
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../mnist/data");
    for file in Path::new(images).read_dir().unwrap() {
        let file = file.unwrap();
        let mut bytes = std::fs::read(file.path()).unwrap();
        if file.file_name() == "train-images-idx3-ubyte.gz" {
            bytes.truncate(bytes.len() / 2);
        }
        std::fs::write(folder.path().join(file.file_name()), bytes).unwrap();
    }
    let data = folder.path().to_str().unwrap();
    let failed = run(folder.path(), &["--workers", "2", "--data", data]);
    let errors = text(&failed.stderr);
    assert!(!failed.status.success(), "{errors}");
    assert!(
        errors.contains("train-images-idx3-ubyte.gz cannot be read"),
        "{errors}"
    );
}

#[test]
fn a_label_above_9_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    write_equal_images(folder.path(), &[7, 9, 10, 11]);
    let data = folder.path().to_str().unwrap();
    let failed = run(folder.path(), &["--data", data]);
    let errors = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("label 10 of sample 2 in") && errors.contains("train-labels"),
        "{errors}"
    );
}

#[test]
fn images_of_another_form_and_files_without_any_are_named() {
    for (sizes, labels, what) in [
        (
            [2, 14, 56],
            &[7, 8][..],
            "it has images of 14 by 56, and 28 by 28 are needed",
        ),
        ([0, 28, 28], &[], "it has no items"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write_images(folder.path(), sizes, labels);
        let failed = run(folder.path(), &["--data", folder.path().to_str().unwrap()]);
        let errors = text(&failed.stderr);
        assert_eq!(failed.status.code(), Some(1), "{errors}");
        let told = format!("train-images-idx3-ubyte.gz cannot be read: {what}");
        assert!(
            errors.contains(&told) && errors.lines().count() == 1,
            "{errors}"
        );
    }
}

#[test]
fn a_worker_with_other_images_is_named_on_all_with_both_checksums() {
    let folders = [7, 3].map(|digit| {
        let folder = tempfile::tempdir().unwrap();
        write_equal_images(folder.path(), &[digit; 8]);
        folder
    });
    let secret = JobSecret::generate().unwrap();
    let addresses = free_addresses(2);
    let started = [0, 1].map(|index| {
        let folder = folders[index].path();
        command(folder, &["--data", folder.to_str().unwrap()])
            .env("TF_CONFIG", tf_config(&addresses, index))
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    });
    for worker in started {
        let ended = worker.wait_with_output().unwrap();
        let errors = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{errors}");
        for part in ["rank 1 has", ", and the chief"] {
            let told = format!("{part} \"8 images with checksum");
            assert!(errors.contains(&told), "{errors}");
        }
    }
}

#[test]
fn data_that_is_not_there_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("nowhere");
    let failed = run(folder.path(), &["--data", data.to_str().unwrap()]);
    let errors = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.contains("nowhere/train-images-idx3-ubyte.gz cannot be read"),
        "{errors}"
    );
}
