//! Asks the world outside: `scontrol` and files.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::placement::Outside;
use crate::error::{ScontrolProblem, SlurmError};

/// The `scontrol` command, if it may be asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Scontrol {
    program: Option<PathBuf>,
}

impl Scontrol {
    pub(super) fn program(program: impl Into<PathBuf>) -> Self {
        Self {
            program: Some(program.into()),
        }
    }

    pub(super) fn not_asked() -> Self {
        Self { program: None }
    }
}

impl Outside for Scontrol {
    fn file(&self, path: &Path) -> Result<String, SlurmError> {
        fs::read_to_string(path).map_err(|error| SlurmError::HostFile {
            path: path.to_owned(),
            kind: error.kind(),
        })
    }

    fn distribution(&self, step: &str) -> Result<String, ScontrolProblem> {
        let program = self.program.as_ref().ok_or(ScontrolProblem::NotAsked)?;
        let child = Command::new(program)
            .args(["show", "step", step])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|error| ScontrolProblem::NotStarted { kind: error.kind() })?;
        distribution_in(&output(child, TIMEOUT)?)
    }
}

/// What a process writes to its end, which comes in time or is made to come.
fn output(mut child: Child, timeout: Duration) -> Result<String, ScontrolProblem> {
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
    let text = text.map_err(|_| ScontrolProblem::TimedOut {
        seconds: timeout.as_secs(),
    })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The last field of its line, so it may hold blanks. What `scontrol` says of a step that it does
/// not know varies, and has no such field.
fn distribution_in(text: &str) -> Result<String, ScontrolProblem> {
    if !text.contains("StepId=") {
        return Err(ScontrolProblem::Unknown);
    }
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.split_once(" Dist=").map(|(_, value)| value.trim()));
    match value {
        Some(value) if !value.is_empty() => Ok(value.to_owned()),
        _ => Err(ScontrolProblem::Answer {
            field: "Dist",
            value: String::new(),
        }),
    }
}

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes read of an answer.
const LONGEST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "\
StepId=34.0 UserId=0 StartTime=2026-11-21T16:12:38 TimeLimit=UNLIMITED
   State=RUNNING Partition=p NodeList=n[3-4]
   Nodes=2 CPUs=4 Tasks=4 Name=bash Network=(null)
   CPUFreqReq=Default Dist=arbitrary task distribution
   SrunHost:Pid=vm:21425
";

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn the_distribution_is_the_rest_of_its_line() {
        let expected = Ok("arbitrary task distribution".to_owned());
        assert_eq!(distribution_in(SHOWN), expected);
        let block = SHOWN.replace("arbitrary task distribution", "Block");
        assert_eq!(distribution_in(&block), Ok("Block".to_owned()));
    }

    #[test]
    fn an_answer_without_a_step_or_without_a_distribution_is_told_apart() {
        assert_eq!(distribution_in(""), Err(ScontrolProblem::Unknown));
        let (field, value) = ("Dist", String::new());
        let expected = Err(ScontrolProblem::Answer { field, value });
        assert_eq!(distribution_in("StepId=1.0 UserId=0\n"), expected);
    }

    #[test]
    fn a_program_that_does_not_exist_is_named_by_its_problem() {
        let scontrol = Scontrol::program("/nowhere/scontrol");
        let kind = std::io::ErrorKind::NotFound;
        let expected = Err(ScontrolProblem::NotStarted { kind });
        assert_eq!(scontrol.distribution("1.0"), expected);
        let expected = Err(ScontrolProblem::NotAsked);
        assert_eq!(Scontrol::not_asked().distribution("1.0"), expected);
    }

    #[test]
    fn an_answer_is_waited_for_and_its_writer_ended_in_time() {
        let answer = output(shell("echo one; echo two"), TIMEOUT);
        assert_eq!(answer.as_deref(), Ok("one\ntwo\n"));
        let late = output(shell("exec sleep 60"), Duration::from_millis(1));
        assert_eq!(late, Err(ScontrolProblem::TimedOut { seconds: 0 }));
    }
}
