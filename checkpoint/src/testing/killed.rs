//! A real process, killed between any two of its calls.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

/// Runs a test again and again, and kills its process before each call to do with files that
/// [`to_be_killed`] makes. `check` is told how each run ended. Returns how many were killed.
///
/// # Errors
/// Why `strace` cannot do it, where it is not there or may not trace.
///
/// # Panics
/// If the test fails by itself.
pub fn killed_at_each_call(
    test: impl Fn() -> Command,
    mut check: impl FnMut(&str),
) -> Result<usize, String> {
    traced(&Command::new("true"), None).map_err(|why| format!("strace {}", why.trim_end()))?;
    let mut killed = 0;
    for (name, ahead) in CALLS {
        for number in ahead + 1.. {
            let kill = format!("inject={name}:signal=KILL:when={number}");
            let ended = traced(&test(), Some(&kill)).unwrap_or_else(|why| panic!("strace {why}"));
            let is_killed = ended.signal() == Some(KILL);
            assert!(ended.success() || is_killed, "{name} {number}: {ended}");
            check(&format!("{name} {}, {ended}", number - ahead));
            if !is_killed {
                break;
            }
            killed += 1;
        }
    }
    Ok(killed)
}

/// Runs the code that is to be killed. Calls are counted by thread and name, and any thread that
/// has made as many ends the process: so this one first makes more than the harness of the tests
/// does.
pub fn to_be_killed(run: impl FnOnce()) {
    for _ in 0..AHEAD {
        let file = File::options().write(true).open("/dev/null");
        let _ = file.and_then(|mut file| file.write_all(b"0"));
    }
    run();
}

fn traced(program: &Command, kill: Option<&str>) -> Result<ExitStatus, String> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "signal=none"]);
    let names: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    strace.args(["-e", &format!("trace={}", names.join(","))]);
    if let Some(kill) = kill {
        strace.args(["-e", kill]);
    }
    strace.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    let ended = strace.stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let ended = ended.map_err(|error| format!("cannot be started: {error}"))?;
    match kill.is_none() && !ended.status.success() {
        true => Err(String::from_utf8_lossy(&ended.stderr).into_owned()),
        false => Ok(ended.status),
    }
}

/// All that changes files and folders, and looks into them, and how often [`to_be_killed`] does so
/// ahead. Not every machine has those with a question mark.
const CALLS: [(&str, usize); 14] = [
    ("openat", AHEAD),
    ("write", AHEAD),
    ("close", AHEAD),
    ("fsync", 0),
    ("fdatasync", 0),
    ("flock", 0),
    ("getdents64", 0),
    ("?rename", 0),
    ("renameat", 0),
    ("renameat2", 0),
    ("?unlink", 0),
    ("unlinkat", 0),
    ("?mkdir", 0),
    ("mkdirat", 0),
];

const AHEAD: usize = 50;

/// SIGKILL
const KILL: i32 = 9;
