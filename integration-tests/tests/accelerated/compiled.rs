//! Whole steps as modules of the devices' compiler, against the same steps op by op.

use meshwork_core::{Client, CreateMesh, Mesh};
use meshwork_dtensor::{
    Backend, Context, DTensor, DeviceType, Transformer, TransformerSizes, compile,
};

use crate::{pjrt, plugins};

/// So many devices of the plugin that stand for TPUs, as a mesh of `data` and `model`.
fn devices(data: u32, model: u32) -> Option<(Context, Mesh, Backend)> {
    let plugin = plugins::cpu()?;
    let count = data * model;
    let accelerator = pjrt(&plugin, count.into());
    let backend = Backend::of(&accelerator).arithmetic().arrangement();
    let backend = Backend::from(backend.collectives().graphs());
    let client = Client::new("localhost", 0, 1).unwrap();
    let context = Context::alone(client.with_devices("TPU", count).unwrap());
    context
        .compute_on(DeviceType::Tpu, backend.clone())
        .unwrap();
    let mesh = CreateMesh::new().device_type("TPU");
    let mesh = mesh.dims([("data", data as usize), ("model", model as usize)]);
    let mesh = context.create_mesh(mesh).unwrap();
    Some((context, mesh, backend))
}

fn loss(of: &DTensor<f32>) -> f32 {
    of.to_host().unwrap().sum()
}

const SIZES: TransformerSizes = TransformerSizes {
    batch: 4,
    length: 8,
    tokens: 12,
    width: 16,
    heads: 4,
    layers: 2,
};

#[test]
fn a_transformer_learns_in_one_module_as_op_by_op() {
    for [data, parts] in [[1, 1], [2, 2], [2, 4]] {
        let Some((context, mesh, _)) = devices(data, parts) else {
            return;
        };
        let batch = SIZES.batch_of(&context, &mesh, |at| (at * 5 % 12) as i64);
        let batch = batch.unwrap();
        let mut by_ops = Transformer::new(&context, &mesh, SIZES).unwrap();
        let mut model = Transformer::new(&context, &mesh, SIZES).unwrap();
        let mut step = compile(Transformer::step);
        for number in 0..4 {
            let expected = loss(&by_ops.step(&batch).unwrap());
            let found = loss(&step.call(&mut model, &batch).unwrap());
            let program = step.program().unwrap();
            assert!(
                (found - expected).abs() < 2e-5 * expected.abs(),
                "step {number} of {data} by {parts}: {found} and not {expected}\n{program}"
            );
            assert_eq!(
                (program.modules(), program.steps_apart()),
                (1, 0),
                "{program}"
            );
        }
    }
}
