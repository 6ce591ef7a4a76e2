//! The batches of this worker, out of its part of the data, and out of those of workers that were
//! lost. Who reads a part reads it in the same order: all cut the data loader up in the same way.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use burn_core::data::dataloader::{DataLoader, DataLoaderIterator};
use burn_core::data::dataset::DatasetError;
use burn_core::tensor::Device;
use meshwork_strategy::Rank;

use super::super::wire::Place;
use super::Membership;
use crate::Error;

type Loader<I> = Arc<dyn DataLoader<I>>;

/// The parts that data is cut into, and those that it was cut into when the workers had changed.
/// Iterators borrow the first while there come to be more.
pub(super) struct Parts<I> {
    loaders: Vec<Option<Loader<I>>>,
    next: OnceCell<Box<Self>>,
}

/// The data of one worker.
pub(super) struct Feed<'a, I> {
    loader: Loader<I>,
    /// In the data of all workers.
    pub(super) items: usize,
    /// Whether other workers' parts may be needed.
    membership: Membership,
    parts: &'a Parts<I>,
    cuts: Cuts,
    /// How often each part was begun here.
    begun: Vec<usize>,
    readers: BTreeMap<usize, Reader<'a, I>>,
}

/// What the order follows from in which parts are read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Cuts {
    /// Into how many parts the data was cut, one time after the other.
    pub(super) parts: Vec<usize>,
    /// How often the last of them were begun; of the first also before a checkpoint.
    pub(super) passes: usize,
}

/// A batch, or where a part has ended.
pub(super) struct Taken<I> {
    pub(super) item: Option<I>,
    pub(super) place: Place,
    pub(super) samples: u32,
    pub(super) is_last: bool,
}

impl<I> Default for Parts<I> {
    fn default() -> Self {
        Self {
            loaders: Vec::new(),
            next: OnceCell::new(),
        }
    }
}

impl<'a, I> Feed<'a, I> {
    pub(super) fn new(loader: Loader<I>, parts: &'a Parts<I>) -> Self {
        Self {
            items: loader.num_items(),
            loader,
            membership: Membership::Fixed,
            parts,
            cuts: Cuts::default(),
            begun: Vec::new(),
            readers: BTreeMap::new(),
        }
    }

    pub(super) fn prepare(&mut self, device: &Device, membership: Membership) {
        self.loader = self.loader.to_device(device);
        self.membership = membership;
    }

    pub(super) fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// Begins a pass through the data, with so many workers, behind those of so many epochs.
    pub(super) fn begin(&mut self, epochs: usize, workers: usize, rank: Rank) {
        let is_first = self.cuts.parts.is_empty();
        if self.cuts.parts.last() != Some(&workers) {
            self.cut(workers, rank);
        }
        if is_first {
            // A training that goes on from a checkpoint would repeat the shuffles before it.
            self.cuts.passes = epochs;
        }
        self.cuts.passes += 1;
        self.readers.clear();
    }

    /// Goes on where another worker is.
    ///
    /// # Errors
    /// [`Error::OutputForm`] where that has not cut the data as this one has.
    pub(super) fn follow(&mut self, cuts: Cuts, rank: Rank) -> Result<(), Error> {
        if self.cuts == cuts {
            return Ok(());
        }
        let more = cuts.parts.strip_prefix(self.cuts.parts.as_slice());
        let more = more.ok_or(Error::OutputForm { rank: Rank::CHIEF })?;
        for workers in more {
            self.cut(*workers, rank);
        }
        self.cuts = cuts;
        self.readers.clear();
        Ok(())
    }

    fn cut(&mut self, parts: usize, rank: Rank) {
        let (loader, items) = (&self.loader, self.items);
        let start = |part: usize| items / parts * part + part.min(items % parts);
        let slice = |part: usize| loader.slice(start(part), start(part + 1));
        // Each slice draws from the loader's random numbers: all, in one order, on each worker.
        let is_elastic = self.membership == Membership::Elastic;
        let is_needed = |part: &usize| is_elastic || *part == rank.index();
        let loaders = (0..parts).map(|part| is_needed(&part).then(|| slice(part)));
        let cut = || {
            Box::new(Parts {
                loaders: loaders.collect(),
                next: OnceCell::new(),
            })
        };
        self.parts = self.parts.next.get_or_init(cut);
        self.cuts.parts.push(parts);
        self.cuts.passes = 0;
        self.begun = vec![0; parts];
        self.readers.clear();
    }

    /// The batch at `place`, of a part of which `used` batches are used.
    pub(super) fn take(&mut self, place: Place, used: usize) -> Result<Taken<I>, Error> {
        if !self.readers.contains_key(&place.part) {
            let reader = self.begin_part(place.part);
            self.readers.insert(place.part, reader);
        }
        let reader = self.readers.get_mut(&place.part);
        let reader = reader.expect("it was put there");
        reader.passed.retain(|batch, _| *batch >= used);
        reader.take(place, used)
    }

    /// As often as the others have begun it, so that its order is theirs.
    fn begin_part(&mut self, part: usize) -> Reader<'a, I> {
        let loader = self.parts.loaders[part].as_ref();
        let loader = loader.expect("a worker that is not elastic reads its own part");
        let begun = &mut self.begun[part];
        while *begun + 1 < self.cuts.passes {
            drop(loader.iter());
            *begun += 1;
        }
        *begun = self.cuts.passes;
        Reader {
            iterator: loader.iter(),
            next: None,
            read: 0,
            items: 0,
            has_ended: false,
            passed: BTreeMap::new(),
        }
    }
}

struct Reader<'a, I> {
    iterator: Box<dyn DataLoaderIterator<I> + 'a>,
    /// Was read to learn whether there is one.
    next: Option<Result<I, DatasetError>>,
    /// Batches, and items in them.
    read: usize,
    items: usize,
    has_ended: bool,
    /// Batches that another worker was to take, kept until they are used.
    passed: BTreeMap<usize, Taken<I>>,
}

impl<I> Reader<'_, I> {
    fn take(&mut self, place: Place, used: usize) -> Result<Taken<I>, Error> {
        if let Some(taken) = self.passed.remove(&place.batch) {
            return Ok(taken);
        }
        debug_assert!(self.has_ended || place.batch >= self.read, "it is kept");
        loop {
            let taken = self.next(place.part)?;
            if taken.item.is_none() || taken.place.batch == place.batch {
                return Ok(taken);
            }
            if taken.place.batch >= used {
                self.passed.insert(taken.place.batch, taken);
            }
        }
    }

    fn next(&mut self, part: usize) -> Result<Taken<I>, Error> {
        let place = Place {
            part,
            batch: self.read,
        };
        let mut item = None;
        if !self.has_ended {
            let next = self.next.take().or_else(|| self.iterator.next());
            item = next.transpose().map_err(Error::Dataset)?;
        }
        self.has_ended = item.is_none();
        let progress = self.iterator.progress();
        if item.is_some() && progress.is_completed() {
            // Of items that were read, a strategy may hold several batches back.
            self.next = self.iterator.next();
            self.has_ended = self.next.is_none();
        }
        let before = std::mem::replace(&mut self.items, progress.items_processed);
        let samples = match &item {
            // A loader that counted nothing for a batch would end the epoch with it.
            Some(_) => {
                let samples = progress.items_processed.saturating_sub(before).max(1);
                u32::try_from(samples).expect("a batch has fewer samples than fit in u32")
            }
            None => 0,
        };
        self.read += usize::from(item.is_some());
        Ok(Taken {
            is_last: self.has_ended,
            item,
            place,
            samples,
        })
    }
}
