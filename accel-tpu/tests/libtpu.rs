//! libtpu on a machine without a TPU: slices by name, and programs compiled for them.
//!
//! libtpu reads the environment when it is loaded, so each test runs once more in a process that
//! has the one it needs. That two such processes run at the same time is part of what is tested.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

#[path = "support/plugins.rs"]
mod plugins;

use std::env;
use std::num::NonZeroUsize;

use meshwork_accel::{
    ConvolutionShape, ElementType, Graph, GraphOp, ImageWindows, ReduceOp, Vector, WindowRange,
};
use meshwork_accel_tpu::tpu::{ENVIRONMENT, Slice, TopologyName, is_environment_set, topology};
use meshwork_accel_tpu::{
    CollectiveProgram, CompileOptions, Error, Live, PjrtClient, Platform, Plugin, Status, Topology,
    module,
};
use meshwork_core::tpu::{RingDims, TpuRings};
use meshwork_core::{DeviceSpec, Mesh};
use meshwork_testing::{child, passed, this_test};

/// The variable without which it waits.
const SKIP: &str = "TPU_SKIP_MDS_QUERY";

/// Runs `body` with libtpu in a process of its own, where the environment is right.
fn with_libtpu(test: &str, body: impl FnOnce(&Plugin)) {
    let Some(path) = plugins::libtpu() else {
        return;
    };
    if is_environment_set() {
        let plugin = Plugin::load(path).unwrap();
        body(&plugin);
        assert_eq!(plugin.live(), Live::default(), "nothing is left behind");
        return;
    }
    let mut child = child(test);
    let ended = child.arg("--nocapture").envs(ENVIRONMENT).output().unwrap();
    drop(passed(&ended));
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(complaint, "", "libtpu is quiet");
}

fn named(plugin: &Plugin, name: &str) -> Topology {
    let name: TopologyName = name.parse().unwrap();
    topology(plugin, &name, &[]).unwrap()
}

#[test]
fn libtpu_is_not_loaded_where_it_would_wait_for_minutes() {
    if env::var_os(SKIP).is_some() {
        let ended = child(&this_test()).env_remove(SKIP).output().unwrap();
        drop(passed(&ended));
        return;
    }
    if is_environment_set() {
        // There is a TPU, beside which libtpu waits for nothing.
        return;
    }
    let refused = Plugin::load("/nowhere/libtpu.so").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "libtpu needs TPU_SKIP_MDS_QUERY=1 in the environment on a machine without a TPU: set it before the process starts"
    );
}

#[test]
fn slices_of_every_generation_have_cores_of_which_meshes_make_rings() {
    with_libtpu(
        "slices_of_every_generation_have_cores_of_which_meshes_make_rings",
        |plugin| {
            let cases = [
                ("v2:2x2", 8, 2),
                ("v3:4x4", 32, 2),
                ("v4:2x2x1", 8, 2),
                ("v4:2x2x3", 24, 2),
                ("v5e:1x1", 1, 1),
                ("v5e:2x4", 8, 1),
                ("v5e:16x16", 256, 1),
                ("v5p:2x4x6", 48, 1),
                ("v6e:16x16", 256, 1),
                ("tpu7x:4x4x4", 128, 2),
            ];
            for (name, devices, cores) in cases {
                let topology = named(plugin, name);
                assert_eq!(topology.platform().unwrap(), "tpu");
                assert_eq!(topology.devices().len(), devices, "{name}");
                let slice = Slice::new(topology.devices()).unwrap();
                let sizes = slice.topology().sizes();
                assert_eq!(sizes[3], cores, "{name}: cores of a chip");
                let parsed: TopologyName = name.parse().unwrap();
                assert_eq!(&sizes[..parsed.sides().len()], parsed.sides());
                let rings = TpuRings::new().dims(RingDims::Leading(1));
                let mut order = slice.rank_order(&[devices], &rings).unwrap();
                order.sort_unstable();
                assert!(
                    order.into_iter().eq(0..devices),
                    "{name}: every device has one rank"
                );
            }
        },
    );
}

#[test]
fn a_mesh_over_a_slice_has_the_ring_that_tensorflow_lays() {
    with_libtpu(
        "a_mesh_over_a_slice_has_the_ring_that_tensorflow_lays",
        |plugin| {
            let topology = named(plugin, "v5e:2x4");
            let slice = Slice::new(topology.devices()).unwrap();
            let host = DeviceSpec::parse("/job:localhost/replica:0/task:1").unwrap();
            let mesh = Mesh::builder([("batch", 1), ("model", 8)]);
            let made = slice.mesh(mesh, &TpuRings::new(), &host, 1).unwrap();
            assert_eq!(
                made.mesh().local_device_ids().iter().count(),
                4,
                "a host has four chips"
            );
            let xy: Vec<_> = made
                .cores()
                .iter()
                .map(|core| (core.location()[0], core.location()[1]))
                .collect();
            for (rank, (x, y)) in xy.iter().enumerate() {
                let (next_x, next_y) = xy[(rank + 1) % xy.len()];
                assert_eq!(
                    x.abs_diff(next_x) + y.abs_diff(next_y),
                    1,
                    "rank {rank} and the next are neighbours"
                );
            }
        },
    );
}

#[test]
fn collectives_are_compiled_for_a_slice_that_is_not_there() {
    with_libtpu(
        "collectives_are_compiled_for_a_slice_that_is_not_there",
        |plugin| {
            let topology = named(plugin, "v5e:2x4");
            let text = CollectiveProgram::AllReduce.stablehlo(4 << 20, 8);
            let options = CompileOptions::replicas(8).on(topology.devices());
            let program = topology.compile(text.as_bytes(), &options).unwrap();
            assert_eq!(
                (program.replicas().unwrap(), program.outputs().unwrap()),
                (8, 1)
            );
            let memory = program.memory().unwrap();
            assert_eq!((memory.arguments, memory.outputs), (4 << 20, 4 << 20));
            let optimized = program.optimized().unwrap();
            let strategies: Vec<_> = optimized
                .collectives()
                .filter_map(|one| one.strategy())
                .collect();
            assert!(
                strategies.iter().any(|strategy| strategy.contains("Ring")),
                "{strategies:?}"
            );
            assert!(!program.serialize().unwrap().is_empty());
        },
    );
}

/// A product whose sum over parts XLA makes a collective of.
const SHARDED_PRODUCT: &str = r#"
sdy.mesh @mesh = <["x"=8]>
func.func @main(
    %a: tensor<512x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
    %b: tensor<1024x256xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}
) -> (tensor<512x256xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  %0 = "stablehlo.dot_general"(%a, %b) {
    dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>
  } : (tensor<512x1024xf32>, tensor<1024x256xf32>) -> tensor<512x256xf32>
  return %0 : tensor<512x256xf32>
}"#;

#[test]
fn a_product_of_sharded_matrices_is_compiled_with_its_collective() {
    with_libtpu(
        "a_product_of_sharded_matrices_is_compiled_with_its_collective",
        |plugin| {
            let topology = named(plugin, "v5e:2x4");
            let options = CompileOptions::partitions(8).on(topology.devices());
            let program = topology
                .compile(SHARDED_PRODUCT.as_bytes(), &options)
                .unwrap();
            assert_eq!(program.partitions().unwrap(), 8);
            let memory = program.memory().unwrap();
            assert_eq!(memory.arguments, (512 * 1024 + 1024 * 256) * 4 / 8);
            let optimized = program.optimized().unwrap();
            let text: Vec<_> = optimized
                .instructions()
                .iter()
                .map(|one| one.name())
                .collect();
            assert!(
                text.iter()
                    .any(|name| name.contains("reduce-scatter") || name.contains("all-reduce")),
                "{text:?}"
            );
        },
    );
}

/// A convolution of two groups with its gradients, pools with theirs, and an index, on eight
/// devices.
fn windows() -> Graph {
    let some = |number| NonZeroUsize::new(number).unwrap();
    let range = |window, stride, padding| WindowRange {
        size: 16,
        window: some(window),
        stride: some(stride),
        dilation: some(1),
        padding,
    };
    let vector = |sizes: &[usize]| Vector {
        element: ElementType::F32,
        len: sizes.iter().product(),
    };
    let over = ImageWindows::new(4, &[range(3, 1, [1, 1]); 2], 8).unwrap();
    let shape = ConvolutionShape::new(over, 16, 2).unwrap();
    let pooled = ImageWindows::new(4, &[range(3, 2, [0, 1]); 2], 16).unwrap();
    let inputs = vec![vector(&shape.over().images()), vector(&shape.filter())];
    let mut graph = Graph::new(8, inputs);
    let mut add = |op, operands: &[usize]| graph.add(op, operands, "windows").unwrap();
    let sums = add(GraphOp::Convolution(shape.clone()), &[0, 1]);
    let largest = add(GraphOp::Pool(ReduceOp::Max, pooled.clone()), &[sums]);
    let mean = add(GraphOp::Pool(ReduceOp::Mean, pooled.clone()), &[sums]);
    let slopes = add(
        GraphOp::PoolGradient(ReduceOp::Max, pooled.clone()),
        &[sums, largest],
    );
    let other = add(GraphOp::PoolGradient(ReduceOp::Mean, pooled), &[sums, mean]);
    let by_images = add(
        GraphOp::ConvolutionInputGradient(shape.clone()),
        &[slopes, 1],
    );
    let by_filter = add(GraphOp::ConvolutionFilterGradient(shape), &[0, other]);
    let all = GraphOp::AllReduce(ReduceOp::Sum, vec![(0..8).collect()]);
    let by_filter = add(all, &[by_filter]);
    let index = add(
        GraphOp::ArgReduce(ReduceOp::Max, [4 * 16 * 16, 16, 1]),
        &[sums],
    );
    for output in [by_images, by_filter, index] {
        graph.output(output).unwrap();
    }
    graph
}

#[test]
fn windows_and_their_gradients_are_compiled_for_a_slice_as_one_program() {
    with_libtpu(
        "windows_and_their_gradients_are_compiled_for_a_slice_as_one_program",
        |plugin| {
            let topology = named(plugin, "v5e:2x4");
            let options = CompileOptions::replicas(8).on(topology.devices());
            let text = module(&windows()).unwrap();
            let program = topology.compile(text.as_bytes(), &options).unwrap();
            assert_eq!(program.outputs().unwrap(), 3);
            let optimized = program.optimized().unwrap();
            assert_eq!(optimized.collectives().count(), 1, "one sum over devices");
        },
    );
}

#[test]
fn a_client_without_a_tpu_is_refused_and_not_waited_for() {
    with_libtpu(
        "a_client_without_a_tpu_is_refused_and_not_waited_for",
        |plugin| {
            let Err(Error::Plugin {
                function, status, ..
            }) = PjrtClient::new(plugin, &[])
            else {
                panic!("there is a TPU, or another error");
            };
            assert_eq!(
                (function, status),
                ("PJRT_Client_Create", Status::NOT_FOUND)
            );
        },
    );
}

#[test]
fn names_and_options_that_libtpu_refuses_are_its_errors() {
    with_libtpu(
        "names_and_options_that_libtpu_refuses_are_its_errors",
        |plugin| {
            let name: TopologyName = "v5e:2x4".parse().unwrap();
            let unknown = topology(
                plugin,
                &name,
                &[("no_such_option", meshwork_accel_tpu::AttributeValue::Int(1))],
            );
            assert!(matches!(
                unknown,
                Err(Error::Plugin {
                    status: Status::INVALID_ARGUMENT,
                    ..
                })
            ));
            let two = topology(
                plugin,
                &name,
                &[("num_slices", meshwork_accel_tpu::AttributeValue::Int(2))],
            )
            .unwrap();
            assert_eq!(two.devices().len(), 16);
            let wrong = topology(plugin, &name, &[])
                .unwrap()
                .compile(b"nonsense", &CompileOptions::replicas(1));
            assert!(matches!(
                wrong,
                Err(Error::Plugin {
                    function: "PJRT_Compile",
                    ..
                })
            ));
        },
    );
}

#[test]
fn both_plugins_work_in_one_process() {
    let Some(cpu) = plugins::cpu_file() else {
        return;
    };
    with_libtpu("both_plugins_work_in_one_process", |plugin| {
        let cpu = Plugin::load(cpu).unwrap();
        assert_ne!(cpu.version(), plugin.version());
        let client = PjrtClient::new(&cpu, &[]).unwrap();
        assert_eq!(
            (client.platform(), named(plugin, "v4:2x2x1").devices().len()),
            ("cpu", 8)
        );
        assert_eq!(Platform::Tpu.to_string(), "TPU");
    });
}
