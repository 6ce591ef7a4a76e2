use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;

fn refused(error: &io::Error) -> Option<Refused> {
    error.get_ref()?.downcast_ref().copied()
}

#[test]
fn nothing_is_written_where_anything_is_not_even_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let [target, link, dangling] =
        ["target", "link", "dangling"].map(|name| folder.path().join(name));
    fs::write(&target, "mine").unwrap();
    symlink(&target, &link).unwrap();
    symlink(folder.path().join("nowhere"), &dangling).unwrap();
    for path in [&target, &link, &dangling] {
        let error = System.create(path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{path:?}");
    }
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    assert!(!folder.path().join("nowhere").exists());
}

#[test]
fn only_regular_files_are_opened_and_nobody_waits_for_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let [target, link, pipe] = ["target", "link", "pipe"].map(|name| folder.path().join(name));
    fs::write(&target, "mine").unwrap();
    symlink(&target, &link).unwrap();
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let opened = System.open(&target).unwrap();
    let mut bytes = [0; 2];
    opened.read_at(2, &mut bytes).unwrap();
    assert_eq!((opened.length().unwrap(), &bytes), (4, b"ne"));
    let error = opened.read_at(3, &mut bytes).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    for (path, expected) in [
        (link.as_path(), Refused::Link),
        (&pipe, Refused::NotAFile),
        (folder.path(), Refused::NotAFile),
    ] {
        let error = System.open(path).unwrap_err();
        assert_eq!(refused(&error), Some(expected), "{path:?}");
    }
}

#[test]
fn a_file_is_abandoned_once_its_writer_has_dropped_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("draft");
    let draft = System.create(&path).unwrap();
    assert!(!System.remove_abandoned(&path, &|| false).unwrap());
    drop(draft);
    assert!(!System.remove_abandoned(&path, &|| true).unwrap());
    assert!(path.exists());
    assert!(System.remove_abandoned(&path, &|| false).unwrap());
    assert!(!path.exists());
}
