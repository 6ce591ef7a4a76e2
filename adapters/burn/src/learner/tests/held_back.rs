//! Data loaders that have read all items before they hand all batches out.

use burn_core::data::dataloader::{BatchDataLoader, BatchStrategy};

use super::*;

/// Hands the largest items out first, of all that there are.
struct LargestFirst {
    held: Vec<usize>,
    batch: usize,
}

pub(super) fn largest_first(items: Items, batch: usize) -> Arc<dyn DataLoader<Points>> {
    let strategy = Box::new(LargestFirst::new(batch));
    let (items, batcher) = (Arc::new(items), Arc::new(PointBatcher));
    let device = Device::default();
    let loader = BatchDataLoader::<usize, Points>::new(strategy, items, batcher, device, None);
    Arc::new(loader)
}

impl LargestFirst {
    fn new(batch: usize) -> Self {
        let held = Vec::new();
        Self { held, batch }
    }
}

impl BatchStrategy<usize> for LargestFirst {
    fn add(&mut self, item: usize) {
        self.held.push(item);
    }

    fn batch(&mut self, force: bool) -> Option<Vec<usize>> {
        if !force || self.held.is_empty() {
            return None;
        }
        self.held.sort_unstable();
        let left = self.held.len().saturating_sub(self.batch);
        Some(self.held.split_off(left))
    }

    fn clone_dyn(&self) -> Box<dyn BatchStrategy<usize>> {
        Box::new(Self::new(self.batch))
    }

    fn batch_size(&self) -> Option<usize> {
        Some(self.batch)
    }
}

#[test]
fn each_item_is_used_once_where_a_strategy_holds_several_batches_back() {
    for workers in [1, 2] {
        let job = Job {
            is_sorted: true,
            ..Job::new(24, 17)
        };
        let ran = run(&job, workers, |_, _| {});
        for worker in &ran {
            let is_well = worker.error.is_none() && worker.left.is_ok();
            assert!(is_well, "{worker:?}");
            assert_eq!(worker.values, ran[0].values);
        }
        for (epochs, all) in ran[0].seen.iter().zip([0..24, 100..117]) {
            assert_eq!(epochs.len(), 3);
            for epoch in epochs {
                let mut items = epoch.clone();
                items.sort_unstable();
                assert_eq!(items, all.clone().collect::<Vec<_>>(), "{workers} workers");
            }
        }
    }
}
