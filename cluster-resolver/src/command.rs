//! Runs the client of a scheduler, and reads what it says.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::CommandProblem;

/// What a command wrote.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Said {
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Said {
    /// What a command ends with that gives up, empty if it says nothing.
    pub(crate) fn last_words(&self) -> String {
        let mut lines = self.output.lines().chain(self.errors.lines()).rev();
        let last = lines.find(|line| !line.trim().is_empty());
        last.unwrap_or_default().trim().to_owned()
    }
}

/// What this program writes, whatever its exit status, if it ends in time.
pub(crate) fn said_by(program: &Path, arguments: &[&str]) -> Result<Said, CommandProblem> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.map_err(|error| CommandProblem::NotStarted { kind: error.kind() })?;
    said(child, TIMEOUT)
}

/// What a process writes to its end, which comes in time or is made to come.
fn said(mut child: Child, timeout: Duration) -> Result<Said, CommandProblem> {
    let deadline = Instant::now() + timeout;
    let (output, errors) = (read(child.stdout.take()), read(child.stderr.take()));
    let text = |pipe: &Receiver<String>| {
        let left = deadline.saturating_duration_since(Instant::now());
        pipe.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => CommandProblem::TimedOut {
                seconds: timeout.as_secs(),
            },
            RecvTimeoutError::Disconnected => CommandProblem::NotStarted {
                kind: io::ErrorKind::WouldBlock,
            },
        })
    };
    let output = text(&output);
    // It may have closed its output and go on.
    let _ = child.kill();
    let _ = child.wait();
    Ok(Said {
        output: output?,
        // What it started may keep this one open, and then it is of no use.
        errors: text(&errors).unwrap_or_default(),
    })
}

/// All that comes out of a pipe, once it is closed, which is for the process to do and for all it
/// started: so nobody waits for the thread. Where none can be started, nobody sends.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, text) = mpsc::channel();
    let _ = thread::Builder::new().spawn(move || {
        let mut text = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(LONGEST).read_to_end(&mut text);
        }
        let _ = send.send(String::from_utf8_lossy(&text).into_owned());
    });
    text
}

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes read of an answer.
const LONGEST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn a_program_that_does_not_exist_is_named_by_its_problem() {
        let kind = io::ErrorKind::NotFound;
        let expected = Err(CommandProblem::NotStarted { kind });
        assert_eq!(said_by(Path::new("/nowhere/flux"), &["job"]), expected);
    }

    #[test]
    fn an_answer_is_waited_for_and_its_writer_ended_in_time() {
        let answer = said(shell("echo one; echo why >&2; echo two"), TIMEOUT).unwrap();
        assert_eq!((&*answer.output, &*answer.errors), ("one\ntwo\n", "why\n"));
        let late = said(shell("exec sleep 60"), Duration::from_millis(1));
        assert_eq!(late, Err(CommandProblem::TimedOut { seconds: 0 }));
    }

    #[test]
    fn the_last_words_are_those_of_its_errors() {
        let said = |output: &str, errors: &str| Said {
            output: output.to_owned(),
            errors: errors.to_owned(),
        };
        assert_eq!(said("one\n", "two\nthree \n\n").last_words(), "three");
        assert_eq!(said("one\ntwo\n", "\n").last_words(), "two");
        assert_eq!(said("", "").last_words(), "");
    }
}
