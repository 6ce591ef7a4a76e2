//! Recorded cases in one process with eight devices of a backend: the CPU's logical devices, and those of
//! XLA's CPU plugin, which stand for TPUs and GPUs.
//!
//! What the devices hold has to be what ranks hold that are told nothing of backends. Results of ops may
//! differ by a part in 10⁹, as those of the host may: sums are added in another order.

#[path = "../../../accel-tpu/tests/support/plugins.rs"]
mod plugins;

use std::num::NonZeroUsize;
use std::sync::Arc;

use meshwork_accel_cpu::CpuAccelerator;
use meshwork_accel_tpu::{PjrtAccelerator, Value as PluginValue};
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{Backend, Context, DeviceType};
use serde_json::Value;

use crate::harness::{Verdict, cases};
use crate::{dtensor, ops, reshard};

const DEVICES: usize = 8;

#[test]
fn eight_logical_devices_hold_what_is_recorded() {
    let devices = NonZeroUsize::new(DEVICES).expect("eight is not zero");
    let cpus = Arc::new(CpuAccelerator::with_logical_devices(devices));
    let offer = Backend::of(&cpus).arithmetic();
    hold_what_is_recorded(&offer.arrangement().collectives().into());
}

#[test]
fn eight_pjrt_devices_hold_what_is_recorded() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let count = [("cpu_device_count", PluginValue::Int(DEVICES as i64))];
    let client = meshwork_accel_tpu::Client::new(&plugin, &count).expect("eight devices");
    let accelerator = Arc::new(PjrtAccelerator::new(client));
    let offer = Backend::of(&accelerator).arithmetic();
    hold_what_is_recorded(&offer.arrangement().collectives().into());
}

#[expect(
    clippy::print_stdout,
    reason = "the count is what --nocapture asks for"
)]
fn hold_what_is_recorded(backend: &Backend) {
    let mut found = Vec::new();
    for topic in ops::TOPICS {
        let judged = cases(topic.file).into_iter();
        found.extend(judged.map(|case| (judged_on(backend, &case, ops::among_clients), case)));
    }
    let moves = cases("mesh/relayout.jsonl").into_iter();
    let judge = reshard::relayout_among_clients;
    found.extend(moves.map(|case| (judged_on(backend, &case, judge), case)));
    let folder = tempfile::tempdir().expect("a folder");
    for (file, judge) in dtensor::AMONG_CLIENTS {
        for case in cases(file) {
            let folder = folder
                .path()
                .join(case["case"].as_str().unwrap_or_default());
            std::fs::create_dir_all(&folder).expect("a folder for one case");
            let verdict = judge(&case, &context(backend, DEVICES), &folder);
            let judged = match verdict {
                Verdict::Failed(how) => Err(how),
                Verdict::Passed | Verdict::Deviates(_) => Ok(()),
            };
            found.push((judged, case));
        }
    }
    let failed = found.iter().filter_map(|(judged, case)| {
        let how = judged.as_ref().err()?;
        Some(format!("{}: {how}", case["case"]))
    });
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "{} cases: {failed:#?}", failed.len());
    assert!(backend.bytes_uploaded() > 0, "nothing was on the devices");
    assert_eq!(backend.bytes_held(), 0, "something is still there");
    println!("{} cases agree", found.len());
}

/// Judges a case on a mesh of as many devices as it names.
fn judged_on(
    backend: &Backend,
    case: &Value,
    judge: fn(&Value, &Context, &Mesh) -> Result<(), String>,
) -> Result<(), String> {
    let dims = case["input"]["mesh"].as_array().into_iter().flatten();
    let size = |dim: &Value| usize::try_from(dim[1].as_u64()?).ok();
    let dims = dims.map(|dim| Some((dim[0].as_str()?, size(dim)?)));
    let dims: Vec<_> = dims.collect::<Option<_>>().expect("recorded dimensions");
    let context = context(backend, dims.iter().map(|(_, size)| size).product());
    let mesh = context.create_mesh(CreateMesh::new().dims(dims));
    judge(
        &case["input"],
        &context,
        &mesh.map_err(|error| error.to_string())?,
    )
}

/// A process with so many CPUs, for which the first devices of a backend compute.
fn context(backend: &Backend, count: usize) -> Context {
    let client = Client::new("localhost", 0, 1).expect("one client");
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let client = client.with_devices("CPU", count).expect("some devices");
    let context = Context::alone(client);
    let offered = context.compute_on(DeviceType::Cpu, backend.clone());
    offered.expect("as many devices");
    context
}
