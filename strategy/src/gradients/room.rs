//! Memory for gradients in buckets, and where in it each variable's is.

use std::ops::Range;

use meshwork_collectives::{self as collectives, Prepared, Registered};

use crate::{Error, MultiWorkerMirroredStrategy, VariableSpec, bucket_ranges};

#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) buffer: Buffer,
    pub(super) tensors: usize,
    /// Variables whose gradient is not ready.
    pub(super) missing: usize,
}

#[derive(Debug)]
pub(super) enum Buffer {
    /// Reduced while others are computed.
    Early(Prepared<Registered<f32>>),
    /// Reduced when all are computed.
    Last(Registered<f32>),
}

/// Buffers for the gradients of some variables.
pub(super) struct Room {
    pub(super) places: Vec<(usize, Range<usize>)>,
    pub(super) buckets: Vec<Bucket>,
}

impl Room {
    pub(super) fn of(
        strategy: &mut MultiWorkerMirroredStrategy,
        specs: &[VariableSpec],
        extra: usize,
    ) -> Result<Self, Error> {
        let bytes: Vec<usize> = specs
            .iter()
            .rev()
            .map(|spec| spec.len() * size_of::<f32>())
            .collect();
        let ranges = bucket_ranges(&bytes, strategy.options().bytes_per_bucket());
        let mut places = vec![(0, 0..0); specs.len()];
        let mut made = Vec::with_capacity(ranges.len());
        for (number, range) in ranges.iter().enumerate() {
            let mut end = 0_usize;
            for reversed in range.clone() {
                let index = specs.len() - 1 - reversed;
                let start = end;
                end = start
                    .checked_add(specs[index].len())
                    .ok_or_else(|| too_large(&specs[index]))?;
                places[index] = (number, start..end);
            }
            let is_last = number + 1 == ranges.len();
            let len = end.checked_add(if is_last { extra } else { 0 });
            let len = len.ok_or_else(|| too_large(&specs[0]))?;
            let buffer = strategy.alloc(len)?;
            made.push(Bucket {
                buffer: if is_last {
                    Buffer::Last(buffer)
                } else {
                    let sum = collectives::ReduceOp::Sum;
                    Buffer::Early(strategy.prepare_all_reduce::<f32, _>(buffer, sum)?)
                },
                tensors: range.len(),
                missing: range.len(),
            });
        }
        if made.is_empty() {
            made.push(Bucket {
                buffer: Buffer::Last(strategy.alloc(extra)?),
                tensors: 0,
                missing: 0,
            });
        }
        Ok(Self {
            places,
            buckets: made,
        })
    }
}

impl Bucket {
    pub(super) fn here(&mut self, name: &str) -> Result<&mut [f32], Error> {
        self.buffer
            .idle_mut()
            .ok_or_else(|| Error::GradientInFlight {
                name: name.to_owned(),
            })
    }
}

impl Buffer {
    /// `None` while it is under way, and after an error.
    pub(super) fn idle(&self) -> Option<&[f32]> {
        match self {
            Self::Early(operation) => operation.buffer().map(|buffer| &buffer[..]),
            Self::Last(buffer) => Some(buffer),
        }
    }

    pub(super) fn idle_mut(&mut self) -> Option<&mut [f32]> {
        match self {
            Self::Early(operation) => operation.buffer_mut().map(|buffer| &mut buffer[..]),
            Self::Last(buffer) => Some(buffer),
        }
    }
}

fn too_large(spec: &VariableSpec) -> Error {
    Error::TooLarge {
        name: spec.name().to_owned(),
    }
}
