//! Runs the client of a scheduler, and reads what it says.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Why a command has no output.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum CommandError {
    NotStarted { kind: io::ErrorKind },
    TimedOut { seconds: u64 },
}

/// What this program writes to its standard output, whatever its exit status, if it ends in time.
pub(crate) fn output_of(program: &Path, arguments: &[&str]) -> Result<String, CommandError> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let child = child.map_err(|error| CommandError::NotStarted { kind: error.kind() })?;
    output(child, TIMEOUT)
}

/// What a process writes to its end, which comes in time or is made to come.
fn output(mut child: Child, timeout: Duration) -> Result<String, CommandError> {
    let (send, output) = mpsc::channel();
    let stdout = child.stdout.take();
    // Ends when the pipe is closed, which is for the process to do and for all it started: so
    // nobody waits for this thread.
    thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(LONGEST).read_to_end(&mut text);
        }
        let _ = send.send(text);
    });
    let text = output.recv_timeout(timeout);
    // It may have closed its output and go on.
    let _ = child.kill();
    let _ = child.wait();
    let text = text.map_err(|_| CommandError::TimedOut {
        seconds: timeout.as_secs(),
    })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
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
        command.args(["-c", script]).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn a_program_that_does_not_exist_is_named_by_its_problem() {
        let kind = io::ErrorKind::NotFound;
        let expected = Err(CommandError::NotStarted { kind });
        assert_eq!(output_of(Path::new("/nowhere/flux"), &["job"]), expected);
    }

    #[test]
    fn an_answer_is_waited_for_and_its_writer_ended_in_time() {
        let answer = output(shell("echo one; echo two"), TIMEOUT);
        assert_eq!(answer.as_deref(), Ok("one\ntwo\n"));
        let late = output(shell("exec sleep 60"), Duration::from_millis(1));
        assert_eq!(late, Err(CommandError::TimedOut { seconds: 0 }));
    }
}
