//! Devices that a process finds by itself, in processes whose environment names a plugin or none.

use std::path::Path;
use std::process::Command;

use meshwork_core::CreateMesh;
use meshwork_dtensor::{Backend, DeviceType, Error, Initialize};
use meshwork_layout::Layout;

use crate::fake::Fake;
use crate::plugins;

/// Says to this program, started again, that it is to look for devices.
const LOOKS: &str = "MESHWORK_TEST_LOOKS";

/// What a process says that looks for devices of a type where `names` have values, run as the test
/// of this name.
fn told(test: &str, device_type: DeviceType, names: &[(&str, &Path)]) -> String {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command
        .args(["--exact", "--nocapture", &format!("found::{test}")])
        .env(LOOKS, device_type.to_string())
        .env_remove("PJRT_PLUGIN_PATH")
        .envs(names.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

fn looks() -> bool {
    std::env::var_os(LOOKS).is_some()
}

#[test]
fn a_process_finds_the_plugin_that_its_environment_names() {
    let test = "a_process_finds_the_plugin_that_its_environment_names";
    if looks() {
        return look();
    }
    let Some(plugin) = plugins::cpu_file() else {
        return;
    };
    let text = told(test, DeviceType::Tpu, &[("TPU_LIBRARY_PATH", &plugin)]);
    assert!(text.contains("prefers TPU, has all, computes 6"), "{text}");
}

#[test]
fn a_process_without_a_plugin_prefers_its_cpu_and_is_told_what_to_do() {
    let test = "a_process_without_a_plugin_prefers_its_cpu_and_is_told_what_to_do";
    if looks() {
        return look();
    }
    let missing = Path::new("/nowhere/plugin.so");
    let text = told(test, DeviceType::Tpu, &[("TPU_LIBRARY_PATH", missing)]);
    let expected = "prefers CPU, has none, is refused: PJRT for TPU is not available: libtpu.so cannot be \
                    loaded; install libtpu with pip, or set TPU_LIBRARY_PATH to its libtpu.so";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_process_finds_gpus_by_libraries_that_its_environment_names_and_computes_on_them() {
    let test = "a_process_finds_gpus_by_libraries_that_its_environment_names_and_computes_on_them";
    if looks() {
        return look();
    }
    let fake = Fake::new();
    let (driver, compiler) = (fake.file("cuda"), fake.file("nvrtc"));
    let names = [
        ("MESHWORK_CUDA_DRIVER", driver.as_path()),
        ("MESHWORK_NVRTC", &compiler),
        ("MESHWORK_CUDA_CACHE", fake.folder()),
        ("TPU_LIBRARY_PATH", Path::new("/nowhere/plugin.so")),
    ];
    let text = told(test, DeviceType::Gpu, &names);
    assert!(text.contains("prefers GPU, has all, computes 6"), "{text}");
}

/// Asks for devices of the type that is named, computes with them if there are any, and tells.
#[expect(
    clippy::print_stdout,
    reason = "the process that started this one reads it"
)]
fn look() {
    let named = std::env::var(LOOKS).unwrap();
    let device_type: DeviceType = named.parse().unwrap();
    let preferred = meshwork_dtensor::preferred_device_type();
    // How many devices XLA makes of a CPU is its choice.
    let count = match meshwork_dtensor::num_local_devices(device_type) {
        0 => "none",
        count if Some(count) == devices_found(device_type) => "all",
        _ => "some",
    };
    let asked = Initialize::new().device_type(device_type);
    let end = match meshwork_dtensor::initialize_accelerator_system(asked) {
        Ok(_) => format!("computes {}", six(&named).unwrap()),
        Err(refused) => format!("is refused: {refused}"),
    };
    println!("prefers {preferred}, has {count}, {end}");
}

fn devices_found(device_type: DeviceType) -> Option<u32> {
    let backend = Backend::find(device_type).ok()?;
    u32::try_from(backend.devices().len()).ok()
}

/// Two and four on the devices that were found.
fn six(device_type: &str) -> Result<f32, Error> {
    let mesh = CreateMesh::new().device_type(device_type).along("x");
    let mesh = meshwork_dtensor::create_mesh(mesh)?;
    let context = meshwork_dtensor::context()?;
    let layout = Layout::from_names(["x"], &mesh)?;
    let [two, four] = [2.0, 4.0].map(|value| context.full(&[8], &layout, value));
    let sum = two?.add(&four?)?.to_host()?;
    meshwork_dtensor::shutdown_accelerator_system()?;
    Ok(sum[0])
}
