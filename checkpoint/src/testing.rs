//! A disk that fails at any call, and loses what was not synced.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Content, Disk, Draft};

mod killed;

pub use killed::{killed_at_each_call, to_be_killed};

/// A disk in memory. Clones are used by the same process, which is counted and fails as one.
#[derive(Clone, Debug)]
pub struct TestDisk {
    state: Arc<Mutex<State>>,
    process: Arc<Mutex<Process>>,
}

/// The fault injected at a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// It is refused. The process continues.
    Refused,
    /// It is carried out, and refused all the same. The process continues.
    Unheard,
    /// The process, or the whole machine, ends before it.
    Death,
}

/// Which data survive a crash of the machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Survival {
    /// Everything: only the processes have ended.
    Everything,
    /// Only what was synced: files, and names in folders, each by itself.
    Synced,
    /// Of what was not synced, this or that; the number says what.
    Chance(u64),
}

#[derive(Debug, Default)]
struct Process {
    calls: usize,
    fault: Option<(usize, Fault)>,
    is_dead: bool,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<File>,
    /// Of each folder that there is, what each name has stood for since the folder was synced.
    folders: BTreeMap<PathBuf, BTreeMap<OsString, Vec<Option<Node>>>>,
}

#[derive(Clone, Debug, Default)]
struct File {
    content: Vec<u8>,
    synced: Vec<u8>,
    is_held: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Node {
    File(usize),
    Folder,
}

impl TestDisk {
    /// An empty one. Its root is `/`.
    #[must_use]
    pub fn new() -> Self {
        let mut state = State::default();
        state.folders.insert(PathBuf::from("/"), BTreeMap::new());
        Self::of(state)
    }

    fn of(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
            process: Arc::default(),
        }
    }

    /// The same disk, used by another process.
    #[must_use]
    pub fn another_process(&self) -> Self {
        Self {
            state: self.state.clone(),
            process: Arc::default(),
        }
    }

    /// Has the call of this number fail, counted from 0 and from now.
    pub fn fail_at(&self, call: usize, fault: Fault) {
        *locked(&self.process) = Process {
            fault: Some((call, fault)),
            ..Process::default()
        };
    }

    /// Calls of this process since the last [`fail_at`](Self::fail_at).
    #[must_use]
    pub fn calls(&self) -> usize {
        locked(&self.process).calls
    }

    /// Whether the fault has come.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let process = locked(&self.process);
        process.fault.is_some_and(|(at, _)| process.calls > at)
    }

    /// The disk after a crash of the machine; no process is there any more.
    #[must_use]
    pub fn crashed(&self, survival: Survival) -> Self {
        let before = locked(&self.state);
        let mut chance = Chance::of(survival);
        let mut after = State::default();
        let mut open = vec![PathBuf::from("/")];
        let files = before.files.iter();
        after.files = files.map(|file| file.after(&mut chance)).collect();
        while let Some(folder) = open.pop() {
            let mut names = BTreeMap::new();
            for (name, history) in before.folders.get(&folder).into_iter().flatten() {
                let node = chance.pick(history);
                if let Some(node) = node {
                    names.insert(name.clone(), vec![Some(node)]);
                }
                if node == Some(Node::Folder) {
                    open.push(folder.join(name));
                }
            }
            after.folders.insert(folder, names);
        }
        Self::of(after)
    }

    /// The names in a folder, in order.
    #[must_use]
    pub fn list(&self, folder: &Path) -> Vec<String> {
        let names = locked(&self.state).names(folder).unwrap_or_default();
        let text = |name: &OsString| name.to_string_lossy().into_owned();
        names.iter().map(text).collect()
    }

    fn call<T>(&self, effect: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let fault = locked(&self.process).advance();
        if matches!(fault, Some(Fault::Refused | Fault::Death)) {
            return Err(broken());
        }
        let mut state = locked(&self.state);
        let done = effect(&mut state);
        // What was made may want the disk to itself when it is dropped.
        drop(state);
        match fault {
            None => done,
            Some(_) => done.and_then(|_| Err(broken())),
        }
    }
}

impl Default for TestDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl Process {
    fn advance(&mut self) -> Option<Fault> {
        if self.is_dead {
            return Some(Fault::Death);
        }
        let call = self.calls;
        self.calls += 1;
        let fault = self.fault.filter(|(at, _)| *at == call);
        let fault = fault.map(|(_, fault)| fault);
        self.is_dead = fault == Some(Fault::Death);
        fault
    }
}

impl Disk for TestDisk {
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.call(|state| state.names(folder))
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        self.call(|state| {
            state.enter(folder, Node::Folder)?;
            state.folders.insert(folder.to_owned(), BTreeMap::new());
            Ok(())
        })
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.call(|state| {
            let names = state.folders.get_mut(folder).ok_or_else(missing)?;
            for history in names.values_mut() {
                history.drain(..history.len() - 1);
            }
            names.retain(|_, history| now(history).is_some());
            Ok(())
        })
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Draft>> {
        self.call(|state| {
            let number = state.files.len();
            state.enter(path, Node::File(number))?;
            state.files.push(File {
                is_held: true,
                ..File::default()
            });
            let disk = self.clone();
            Ok(Box::new(Held { disk, number }) as Box<dyn Draft>)
        })
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Content>> {
        self.call(|state| {
            let number = state.file(path)?;
            let disk = self.clone();
            Ok(Box::new(Read { disk, number }) as Box<dyn Content>)
        })
    }

    fn remove_abandoned(&self, path: &Path, keep: &dyn Fn() -> bool) -> io::Result<bool> {
        let is_held = self.call(|state| {
            let number = state.file(path)?;
            Ok(state.files[number].is_held)
        })?;
        let removes = !is_held && !keep();
        if removes {
            self.remove(path)?;
        }
        Ok(removes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            let node = Node::File(state.file(from)?);
            state.history(from)?.push(None);
            state.history(to)?.push(Some(node));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            state.file(path)?;
            state.history(path)?.push(None);
            Ok(())
        })
    }
}

impl State {
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let names = self.folders.get(folder).ok_or_else(missing)?;
        let present = names.iter().filter(|(_, history)| now(history).is_some());
        Ok(present.map(|(name, _)| name.clone()).collect())
    }

    fn history(&mut self, path: &Path) -> io::Result<&mut Vec<Option<Node>>> {
        let names = self.folders.get_mut(path.parent().ok_or_else(taken)?);
        let name = path.file_name().map(OsStr::to_owned).unwrap_or_default();
        let names = names.ok_or_else(missing)?;
        Ok(names.entry(name).or_insert_with(|| vec![None]))
    }

    fn enter(&mut self, path: &Path, node: Node) -> io::Result<()> {
        let history = self.history(path)?;
        match now(history) {
            Some(_) => Err(taken()),
            None => {
                history.push(Some(node));
                Ok(())
            }
        }
    }

    fn file(&mut self, path: &Path) -> io::Result<usize> {
        match now(self.history(path)?) {
            Some(Node::File(number)) => Ok(number),
            Some(Node::Folder) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(missing()),
        }
    }
}

impl File {
    /// After a crash: what was written and not synced is there, was cut short, or is zeros.
    fn after(&self, chance: &mut Chance) -> Self {
        let mut zeros = self.synced.clone();
        zeros.resize(self.content.len(), 0);
        let cut = chance.below(self.content.len() + 1);
        let short = self.content[..cut.max(self.synced.len())].to_vec();
        let content = chance.pick(&[self.synced.clone(), zeros, short, self.content.clone()]);
        Self {
            synced: content.clone(),
            content,
            is_held: false,
        }
    }
}

/// A file that is written.
#[derive(Debug)]
struct Held {
    disk: TestDisk,
    number: usize,
}

impl Draft for Held {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Two calls, so that half of it may be there.
        for half in bytes.chunks(bytes.len().div_ceil(2).max(1)) {
            let append = |state: &mut State| {
                state.files[self.number].content.extend(half);
                Ok(())
            };
            self.disk.call(append)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.call(|state| {
            let file = &mut state.files[self.number];
            file.synced.clone_from(&file.content);
            Ok(())
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        locked(&self.disk.state).files[self.number].is_held = false;
    }
}

/// A file that is read.
#[derive(Debug)]
struct Read {
    disk: TestDisk,
    number: usize,
}

impl Content for Read {
    fn length(&self) -> io::Result<u64> {
        let length = |state: &mut State| Ok(state.files[self.number].content.len() as u64);
        self.disk.call(length)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.call(|state| {
            let content = &state.files[self.number].content;
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let end = start.saturating_add(bytes.len());
            let found = content.get(start..end);
            bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }
}

/// Chooses what survives.
struct Chance {
    survival: Survival,
    state: u64,
}

impl Chance {
    fn of(survival: Survival) -> Self {
        let state = match survival {
            Survival::Chance(seed) => seed,
            Survival::Everything | Survival::Synced => 0,
        };
        Self { survival, state }
    }

    /// Of what something was, from what was synced to what it was last.
    fn pick<T: Clone>(&mut self, history: &[T]) -> T {
        let place = match self.survival {
            Survival::Synced => 0,
            Survival::Everything => history.len() - 1,
            Survival::Chance(_) => self.below(history.len()),
        };
        history[place].clone()
    }

    /// SplitMix64.
    fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap_or_default()
    }
}

fn now(history: &[Option<Node>]) -> Option<Node> {
    history.last().copied().flatten()
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken() -> io::Error {
    io::Error::other("the disk of a test fails here")
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn taken() -> io::Error {
    io::ErrorKind::AlreadyExists.into()
}

#[cfg(test)]
mod tests;
