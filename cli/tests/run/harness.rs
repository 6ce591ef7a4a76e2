//! Runs the `meshwork` command and watches it line by line, never longer than a deadline.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Far longer than anything here takes, so that only a hang meets it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Puts the worker's rank into `$r`.
pub(crate) const RANK: &str = "r=${TF_CONFIG##*:}; r=${r%%\\}*};";

/// `meshwork` with these arguments, outside any job.
pub(crate) fn meshwork(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwork"));
    command
        .args(args)
        .env_remove("MESHWORK_JOB_SECRET")
        .env_remove("MESHWORK_JOB_SECRET_FILE");
    command
}

/// `meshwork run` of a shell script that knows its rank, as `$r`.
pub(crate) fn script(workers: usize, options: &[&str], text: &str) -> Command {
    let workers = workers.to_string();
    let mut command = meshwork(&["run", "-n", &workers]);
    command
        .args(options)
        .args(["--", "sh", "-c", &format!("{RANK} {text}")]);
    command
}

/// A command that runs.
pub(crate) struct Running {
    child: Child,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
}

/// A command that has ended, with what it wrote and was not yet read.
pub(crate) struct Ended {
    /// `None` if a signal killed it.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdout: lines(child.stdout.take().unwrap()),
            stderr: lines(child.stderr.take().unwrap()),
            child,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of stdout, without its newline.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        let line = self.stdout.recv_timeout(DEADLINE).expect("a line");
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    #[allow(
        dead_code,
        reason = "tests of `run` have this file too, and do not call it"
    )]
    /// The next line of stderr that has this in it.
    #[track_caller]
    pub(crate) fn says(&self, part: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(DEADLINE);
            let line = String::from_utf8(line.unwrap_or_else(|_| panic!("no line with {part}")));
            let line = line.unwrap();
            if line.contains(part) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Waits for so many lines of stdout.
    #[track_caller]
    pub(crate) fn skip_lines(&self, lines: usize) {
        for _ in 0..lines {
            self.line();
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let stdout = rest(&self.stdout);
        let stderr = String::from_utf8(rest(&self.stderr)).unwrap();
        let status = self.child.wait().unwrap().code();
        Ended {
            status,
            stdout,
            stderr,
        }
    }
}

impl Drop for Running {
    /// A test that fails leaves nothing running: the second SIGTERM kills the workers.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::TERM);
            self.signal(Signal::TERM);
        }
    }
}

impl Ended {
    /// The lines of stdout, in an order that does not depend on the workers' race.
    pub(crate) fn sorted(&self) -> Vec<String> {
        let text = String::from_utf8(self.stdout.clone()).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The last line on stderr: what the launcher says of the run.
    pub(crate) fn verdict(&self) -> &str {
        self.stderr.lines().last().unwrap_or_default()
    }
}

/// Looks until it is as wished; the error is what it is when the time is over.
pub(crate) fn look_until<T>(
    within: Duration,
    look: impl Fn() -> T,
    wished: impl Fn(&T) -> bool,
) -> Result<T, T> {
    let began = Instant::now();
    loop {
        let found = look();
        if wished(&found) {
            return Ok(found);
        }
        if began.elapsed() >= within {
            return Err(found);
        }
    }
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command).end()
}

/// Reads to the end within the deadline.
#[track_caller]
pub(crate) fn read_to_end(stream: impl Read + Send + 'static) -> Vec<u8> {
    rest(&lines(stream))
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(len) if len > 0 && sender.send(line).is_ok() => {}
                _ => break,
            }
        }
    });
    receiver
}

#[track_caller]
fn rest(lines: &Receiver<Vec<u8>>) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match lines.recv_timeout(DEADLINE) {
            Ok(line) => all.extend(line),
            Err(RecvTimeoutError::Disconnected) => return all,
            Err(RecvTimeoutError::Timeout) => panic!("still running: {all:?}"),
        }
    }
}
