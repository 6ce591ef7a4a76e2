//! Commands that the book shows with their output say just that, and all others have options that
//! there are.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process_group};

/// What stands for text that differs from run to run.
const ANY: &str = "…";
/// How long a command may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// Commands that there are at least: an empty book is no proof.
const LEAST: usize = 10;
/// What the command can be told to do; other words behind its name are prose.
const COMMANDS: [&str; 13] = [
    "run",
    "relay",
    "relay-token",
    "bench",
    "draw",
    "plan",
    "resolve",
    "devices",
    "checkpoint",
    "doctor",
    "top",
    "tpu",
    "secret",
];
/// Those that have parts.
const PARTED: [&str; 2] = ["checkpoint", "tpu"];

#[test]
fn commands_have_the_output_that_the_book_shows() {
    let mut commands = 0;
    for (chapter, text) in chapters() {
        for (command, expected) in text.split("```console\n").skip(1).flat_map(shown) {
            let said = run(&command);
            assert!(
                fits(&said, &expected),
                "{}: {command}\n{said}\nand not\n{expected}",
                chapter.display()
            );
            commands += 1;
        }
    }
    assert!(commands >= LEAST, "only {commands}");
}

#[test]
fn commands_have_options_that_there_are() {
    let mut helps = BTreeMap::new();
    for (chapter, text) in chapters() {
        for line in text
            .lines()
            .flat_map(|line| line.split("meshwork ").skip(1))
        {
            let (names, options) = words(line);
            let help = helps
                .entry(names.join(" "))
                .or_insert_with_key(|names| run(&format!("meshwork {names} --help")));
            for option in options {
                assert!(
                    help.contains(option),
                    "{}: {line}: {option}",
                    chapter.display()
                );
            }
        }
    }
    assert!(helps.len() >= LEAST, "{helps:?}");
}

/// The names of a command and of its part, and the options that follow on its line.
fn words(line: &str) -> (Vec<&str>, Vec<&str>) {
    let line = line.split(['`', '#', '|', '>', '│']).next().unwrap();
    let mut words = line.split_whitespace().take_while(|word| *word != "--");
    let Some(name) = words.next().filter(|name| COMMANDS.contains(name)) else {
        return (Vec::new(), Vec::new());
    };
    let rest: Vec<&str> = words.collect();
    let part = rest.first().filter(|_| PARTED.contains(&name));
    let options = rest.iter().filter(|word| word.starts_with('-'));
    let options = options.map(|word| word.split('=').next().unwrap());
    (
        [name].into_iter().chain(part.copied()).collect(),
        options.collect(),
    )
}

/// Every chapter with its text.
fn chapters() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    find_chapters(Path::new("../docs/book/src"), &mut paths);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

fn find_chapters(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_chapters(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The commands at the beginning of a text, behind `$`, and what each is to say.
fn shown(text: &str) -> Vec<(String, String)> {
    let (block, _) = text.split_once("```").unwrap();
    let block = format!("\n{block}");
    let parts = block.split("\n$ ").skip(1);
    let parts = parts.map(|part| part.split_once('\n').unwrap());
    let owned = parts.map(|part| (part.0.to_owned(), part.1.trim_end().to_owned()));
    owned.collect()
}

/// What a command of the shell says on standard output, without its last line break.
fn run(command: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_meshwork"));
    let mut path = vec![binary.parent().unwrap().to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell.env("PATH", env::join_paths(path).unwrap());
    shell
        .env_remove("TF_CONFIG")
        .env_remove("MESHWORK_JOB_SECRET");
    let output = within_deadline(shell.process_group(0));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {complaint}");
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

/// What a process says until its end, or a panic where that does not come in time.
fn within_deadline(command: &mut Command) -> Output {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let group = Pid::from_child(&child);
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(child.wait_with_output()));
    match end.recv_timeout(DEADLINE) {
        Ok(output) => output.unwrap(),
        Err(late) => {
            let killed = kill_process_group(group, Signal::KILL);
            panic!("{command:?}: {late}, killed: {killed:?}");
        }
    }
}

/// Whether the parts of `expected` between [`ANY`] come in `said` one after the other, the first at
/// its beginning and the last at its end.
fn fits(said: &str, expected: &str) -> bool {
    let mut parts = expected.split(ANY);
    let Some(mut rest) = parts.next().and_then(|first| said.strip_prefix(first)) else {
        return false;
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || expected.ends_with(ANY)
}

#[test]
fn what_differs_is_left_out_and_nothing_else() {
    assert!(fits("a 12 b", "a … b") && fits("a 12", "a …") && fits("a", "a"));
    assert!(!fits("a 12 c", "a … b") && !fits("ab", "a") && !fits("x a", "a"));
}
