//! The operations of a unit: chunk by chunk, so that what is staged for them stays in a cache, and
//! small beside the unit. Large tensors are reduced and gathered where they are, if workers read
//! each other's memory.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshwork_collectives::{Group, OperationError, Rank, ReduceOp};

use super::held::{Held, Whose};
use super::mesh::ShardMesh;
use super::partition::{Partition, Which};
use super::tensors::{AllRows, Tensors, add};

/// How a unit's numbers go between the workers, and where they are staged for that.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) partition: Arc<Partition>,
    pub(super) mesh: ShardMesh,
    pub(super) staging: Arc<Mutex<Staging>>,
}

/// Buffers that all units use in turn.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// Of all workers, one after the other.
    all: Vec<f32>,
    /// Of this one.
    own: Vec<f32>,
}

/// Tensors that travel together.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Run {
    /// One, where it is.
    Large(usize),
    /// Some that follow one another, in chunks.
    Small(Range<usize>),
}

impl Run {
    fn tensors(&self) -> Range<usize> {
        match self {
            Self::Large(tensor) => *tensor..tensor + 1,
            Self::Small(tensors) => tensors.clone(),
        }
    }
}

/// What becomes of numbers that are there already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Onto {
    Replace,
    Add,
}

impl Exchange {
    /// Replaces gradients by their mean over all workers.
    pub(super) fn all_reduce(
        &self,
        group: &mut Group,
        all: &mut AllRows<'_>,
    ) -> Result<(), OperationError> {
        self.each_part(Which::Trainable, all, |part| {
            group.all_reduce(part, ReduceOp::Mean)
        })
    }

    /// Gives every worker the parameters of the first.
    pub(super) fn broadcast(
        &self,
        group: &mut Group,
        all: &mut AllRows<'_>,
    ) -> Result<(), OperationError> {
        self.each_part(Which::All, all, |part| group.broadcast(part, Rank::CHIEF))
    }

    /// Brings the means of this worker's rows of `all` into those rows.
    pub(super) fn reduce_in_place(
        &self,
        group: &mut Group,
        all: &mut AllRows<'_>,
    ) -> Result<(), OperationError> {
        for run in self.runs(Which::Trainable) {
            let Run::Small(tensors) = run else {
                self.reduce_large_in_place(group, all, run.tensors().start)?;
                continue;
            };
            for chunk in self.chunks(tensors) {
                let mut staging = self.staging();
                let mean = self.reduce(group, all, &chunk, &mut staging)?;
                let own = chunk[self.mesh.place].clone();
                all.write(&self.partition, self.mesh.place, own, mean);
            }
        }
        Ok(())
    }

    /// The same of one tensor, of which nothing is staged but the means.
    fn reduce_large_in_place(
        &self,
        group: &mut Group,
        all: &mut AllRows<'_>,
        tensor: usize,
    ) -> Result<(), OperationError> {
        let (partition, place) = (&self.partition, self.mesh.place);
        let workers = 0..partition.workers();
        let rows = workers.map(|worker| partition.elements(tensor, worker));
        let rows: Vec<Range<usize>> = rows.collect();
        let longest = rows.iter().fold(0, |longest, rows| longest.max(rows.len()));
        let mut staging = self.staging();
        for begin in (0..longest).step_by(self.most()) {
            let part = |rows: &Range<usize>| {
                let start = (rows.start + begin).min(rows.end);
                start..(start + self.most()).min(rows.end)
            };
            let blocks: Vec<Range<usize>> = rows.iter().map(part).collect();
            let own = blocks[place].clone();
            let (_, mean) = staging.room(&[own.len()], 0);
            all.part(partition, &partition.part(tensor, None), |values| {
                let reduced = self.mesh.with(group, |row, _| {
                    row.reduce_scatter_at(values, &blocks, mean, ReduceOp::Mean)
                });
                reduced.map(|()| values[own].copy_from_slice(mean))
            })?;
        }
        Ok(())
    }

    /// Brings the means of this worker's rows of `all` into `shard`.
    pub(super) fn reduce_scatter(
        &self,
        group: &mut Group,
        all: &mut AllRows<'_>,
        shard: &mut [f32],
        onto: Onto,
    ) -> Result<(), OperationError> {
        let (partition, place) = (&self.partition, self.mesh.place);
        for run in self.runs(Which::Trainable) {
            if let (Run::Large(tensor), Onto::Replace) = (&run, onto) {
                let own = partition.in_shard(&partition.part(*tensor, Some(place)), place);
                let (own, lengths) = (&mut shard[own], partition.lengths(*tensor));
                let whole = partition.part(*tensor, None);
                all.part(partition, &whole, |values| {
                    self.mesh.with(group, |row, _| {
                        row.reduce_scatter_uneven(values, own, &lengths, ReduceOp::Mean)
                    })
                })?;
                continue;
            }
            for chunk in self.chunks(run.tensors()) {
                let mut staging = self.staging();
                let mean = self.reduce(group, all, &chunk, &mut staging)?;
                let own = &mut shard[chunk[place].clone()];
                match onto {
                    Onto::Replace => own.copy_from_slice(mean),
                    Onto::Add => add(own, mean),
                }
            }
        }
        Ok(())
    }

    /// Brings the rows that each worker has in its `all` into that of all.
    pub(super) fn gather_in_place(
        &self,
        group: &mut Group,
        all: &mut AllRows<'_>,
        tensors: Range<usize>,
    ) -> Result<(), OperationError> {
        let place = self.mesh.place;
        for chunk in self.chunks(tensors) {
            let mut staging = self.staging();
            let lengths: Vec<usize> = chunk.iter().map(Range::len).collect();
            let (gathered, own) = staging.room(&lengths, place);
            all.read(&self.partition, place, chunk[place].clone(), own);
            self.mesh.with(group, |row, _| {
                row.all_gather_uneven(own, gathered, &lengths)
            })?;
            self.write_all(all, &chunk, gathered);
        }
        Ok(())
    }

    /// The same of parameters that were updated, of which `copies` has this worker's rows too.
    pub(super) fn gather_updated(
        &self,
        group: &mut Group,
        all: &mut AllRows<'_>,
        copies: &mut Tensors,
    ) -> Result<(), OperationError> {
        let partition = &self.partition;
        for run in self.runs(Which::Trainable) {
            let Run::Large(tensor) = run else {
                self.gather_in_place(group, all, run.tensors())?;
                continue;
            };
            let (whole, lengths) = (partition.part(tensor, None), partition.lengths(tensor));
            copies.rows(partition, tensor, Some(self.mesh.place), |own| {
                all.part(partition, &whole, |values| {
                    self.mesh
                        .with(group, |row, _| row.all_gather_uneven(own, values, &lengths))
                })
            })?;
        }
        Ok(())
    }

    /// Brings the shards of all workers together.
    pub(super) fn gather(
        &self,
        group: &mut Group,
        shard: &[f32],
        all: &mut AllRows<'_>,
    ) -> Result<(), OperationError> {
        let (partition, place) = (&self.partition, self.mesh.place);
        for run in self.runs(Which::All) {
            if let Run::Large(tensor) = run {
                let own = partition.in_shard(&partition.part(tensor, Some(place)), place);
                let (own, lengths) = (&shard[own], partition.lengths(tensor));
                all.part(partition, &partition.part(tensor, None), |values| {
                    self.mesh
                        .with(group, |row, _| row.all_gather_uneven(own, values, &lengths))
                })?;
                continue;
            }
            for chunk in self.chunks(run.tensors()) {
                let mut staging = self.staging();
                let lengths: Vec<usize> = chunk.iter().map(Range::len).collect();
                let (gathered, _) = staging.room(&lengths, place);
                let own = &shard[chunk[place].clone()];
                self.mesh.with(group, |row, _| {
                    row.all_gather_uneven(own, gathered, &lengths)
                })?;
                self.write_all(all, &chunk, gathered);
            }
        }
        Ok(())
    }

    /// Replaces what this worker has of gradients by the mean over all that keep the same part.
    pub(super) fn reduce_across(
        &self,
        group: &mut Group,
        gradients: &mut Tensors,
    ) -> Result<(), OperationError> {
        self.mesh.with(group, |_, column| {
            let Some(column) = column else {
                return Ok(());
            };
            let mut mean = |values: &mut [f32]| column.all_reduce(values, ReduceOp::Mean);
            let mut all = match gradients {
                Tensors::Shard { values, .. } => {
                    return values.chunks_mut(ELEMENTS).try_for_each(mean);
                }
                Tensors::Whole(_) | Tensors::Lent(_) => gradients.all_rows(),
            }
            .expect("what is no shard has all rows");
            for chunk in self.chunks(0..self.partition.count(Which::Trainable)) {
                let (own, mut staging) = (chunk[self.mesh.place].clone(), self.staging());
                let (_, values) = staging.room(&[own.len()], 0);
                all.read(&self.partition, self.mesh.place, own.clone(), values);
                mean(values)?;
                all.write(&self.partition, self.mesh.place, own, values);
            }
            Ok(())
        })
    }

    /// Gives this worker's means to the one behind it, which keeps a copy of its part, and takes
    /// those of the one before.
    pub(super) fn pass_on(&self, group: &mut Group, held: &mut Held) -> Result<(), OperationError> {
        let Some(neighbour) = held.neighbour() else {
            return Ok(());
        };
        let (partition, place) = (&self.partition, self.mesh.place);
        let behind = |rank: Rank| Rank::new((rank.number() + 1) % group.world());
        let targets: Vec<Rank> = Rank::all(group.world()).map(behind).collect();
        for chunk in self.chunks(0..partition.count(Which::Trainable)) {
            let longest = chunk
                .iter()
                .fold(0, |longest, part| longest.max(part.len()));
            let mut staging = self.staging();
            let (received, own) = staging.room(&[longest], 0);
            let positions = chunk[place].clone();
            let filled = &mut own[..positions.len()];
            held.gradients.read(partition, place, positions, filled);
            group.permute(own, received, &targets)?;
            let positions = chunk[neighbour].clone();
            let part = held.part(Whose::Neighbours, Some(place));
            let part = part.expect("there is a copy of a neighbour's part");
            let taken = &received[..positions.len()];
            part.gradients.write(partition, neighbour, positions, taken);
        }
        Ok(())
    }

    /// Carries an operation out on all elements where they are, some at a time.
    fn each_part(
        &self,
        which: Which,
        all: &mut AllRows<'_>,
        mut operation: impl FnMut(&mut [f32]) -> Result<(), OperationError>,
    ) -> Result<(), OperationError> {
        let mut parts =
            |values: &mut [f32]| values.chunks_mut(ELEMENTS).try_for_each(&mut operation);
        match all {
            AllRows::Buffer(whole) => parts(&mut whole[..self.partition.len(which)]),
            AllRows::Lent(_) => (0..self.partition.count(which)).try_for_each(|tensor| {
                let part = self.partition.part(tensor, None);
                all.part(&self.partition, &part, &mut parts)
            }),
        }
    }

    fn write_all(&self, all: &mut AllRows<'_>, chunk: &[Range<usize>], gathered: &[f32]) {
        let mut rest = gathered;
        for (worker, positions) in chunk.iter().enumerate() {
            let (block, behind) = rest.split_at(positions.len());
            all.write(&self.partition, worker, positions.clone(), block);
            rest = behind;
        }
    }

    /// This worker's means of a chunk.
    fn reduce<'a>(
        &self,
        group: &mut Group,
        all: &mut AllRows<'_>,
        chunk: &[Range<usize>],
        staging: &'a mut Staging,
    ) -> Result<&'a [f32], OperationError> {
        let lengths: Vec<usize> = chunk.iter().map(Range::len).collect();
        let (staged, own) = staging.room(&lengths, self.mesh.place);
        let mut rest = &mut staged[..];
        for (worker, positions) in chunk.iter().enumerate() {
            let (block, behind) = rest.split_at_mut(positions.len());
            all.read(&self.partition, worker, positions.clone(), block);
            rest = behind;
        }
        self.mesh.with(group, |row, _| {
            row.reduce_scatter_uneven(staged, own, &lengths, ReduceOp::Mean)
        })?;
        Ok(own)
    }

    /// The tensors in order: large ones by themselves, and what is between them.
    fn runs(&self, which: Which) -> Vec<Run> {
        let mut runs = Vec::new();
        for tensor in 0..self.partition.count(which) {
            let is_large = self.partition.whole(tensor).len() >= ELEMENTS;
            match runs.last_mut() {
                _ if is_large && self.mesh.reads_memory() => runs.push(Run::Large(tensor)),
                Some(Run::Small(tensors)) => tensors.end = tensor + 1,
                Some(Run::Large(_)) | None => runs.push(Run::Small(tensor..tensor + 1)),
            }
        }
        runs
    }

    fn chunks(&self, tensors: Range<usize>) -> impl Iterator<Item = Vec<Range<usize>>> + use<> {
        self.partition.chunks(tensors, self.most())
    }

    /// Elements of one worker that are staged at a time.
    fn most(&self) -> usize {
        (ELEMENTS / self.partition.workers()).max(1)
    }

    fn staging(&self) -> MutexGuard<'_, Staging> {
        // Operations of a worker follow one another; what one that failed has left is not read.
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Staging {
    fn room(&mut self, lengths: &[usize], worker: usize) -> (&mut [f32], &mut [f32]) {
        let (all, own) = (lengths.iter().sum(), lengths[worker]);
        if self.all.len() < all {
            self.all = vec![0.0; all];
        }
        if self.own.len() < own {
            self.own = vec![0.0; own];
        }
        (&mut self.all[..all], &mut self.own[..own])
    }
}

/// Elements that are staged for one operation, those of all workers together: few enough to stay in
/// a cache from one copy to the next, many enough for the operation to cost little beside them.
const ELEMENTS: usize = if cfg!(test) { 48 } else { 1 << 20 };
