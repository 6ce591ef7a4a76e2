//! Layers as a loop of the module.

use meshwork_accel::GraphOp;
use meshwork_accel_tpu::module;
use meshwork_dtensor::{repeat, scan};

use super::*;

type Inputs = (DTensor<f32>, DTensor<f32>, DTensor<f32>);

/// So many layers, whose batch is cut along `data` and whose inner width along `model`.
fn inputs(context: &Context, mesh: &Mesh, layers: usize) -> Inputs {
    let place = |shape: &[usize], seed, names: &[&str]| {
        let layout = Layout::from_names(names.iter().copied(), mesh).unwrap();
        let made = context.copy_to_mesh(numbers::<f32>(shape, seed), &layout);
        made.unwrap().scale(0.1).unwrap()
    };
    (
        place(&[4, 8], 1, &["data", UNSHARDED]),
        place(&[layers, 8, 16], 2, &[UNSHARDED, UNSHARDED, "model"]),
        place(&[layers, 16, 8], 3, &[UNSHARDED, "model", UNSHARDED]),
    )
}

/// The loss of layers in a loop, and its gradients by all inputs.
fn looped(given: &Inputs) -> Result<Vec<DTensor<f32>>, Error> {
    let tape = Tape::new();
    let (x, out, back) = (
        tape.watch(&given.0),
        tape.watch(&given.1),
        tape.watch(&given.2),
    );
    let stacks = (out.clone(), back.clone());
    let (last, said) = scan(x.clone(), &stacks, |x, (out, back)| {
        let inner = repeat(2, x.matmul(out)?.relu()?, |inner| inner.scale(0.7)?.relu())?;
        let next = x.add(&inner.matmul(back)?)?;
        Ok((next, inner.sum_all()?))
    })?;
    let loss = last.mul(&last)?.sum_all()?.add(&said.sum_all()?)?;
    let by_each = tape.gradient(&loss, [&x, &out, &back])?;
    Ok([loss].into_iter().chain(by_each).collect())
}

#[test]
fn layers_are_a_loop_of_one_module_that_does_not_grow_with_them() {
    let mut sizes = Vec::new();
    for layers in [3, 12] {
        let Some((context, mesh, _)) = devices(2, 2) else {
            return;
        };
        let client = Client::new("localhost", 0, 1).unwrap();
        let host = Context::alone(client.with_devices("TPU", 4).unwrap());
        let expected = looped(&inputs(&host, &mesh, layers)).unwrap();
        let mut step = compile(|(): &mut (), given: &Inputs| looped(given));
        let given = inputs(&context, &mesh, layers);
        step.call(&mut (), &given).unwrap();
        let found = step.call(&mut (), &given).unwrap();
        let program = in_one_module(step.program());
        for (found, expected) in found.iter().zip(&expected) {
            let (found, expected) = (found.to_host().unwrap(), expected.to_host().unwrap());
            assert_eq!(found.shape(), expected.shape());
            let most = expected
                .iter()
                .fold(0.0_f32, |most, own| most.max(own.abs()));
            for (found, expected) in found.iter().zip(&expected) {
                assert!(
                    (found - expected).abs() < 1e-5 * most,
                    "{found} and not {expected}"
                );
            }
        }
        let graph = program.graph(&context).unwrap();
        let loops = graph.nodes().iter();
        let loops = loops.filter(|node| matches!(node.op(), GraphOp::Loop(_)));
        assert_eq!(loops.count(), 2, "{program}");
        sizes.push(module(&graph).unwrap().lines().count());
    }
    assert_eq!(sizes[0], sizes[1]);
}
