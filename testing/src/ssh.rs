//! `ssh` to this machine itself: its server is a process of the client's own, on no port.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::getuid;
use tempfile::TempDir;

use crate::{Need, installed};

/// Keys and configurations of both ends.
#[derive(Debug)]
pub struct Ssh {
    folder: TempDir,
}

impl Ssh {
    /// Any host that is asked for is this machine, but for `unreachable`; nothing where `ssh` is
    /// missing, which is said.
    ///
    /// # Panics
    /// Where its programs are there and do not work; where they are missing and required.
    #[must_use]
    #[track_caller]
    pub fn or_skip() -> Option<Self> {
        let sshd = Need::Ssh.or_skip(sshd())?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ssh = Self { folder };
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            let made = keygen.arg(ssh.file(key)).status();
            assert!(made.is_ok_and(|made| made.success()), "ssh-keygen");
        }
        ssh.configure(&sshd);
        Some(ssh)
    }

    /// The file that `ssh -F` takes.
    #[must_use]
    pub fn configuration(&self) -> PathBuf {
        self.file("ssh_config")
    }

    /// A folder that lasts as long as this.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn configure(&self, sshd: &Path) {
        let path = |name: &str| self.file(name).display().to_string();
        let server = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
             PidFile none\nLogLevel ERROR\n",
            path("host"),
            path("user.pub")
        );
        let client = format!(
            "IdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile /dev/null\n\
             StrictHostKeyChecking no\nLogLevel ERROR\nMatch originalhost unreachable\n\
             ProxyCommand false\nMatch all\nProxyCommand {} -i -f {}\n",
            path("user"),
            sshd.display(),
            path("sshd_config")
        );
        for (name, text) in [("sshd_config", server), ("ssh_config", client)] {
            fs::write(self.file(name), text).expect("a writable folder");
        }
    }
}

/// The server, which asks for its own full path, and may start here.
fn sshd() -> Result<PathBuf, String> {
    installed("ssh")?;
    installed("ssh-keygen")?;
    if getuid().is_root() {
        // Where Debian's service would make it.
        let folder = Path::new("/run/sshd");
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
    }
    installed("sshd")
}
