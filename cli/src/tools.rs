//! Commands that measure, explain and show; `run` and what goes with it does without them.

mod args;
mod attach;
mod bench;
mod checkpoint;
mod devices;
mod doctor;
mod placement;
mod plan;
mod resolve;
mod top;
mod tpu;

use std::error::Error;
use std::process::ExitCode;

use meshwork_launcher::LaunchError;

pub(crate) use args::Tool;
use bench::RanksEnded;
use doctor::DoctorError;

use crate::{chain, complain, print, told};

pub(crate) fn run(tool: &Tool) -> ExitCode {
    match tool {
        Tool::Bench(wanted) => bench::run(wanted)
            .map_or_else(|error| bench_failed(error.as_ref()), |()| ExitCode::SUCCESS),
        Tool::Draw(wanted) => shown("draw", wanted.picture()),
        Tool::Plan(wanted) => shown("plan", wanted.answer()),
        Tool::Resolve(wanted) => done("resolve", resolve::run(wanted)),
        Tool::Devices(wanted) => done("devices", devices::run(wanted)),
        Tool::Checkpoint(wanted) => done("checkpoint", checkpoint::run(wanted)),
        Tool::Doctor(wanted) => {
            doctor::run(wanted).map_or_else(|error| doctor_failed(&error), |()| ExitCode::SUCCESS)
        }
        Tool::Top(wanted) => done("top", top::run(wanted)),
        Tool::Tpu(wanted) => done("tpu", tpu::run(wanted)),
    }
}

/// Ranks that it has started say with which status.
fn bench_failed(error: &(dyn Error + 'static)) -> ExitCode {
    complain("bench", &chain(error));
    let launch = error.downcast_ref::<LaunchError>();
    let ended = error.downcast_ref::<RanksEnded>();
    let status = launch.map(LaunchError::exit_code);
    let status = status.or_else(|| ended.map(RanksEnded::exit_code));
    status.map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The same, where they have not looked at each other to the end.
fn doctor_failed(error: &DoctorError) -> ExitCode {
    complain("doctor", &chain(error));
    error.exit_code().into()
}

fn done(task: &str, answered: Result<(), impl Error>) -> ExitCode {
    told(task, answered.map_err(|error| chain(&error)))
}

fn shown(task: &str, answer: Result<String, impl Error>) -> ExitCode {
    let answer = answer.map_err(|error| chain(&error));
    told(task, answer.and_then(|text| print(&text)))
}
