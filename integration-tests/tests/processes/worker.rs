//! Worker processes under a test's control.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use meshwork_collectives::{DataTransport, JobSecret, Transport};
pub(crate) use meshwork_testing::{free_addresses, tf_config};
use tempfile::TempDir;

/// Beyond any time a correct program takes; a test that waits this long has found a hang.
pub(crate) const HANG: Duration = Duration::from_secs(60);
/// What a worker may take in all that goes on printing.
const LONGEST: Duration = Duration::from_secs(600);

/// A running process; killed when dropped.
pub(crate) struct Worker {
    child: Child,
    lines: Receiver<String>,
    stderr: Option<thread::JoinHandle<String>>,
}

/// Sets the transport of a worker: `auto`, `quic`, or `tls` for QUIC with the bytes of operations
/// over TCP.
pub(crate) fn over<'a>(worker: &'a mut Command, transport: &str) -> &'a mut Command {
    let (transport, carrier) = match transport {
        "tls" => ("quic", "tls"),
        other => (other, "quic"),
    };
    worker
        .env(Transport::ENV, transport)
        .env(DataTransport::ENV, carrier)
}

/// Tells a training that nobody will disturb it any more: until then its steps take long, so that
/// it has not ended before all that a test does to it is done.
pub(crate) struct Calm(TempDir);

impl Calm {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The arguments of a worker that waits for it.
    pub(crate) fn awaited(&self) -> [String; 2] {
        let file = self.0.path().join("calm");
        let until = format!("--pause-until={}", file.display());
        ["--pause=10000".to_owned(), until]
    }

    pub(crate) fn comes(&self) {
        fs::write(self.0.path().join("calm"), []).unwrap();
    }
}

/// Knuth's linear congruence: the same numbers for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `bound`.
    pub(crate) fn roll(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// A place in a list of so many.
    pub(crate) fn pick(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).unwrap()
    }
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) at: Instant,
    /// What it printed and was not read before.
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
}

/// A job: addresses of its workers, and its secret.
pub(crate) struct Job {
    pub(crate) addresses: Vec<String>,
    pub(crate) secret: JobSecret,
    transport: &'static str,
}

impl Job {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            addresses: free_addresses(workers),
            secret: JobSecret::generate().unwrap(),
            transport: "auto",
        }
    }

    /// The same job with its bytes on this transport, as [`over`] has it.
    pub(crate) fn over(self, transport: &'static str) -> Self {
        Self { transport, ..self }
    }

    /// The command that starts worker number `index` by hand.
    pub(crate) fn command(&self, index: usize, args: &[&str]) -> Command {
        let mut command = mlp(args);
        self.configure(&mut command, index);
        command
    }

    /// Makes of a command that of worker number `index`.
    pub(crate) fn configure<'a>(&self, command: &'a mut Command, index: usize) -> &'a mut Command {
        over(command, self.transport)
            .env("TF_CONFIG", tf_config(&self.addresses, index))
            .env(JobSecret::ENV, self.secret.to_hex().as_str())
    }

    pub(crate) fn start(&self, index: usize, args: &[&str]) -> Worker {
        Worker::start(self.command(index, args))
    }

    pub(crate) fn start_all(&self, args: &[&str]) -> Vec<Worker> {
        (0..self.addresses.len())
            .map(|index| self.start(index, args))
            .collect()
    }
}

/// The test worker without a job.
pub(crate) fn mlp(args: &[&str]) -> Command {
    let mut command = outside_jobs(env!("CARGO_BIN_EXE_mlp"));
    command.args(args);
    command
}

/// A program without a job: none that this process's environment has may reach it.
pub(crate) fn outside_jobs(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("TF_CONFIG")
        .env_remove(JobSecret::ENV)
        .env("RUST_BACKTRACE", "1");
    command
}

impl Worker {
    pub(crate) fn start(command: Command) -> Self {
        Self::start_with_input(command, Stdio::null())
    }

    pub(crate) fn start_with_input(mut command: Command, input: Stdio) -> Self {
        command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        pass_on(child.stdout.take().unwrap(), sender);
        let mut pipe = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            let _ = pipe.read_to_string(&mut text);
            text
        });
        Self {
            child,
            lines,
            stderr: Some(stderr),
        }
    }

    /// As [`start`](Self::start), with standard error among its lines.
    pub(crate) fn start_merged(mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        pass_on(child.stdout.take().unwrap(), sender.clone());
        pass_on(child.stderr.take().unwrap(), sender);
        Self {
            child,
            lines,
            stderr: None,
        }
    }

    /// Reads what it prints up to a line that contains `text`.
    #[track_caller]
    pub(crate) fn reaches(&mut self, text: &str) -> String {
        self.reaches_all(&[text.to_owned()])
    }

    /// Reads what it prints until each of `texts` was in a line, and returns the last such line.
    #[track_caller]
    pub(crate) fn reaches_all(&mut self, texts: &[String]) -> String {
        let deadline = Instant::now() + HANG;
        let mut missing = texts.to_vec();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!(
                    "never printed {missing:?}; standard error: {}",
                    self.stop().stderr
                )
            };
            missing.retain(|text| !line.contains(text));
            if missing.is_empty() {
                return line;
            }
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input, if that is a pipe.
    pub(crate) fn input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// `kill -9`; returns when.
    pub(crate) fn kill(&mut self) -> Instant {
        self.child.kill().unwrap();
        Instant::now()
    }

    /// Waits for its end, which may take long as long as it prints something now and then.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        self.ended()
    }

    /// As [`end`](Self::end), of one that something else has.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> Ended {
        let deadline = Instant::now() + LONGEST;
        // Its standard output ends with it: a wait that needs no polling.
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(HANG)) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    panic!(
                        "hangs after {lines:?}; standard error: {}",
                        self.stop().stderr
                    );
                }
            }
        }
        let mut ended = self.stop_with(lines);
        ended.at = Instant::now();
        ended
    }

    fn stop(&mut self) -> Ended {
        let _ = self.child.kill();
        self.stop_with(Vec::new())
    }

    fn stop_with(&mut self, lines: Vec<String>) -> Ended {
        let status = self.child.wait().unwrap();
        let at = Instant::now();
        let stderr = self
            .stderr
            .take()
            .map(|thread| thread.join().unwrap())
            .unwrap_or_default();
        Ended {
            status,
            at,
            lines,
            stderr,
        }
    }
}

fn pass_on(pipe: impl Read + Send + 'static, lines: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// It failed with one line that contains all `parts`, without a panic.
    #[track_caller]
    pub(crate) fn failed_naming(&self, parts: &[&str]) {
        assert!(!self.status.success(), "succeeded: {self:?}");
        assert!(self.status.code().is_some(), "killed: {self:?}");
        let line = self.stderr.trim_end();
        assert!(!line.contains('\n'), "more than one line: {line}");
        let name = line.split(": error: ").next().unwrap_or_default();
        assert!(["mlp", "elastic", "feeder"].contains(&name), "{line:?}");
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in: {line}");
        }
    }
}
