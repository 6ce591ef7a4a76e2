//! The platforms that have PJRT plugins, and the search for a plugin's file: environment variables
//! first, then the package folders of Python. Loading it is up to `sys`.

use std::env;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};

use meshwork_accel::Absence;

use crate::Error;

/// A platform that PJRT plugins drive, and where its plugins are found.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Platform {
    /// The CPU, as any number of devices: the package `xla_cpu_pjrt`.
    Cpu,
    /// NVIDIA GPUs: the packages `jax-cuda13-pjrt` and `jax-cuda12-pjrt`.
    Cuda,
    /// TPUs: the package `libtpu`, which Google gives out under terms of its own.
    Tpu,
}

impl Platform {
    /// Every platform.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Cuda, Self::Tpu];

    /// Looks for a plugin without loading one.
    ///
    /// A file that a variable names is taken as it is: `TPU_LIBRARY_PATH` for TPUs, then
    /// `PJRT_PLUGIN_PATH` for any platform. Otherwise the folders of Python's packages are
    /// searched, in this order: those of `PYTHONPATH`; of `VIRTUAL_ENV` and `CONDA_PREFIX`; of the
    /// interpreters on `PATH`, which are not run, so those behind a shim stay hidden; of the user,
    /// below `HOME`. Nothing else is looked at: a plugin is code that will run in this process. So
    /// entries of these variables that are empty or relative, which Python takes from the current
    /// folder, are left out.
    ///
    /// # Errors
    /// [`Error::NoPlugin`] with all files that were looked for.
    pub fn find(self) -> Result<PathBuf, Error> {
        self.find_with(&|name| env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn find_with(self, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, Error> {
        let own = match self {
            Self::Tpu => variable(LIBTPU),
            Self::Cpu | Self::Cuda => None,
        };
        if let Some(named) = own.or_else(|| variable(ANY)) {
            return Ok(named.into());
        }
        let folders = package_folders(variable);
        let files = folders
            .iter()
            .flat_map(|folder| self.files().iter().map(|file| folder.join(file)));
        let looked_at: Vec<PathBuf> = files.collect();
        match looked_at.iter().find(|file| file.is_file()) {
            Some(found) => Ok(found.clone()),
            None => Err(Error::NoPlugin {
                platform: self.name(),
                variable: if self == Self::Tpu { LIBTPU } else { ANY },
                package: self.package(),
                looked_at,
            }),
        }
    }

    /// The device type in device names.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Cuda => "GPU",
            Self::Tpu => "TPU",
        }
    }

    /// The backend of this platform, as it is reported.
    pub(crate) const fn backend(self) -> &'static str {
        match self {
            Self::Cpu => "PJRT for CPU",
            Self::Cuda => "PJRT for GPU",
            Self::Tpu => "PJRT for TPU",
        }
    }

    /// The plugin's file, without its folders.
    pub(crate) fn library(self) -> String {
        let file = self
            .files()
            .first()
            .and_then(|file| file.rsplit('/').next());
        file.unwrap_or_default().to_owned()
    }

    /// The remedy where there is no plugin, or where it cannot be used.
    pub(crate) const fn remedy(self, absence: &Absence) -> &'static str {
        match (self, absence) {
            (Self::Tpu, Absence::NotFound) => {
                "install libtpu with pip, or set TPU_LIBRARY_PATH to its libtpu.so"
            }
            (Self::Cpu, Absence::NotFound) => {
                "install xla_cpu_pjrt with pip, or set PJRT_PLUGIN_PATH to its xla_cpu_pjrt.so"
            }
            (Self::Cuda, Absence::NotFound) => {
                "install jax-cuda13-pjrt with pip, or set PJRT_PLUGIN_PATH to its xla_cuda_plugin.so"
            }
            (_, Absence::TooOld { .. } | Absence::NoFunction { .. }) => {
                "install another release of the plugin"
            }
            (Self::Tpu, _) => {
                "run this on a machine with a TPU, or only compile: meshwork tpu compile"
            }
            (Self::Cuda, _) => "run this on a machine with an NVIDIA GPU and its driver",
            (Self::Cpu, _) => "install another release of the plugin",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Cpu => "xla_cpu_pjrt",
            Self::Cuda => "jax-cuda13-pjrt",
            Self::Tpu => "libtpu",
        }
    }

    /// Where packages put their plugins.
    const fn files(self) -> &'static [&'static str] {
        match self {
            Self::Cpu => &["xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"],
            Self::Cuda => &[
                "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
                "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
            ],
            Self::Tpu => &["libtpu/libtpu.so"],
        }
    }
}

impl Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const ANY: &str = "PJRT_PLUGIN_PATH";
const LIBTPU: &str = "TPU_LIBRARY_PATH";

fn package_folders(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let paths =
        |name| variable(name).map_or_else(Vec::new, |value| env::split_paths(&value).collect());
    let mut folders: Vec<PathBuf> = paths("PYTHONPATH");
    for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(variable)
    {
        folders.extend(of_prefix(Path::new(&prefix)));
    }
    for programs in paths("PATH")
        .iter()
        .filter(|folder| folder.join("python3").exists())
    {
        folders.extend(programs.parent().map_or_else(Vec::new, of_prefix));
    }
    if let Some(home) = variable("HOME") {
        folders.extend(of_prefix(&Path::new(&home).join(".local")));
    }
    // Whoever can write to the current folder could have code run here otherwise.
    folders.retain(|folder| folder.is_absolute());
    folders
}

/// The package folders of all versions of Python below an installation, sorted.
fn of_prefix(prefix: &Path) -> Vec<PathBuf> {
    let Ok(libraries) = fs::read_dir(prefix.join("lib")) else {
        return Vec::new();
    };
    let mut versions: Vec<PathBuf> = libraries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("python3"))
        })
        .collect();
    versions.sort();
    let folders = versions
        .iter()
        .flat_map(|version| PACKAGES.map(|folder| version.join(folder)));
    folders.collect()
}

const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found where these variables are set, relative to a folder with these files.
    fn found(
        platform: Platform,
        files: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<PathBuf, Error> {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let value = |name: &str| {
            let (_, value) = variables.iter().find(|(known, _)| *known == name)?;
            let paths = value.split(':').map(|path| folder.path().join(path));
            Some(env::join_paths(paths).unwrap())
        };
        let found = platform.find_with(&value)?;
        Ok(found.strip_prefix(folder.path()).unwrap().to_owned())
    }

    #[test]
    fn a_variable_that_names_a_plugin_wins_even_if_the_file_is_missing() {
        let both = [("TPU_LIBRARY_PATH", "a.so"), ("PJRT_PLUGIN_PATH", "b.so")];
        assert_eq!(found(Platform::Tpu, &[], &both).unwrap(), Path::new("a.so"));
        assert_eq!(found(Platform::Cpu, &[], &both).unwrap(), Path::new("b.so"));
        assert_eq!(
            found(Platform::Tpu, &[], &both[1..]).unwrap(),
            Path::new("b.so")
        );
    }

    #[test]
    fn packages_are_found_by_path_environment_interpreter_and_user() {
        let plain = "p/libtpu/libtpu.so";
        let virtual_environment = "v/lib/python3.12/site-packages/libtpu/libtpu.so";
        let system = "s/lib/python3/dist-packages/libtpu/libtpu.so";
        let user = "h/.local/lib/python3.9/site-packages/libtpu/libtpu.so";
        let variables = [
            ("PYTHONPATH", "o:p"),
            ("VIRTUAL_ENV", "v"),
            ("PATH", "t/bin:s/bin"),
            ("HOME", "h"),
        ];
        let all = [plain, virtual_environment, system, user, "s/bin/python3"];
        for first in 0..4 {
            assert_eq!(
                found(Platform::Tpu, &all[first..], &variables).unwrap(),
                Path::new(all[first])
            );
        }
        let shadowed = [system];
        assert!(
            found(Platform::Tpu, &shadowed, &variables).is_err(),
            "no interpreter stands there"
        );
    }

    #[test]
    fn nothing_is_found_by_the_current_folder() {
        let folder = tempfile::tempdir().unwrap();
        let here = env::current_dir().unwrap();
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let relative = up.join(folder.path().strip_prefix("/").unwrap());
        for file in [
            "p/libtpu/libtpu.so",
            "e/lib/python3/site-packages/libtpu/libtpu.so",
            "e/.local/lib/python3/site-packages/libtpu/libtpu.so",
            "e/bin/python3",
        ] {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        for (variable, entry) in [
            ("PYTHONPATH", "p"),
            ("VIRTUAL_ENV", "e"),
            ("CONDA_PREFIX", "e"),
            ("PATH", "e/bin"),
            ("HOME", "e"),
        ] {
            let found = |entry: PathBuf| {
                Platform::Tpu.find_with(&|name| (name == variable).then(|| entry.clone().into()))
            };
            assert!(found(folder.path().join(entry)).is_ok(), "{variable}");
            let Err(Error::NoPlugin { looked_at, .. }) = found(relative.join(entry)) else {
                panic!("{variable} of the current folder");
            };
            assert!(looked_at.is_empty(), "{variable}: {looked_at:?}");
        }
        let empty = |name: &str| (name == "PYTHONPATH").then(|| ":/nowhere:".into());
        let Err(Error::NoPlugin { looked_at, .. }) = Platform::Tpu.find_with(&empty) else {
            panic!("a plugin of the current folder");
        };
        assert_eq!(looked_at, [Path::new("/nowhere/libtpu/libtpu.so")]);
    }

    #[test]
    fn a_plugin_that_is_nowhere_says_what_to_do() {
        let error = found(Platform::Cuda, &[], &[("PYTHONPATH", "p")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no PJRT plugin for GPU was found: set PJRT_PLUGIN_PATH to its path, or install jax-cuda13-pjrt with pip"
        );
        let Error::NoPlugin { looked_at, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(looked_at.len(), 2);
    }
}
