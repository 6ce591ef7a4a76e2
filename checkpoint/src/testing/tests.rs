use super::*;

/// A folder that was synced with a file that was, and both changed since.
fn changed() -> TestDisk {
    let disk = TestDisk::new();
    disk.make_folder(Path::new("/a")).unwrap();
    disk.sync_folder(Path::new("/")).unwrap();
    let mut draft = disk.create(Path::new("/a/old")).unwrap();
    draft.write(b"12").unwrap();
    draft.sync().unwrap();
    disk.sync_folder(Path::new("/a")).unwrap();
    draft.write(b"34").unwrap();
    disk.rename(Path::new("/a/old"), Path::new("/a/new"))
        .unwrap();
    disk
}

fn content(disk: &TestDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path)).ok()?;
    let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    Some(bytes)
}

#[test]
fn a_crash_keeps_what_was_synced_and_of_the_rest_anything() {
    let disk = changed();
    let synced = disk.crashed(Survival::Synced);
    assert_eq!(content(&synced, "/a/old").as_deref(), Some(&b"12"[..]));
    assert_eq!(content(&synced, "/a/new"), None);
    let all = disk.crashed(Survival::Everything);
    assert_eq!(content(&all, "/a/old"), None);
    assert_eq!(content(&all, "/a/new").as_deref(), Some(&b"1234"[..]));
    let chances: std::collections::BTreeSet<_> = (0..500)
        .map(|seed| {
            let disk = disk.crashed(Survival::Chance(seed));
            ["/a/old", "/a/new"].map(|path| content(&disk, path))
        })
        .collect();
    // Each name may be there or not, with each of: nothing more, zeros, a part, all.
    let contents = [&b"12"[..], b"1234", b"12\0\0", b"123"].map(|bytes| Some(bytes.to_vec()));
    for content in &contents {
        let both = [content.clone(), content.clone()];
        assert!(chances.contains(&both), "{both:?}");
    }
    assert!(chances.contains(&[None, None]));
    assert_eq!(chances.len(), 1 + 3 * contents.len());
}

#[test]
fn a_folder_that_was_not_synced_is_gone_with_what_is_in_it() {
    let disk = TestDisk::new();
    disk.make_folder(Path::new("/a")).unwrap();
    disk.create(Path::new("/a/b")).unwrap().sync().unwrap();
    disk.sync_folder(Path::new("/a")).unwrap();
    let disk = disk.crashed(Survival::Synced);
    let error = disk.names(Path::new("/a")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn calls_fail_as_they_are_told_to() {
    let names = |disk: &TestDisk| disk.list(Path::new("/")).concat();
    let create = |disk: &TestDisk, name: &str| disk.create(&Path::new("/").join(name)).map(drop);
    let disk = TestDisk::new();
    disk.fail_at(1, Fault::Refused);
    assert!(create(&disk, "a").is_ok() && create(&disk, "b").is_err() && disk.has_failed());
    assert!(create(&disk, "c").is_ok());
    disk.fail_at(0, Fault::Unheard);
    assert!(create(&disk, "d").is_err() && create(&disk, "e").is_ok());
    disk.fail_at(0, Fault::Death);
    assert!(create(&disk, "f").is_err() && create(&disk, "g").is_err());
    assert!(create(&disk.another_process(), "h").is_ok());
    assert_eq!(names(&disk), "acdeh");
}
