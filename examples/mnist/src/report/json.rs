//! The log for programs: one JSON object a line, each on disk before the next step begins.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Sharers, Step};
use crate::error::Error;
use crate::train::Outcome;

/// A file of JSON lines.
#[derive(Debug)]
pub(super) struct JsonLog {
    path: PathBuf,
    file: File,
}

impl JsonLog {
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        Self::over(path, File::create(path))
    }

    /// Goes on with the log of an earlier chief, whose last step may come again, or of a run before
    /// its checkpoint, whose steps behind that do.
    pub(super) fn go_on(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self::over(path, file)
    }

    fn over(path: &Path, file: std::io::Result<File>) -> Result<Self, Error> {
        Ok(Self {
            file: file.map_err(Error::write(path, "--json"))?,
            path: path.to_owned(),
        })
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<(), Error> {
        self.line(&json!({
            "step": step.number,
            "loss": step.loss,
            "samples_per_s": step.samples_per_second(),
            "allreduce_gbps": step.allreduce_gbps,
        }))
    }

    pub(super) fn finish(&mut self, outcome: &Outcome, sharers: Sharers) -> Result<(), Error> {
        let (count, one) = sharers.counted();
        self.line(&json!({
            "final": true,
            "test_accuracy": outcome.test_accuracy,
            "wall_s": outcome.wall.as_secs_f64(),
            (format!("{one}s")): count,
        }))
    }

    /// One write for the line, so that a reader never sees half of it.
    fn line(&mut self, value: &Value) -> Result<(), Error> {
        self.file
            .write_all(format!("{value}\n").as_bytes())
            .map_err(Error::write(&self.path, "--json"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_line_is_in_the_file_when_the_call_returns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.json");
        let mut log = JsonLog::create(&path).unwrap();
        let elapsed = Duration::from_millis(500);
        log.step(&Step {
            number: 1,
            loss: 2.5,
            samples: 64,
            elapsed,
            allreduce_gbps: Some(1.0),
        })
        .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let expected =
            json!({"step": 1, "loss": 2.5, "samples_per_s": 128.0, "allreduce_gbps": 1.0});
        assert_eq!(
            serde_json::from_str::<Value>(text.strip_suffix('\n').unwrap()).unwrap(),
            expected
        );

        let wall = Duration::from_secs(2);
        log.finish(
            &Outcome {
                losses: vec![2.5],
                test_accuracy: 0.5,
                wall,
            },
            Sharers::Workers(3),
        )
        .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let last: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        let expected = json!({"final": true, "test_accuracy": 0.5, "wall_s": 2.0, "workers": 3});
        assert_eq!(last, expected);
    }

    #[test]
    fn a_log_that_is_gone_on_with_keeps_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.json");
        let lines = |log: Result<JsonLog, Error>| {
            log.unwrap().line(&json!({})).unwrap();
            std::fs::read_to_string(&path).unwrap().lines().count()
        };
        assert_eq!(lines(JsonLog::go_on(&path)), 1);
        assert_eq!(lines(JsonLog::go_on(&path)), 2);
        assert_eq!(lines(JsonLog::create(&path)), 1);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named_with_its_flag() {
        let error = JsonLog::create(Path::new("no/such/folder/log.json")).unwrap_err();
        let line = crate::error::one_line(&error);
        assert!(
            line.contains("no/such/folder/log.json") && line.contains("--json"),
            "{line}"
        );
    }
}
