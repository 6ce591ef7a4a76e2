use std::fs;
use std::time::Instant;

use meshwork_accel_tpu::tpu::{Slice, topology};
use meshwork_accel_tpu::{CompileOptions, Platform, Plugin};
use meshwork_core::tpu::{RingDims, TpuRings};

use super::report::{self, Report};
use super::train::{self, Step};
use super::{Compile, TpuError};

/// The report that is asked for, in its format.
pub(super) fn run(wanted: &Compile) -> Result<String, TpuError> {
    // What is asked for in vain is said before anything is loaded.
    train::model(wanted)?;
    let plugin = Plugin::load(Platform::Tpu.find()?)?;
    let topology = topology(&plugin, &wanted.topology, &[])?;
    let devices = topology.devices();
    let slice = Slice::new(devices)?;
    let step = train::step(wanted, devices.len())?;
    // Replicas that follow each other are neighbours: on a ring over the whole slice, or those
    // that share a model on a ring of their own.
    let order = match &step {
        Some(step) => slice.rank_order(&step.mesh, &TpuRings::new()),
        None => slice.rank_order(
            &[devices.len()],
            &TpuRings::new().dims(RingDims::Leading(1)),
        ),
    }?;
    let count = u32::try_from(devices.len()).expect("no slice has so many devices");
    let options = match wanted.partitioned {
        true => CompileOptions::partitions(count),
        false => CompileOptions::replicas(count),
    };
    let options = options.on(order.iter().map(|&device| &devices[device]));
    let text = text(wanted, devices.len(), step.as_ref())?;
    let begin = Instant::now();
    let program = topology.compile(&text, &options)?;
    let report = Report {
        name: wanted.topology,
        version: topology.platform_version()?,
        cores: slice.cores(),
        devices,
        order: &order,
        memory: program.memory()?,
        optimized: program.optimized()?,
        compiled_in: begin.elapsed(),
        step: step.as_ref(),
    };
    Ok(match wanted.json {
        true => format!("{:#}\n", report::to_json(&report)),
        false => report::to_text(&report),
    })
}

fn text(wanted: &Compile, devices: usize, step: Option<&Step>) -> Result<Vec<u8>, TpuError> {
    if let Some(path) = &wanted.stablehlo {
        return fs::read(path).map_err(|source| TpuError::Read {
            path: path.clone(),
            source,
        });
    }
    let text = match (step, wanted.program.collective()) {
        (Some(step), _) => step.text()?,
        (None, Some(program)) => program.stablehlo(wanted.bytes.unwrap_or(BYTES), devices),
        (None, None) => return Err(TpuError::NoModel),
    };
    Ok(text.into_bytes())
}

/// What each device brings to a collective, unless told.
const BYTES: usize = 4 << 20;
