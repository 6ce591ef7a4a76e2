//! XLA's CPU plugin, driven for real: several devices of one process.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

#[path = "support/plugins.rs"]
mod plugins;

use std::time::Duration;

use meshwork_accel::{Accelerator, DeviceId, ElementType};
use meshwork_accel_tpu::{
    AttributeValue, CompileOptions, Error, Live, PjrtAccelerator, PjrtClient, Plugin, Status,
    Topology, tpu,
};

const PATIENCE: Duration = Duration::from_secs(60);

const DOUBLE: &str = "func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %y = stablehlo.add %x, %x : tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}";

fn client(plugin: &Plugin, devices: i64) -> PjrtClient {
    PjrtClient::new(
        plugin,
        &[("cpu_device_count", AttributeValue::Int(devices))],
    )
    .unwrap()
}

#[test]
fn a_program_runs_and_nothing_is_left_behind() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let client = client(&plugin, 3);
    assert_eq!((client.platform(), client.devices().len()), ("cpu", 3));
    let double = client
        .compile(DOUBLE.as_bytes(), &CompileOptions::replicas(1))
        .unwrap();
    let x = client
        .upload(0, &[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.5])
        .unwrap();
    assert_eq!(
        (x.dims().unwrap(), x.element_type().unwrap()),
        (vec![2, 3], ElementType::F32)
    );
    let done = double.execute(&[&[&x]]).unwrap();
    let mut y = [0.0_f32; 6];
    done.outputs()[0][0].download(&mut y, PATIENCE).unwrap();
    assert_eq!(y, [2.0, 4.0, 6.0, 8.0, 10.0, 13.0]);
    done.done()[0].wait(PATIENCE).unwrap();
    assert_eq!(plugin.live().buffers, 2);
    drop((done, x, double, client));
    assert_eq!(plugin.live(), Live::default());
}

#[test]
fn a_program_is_saved_and_loaded_again() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let client = client(&plugin, 1);
    let double = client
        .compile(DOUBLE.as_bytes(), &CompileOptions::replicas(1))
        .unwrap();
    let saved = double.program().serialize().unwrap();
    drop(double);
    let again = client.load(&saved).unwrap();
    let x = client.upload(0, &[2, 3], &[1.0_f32; 6]).unwrap();
    let mut y = [0.0_f32; 6];
    again.execute(&[&[&x]]).unwrap().outputs()[0][0]
        .download(&mut y, PATIENCE)
        .unwrap();
    assert_eq!(y, [2.0; 6]);
    assert!(matches!(
        client.load(b"nonsense"),
        Err(Error::Plugin { .. })
    ));
}

#[test]
fn copies_of_a_program_run_on_the_devices_that_are_named() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let client = client(&plugin, 4);
    let named = [&client.devices()[3], &client.devices()[1]];
    let double = client
        .compile(DOUBLE.as_bytes(), &CompileOptions::replicas(2).on(named))
        .unwrap();
    assert_eq!(double.devices(), [3, 1]);
    let [x, y] = [(3, 1.0_f32), (1, 4.0)]
        .map(|(device, value)| client.upload(device, &[2, 3], &[value; 6]).unwrap());
    let done = double.execute(&[&[&x], &[&y]]).unwrap();
    for ((list, device), value) in done.outputs().iter().zip([3, 1]).zip([2.0_f32, 8.0]) {
        let mut read = [0.0_f32; 6];
        list[0].download(&mut read, PATIENCE).unwrap();
        assert_eq!((list[0].device(), read), (device, [value; 6]));
    }
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let (first, second) = (client(&plugin, 1), client(&plugin, 1));
    let double = first
        .compile(DOUBLE.as_bytes(), &CompileOptions::replicas(1))
        .unwrap();
    let of_another = second.upload(0, &[2, 3], &[1.0_f32; 6]).unwrap();
    let foreign = double.execute(&[&[&of_another]]);
    assert!(matches!(foreign, Err(Error::ForeignBuffer { argument: 0 })));
    let none = double.execute(&[]);
    assert!(matches!(
        none,
        Err(Error::DeviceCount {
            expected: 1,
            found: 0
        })
    ));
    let short = first.upload(0, &[2], &[1.0_f32; 2]).unwrap();
    assert!(matches!(
        double.execute(&[&[&short]]),
        Err(Error::Plugin { .. })
    ));
    assert!(matches!(double.execute(&[&[]]), Err(Error::Plugin { .. })));
    assert!(matches!(
        short.download(&mut [0_i32; 2], PATIENCE),
        Err(Error::ElementMismatch { .. })
    ));
    assert!(matches!(
        short.download(&mut [0.0_f32; 3], PATIENCE),
        Err(Error::Shape { .. })
    ));
    assert!(matches!(
        short.copy_to(1),
        Err(Error::UnknownDevice {
            device: 1,
            available: 1
        })
    ));
    let wrong = first.compile(b"nonsense", &CompileOptions::replicas(1));
    assert!(matches!(
        wrong,
        Err(Error::Plugin {
            function: "PJRT_Client_Compile",
            ..
        })
    ));
    let unknown = PjrtClient::new(&plugin, &[("a\0b", AttributeValue::Bool(true))]);
    assert!(matches!(unknown, Err(Error::ZeroByte { .. })));
}

#[test]
fn options_of_the_compiler_are_xlas_own_and_others_are_refused_by_name() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let client = client(&plugin, 1);
    let compile = |name: &str, value: &str| {
        let options = CompileOptions::replicas(1).with_compiler_option(name, value);
        client.compile(DOUBLE.as_bytes(), &options).map(drop)
    };
    compile("xla_backend_optimization_level", "0").unwrap();
    compile("xla_cpu_use_fusion_emitters", "False").unwrap();
    for (name, value, named) in [
        ("xla_of_nobody", "1", "xla_of_nobody"),
        ("xla_backend_optimization_level", "most", "most"),
    ] {
        let refused = compile(name, value).unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
    let one = PjrtAccelerator::new(client.clone()).with_compiler_option("xla_of_nobody", "1");
    let refused = one
        .allocate(DeviceId::new(0), ElementType::F32, 2)
        .unwrap_err();
    assert!(refused.to_string().contains("xla_of_nobody"), "{refused}");
}

#[test]
fn a_plugin_without_topologies_says_so() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let Err(Error::Plugin { status, .. }) = Topology::new(&plugin, "v5e:2x4", &[]) else {
        panic!("the CPU has TPU topologies");
    };
    assert_eq!(status, Status::UNIMPLEMENTED);
    let client = client(&plugin, 2);
    assert!(matches!(
        tpu::core_of(&client.devices()[0]),
        Err(Error::NoCoordinates {
            attribute: "coords",
            ..
        })
    ));
}

#[test]
fn plugins_are_the_same_when_loaded_twice() {
    let Some(plugin) = plugins::cpu() else {
        return;
    };
    let again = Plugin::load(plugin.path()).unwrap();
    assert_eq!(again.version(), plugin.version());
    assert!(
        plugin
            .attributes()
            .unwrap()
            .contains_key("stablehlo_current_version")
    );
}
