use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

use crate::ConfigError;

/// The largest file that is read: keys and secrets have a few KiB at most.
const LARGEST: u64 = 64 << 10;

/// Reads a file that holds a secret; of a file that cannot be read, `unreadable` is the error.
///
/// # Errors
/// [`ConfigError::FileMode`] where others can read it too, as ssh has it: a file of this user.
/// Whoever else owns it, as root does those that Kubernetes mounts, knows whom it is for.
pub(super) fn read(
    path: &Path,
    unreadable: impl Fn(io::ErrorKind) -> ConfigError,
) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    let failed = |error: io::Error| unreadable(error.kind());
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let mode = metadata.mode() & 0o7777;
        let mine = metadata.uid() == rustix::process::geteuid().as_raw();
        if mine && mode & 0o077 != 0 {
            let path = path.display().to_string();
            return Err(ConfigError::FileMode { path, mode });
        }
    }
    let mut content = Zeroizing::new(Vec::new());
    // All at once, as memory that a growing list leaves behind is not wiped.
    let expected = usize::try_from(metadata.len().min(LARGEST)).unwrap_or_default();
    content.reserve_exact(expected + 32);
    let read = file.take(LARGEST + 1).read_to_end(&mut content);
    if read.map_err(failed)? as u64 > LARGEST {
        return Err(unreadable(io::ErrorKind::FileTooLarge));
    }
    Ok(content)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn missing(kind: io::ErrorKind) -> ConfigError {
        let path = "key".to_owned();
        ConfigError::SecretFile { path, kind }
    }

    #[test]
    fn a_file_that_others_can_read_or_write_is_refused_with_its_mode_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "0123").unwrap();
        let named = path.display().to_string();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o602, 0o777] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let refused = read(&path, missing).unwrap_err();
            let path = named.clone();
            assert_eq!(refused, ConfigError::FileMode { path, mode });
            let told = refused.to_string();
            for part in [&format!("{mode:04o}"), &format!("chmod 600 {named}")] {
                assert!(told.contains(part), "{told}");
            }
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(**read(&path, missing).unwrap(), *b"0123");
        }
    }

    #[test]
    fn files_that_are_not_there_or_hold_no_secret_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert_eq!(read(&path, missing), Err(missing(io::ErrorKind::NotFound)));
        fs::write(&path, vec![b'0'; usize::try_from(LARGEST).unwrap() + 1]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let large = Err(missing(io::ErrorKind::FileTooLarge));
        assert_eq!(read(&path, missing), large);
    }
}
