//! Files of Python's package index: fetched once by pip, and only by their hashes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A release of a package for Linux on x86-64, and the hash of its file.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    requirement: &'static str,
    sha256: &'static str,
}

impl Wheel {
    /// What the error says, among others, where the index has another file for the release.
    pub const OTHER_HASH: &str = "its hash is another";

    /// The requirement names one release, as in `libtpu==0.0.52`.
    #[must_use]
    pub const fn new(requirement: &'static str, sha256: &'static str) -> Self {
        Self {
            requirement,
            sha256,
        }
    }

    /// Where its content is below `folder` once it is [`unpacked`](Self::unpacked).
    #[must_use]
    pub fn content(&self, folder: &Path) -> PathBuf {
        self.place(folder).join("content")
    }

    /// The folder with its content, below `folder`, which the build keeps. Where it is not there
    /// yet, the pip of this Python fetches it.
    ///
    /// # Errors
    /// A text that says what cannot be fetched and why, for
    /// [`Need::or_skip`](crate::Need::or_skip).
    pub fn unpacked(&self, folder: &Path, python: impl AsRef<OsStr>) -> Result<PathBuf, String> {
        let fetched = self.fetch(folder, python.as_ref());
        fetched.map_err(|why| format!("{} cannot be fetched: {why}", self.requirement))
    }

    fn fetch(&self, folder: &Path, python: &OsStr) -> Result<PathBuf, String> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err("it is for Linux on x86-64".to_owned());
        }
        let (place, content) = (self.place(folder), self.content(folder));
        fs::create_dir_all(&place).map_err(text)?;
        // Tests that want the same wheel wait for the one that fetches it.
        let lock = File::create(place.join("lock")).map_err(text)?;
        lock.lock().map_err(text)?;
        if !content.exists() {
            let beside = tempfile::tempdir_in(&place).map_err(text)?;
            self.download(python, beside.path())?;
            // Whole or not at all: this process may be killed.
            fs::rename(unzipped(python, beside.path())?, &content).map_err(text)?;
        }
        Ok(content)
    }

    fn download(&self, python: &OsStr, to: &Path) -> Result<(), String> {
        let wanted = to.join("wanted.txt");
        let line = format!("{} --hash=sha256:{}\n", self.requirement, self.sha256);
        fs::write(&wanted, line).map_err(text)?;
        let mut pip = Command::new(python);
        pip.args(DOWNLOAD).arg(to).arg("--requirement").arg(wanted);
        run(&mut pip)
    }

    fn place(&self, folder: &Path) -> PathBuf {
        let name = self.requirement.replace("==", "-");
        folder.join("wheels").join(name)
    }
}

/// For every Python and system that one of the wheels is for: pip takes none for an older system
/// unless that one is named.
const DOWNLOAD: [&str; 17] = [
    "-m",
    "pip",
    "download",
    "--quiet",
    "--disable-pip-version-check",
    "--no-cache-dir",
    "--retries=1",
    "--timeout=20",
    "--no-deps",
    "--only-binary=:all:",
    "--python-version=3.11",
    "--platform=manylinux_2_31_x86_64",
    "--platform=manylinux_2_27_x86_64",
    "--platform=manylinux_2_18_x86_64",
    "--platform=manylinux2014_x86_64",
    "--require-hashes",
    "--dest",
];

/// The folder with what is in the wheel of this folder.
fn unzipped(python: &OsStr, folder: &Path) -> Result<PathBuf, String> {
    let files = fs::read_dir(folder).map_err(text)?;
    let mut files = files.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = files.find(|file| file.extension().is_some_and(|end| end == "whl"));
    let to = folder.join("unpacked");
    let mut unzip = Command::new(python);
    unzip.args(["-m", "zipfile", "-e"]);
    run(unzip.arg(wheel.ok_or("pip left no wheel")?).arg(&to))?;
    Ok(to)
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_owned();
    let ended = command.output();
    let ended = ended.map_err(|error| format!("{program:?} does not start: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&ended.stderr);
    if let Some((_, hashes)) = complaint.split_once(OF_HASHES) {
        let words: Vec<_> = hashes.split_whitespace().collect();
        return Err(format!("{}: wanted {}", Wheel::OTHER_HASH, words.join(" ")));
    }
    let last = complaint.lines().rfind(|line| !line.trim().is_empty());
    Err(last.unwrap_or("no output").to_owned())
}

/// What pip says before the hash that was wanted, `Got`, and the hash that there is.
const OF_HASHES: &str = "Expected sha256";

fn text(error: std::io::Error) -> String {
    error.to_string()
}
