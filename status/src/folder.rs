//! The folder in which the ranks of a job say where they are asked.
//!
//! A rank that was killed leaves its file behind: whoever looks then sees that it does not answer.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::client::Target;
use crate::error::Error;
use crate::snapshot::number_of;

/// The longest file that is read, in bytes.
const LONGEST: u64 = 4096;
/// The most files that are read.
const MOST: usize = 4096;

/// A rank's file, which is removed with this.
#[derive(Debug)]
pub(crate) struct Note(PathBuf);

impl Note {
    /// Says where the member with this address in its group is asked. Whoever had that address
    /// before is no more.
    pub(crate) fn write(folder: &Path, member: &str, address: SocketAddr) -> Result<Self, Error> {
        let failing = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| Error::File {
                path,
                kind: error.kind(),
            }
        };
        fs::create_dir_all(folder).map_err(failing(folder))?;
        let path = folder.join(name_of(member));
        let note = json!({
            "status": address.to_string(),
            "member": member,
            "process": std::process::id(),
        });
        // Nobody can guess its name, and have a link there to something else.
        let nonce = RandomState::new().hash_one(member);
        let draft = path.with_extension(format!("{nonce:016x}.draft"));
        let mut file = File::create_new(&draft).map_err(failing(&draft))?;
        let written = file.write_all(format!("{note}\n").as_bytes());
        written.map_err(failing(&draft))?;
        fs::rename(&draft, &path).map_err(failing(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // A file that stays says no more than that nobody answers there.
        let _ = fs::remove_file(&self.0);
    }
}

/// Where a rank listens, as its file says.
pub(crate) struct Noted {
    status: SocketAddr,
    member: String,
    process: Option<u32>,
}

impl Noted {
    fn read(path: &Path) -> Option<Self> {
        let short = fs::metadata(path).ok()?.len() <= LONGEST;
        let text = short.then(|| fs::read_to_string(path))?.ok()?;
        let note: Value = serde_json::from_str(&text).ok()?;
        Some(Self {
            status: note["status"].as_str()?.parse().ok()?,
            member: note["member"].as_str()?.to_owned(),
            process: number_of(&note["process"]),
        })
    }

    /// Where it is asked. "All addresses" would be those of whoever asks, so it is asked at the
    /// host by which its group knows it.
    pub(crate) fn target(&self) -> Target {
        let host = self.member.rsplit_once(':').map(|parts| parts.0);
        let address = match host.filter(|_| self.status.ip().is_unspecified()) {
            Some(host) => format!("{host}:{}", self.status.port()),
            None => self.status.to_string(),
        };
        Target::new(address).with_process(self.process)
    }

    /// Whether it is reached from its own host only.
    pub(crate) fn is_on_loopback(&self) -> bool {
        self.status.ip().is_loopback()
    }
}

/// Where the ranks are asked that have said so in this folder, by the names of their files. One
/// that listens at all addresses is asked at its host in the group; one that listens on loopback is
/// reached from its own host only.
///
/// # Errors
/// [`Error::File`] for a folder that cannot be read. Files that say nothing of the kind are passed
/// over, since others may be under way.
pub fn targets(folder: &Path) -> Result<Vec<Target>, Error> {
    let failing = |error: io::Error| Error::File {
        path: folder.to_owned(),
        kind: error.kind(),
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failing)?.take(MOST) {
        let path = entry.map_err(failing)?.path();
        paths.extend(path.file_name().is_some_and(is_note).then_some(path));
    }
    paths.sort();
    let noted = paths.iter().filter_map(|path| Noted::read(path));
    Ok(noted.map(|noted| noted.target()).collect())
}

/// Where the member with this address in its group listens, if it has said so.
pub(crate) fn of(folder: &Path, member: &str) -> Option<Noted> {
    Noted::read(&folder.join(name_of(member)))
}

/// What an address has besides letters, digits, dots and minus signs is a file system's own.
fn name_of(member: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    let plain = member
        .chars()
        .map(|letter| if fits(letter) { letter } else { '_' });
    format!("{PREFIX}{}{SUFFIX}", plain.collect::<String>())
}

fn is_note(name: &OsStr) -> bool {
    let name = name.to_str();
    name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
}

const PREFIX: &str = "status-";
const SUFFIX: &str = ".json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_while_they_last_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        let addresses = || {
            let found = targets(&path).unwrap();
            found
                .iter()
                .map(|target| target.address().to_owned())
                .collect::<Vec<_>>()
        };
        assert!(matches!(targets(&path), Err(Error::File { .. })));
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let one = Note::write(&path, "10.0.0.1:4000", at(1)).unwrap();
        let two = Note::write(&path, "../../etc:4001", at(2)).unwrap();
        fs::write(path.join("status-x.json"), "{").unwrap();
        let note = |status| format!(r#"{{ "status": "{status}", "member": "a:1" }}"#);
        fs::write(path.join("status-y.json"), note("evil:80")).unwrap();
        fs::write(path.join("rank-0.json"), note("127.0.0.1:9")).unwrap();
        fs::write(path.join("status-z.json"), " ".repeat(5000)).unwrap();
        assert_eq!(addresses(), ["127.0.0.1:2", "127.0.0.1:1"]);
        drop(two);
        let again = Note::write(&path, "10.0.0.1:4000", at(3)).unwrap();
        assert_eq!(addresses(), ["127.0.0.1:3"]);
        drop((one, again));
        assert!(addresses().is_empty());
    }

    #[test]
    fn who_listens_at_all_addresses_is_asked_at_the_host_of_its_member() {
        let folder = tempfile::tempdir().unwrap();
        let write = |member, port| {
            let everywhere = SocketAddr::from(([0, 0, 0, 0], port));
            Note::write(folder.path(), member, everywhere).unwrap()
        };
        let _notes = [write("b:7", 4), write("thread", 5)];
        let found = targets(folder.path()).unwrap();
        let found = found.iter().map(Target::address).collect::<Vec<_>>();
        // The other has no host.
        assert_eq!(found, ["b:4", "0.0.0.0:5"]);
    }
}
