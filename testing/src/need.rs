//! What some tests need, and what becomes of them where it is missing.

use std::env;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::thread;

/// Something that some tests need and not every machine has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Need {
    /// The browser Chromium and its driver.
    Chromium,
    /// NVIDIA's cuBLAS, of which the wheel is large.
    Cublas,
    /// Wheels of NVIDIA's other libraries and headers.
    CudaWheels,
    /// The program `etcd`.
    Etcd,
    /// Google's own clients for Python.
    Google,
    /// An NVIDIA GPU, with the libraries that work on it.
    Gpu,
    /// The loopback address of IPv6.
    Ipv6,
    /// Kubeflow's models of its interface, for Python.
    Kubeflow,
    /// Kubernetes' API server and its etcd.
    Kubernetes,
    /// The program `mdbook`.
    Mdbook,
    /// The program `mpiexec.hydra` of MPICH.
    Mpich,
    /// The program `mpirun` of Open MPI.
    Mpirun,
    /// Network namespaces that this process may make.
    Namespaces,
    /// The program `openssl`.
    Openssl,
    /// Wheels of plugins of PJRT.
    Pjrt,
    /// The package `ray` of Python.
    Ray,
    /// Slurm's daemons and programs.
    Slurm,
    /// The programs `ssh`, `sshd` and `ssh-keygen`.
    Ssh,
    /// The program `strace`, and the right to trace.
    Strace,
    /// The terminal multiplexer `tmux`.
    Tmux,
    /// The program `torchrun` of PyTorch.
    Torchrun,
}

impl Need {
    /// The variable that lists, by their names, the needs whose absence is a failure, or says
    /// `all`.
    pub const REQUIRE: &str = "MESHWORK_REQUIRE";

    /// All of them, in the order of their names.
    pub const ALL: &[Self] = &[
        Self::Chromium,
        Self::Cublas,
        Self::CudaWheels,
        Self::Etcd,
        Self::Google,
        Self::Gpu,
        Self::Ipv6,
        Self::Kubeflow,
        Self::Kubernetes,
        Self::Mdbook,
        Self::Mpich,
        Self::Mpirun,
        Self::Namespaces,
        Self::Openssl,
        Self::Pjrt,
        Self::Ray,
        Self::Slurm,
        Self::Ssh,
        Self::Strace,
        Self::Tmux,
        Self::Torchrun,
    ];

    /// Returns what was found. Where nothing was, says on the standard error, past all capture of
    /// output, that this test skips and why, and gives `None`: the test is to return.
    ///
    /// # Panics
    /// Where nothing was found and [`Need::REQUIRE`] names this need; where that list has a name
    /// that is none.
    #[track_caller]
    pub fn or_skip<T>(self, found: Result<T, impl Display>) -> Option<T> {
        let list = env::var_os(Self::REQUIRE).unwrap_or_default();
        let required = self
            .is_required(&list.to_string_lossy())
            .unwrap_or_else(|unknown| panic!("{unknown}"));
        let missing = match found {
            Ok(found) => return Some(found),
            Err(missing) => format!("{missing}; {}", self.remedy()).replace('\n', " "),
        };
        assert!(
            !required,
            "{} asks for {self}, which is missing: {missing}",
            Self::REQUIRE
        );
        let test = thread::current();
        let test = test.name().unwrap_or("unnamed");
        // One write, so that no other process gets in between; a closed standard error is no reason
        // to fail.
        let line = format!("skipped: {self}: {test}: {missing}\n");
        let _ = io::stderr().write_all(line.as_bytes());
        None
    }

    fn is_required(self, list: &str) -> Result<bool, String> {
        let names: Vec<_> = list.split(',').filter(|name| !name.is_empty()).collect();
        let is_known = |name: &str| name == ALL || Self::ALL.iter().any(|need| need.name() == name);
        if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
            let known: Vec<_> = Self::ALL.iter().map(|need| need.name()).collect();
            return Err(format!(
                "{}={list}: no test needs `{unknown}`: write `{ALL}`, or some of {} with commas",
                Self::REQUIRE,
                known.join(", ")
            ));
        }
        Ok(names.contains(&ALL) || names.contains(&self.name()))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Chromium => "chromium",
            Self::Cublas => "cublas",
            Self::CudaWheels => "cuda-wheels",
            Self::Etcd => "etcd",
            Self::Google => "google",
            Self::Gpu => "gpu",
            Self::Ipv6 => "ipv6",
            Self::Kubeflow => "kubeflow",
            Self::Kubernetes => "kubernetes",
            Self::Mdbook => "mdbook",
            Self::Mpich => "mpich",
            Self::Mpirun => "mpirun",
            Self::Namespaces => "namespaces",
            Self::Openssl => "openssl",
            Self::Pjrt => "pjrt",
            Self::Ray => "ray",
            Self::Slurm => "slurm",
            Self::Ssh => "ssh",
            Self::Strace => "strace",
            Self::Tmux => "tmux",
            Self::Torchrun => "torchrun",
        }
    }

    /// How it is had.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Chromium => "install chromium and chromium-driver, as Debian calls them",
            Self::Cublas => "MESHWORK_WHEELS=all fetches it by pip for python3 on Linux on x86-64",
            Self::CudaWheels => {
                "it takes Linux on x86-64, pip for python3, and the package index that pip asks"
            }
            Self::Etcd => "install etcd-server, as Debian calls it",
            Self::Google => {
                "pip install google-auth requests google-api-python-client, for python3 or for the \
                 Python that MESHWORK_PYTHON names"
            }
            Self::Gpu => "accel-cuda/VERIFIED.md says what it takes",
            Self::Ipv6 => "give the loopback interface the address ::1",
            Self::Kubeflow => {
                "pip install kubeflow-trainer-api pyyaml, for python3 or for the Python that \
                 MESHWORK_PYTHON names"
            }
            Self::Kubernetes => {
                "install etcd (Debian: etcd-server) and build the server by \
                 integration-tests/tests/services/kubernetes/build.sh"
            }
            Self::Mdbook => "cargo install --locked mdbook",
            Self::Mpich => "install mpich, as Debian calls it",
            Self::Mpirun => "install openmpi-bin, as Debian calls it",
            Self::Namespaces => "run as root, or allow user namespaces, with iproute2 installed",
            Self::Openssl => "install openssl",
            Self::Pjrt => {
                "it takes Linux on x86-64, pip for python3, or for the Python that MESHWORK_PYTHON \
                 names, and the package index that pip asks"
            }
            Self::Ray => {
                "pip install ray, for python3 or for the Python that MESHWORK_PYTHON names"
            }
            Self::Slurm => {
                "as root, install slurm-wlm, slurm-client and munge, as Debian calls them"
            }
            Self::Ssh => "install openssh-client and openssh-server, as Debian calls them",
            Self::Strace => "install strace, where processes may trace their children",
            Self::Tmux => "install tmux",
            Self::Torchrun => "pip install torch, and put its torchrun on the PATH",
        }
    }
}

impl Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const ALL: &str = "all";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_required_unless_it_is_listed() {
        for (list, slurm, gpu) in [
            ("", false, false),
            ("slurm", true, false),
            ("pjrt,slurm", true, false),
            ("gpu", false, true),
            ("all", true, true),
        ] {
            assert_eq!(Need::Slurm.is_required(list), Ok(slurm), "{list}");
            assert_eq!(Need::Gpu.is_required(list), Ok(gpu), "{list}");
        }
    }

    #[test]
    fn a_name_that_no_test_needs_is_refused_with_those_that_some_do() {
        let refused = Need::Gpu.is_required("gpu,slrum").unwrap_err();
        assert_eq!(
            refused,
            "MESHWORK_REQUIRE=gpu,slrum: no test needs `slrum`: write `all`, or some of chromium, \
             cublas, cuda-wheels, etcd, google, gpu, ipv6, kubeflow, kubernetes, mdbook, mpich, \
             mpirun, namespaces, openssl, pjrt, ray, slurm, ssh, strace, tmux, torchrun with commas"
        );
    }

    #[test]
    fn each_need_has_a_name_of_its_own_and_they_are_in_order() {
        assert!(
            Need::ALL
                .windows(2)
                .all(|pair| pair[0].name() < pair[1].name())
        );
    }
}
