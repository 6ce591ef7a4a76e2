//! The `meshwork` command: `meshwork run` starts a program as many ranks, `meshwork bench` measures
//! how fast ranks exchange data, `meshwork draw` shows a mesh or a tensor on it, `meshwork plan`
//! says how to lay a tensor out anew, `meshwork devices` says which devices are here, `meshwork
//! tpu` compiles programs for TPU slices, `meshwork checkpoint` shows and merges what was saved,
//! `meshwork resolve` says who is in the cluster, `meshwork doctor` why a job failed, `meshwork
//! top` how one fares, `meshwork relay` carries packets between ranks that do not reach each other,
//! `meshwork secret` prints a new job secret.
#![forbid(unsafe_code)]

mod args;
mod relay;
mod seconds;
#[cfg(feature = "tools")]
mod tools;

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::iter::successors;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use meshwork_collectives::{ConfigError, JobSecret};
use meshwork_launcher::{Cores, Elastic, Launch, LaunchError, Outcome};
use mimalloc::MiMalloc;

use crate::args::{Arguments, Run, Task};

/// QUIC receives into buffers of 64 KiB, which glibc's allocator gives back to the kernel each
/// time, to fault them in again: a fifth of the speed with large packets.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match Arguments::parse().task {
        Task::Run(wanted) => run(&wanted),
        Task::Relay(wanted) => {
            let Err(error) = relay::run(&wanted);
            complain("relay", &chain(&error));
            ExitCode::FAILURE
        }
        Task::RelayToken => {
            let token = relay::token().map_err(|error| chain(&error));
            told("relay-token", token.and_then(|token| print(&token)))
        }
        Task::Secret => secret(),
        #[cfg(feature = "tools")]
        Task::Tool(tool) => tools::run(&tool),
        #[cfg(not(feature = "tools"))]
        Task::Other(words) => unknown(&words),
    }
}

fn run(wanted: &Run) -> ExitCode {
    match launch(wanted).and_then(|launch| launch.run()) {
        Ok(Outcome::Succeeded) => ExitCode::SUCCESS,
        Ok(outcome) => {
            complain("run", &outcome.to_string());
            ExitCode::from(outcome.exit_code())
        }
        Err(error) => {
            complain("run", &chain(&error));
            ExitCode::from(error.exit_code())
        }
    }
}

/// The job secret in a file, or in standard input.
fn secret_in(file: &Path) -> Result<JobSecret, ConfigError> {
    if file != Path::new("-") {
        return JobSecret::from_file(file);
    }
    // Not through the buffer that this process has for its input, which is not wiped.
    let input = io::stdin().as_fd().try_clone_to_owned();
    let input = input.map_err(|error| ConfigError::SecretUnread { kind: error.kind() })?;
    JobSecret::from_reader(File::from(input))
}

fn launch(wanted: &Run) -> Result<Launch, LaunchError> {
    let (program, args) = wanted.program();
    let launch = Launch::new(program)
        .args(args)
        .workers(wanted.workers())?
        .grace(wanted.grace)
        .cores(if wanted.pin {
            Cores::Split
        } else {
            Cores::Shared
        });
    let launch = match wanted.elastic {
        Some(range) => launch.elastic(Elastic::new(range.least).restarts(wanted.restarts))?,
        None => launch,
    };
    let launch = match wanted.ranks_shown {
        Some(ranks) => launch.ranks_shown(ranks),
        None => launch,
    };
    let launch = match &wanted.hosts {
        Some(hosts) => launch.hosts(hosts.clone()),
        None => launch,
    };
    let launch = match &wanted.ssh_config {
        Some(file) => launch.ssh_config(file),
        None => launch,
    };
    let launch = match &wanted.join {
        Some(seeds) => launch.joining(seeds),
        None => launch,
    };
    let launch = match &wanted.secret_file {
        Some(file) => {
            let secret = secret_in(file);
            launch.secret(secret.map_err(|source| LaunchError::Secret { source })?)
        }
        None => launch,
    };
    Ok(match wanted.host_port_base {
        Some(base) => launch.port_base(base),
        None => launch,
    })
}

/// A command that this build lacks, or none at all.
#[cfg(not(feature = "tools"))]
fn unknown(words: &[std::ffi::OsString]) -> ExitCode {
    let name = words.first().expect("clap has the command's name first");
    complain(
        &name.display().to_string(),
        "this meshwork was built to run programs alone, by --no-default-features; with its default \
         features it has all commands",
    );
    ExitCode::from(2)
}

fn secret() -> ExitCode {
    let secret = JobSecret::generate().map_err(|error| chain(&error));
    told(
        "secret",
        secret.and_then(|secret| print(&format!("{}\n", *secret.to_hex()))),
    )
}

fn print(text: &str) -> Result<(), String> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| error.to_string())
}

/// The exit status of a task that answers at once, after saying why there is no answer.
fn told(task: &str, answered: Result<(), String>) -> ExitCode {
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            complain(task, &why);
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes on one line.
fn chain(error: &dyn Error) -> String {
    successors(Some(error), |&error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Where stderr is closed there is no reader left; the exit status still says it. One write for the
/// line, so that those of several ranks do not mix.
fn complain(task: &str, what: &str) {
    let _ = io::stderr().write_all(format!("meshwork {task}: {what}\n").as_bytes());
}
