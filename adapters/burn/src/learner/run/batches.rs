//! The batches of this worker's part of the data.

use burn_core::data::dataloader::DataLoaderIterator;
use burn_train::Interrupter;

use super::super::wire::State;
use crate::Error;

pub(super) struct Batches<'a, I> {
    iterator: Box<dyn DataLoaderIterator<I> + 'a>,
    taken: usize,
}

/// What is told of a batch, or when there is none any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) samples: u32,
    pub(super) state: State,
}

impl<'a, I> Batches<'a, I> {
    pub(super) fn new(iterator: Box<dyn DataLoaderIterator<I> + 'a>) -> Self {
        Self { iterator, taken: 0 }
    }

    pub(super) fn next(&mut self, interrupter: &Interrupter) -> Result<(Batch, Option<I>), Error> {
        let item = self.iterator.next().transpose().map_err(Error::Dataset)?;
        let progress = self.iterator.progress();
        let before = std::mem::replace(&mut self.taken, progress.items_processed);
        let samples = match &item {
            // A loader that counted nothing for a batch would end the epoch with it.
            Some(_) => {
                let samples = progress.items_processed.saturating_sub(before).max(1);
                u32::try_from(samples).expect("a batch has fewer samples than fit in u32")
            }
            None => 0,
        };
        let is_last = item.is_none() || progress.is_completed();
        let state = match (interrupter.should_stop(), is_last) {
            (true, _) => State::Stop,
            (false, true) => State::Last,
            (false, false) => State::More,
        };
        Ok((Batch { samples, state }, item))
    }
}
