//! What a worker holds is what the formula says.

use super::*;
use crate::sharded::held::Copied;
use crate::sharded::tensors::Tensors;

impl<O> ShardedModel<O> {
    /// Bytes of everything that is held, but for what operations stage.
    pub(super) fn held_bytes(&mut self) -> u64 {
        let mut elements: usize = self.pool.iter().map(Vec::len).sum();
        for unit in &mut self.units {
            let held = unit.here().unwrap();
            let tensors = [&held.parameters, &held.gradients].into_iter();
            let tensors = tensors.chain(&held.state).chain(&held.scratch);
            let tensors = tensors.chain(held.copied.iter().flat_map(Copied::tensors));
            elements += tensors
                .map(|tensors| match tensors {
                    Tensors::Whole(values) | Tensors::Shard { values, .. } => values.len(),
                    Tensors::Lent(_) => 0,
                })
                .sum::<usize>();
            elements += held.gathered.as_ref().map_or(0, Vec::len);
        }
        4 * elements as u64
    }
}

#[test]
fn a_worker_holds_the_bytes_of_the_formula_and_no_more() {
    let units = units(&vec![Shapes::new(&[&[40, 10], &[10]], &[&[30, 2]]); 5]);
    for workers in [1, 2, 4] {
        for (shard, copies, prefetch) in KINDS.into_iter().flat_map(|kind| {
            [
                (kind, Copies::None, 0),
                (kind, Copies::None, 1),
                (kind, Copies::OfNeighbours, 0),
            ]
        }) {
            let mut run = Run::new(shard, workers);
            run.sharding = run.sharding.with_prefetch(prefetch);
            run.sharding.copies = copies;
            let bytes = each(workers, |mut strategy| {
                let optimizer = AdamW::new(0.1);
                let sharding = run.sharding;
                let mut model =
                    ShardedModel::new(&mut strategy, sharding, &units, optimizer, initial).unwrap();
                for _ in 0..3 {
                    run.step(&mut strategy, &mut model, &units);
                }
                strategy.leave().unwrap();
                model.held_bytes()
            });
            let formula = run.sharding.bytes::<AdamW>(&units, workers as usize);
            let most = bytes.into_iter().max().unwrap();
            assert!(
                most <= formula,
                "{shard:?} of {workers}: {most} of {formula}"
            );
            assert!(
                most * 10 >= formula * 9,
                "{shard:?} of {workers}: {most} of {formula}"
            );
        }
    }
}

#[test]
#[should_panic(expected = "a model is kept by one worker at least")]
fn no_workers_keep_no_model() {
    assert_eq!(Sharding::new(Shard::Nothing).bytes::<AdamW>(&[], 0), 0);
}
