//! The dynamic libraries (driver, NVRTC, NCCL, cuBLAS), which environment variable names each, and
//! in what order files are tried. Places where pip, conda and the toolkit install them are in
//! `search`; `sys::shared_library` does the `dlopen`.

mod search;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::{env, fs};

use search::SearchPaths;

/// A library of NVIDIA's that is loaded when it is needed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Library {
    /// The driver API, `libcuda`; comes with the NVIDIA driver.
    Driver,
    /// The run-time compiler, `libnvrtc`; comes with the CUDA toolkit, or by pip.
    Nvrtc,
    /// Collectives between GPUs, `libnccl`; comes by itself, or by pip.
    Nccl,
    /// Products of matrices, `libcublas`; comes with the CUDA toolkit, or by pip. Without it,
    /// matrices are multiplied by a kernel of this crate.
    Cublas,
}

impl Library {
    /// The environment variable that names the library's file.
    ///
    /// ```
    /// assert_eq!(meshwork_accel_cuda::Library::Nccl.variable(), "MESHWORK_NCCL");
    /// ```
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Driver => "MESHWORK_CUDA_DRIVER",
            Self::Nvrtc => "MESHWORK_NVRTC",
            Self::Nccl => "MESHWORK_NCCL",
            Self::Cublas => "MESHWORK_CUBLAS",
        }
    }

    /// How to install it where it is missing.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Driver => {
                "install the NVIDIA driver, or name libcuda.so.1 in MESHWORK_CUDA_DRIVER"
            }
            Self::Nvrtc => {
                "install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`, or name libnvrtc.so in MESHWORK_NVRTC"
            }
            Self::Nccl => {
                "install NCCL 2.27 or newer, as by `pip install nvidia-nccl-cu13`, or name libnccl.so.2 in MESHWORK_NCCL"
            }
            Self::Cublas => {
                "install the CUDA toolkit or `pip install nvidia-cublas`, or name libcublas.so in MESHWORK_CUBLAS"
            }
        }
    }
}

impl Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Driver => "the CUDA driver library libcuda",
            Self::Nvrtc => "the CUDA compiler library libnvrtc",
            Self::Nccl => "the collectives library libnccl",
            Self::Cublas => "the library of matrix products libcublas",
        })
    }
}

/// Where the libraries are looked for.
///
/// A file that is named, by [`with_file`](Self::with_file) or by the library's
/// [variable](Library::variable), is the only one tried. Otherwise the system's loader is asked
/// first, by the names of the versions that are known to work, so that `LD_LIBRARY_PATH` and the
/// system's packages win; then the places where pip, conda and the toolkit put them:
/// `site-packages/nvidia` of `VIRTUAL_ENV`, of `CONDA_PREFIX` and of the user, each entry of
/// `PYTHONPATH`, `CUDA_HOME`, `CUDA_PATH` and `/usr/local/cuda`.
///
/// ```
/// use meshwork_accel_cuda::{Error, Libraries, Library, Nccl};
///
/// let libraries = Libraries::from_env().with_file(Library::Nccl, "/nowhere/libnccl.so.2");
/// let refused = Nccl::open(&libraries).err();
/// assert!(matches!(refused, Some(Error::NotLoadable { library: Library::Nccl, .. })));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    /// The only file to try; none for a library that is left out.
    files: BTreeMap<Library, Option<PathBuf>>,
    surroundings: SearchPaths,
}

impl Libraries {
    /// The search paths that the environment of this process gives at this moment.
    #[must_use]
    pub fn from_env() -> Self {
        let all = [
            Library::Driver,
            Library::Nvrtc,
            Library::Nccl,
            Library::Cublas,
        ];
        let named = |library: Library| match env::var_os(library.variable()) {
            Some(file) if !file.is_empty() => Some((library, Some(PathBuf::from(file)))),
            _ => None,
        };
        Self {
            files: all.into_iter().filter_map(named).collect(),
            surroundings: SearchPaths::new(|name| env::var(name).ok(), folders_in),
        }
    }

    /// With this file for `library`, and no other.
    #[must_use]
    pub fn with_file(mut self, library: Library, file: impl Into<PathBuf>) -> Self {
        self.files.insert(library, Some(file.into()));
        self
    }

    /// Without `library`, wherever it may be.
    ///
    /// ```
    /// use meshwork_accel_cuda::{Libraries, Library};
    ///
    /// // Products of matrices have the same bits with every version of cuBLAS, and without it.
    /// let libraries = Libraries::from_env().without(Library::Cublas);
    /// # let _ = libraries;
    /// ```
    #[must_use]
    pub fn without(mut self, library: Library) -> Self {
        self.files.insert(library, None);
        self
    }

    /// Whether a program or the environment says which file it is.
    pub(crate) fn names(&self, library: Library) -> bool {
        matches!(self.files.get(&library), Some(Some(_)))
    }

    /// Whether a program does without it.
    pub(crate) fn leaves_out(&self, library: Library) -> bool {
        matches!(self.files.get(&library), Some(None))
    }

    /// The candidates for `library`, best first: names for the loader, and paths.
    pub(crate) fn candidates(&self, library: Library) -> Vec<PathBuf> {
        match self.files.get(&library) {
            Some(file) => file.iter().cloned().collect(),
            None => self.surroundings.candidates(library),
        }
    }
}

/// The names of what is in a folder, in order; none where there is no such folder.
fn folders_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
