//! Which files can be a library: pure, told the environment and what folders hold.

use std::path::{Path, PathBuf};

use crate::Library;

/// Folders that may hold libraries, found once.
#[derive(Clone, Debug, Default)]
pub(super) struct SearchPaths {
    /// `site-packages` of the environments that are active, best first.
    site_packages: Vec<PathBuf>,
    /// Where toolkits keep their libraries, best first.
    toolkits: Vec<PathBuf>,
}

impl SearchPaths {
    /// The search paths that follow from environment `variable`s and from the names `listed` in a
    /// folder.
    pub(super) fn new(
        variable: impl Fn(&str) -> Option<String>,
        listed: impl Fn(&Path) -> Vec<String>,
    ) -> Self {
        let folder = |name| variable(name).filter(|value| !value.is_empty());
        let mut site_packages: Vec<PathBuf> = folder("PYTHONPATH")
            .iter()
            .flat_map(|paths| paths.split(':'))
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .collect();
        let home = folder("HOME").map(|home| format!("{home}/.local"));
        for prefix in [folder("VIRTUAL_ENV"), folder("CONDA_PREFIX"), home] {
            let Some(lib) = prefix.map(|prefix| PathBuf::from(prefix).join("lib")) else {
                continue;
            };
            // The newest Python first, as 3.9 sorts behind 3.13 only by number.
            let mut pythons = listed(&lib);
            pythons.retain(|name| minor_of(name).is_some());
            pythons.sort_by_key(|name| std::cmp::Reverse(minor_of(name)));
            site_packages.extend(
                pythons
                    .iter()
                    .map(|name| lib.join(name).join("site-packages")),
            );
        }
        let conda = folder("CONDA_PREFIX").map(|prefix| PathBuf::from(prefix).join("lib"));
        let toolkits = [folder("CUDA_HOME"), folder("CUDA_PATH")]
            .into_iter()
            .flatten()
            .chain(["/usr/local/cuda".to_owned()])
            .map(|root| PathBuf::from(root).join("lib64"));
        Self {
            site_packages,
            toolkits: conda.into_iter().chain(toolkits).collect(),
        }
    }

    /// The candidates for `library`, best first.
    pub(super) fn candidates(&self, library: Library) -> Vec<PathBuf> {
        let (names, packages, elsewhere) = match library {
            Library::Driver => (DRIVER_NAMES, NO_PACKAGES, DRIVER_FOLDERS),
            Library::Nvrtc => (NVRTC_NAMES, NVRTC_PACKAGES, NO_PACKAGES),
            Library::Nccl => (NCCL_NAMES, NCCL_PACKAGES, NO_PACKAGES),
            Library::Cublas => (CUBLAS_NAMES, CUBLAS_PACKAGES, NO_PACKAGES),
        };
        let installed = self.site_packages.iter().flat_map(|site| {
            let inside = move |package| site.join("nvidia").join(package).join("lib");
            packages.iter().map(inside)
        });
        let toolkits = self.toolkits.iter().filter(|_| library != Library::Driver);
        let folders = installed
            .chain(toolkits.cloned())
            .chain(elsewhere.iter().map(PathBuf::from));
        let files = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
        names.iter().map(PathBuf::from).chain(files).collect()
    }
}

/// The second number of a folder such as `python3.13`.
fn minor_of(name: &str) -> Option<u32> {
    name.strip_prefix("python3.")?.parse().ok()
}

const DRIVER_NAMES: &[&str] = &["libcuda.so.1"];
/// Where Windows' subsystem for Linux puts the driver, which its loader does not always know.
const DRIVER_FOLDERS: &[&str] = &["/usr/lib/wsl/lib"];
const NVRTC_NAMES: &[&str] = &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
const NVRTC_PACKAGES: &[&str] = &["cu13", "cuda_nvrtc"];
const NCCL_NAMES: &[&str] = &["libnccl.so.2"];
const NCCL_PACKAGES: &[&str] = &["nccl"];
const CUBLAS_NAMES: &[&str] = &["libcublas.so.13", "libcublas.so.12", "libcublas.so"];
const CUBLAS_PACKAGES: &[&str] = &["cu13", "cublas"];
const NO_PACKAGES: &[&str] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(variables: &[(&str, &str)]) -> SearchPaths {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let listed = |folder: &Path| match folder.to_str() {
            Some("/venv/lib") => ["python3.9", "python3.13", "libfoo.so", "python3"]
                .map(str::to_owned)
                .to_vec(),
            Some("/conda/lib" | "/home/me/.local/lib") => vec!["python3.11".to_owned()],
            _ => Vec::new(),
        };
        SearchPaths::new(variable, listed)
    }

    #[track_caller]
    fn check(variables: &[(&str, &str)], library: Library, expected: &[&str]) {
        let found = surroundings(variables).candidates(library);
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_loader_is_asked_first_and_then_the_active_environment() {
        let variables = [("VIRTUAL_ENV", "/venv"), ("HOME", "/home/me")];
        let expected = [
            "libnccl.so.2",
            "/venv/lib/python3.13/site-packages/nvidia/nccl/lib/libnccl.so.2",
            "/venv/lib/python3.9/site-packages/nvidia/nccl/lib/libnccl.so.2",
            "/home/me/.local/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",
            "/usr/local/cuda/lib64/libnccl.so.2",
        ];
        check(&variables, Library::Nccl, &expected);
    }

    #[test]
    fn each_package_and_each_version_of_the_compiler_is_tried() {
        let expected = [
            "libnvrtc.so.13",
            "libnvrtc.so.12",
            "libnvrtc.so",
            "/a/nvidia/cu13/lib/libnvrtc.so.13",
            "/a/nvidia/cu13/lib/libnvrtc.so.12",
            "/a/nvidia/cu13/lib/libnvrtc.so",
            "/a/nvidia/cuda_nvrtc/lib/libnvrtc.so.13",
            "/a/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            "/a/nvidia/cuda_nvrtc/lib/libnvrtc.so",
            "/opt/cuda/lib64/libnvrtc.so.13",
            "/opt/cuda/lib64/libnvrtc.so.12",
            "/opt/cuda/lib64/libnvrtc.so",
            "/usr/local/cuda/lib64/libnvrtc.so.13",
            "/usr/local/cuda/lib64/libnvrtc.so.12",
            "/usr/local/cuda/lib64/libnvrtc.so",
        ];
        let variables = [("PYTHONPATH", ":/a:"), ("CUDA_HOME", "/opt/cuda")];
        check(&variables, Library::Nvrtc, &expected);
    }

    #[test]
    fn matrix_products_are_looked_for_where_either_version_of_its_package_is() {
        let expected = [
            "libcublas.so.13",
            "libcublas.so.12",
            "libcublas.so",
            "/a/nvidia/cu13/lib/libcublas.so.13",
            "/a/nvidia/cu13/lib/libcublas.so.12",
            "/a/nvidia/cu13/lib/libcublas.so",
            "/a/nvidia/cublas/lib/libcublas.so.13",
            "/a/nvidia/cublas/lib/libcublas.so.12",
            "/a/nvidia/cublas/lib/libcublas.so",
        ];
        let found = surroundings(&[("PYTHONPATH", "/a")]).candidates(Library::Cublas);
        let found = found.iter().take(9).map(|path| path.to_str().unwrap());
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn conda_keeps_libraries_beside_its_python_too() {
        let expected = [
            "libnccl.so.2",
            "/conda/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",
            "/conda/lib/libnccl.so.2",
            "/usr/local/cuda/lib64/libnccl.so.2",
        ];
        check(&[("CONDA_PREFIX", "/conda")], Library::Nccl, &expected);
    }

    #[test]
    fn the_driver_is_never_taken_from_a_toolkit_which_has_a_stub_of_it() {
        let expected = ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"];
        let variables = [("VIRTUAL_ENV", "/venv"), ("CUDA_HOME", "/opt/cuda")];
        check(&variables, Library::Driver, &expected);
    }

    #[test]
    fn an_empty_environment_leaves_what_the_system_has() {
        check(
            &[("HOME", "")],
            Library::Driver,
            &["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"],
        );
    }
}
