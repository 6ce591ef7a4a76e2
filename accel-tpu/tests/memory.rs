//! Programs that devices have no room for, on XLA's plugin for the CPU behind a shim that says how
//! much memory there is.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

#[path = "support/plugins.rs"]
mod plugins;

use std::path::{Path, PathBuf};
use std::process::Command;

use meshwork_accel::{
    Accelerator, DeviceId, ElementType, Error, Graph, GraphOp, Graphs, Memory, Pairwise, Vector,
};
use meshwork_accel_tpu::{AttributeValue, PjrtAccelerator, PjrtClient, Plugin};

/// Bytes that each device has.
const LIMIT: u64 = 100_000;

/// The shim in front of a plugin.
fn scarce(plugin: &Path, folder: &Path) -> PathBuf {
    let shim = folder.join("scarce.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/scarce.c");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args([
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
    ]);
    compiler.arg(format!("-DLIMIT={LIMIT}"));
    compiler.arg(format!("-DPLUGIN={:?}", plugin.to_str().unwrap()));
    let made = compiler.arg(source).arg("-o").arg(&shim).arg("-ldl");
    assert!(made.status().unwrap().success());
    shim
}

/// Two devices of a plugin.
fn two(plugin: &Path) -> PjrtAccelerator {
    let count = [("cpu_device_count", AttributeValue::Int(2))];
    let client = PjrtClient::new(&Plugin::load(plugin).unwrap(), &count);
    PjrtAccelerator::new(client.unwrap())
}

/// The multiples of an input of so many elements, up to one more than `outputs`.
fn multiples(len: usize, outputs: usize) -> Graph {
    let element = ElementType::F32;
    let mut graph = Graph::new(2, vec![Vector { element, len }]);
    let mut last = 0;
    for _ in 0..outputs {
        last = graph
            .add(GraphOp::Pairwise(Pairwise::Add), &[last, 0], "here")
            .unwrap();
        graph.output(last).unwrap();
    }
    graph
}

#[test]
fn a_program_that_a_device_has_no_room_for_is_refused_with_both_numbers_before_it_runs() {
    let Some(plugin) = plugins::cpu_file() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let devices = [0, 1].map(DeviceId::new);
    // The plugin itself does not say what there is.
    let memory = two(&plugin).memory(devices[0]).unwrap();
    assert_eq!(memory, Memory::UNKNOWN);
    let cpus = two(&scarce(&plugin, folder.path()));
    assert_eq!(cpus.memory(devices[1]).unwrap().free(), Some(LIMIT));
    let run = |len: usize, outputs: usize| {
        let program = cpus.compile(&multiples(len, outputs), &devices).unwrap();
        let numbers = vec![1.5_f32; len];
        let inputs = devices.map(|device| cpus.allocate_from(device, &numbers).unwrap());
        let made = cpus.execute(&program, &[inputs.iter().collect()], &[])?;
        let mut last = vec![0.0_f32; len];
        cpus.download(&made[outputs - 1][1], 0, &mut last)?;
        Ok::<_, Error>(last[len - 1])
    };
    assert_eq!(run(10_000, 2), Ok(4.5));
    let refused = run(10_000, 3).unwrap_err();
    let Error::NoRoomToRun {
        device,
        bytes,
        free,
    } = refused
    else {
        panic!("{refused}");
    };
    assert_eq!((device, free), (devices[0], LIMIT));
    assert!((120_000..200_000).contains(&bytes), "{bytes}");
}
