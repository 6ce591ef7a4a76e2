use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

use twox_hash::XxHash3_64;

use crate::compiler::Compiler;
use crate::kernels::SOURCE;
use crate::target::{Capability, Target};
use crate::{Error, Libraries};

/// A folder that keeps compiled kernels, so that a process begins without compiling.
///
/// A file is named by what it was made from: the hash of the source, the architecture and the version
/// of NVRTC; so nothing is ever stale. It is written beside its place and moved there, and carries a
/// hash of its own, so half a file is never loaded. A folder that cannot be written to costs the time
/// to compile, and nothing else.
///
/// An image for a container, or a node without a GPU, can be given its kernels in advance:
///
/// ```
/// use meshwork_accel_cuda::{Capability, Error, KernelCache, Libraries};
///
/// let folder = tempfile::tempdir()?;
/// match KernelCache::at(folder.path()).fill(&Libraries::from_env(), Capability::new(9, 0)) {
///     Ok(file) => assert!(file.exists()),
///     Err(absent @ Error::NotLoadable { .. }) => println!("{absent}"),
///     Err(broken) => return Err(broken.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelCache {
    folder: Option<PathBuf>,
}

impl KernelCache {
    /// The folder that `MESHWORK_CUDA_CACHE` names; else `meshwork/cuda` in `XDG_CACHE_HOME`, or in
    /// `.cache` in `HOME`. Without any of them nothing is kept.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let own = set("MESHWORK_CUDA_CACHE").map(PathBuf::from);
        let users = || set("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || set("HOME").map(|home| Path::new(&home).join(".cache"));
        let shared = || {
            users()
                .or_else(home)
                .map(|cache| cache.join("meshwork/cuda"))
        };
        Self {
            folder: own.or_else(shared),
        }
    }

    /// This folder, which need not exist yet.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: Some(folder.into()),
        }
    }

    /// Compiles each time.
    #[must_use]
    pub const fn none() -> Self {
        Self { folder: None }
    }

    /// Makes sure that the kernels for GPUs of this `capability` are there, and says in which file.
    ///
    /// # Errors
    /// [`Error::NotLoadable`], [`Error::NoFunction`] and [`Error::Compile`] of NVRTC, and
    /// [`Error::Cache`] where the file cannot be written, or nothing is kept at all.
    pub fn fill(&self, libraries: &Libraries, capability: Capability) -> Result<PathBuf, Error> {
        let compiler = Compiler::open(libraries)?;
        let target = compiler.target(capability)?;
        let refused = |path: &Path, kind| Error::Cache {
            path: path.to_owned(),
            kind,
        };
        let Some(file) = self.file(&compiler, target) else {
            return Err(refused(Path::new(""), io::ErrorKind::NotFound));
        };
        if read(&file).is_none() {
            let written = write(&file, &compiler.compile(target)?);
            written.map_err(|error| refused(&file, error.kind()))?;
        }
        Ok(file)
    }

    /// The kernels for GPUs of this `capability`, compiled if they are not there.
    pub(crate) fn kernels(
        &self,
        compiler: &Compiler,
        capability: Capability,
    ) -> Result<Vec<u8>, Error> {
        let target = compiler.target(capability)?;
        let file = self.file(compiler, target);
        if let Some(image) = file.as_deref().and_then(read) {
            return Ok(image);
        }
        let image = compiler.compile(target)?;
        if let Some(file) = file {
            // The next process compiles again, which is what a folder of no use costs.
            let _ = write(&file, &image);
        }
        Ok(image)
    }

    fn file(&self, compiler: &Compiler, target: Target) -> Option<PathBuf> {
        let source = XxHash3_64::oneshot(SOURCE.as_bytes());
        let name = format!(
            "{source:016x}-{target}-nvrtc-{}.kernels",
            compiler.version()
        );
        Some(self.folder.as_ref()?.join(name))
    }
}

/// What a file holds, `None` unless it is whole.
fn read(file: &Path) -> Option<Vec<u8>> {
    let mut image = fs::read(file).ok()?;
    let (hash, rest) = image.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*hash) != XxHash3_64::oneshot(rest) || rest.is_empty() {
        return None;
    }
    image.drain(..8);
    Some(image)
}

/// Puts a file in its place as a whole. Nobody can guess where it is written, and have something else there.
fn write(file: &Path, image: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(folder)?;
    let nonce = RandomState::new().hash_one(process::id());
    let beside = file.with_extension(format!("{nonce:016x}"));
    let written = fs::File::create_new(&beside).and_then(|mut beside| {
        beside.write_all(&XxHash3_64::oneshot(image).to_le_bytes())?;
        beside.write_all(image)
    });
    let placed = written.and_then(|()| fs::rename(&beside, file));
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_half_of_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/inside/a.kernels");
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
    #[cfg(unix)]
    fn nothing_is_written_through_a_link_in_the_place_of_a_file_that_is_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let others = folder.path().join("others");
        fs::write(&others, b"theirs").unwrap();
        for turn in 0..1000 {
            let guess = folder.path().join(format!("a.{}-{turn}", process::id()));
            std::os::unix::fs::symlink(&others, guess).unwrap();
        }
        let file = folder.path().join("a.kernels");
        write(&file, b"code").unwrap();
        assert_eq!(read(&file).as_deref(), Some(b"code".as_slice()));
        assert_eq!(fs::read(&others).unwrap(), b"theirs");
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.kernels");
        write(&file, b"code").unwrap();
        let whole = fs::read(&file).unwrap();
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
}
