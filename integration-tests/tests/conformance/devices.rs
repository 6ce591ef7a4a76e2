//! Recorded cases in one process with eight devices of a backend: the CPU's logical devices, and
//! those of XLA's CPU plugin, which stand for TPUs and GPUs.
//!
//! What the devices hold has to be what ranks hold that are told nothing of backends. Results of
//! ops may differ by a part in 10⁹, as those of the host may: sums are added in another order.

#[path = "../../../accel-tpu/tests/support/plugins.rs"]
mod plugins;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use meshwork_accel_cpu::CpuAccelerator;
use meshwork_accel_tpu::PjrtAccelerator;
use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{Backend, Context, DeviceType};
use meshwork_testing::in_threads;
use serde_json::Value;

use crate::harness::{Vectors, Verdict, cases, failures, id, judge_alone};
use crate::ops::Programs;
use crate::report::Tally;
use crate::{dtensor, ops, reshard};

const DEVICES: usize = 8;
/// What the cases that the project carries come to.
const OF_OWN: &str = "1328 passed, 0 failed, 9 deviations, 20 not askable";

#[test]
fn eight_logical_devices_hold_what_is_recorded() {
    let devices = NonZeroUsize::new(DEVICES).expect("eight is not zero");
    let cpus = Arc::new(CpuAccelerator::with_logical_devices(devices));
    let offer = Backend::of(&cpus).arithmetic();
    hold_what_is_recorded(&offer.arrangement().collectives().into());
}

#[test]
fn eight_pjrt_devices_hold_what_is_recorded() {
    let Some(accelerator) = pjrt() else {
        return;
    };
    let offer = Backend::of(&accelerator).arithmetic();
    hold_what_is_recorded(&offer.arrangement().collectives().into());
}

/// What programs the cases are that the project carries.
const PROGRAMS: Programs = Programs {
    whole: 942,
    in_parts: 7,
    empty: 7,
    none: 10,
};

#[test]
fn eight_pjrt_devices_hold_what_is_recorded_in_compiled_programs() {
    // XLA compiles on one core; each thread has eight devices of its own.
    let (Some(one), Some(other)) = (pjrt(), pjrt()) else {
        return;
    };
    let programs = Mutex::new(Programs::default());
    let judged = in_threads([one, other].iter().enumerate(), |(turn, accelerator)| {
        let offer = Backend::of(accelerator).arithmetic().arrangement();
        let backend = offer.collectives().graphs().into();
        let in_programs = |case: &Value, context: &Context, mesh: &Mesh| {
            ops::in_programs(case, context, mesh, &programs)
        };
        let functions = ops::TOPICS.iter().flat_map(|topic| cases(topic.file));
        let own = functions.skip(turn).step_by(2).map(|case| {
            let judge = |case: &Value| judged_on(&backend, case, in_programs);
            (id(&case), judge_alone(&case, judge))
        });
        let mut judged: Vec<_> = own.collect();
        for case in cases("mesh/relayout.jsonl")
            .into_iter()
            .skip(turn)
            .step_by(2)
        {
            let judge = |case: &Value| judged_on(&backend, case, reshard::relayout_among_clients);
            judged.push((id(&case), judge_alone(&case, judge)));
        }
        judged
    });
    let failed = failures(&judged.concat());
    assert!(failed.is_empty(), "{} cases: {failed:#?}", failed.len());
    if let Vectors::Own(_) = Vectors::of_environment() {
        let programs = programs.into_inner();
        assert_eq!(programs.expect("no thread has panicked"), PROGRAMS);
    }
}

/// The devices of XLA's CPU plugin, where it can be had.
fn pjrt() -> Option<Arc<PjrtAccelerator>> {
    let plugin = plugins::cpu()?;
    Some(Arc::new(plugins::accelerator(&plugin, DEVICES as i64)))
}

#[expect(
    clippy::print_stdout,
    reason = "the count is what --nocapture asks for"
)]
fn hold_what_is_recorded(backend: &Backend) {
    let mut judged = Vec::new();
    let mut add = |file: &str, judge: &dyn Fn(&Value) -> Verdict| {
        let all = cases(file).into_iter();
        judged.extend(all.map(|case| (id(&case), judge_alone(&case, judge))));
    };
    for topic in ops::TOPICS {
        add(topic.file, &|case| {
            judged_on(backend, case, ops::among_clients)
        });
    }
    add("mesh/relayout.jsonl", &|case| {
        judged_on(backend, case, reshard::relayout_among_clients)
    });
    let folder = tempfile::tempdir().expect("a folder");
    for (file, judge) in dtensor::AMONG_CLIENTS {
        add(file, &|case| {
            let name = case["case"].as_str().unwrap_or_default();
            let folder = folder.path().join(name);
            std::fs::create_dir_all(&folder).expect("a folder for one case");
            judge(case, &context(backend, DEVICES), &folder)
        });
    }
    let failed = failures(&judged);
    assert!(failed.is_empty(), "{} cases: {failed:#?}", failed.len());
    assert!(backend.bytes_uploaded() > 0, "nothing was on the devices");
    assert_eq!(backend.bytes_held(), 0, "something is still there");
    let tally = Tally::of(judged.iter().map(|(_, verdict)| verdict)).to_string();
    if let Vectors::Own(_) = Vectors::of_environment() {
        assert_eq!(tally, OF_OWN);
    }
    println!("{tally}");
}

/// Judges a case on a mesh of as many devices as it names.
fn judged_on(
    backend: &Backend,
    case: &Value,
    judge: impl Fn(&Value, &Context, &Mesh) -> Verdict,
) -> Verdict {
    let dims = case["input"]["mesh"].as_array().into_iter().flatten();
    let size = |dim: &Value| usize::try_from(dim[1].as_u64()?).ok();
    let dims = dims.map(|dim| Some((dim[0].as_str()?, size(dim)?)));
    let dims: Vec<_> = dims.collect::<Option<_>>().expect("recorded dimensions");
    let context = context(backend, dims.iter().map(|(_, size)| size).product());
    let mesh = context.create_mesh(CreateMesh::new().dims(dims));
    match mesh {
        Ok(mesh) => judge(case, &context, &mesh),
        Err(error) => Verdict::Failed(error.to_string()),
    }
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
