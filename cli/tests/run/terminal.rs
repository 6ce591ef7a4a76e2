//! `meshwork top` in a terminal, which is a window of tmux that nobody looks at.

use std::fs;
use std::process::Command;

use meshwork_testing::{Need, installed};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::harness::look_until;
use crate::live::{job, process, until};
use crate::trainer::DEADLINE;

const MESHWORK: &str = env!("CARGO_BIN_EXE_meshwork");

/// The file in which the status of the program is noted.
const STATUS: &str = "status";

/// A server of tmux for one window, which ends with this.
struct Terminal {
    folder: TempDir,
}

impl Terminal {
    fn start(program: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let status = folder.path().join(STATUS).display().to_string();
        let terminal = Self { folder };
        let size = ["new-session", "-d", "-x", "100", "-y", "20", "--"];
        // tmux itself may lose the status of a program that has ended.
        let noted = [
            "sh",
            "-c",
            "to=$1; shift; \"$@\"; echo $? >\"$to\"",
            "sh",
            &status,
        ];
        terminal.tell(&[&size[..], &noted[..], program].concat());
        terminal
    }

    /// With what status the program has ended, if it has.
    fn status(&self) -> Option<String> {
        let status = fs::read_to_string(self.folder.path().join(STATUS)).ok()?;
        Some(status.strip_suffix('\n')?.to_owned())
    }

    /// What a command of tmux says.
    #[track_caller]
    fn tell(&self, words: &[&str]) -> String {
        let file = |name| self.folder.path().join(name);
        let mut tmux = Command::new("tmux");
        tmux.arg("-u").arg("-S").arg(file("socket"));
        tmux.args(["-f", "/dev/null"]).args(words);
        let output = tmux.env_remove("TMUX").output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Looks until the window is as wished, with its colours and other styles.
    #[track_caller]
    fn until(&self, what: &str, wished: impl Fn(&str) -> bool) {
        let look = || self.tell(&["capture-pane", "-p", "-e"]);
        if let Err(shown) = look_until(DEADLINE, look, |shown| wished(shown)) {
            panic!("{what}:\n{shown}");
        }
    }

    fn press(&self, key: &str) {
        self.tell(&["send-keys", key]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let socket = self.folder.path().join("socket");
        let mut tmux = Command::new("tmux");
        let _ = tmux.arg("-S").arg(socket).arg("kill-server").output();
    }
}

/// Whether a line begins so, and is bold.
fn is_chosen(shown: &str, begin: &str) -> bool {
    shown.lines().any(|line| {
        let (mut text, mut bold) = (line, false);
        while let Some((style, rest)) = text
            .strip_prefix("\u{1b}[")
            .and_then(|text| text.split_once('m'))
        {
            for part in style.split(';') {
                bold = part == "1" || (bold && part != "0");
            }
            text = rest;
        }
        bold && text.starts_with(&format!("{begin} "))
    })
}

#[test]
fn top_shows_a_job_in_a_terminal_until_it_is_asked_to_end() {
    if Need::Tmux.or_skip(installed("tmux")).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let _job = job(folder.path());
    let running = until(folder.path(), |job| {
        job["ranks"]
            .as_array()
            .is_some_and(|ranks| ranks.len() == 2)
            && job["unanswered"].as_array().is_some_and(Vec::is_empty)
    });
    let watched = folder.path().to_str().unwrap();
    let terminal = Terminal::start(&[MESHWORK, "top", watched]);
    terminal.until("both ranks, and steps", |shown| {
        let all = [
            "2 ranks  step ",
            " samples/s",
            "RANK",
            "all_reduce of 256 f32",
        ];
        all.iter().all(|text| shown.contains(text))
    });
    terminal.until("the first rank is chosen", |shown| is_chosen(shown, "0"));
    terminal.press("Down");
    terminal.until("the second rank is chosen", |shown| is_chosen(shown, "1"));

    let stopped = process(&running, 1);
    kill_process(stopped, Signal::STOP).unwrap();
    terminal.until("who is stopped", |shown| {
        shown.contains("rank 1 is stopped") && shown.contains("no answer")
    });
    kill_process(stopped, Signal::CONT).unwrap();
    terminal.until("it goes on", |shown| !shown.contains("no answer"));

    terminal.tell(&["resize-window", "-x", "60", "-y", "8"]);
    terminal.until("a small window has it too", |shown| {
        shown.contains("2 ranks") && shown.lines().count() <= 8
    });
    terminal.press("q");
    let status = look_until(DEADLINE, || terminal.status(), Option::is_some);
    assert_eq!(status, Ok(Some("0".to_owned())));
}
