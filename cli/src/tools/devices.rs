//! `meshwork devices`: what each backend sees here, and why another sees nothing.

mod report;

use std::io::{self, Write};

use clap::Args;
use meshwork_accel::{Accelerator, Device, Error, Memory};
use meshwork_accel_cpu::CpuAccelerator;
use meshwork_accel_cuda::{Libraries, gpus};
use meshwork_accel_tpu::Platform;

use report::Report;

/// How to show what is found.
#[derive(Args, Debug)]
pub(crate) struct Devices {
    /// Print one JSON object
    ///
    /// It has backends, a list; each has backend (its name), devices (each with id, kind, name,
    /// address, coordinates and memory in bytes, total and free) and unavailable: null, or an
    /// object of library, reason and remedy. What is not known is null.
    #[arg(long)]
    json: bool,
}

/// One kind of devices, and how to look for them.
struct Backend {
    name: &'static str,
    look: fn() -> Result<Vec<Found>, Error>,
}

/// A device, and its memory when it was found.
#[derive(Debug)]
struct Found {
    device: Device,
    memory: Memory,
}

/// Every backend that this command was built with.
const BACKENDS: &[Backend] = &[
    Backend {
        name: "cpu",
        look: || found(&CpuAccelerator::on_numa_nodes()),
    },
    Backend {
        name: "cuda",
        // Not opened: that would take memory of each GPU, and wait for one that is used alone.
        look: || {
            let gpus = gpus(&Libraries::from_env())?.into_iter();
            Ok(gpus
                .map(|(device, memory)| Found { device, memory })
                .collect())
        },
    },
    Backend {
        name: "tpu",
        look: || found(&meshwork_accel_tpu::open(Platform::Tpu)?),
    },
];

/// Looks for devices of all backends and prints what was found.
pub(crate) fn run(wanted: &Devices) -> Result<(), io::Error> {
    let looked = BACKENDS
        .iter()
        .map(|backend| (backend.name, (backend.look)()));
    let report = Report::new(looked);
    let text = match wanted.json {
        true => format!("{:#}\n", report.to_json()),
        false => report.to_string(),
    };
    io::stdout().write_all(text.as_bytes())
}

/// All devices of a backend that is there.
fn found<A: Accelerator>(accelerator: &A) -> Result<Vec<Found>, Error> {
    let devices = accelerator.devices().iter();
    let with_memory = devices.map(|device| {
        Ok(Found {
            device: device.clone(),
            memory: accelerator.memory(device.id())?,
        })
    });
    with_memory.collect()
}
