//! Who may have written a file, and who may write one.

#[cfg(not(unix))]
pub(super) use elsewhere::*;
#[cfg(unix)]
pub(super) use unix::*;

#[cfg(unix)]
mod unix {
    use std::fs::{DirBuilder, File, Metadata, OpenOptions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use rustix::fs::OFlags;
    use rustix::process::geteuid;

    use crate::Error;

    /// Refuses what another user could have written. What root owns, such as an image's files, is
    /// taken.
    pub(in crate::cache) fn check(metadata: &Metadata, path: &Path) -> Result<(), Error> {
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        match is_safe(owner, mode, geteuid().as_raw()) {
            true => Ok(()),
            false => Err(Error::CacheExposed {
                path: path.to_owned(),
                owner,
                mode,
            }),
        }
    }

    /// Opens a file to read it; a link in its place is an error.
    pub(in crate::cache) fn open(path: &Path) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = flags.bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(path)
    }

    /// A new file of this user's alone; whatever is in its place, a link too, is an error.
    pub(in crate::cache) fn create(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(path)
    }

    /// A folder of this user's alone, and those around it, unless they are there.
    pub(in crate::cache) fn create_folder(path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn is_safe(owner: u32, mode: u32, user: u32) -> bool {
        const ROOT: u32 = 0;
        const OTHERS_WRITE: u32 = 0o022;
        (owner == user || owner == ROOT) && mode & OTHERS_WRITE == 0
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_another_user_owns_or_may_write_is_not_safe() {
            let user = 1000;
            assert!(is_safe(user, 0o755, user));
            assert!(is_safe(0, 0o644, user), "an image's files");
            assert!(!is_safe(1001, 0o700, user));
            assert!(!is_safe(1001, 0o700, 0), "root runs nobody else's code");
            assert!(!is_safe(user, 0o775, user));
            assert!(!is_safe(user, 0o757, user));
        }
    }
}

/// Where files have no modes, they are as safe as the folder that the user's profile is in.
#[cfg(not(unix))]
mod elsewhere {
    use std::fs::{self, File, Metadata};
    use std::io;
    use std::path::Path;

    use crate::Error;

    pub(in crate::cache) fn check(_: &Metadata, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    pub(in crate::cache) fn open(path: &Path) -> io::Result<File> {
        File::open(path)
    }

    pub(in crate::cache) fn create(path: &Path) -> io::Result<File> {
        File::create_new(path)
    }

    pub(in crate::cache) fn create_folder(path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }
}
