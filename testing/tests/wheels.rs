//! Wheels of an index that is a folder, fetched by the real pip.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use meshwork_testing::{Need, Wheel};

/// Makes a wheel of one module in this folder; gives its hash.
fn made(folder: &Path) -> Result<&'static str, String> {
    let files = [
        ("tiny.py", "ONE = 1\n"),
        (
            "tiny-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        ),
        (
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
    ];
    fs::create_dir(folder.join("tiny-1.0.dist-info")).expect("a writable folder");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("a writable folder");
    }
    let name = "tiny-1.0-py3-none-any.whl";
    python(
        folder,
        &["-m", "zipfile", "-c", name, "tiny.py", "tiny-1.0.dist-info"],
    )?;
    let said = python(folder, &["-m", "pip", "hash", name])?;
    let hash = said.trim().split_once("sha256:").map(|(_, hash)| hash);
    hash.map(|hash| &*hash.to_owned().leak()).ok_or(said)
}

fn python(folder: &Path, args: &[&str]) -> Result<String, String> {
    let ended = Command::new("python3")
        .args(args)
        .current_dir(folder)
        .output();
    let ended = ended.map_err(|error| error.to_string())?;
    let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if ended.status.success() {
        Ok(said(&ended.stdout))
    } else {
        Err(said(&ended.stderr))
    }
}

/// A Python whose pip knows this folder and no other index.
fn python_of(index: &Path) -> PathBuf {
    let file = index.join("python");
    let folder = index.display();
    let text = format!("#!/bin/sh\nPIP_NO_INDEX=1 PIP_FIND_LINKS='{folder}' exec python3 \"$@\"\n");
    fs::write(&file, text).expect("a writable folder");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("a file of our own");
    file
}

/// One test, as no other thread may start a process while the program is written.
#[test]
fn a_wheel_is_fetched_once_and_never_by_another_hash() {
    let (index, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let kept = kept.path();
    let Some(hash) = Need::CudaWheels.or_skip(made(index.path())) else {
        return;
    };
    let python = python_of(index.path());

    let zeros: &str = "0".repeat(64).leak();
    let other = Wheel::new("tiny==1.0", zeros);
    let refused = other.unpacked(kept, &python).unwrap_err();
    let complaint = Wheel::OTHER_HASH;
    assert_eq!(
        refused,
        format!("tiny==1.0 cannot be fetched: {complaint}: wanted {zeros} Got {hash}")
    );
    assert!(!other.content(kept).exists());

    let absent = Wheel::new("tiny==2.0", hash)
        .unpacked(kept, &python)
        .unwrap_err();
    let complaint = "tiny==2.0 cannot be fetched: ERROR: No matching distribution";
    assert!(absent.starts_with(complaint), "{absent}");

    let wheel = Wheel::new("tiny==1.0", hash);
    let content = wheel.unpacked(kept, &python).unwrap();
    assert_eq!(content, wheel.content(kept));
    let module = fs::read_to_string(content.join("tiny.py")).unwrap();
    assert_eq!(module, "ONE = 1\n");
    let mut beside: Vec<_> = fs::read_dir(content.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    beside.sort();
    assert_eq!(beside, ["content", "lock"]);
    assert_eq!(wheel.unpacked(kept, "/nowhere/python3"), Ok(content));
}
