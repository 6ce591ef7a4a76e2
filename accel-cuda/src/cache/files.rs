//! The files of a kernel cache. They are code, so only what nobody else can have written is read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, process};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use super::access;
use crate::Error;

/// The content of a file; `None` unless it is whole, in its place, and owned by a user who may be
/// trusted.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    access::check(&fs::metadata(folder_of(path)).ok()?, path).ok()?;
    let mut file = access::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    access::check(&metadata, path).ok()?;
    if !metadata.is_file() {
        return None;
    }
    let mut image = Vec::new();
    file.read_to_end(&mut image).ok()?;
    let (found, rest) = image.split_first_chunk::<SHA256_OUTPUT_LEN>()?;
    if *found != hash(path, rest) || rest.is_empty() {
        return None;
    }
    image.drain(..SHA256_OUTPUT_LEN);
    Some(image)
}

/// Puts a file in its place as a whole.
pub(super) fn write(path: &Path, image: &[u8]) -> Result<(), Error> {
    let refused = |error: io::Error| Error::Cache {
        path: path.to_owned(),
        kind: error.kind(),
    };
    let folder = folder_of(path);
    access::create_folder(folder).map_err(refused)?;
    access::check(&fs::metadata(folder).map_err(refused)?, folder)?;
    place(path, image).map_err(refused)
}

fn place(path: &Path, image: &[u8]) -> io::Result<()> {
    let (beside, mut file) = loop {
        let beside = path.with_extension(next_name());
        match access::create(&beside) {
            // What a process that had this number has left there, or a link.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => break (beside, created?),
        }
    };
    let placed = fill(&mut file, &hash(path, image), image);
    let placed = placed.and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    placed
}

fn fill(file: &mut File, hash: &[u8], image: &[u8]) -> io::Result<()> {
    file.write_all(hash)?;
    file.write_all(image)
}

/// Another at each call of this process.
fn next_name() -> String {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    format!("{}-{turn}", process::id())
}

/// Of a file's name and content: under another name it is another file.
fn hash(path: &Path, image: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let mut context = Context::new(&SHA256);
    context.update(name);
    context.update(&[0]);
    context.update(image);
    let mut hash = [0; SHA256_OUTPUT_LEN];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    /// A folder of this user, and a file in it that is not there yet.
    fn cache() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/inside/a.kernels");
        (folder, file)
    }

    #[test]
    fn what_was_written_is_read_and_half_of_it_is_not() {
        let (_folder, file) = cache();
        assert_eq!(read(&file), None);
        write(&file, b"first").unwrap();
        write(&file, b"code").unwrap();
        assert_eq!(read(&file).as_deref(), Some(b"code".as_slice()));
        let whole = fs::read(&file).unwrap();
        for end in 0..whole.len() {
            fs::write(&file, &whole[..end]).unwrap();
            assert_eq!(read(&file), None, "{end} bytes of {}", whole.len());
        }
        let beside = fs::read_dir(file.parent().unwrap()).unwrap().count();
        assert_eq!(beside, 1, "nothing is left beside it");
    }

    #[test]
    fn a_changed_byte_is_noticed_and_so_is_another_name() {
        let (_folder, file) = cache();
        write(&file, b"code").unwrap();
        let whole = fs::read(&file).unwrap();
        let other = file.with_file_name("b.kernels");
        fs::write(&other, &whole).unwrap();
        assert_eq!(read(&other), None, "code for another GPU");
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&file, changed).unwrap();
            assert_eq!(read(&file), None, "byte {at}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_of_writing() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("file");
        fs::write(&blocked, b"in the way").unwrap();
        assert!(write(&blocked.join("a.kernels"), b"code").is_err());
    }

    #[cfg(unix)]
    mod shared {
        use std::fs::Permissions;
        use std::os::unix::fs::{PermissionsExt, symlink};

        use super::*;

        fn allow(path: &Path, mode: u32) {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }

        fn mode(path: &Path) -> u32 {
            fs::metadata(path).unwrap().permissions().mode() & 0o777
        }

        #[test]
        fn folders_and_files_are_made_for_their_owner_alone() {
            let (folder, file) = cache();
            write(&file, b"code").unwrap();
            assert_eq!(mode(&folder.path().join("deep")), 0o700);
            assert_eq!(mode(file.parent().unwrap()), 0o700);
            assert_eq!(mode(&file), 0o600);
        }

        #[test]
        fn what_others_may_write_is_neither_read_nor_written() {
            let (_folder, file) = cache();
            write(&file, b"code").unwrap();
            for exposed in [0o620, 0o602, 0o666] {
                allow(&file, exposed);
                assert_eq!(read(&file), None, "{exposed:o}");
            }
            allow(&file, 0o644);
            assert!(read(&file).is_some());
            let folder = file.parent().unwrap();
            for exposed in [0o770, 0o707, 0o1777] {
                allow(folder, exposed);
                assert_eq!(read(&file), None, "{exposed:o}");
                let refused = write(&file, b"code").unwrap_err();
                let Error::CacheExposed { path, mode, .. } = refused else {
                    panic!("{refused}");
                };
                assert_eq!((path.as_path(), mode), (folder, exposed));
            }
            allow(folder, 0o755);
            assert!(read(&file).is_some());
        }

        #[test]
        fn no_link_is_followed_to_a_file_that_is_read_or_written() {
            let (folder, file) = cache();
            write(&file, b"code").unwrap();
            let moved = file.with_extension("moved");
            fs::rename(&file, &moved).unwrap();
            symlink(&moved, &file).unwrap();
            assert_eq!(read(&file), None);
            // The names that are written to before a file has its own.
            let victim = folder.path().join("victim");
            let next: u64 = next_name().rsplit_once('-').unwrap().1.parse().unwrap();
            for turn in next..next + 50 {
                let name = format!("{}-{turn}", process::id());
                symlink(&victim, file.with_extension(name)).unwrap();
            }
            write(&file, b"other").unwrap();
            assert_eq!(read(&file).as_deref(), Some(b"other".as_slice()));
            assert!(!victim.exists(), "a link was followed");
            assert!(!fs::symlink_metadata(&file).unwrap().is_symlink());
        }
    }
}
