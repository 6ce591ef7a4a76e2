//! Loops as one node.

use super::*;
use crate::scan;

/// Layers one after the other with what they say, and gradients of all; one more matrix is used by
/// each.
fn trained(pair: &Pair, count: usize) -> Result<Vec<DTensor<f64>>, Error> {
    let tape = Tape::new();
    let (x, shared) = (tape.watch(&pair.0), tape.watch(&pair.1));
    let layers: Vec<DTensor<f64>> = (1..=count)
        .map(|number| pair.1.scale(0.1 * number as f64))
        .collect::<Result<_, _>>()?;
    let layers: Vec<&DTensor<f64>> = layers.iter().collect();
    let layers = tape.watch(&DTensor::stack(0, &layers)?);
    let (last, said) = scan(x.clone(), &layers, |x: &DTensor<f64>, layer| {
        let bent = x.matmul(layer)?.scale(1e-3)?.exp()?.matmul(&shared)?;
        Ok((x.scale(0.5)?.add(&bent)?, bent.sum(&ReduceAxes::axes([0]))?))
    })?;
    let loss = last.sum_all()?.add(&said.mul(&said)?.sum_all()?)?;
    let [by_x, by_shared, by_layers] = tape.gradient(&loss, [&x, &shared, &layers])?;
    Ok(vec![last, said, by_x, by_shared, by_layers])
}

#[test]
fn loops_and_their_gradients_are_two_nodes_that_do_the_same_however_tensors_lie() {
    let (context, mesh) = four();
    let mut compared = 0;
    for layout in layouts(&mesh) {
        let placed = |elements| context.copy_to_mesh(elements, &layout).unwrap();
        let pair = (placed(numbers(&[4, 4])), placed(numbers(&[4, 4])));
        let mut compiled = compile(|(): &mut (), pair: &Pair| trained(pair, 3));
        // Some layouts do not go together.
        if compiled.call(&mut (), &pair).is_err() {
            continue;
        }
        check(&context, &pair, |pair| trained(pair, 3));
        compared += 1;
        let graph = compiled.program().unwrap().graph(&context).unwrap();
        let loops = graph.nodes().iter();
        let loops = loops
            .filter(|node| matches!(node.op(), GraphOp::Loop(_)))
            .count();
        assert_eq!(loops, 2, "{layout:?} {}", compiled.program().unwrap());
    }
    assert!(compared > 8, "{compared}");
}
