//! The on-disk cache of compiled kernels (cubin), keyed by the hash of source and options, by
//! architecture and NVRTC version. `files` reads and writes entries atomically, `access` refuses
//! folders and files that other users could have written.

mod access;
mod files;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, io};

use ring::digest::{Context, SHA256};

use crate::compiler::Compiler;
use crate::kernels::SOURCE;
use crate::sys::compiler::OPTIONS;
use crate::target::{Capability, Target};
use crate::{Error, Libraries};

/// A folder that keeps compiled kernels, so that a process begins without compiling.
///
/// A file is named by what it was made from: the hash of the source and of the compiler's options,
/// the architecture and the version of NVRTC. That version has no patch level, so what one release
/// has made is taken by the next with the same two numbers. A file is written beside its place and
/// moved there, and carries a hash of its name and content, so half a file is never loaded. A
/// folder that cannot be written to costs the time to compile, and nothing else.
///
/// Kernels are code, so a folder is made for its owner alone, and one that another user owns or may
/// write to, root excepted, is as good as none; the same goes for each file. Links in the place of
/// files are not followed.
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
    /// [`Error::NotLoadable`], [`Error::NoFunction`] and [`Error::Compile`] of NVRTC,
    /// [`Error::Cache`] where the file cannot be written, or nothing is kept at all, and
    /// [`Error::CacheExposed`].
    pub fn fill(&self, libraries: &Libraries, capability: Capability) -> Result<PathBuf, Error> {
        let compiler = Compiler::open(libraries)?;
        let target = compiler.target(capability)?;
        let file = self.file(&compiler, target);
        let file = file.ok_or_else(|| Error::Cache {
            path: PathBuf::new(),
            kind: io::ErrorKind::NotFound,
        })?;
        if files::read(&file).is_none() {
            files::write(&file, &compiler.compile(target)?)?;
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
        if let Some(image) = file.as_deref().and_then(files::read) {
            return Ok(image);
        }
        let image = compiler.compile(target)?;
        if let Some(file) = file {
            // The next process compiles again, which is what a folder of no use costs.
            let _ = files::write(&file, &image);
        }
        Ok(image)
    }

    fn file(&self, compiler: &Compiler, target: Target) -> Option<PathBuf> {
        let source = hash_of(SOURCE, &OPTIONS);
        let name = format!("{source}-{target}-nvrtc-{}.kernels", compiler.version());
        Some(self.folder.as_ref()?.join(name))
    }
}

/// What tells a source, and how it is compiled, from others.
fn hash_of(source: &str, options: &[&str]) -> String {
    let mut context = Context::new(&SHA256);
    for part in std::iter::once(&source).chain(options) {
        context.update(part.as_bytes());
        // No part has one, so none goes on in the next.
        context.update(&[0]);
    }
    let hash = context.finish();
    let bytes = hash.as_ref().iter().take(16);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_another_source_or_by_other_options_are_others() {
        let names = [
            hash_of("a", &["b", "c"]),
            hash_of("a", &["b"]),
            hash_of("a", &["bc"]),
            hash_of("ab", &["c"]),
            hash_of(SOURCE, &OPTIONS),
            hash_of(SOURCE, &OPTIONS[1..]),
        ];
        for (place, name) in names.iter().enumerate() {
            assert_eq!(name.len(), 32);
            assert!(!names[..place].contains(name), "{place}");
        }
        assert_eq!(hash_of("a", &["b"]), names[1]);
    }
}
