//! Exchanges carried out: parts of blocks copied here, and those of other clients, piece by piece.

use std::num::NonZeroUsize;
use std::thread;

use ndarray::{ArcArray, IxDyn};

use crate::context::Context;
use crate::transfer_plan::{BlockSource, Exchange, LocalPart, Runs, Target, TransferPlan};
use crate::{Error, Scalar};

mod collectives;
mod devices;
mod pooled_blocks;
mod rounds;

pub(crate) use collectives::record;
pub(crate) use devices::run_there;
pub(crate) use pooled_blocks::PooledBlocks;
use rounds::{Round, exchange_messages, reduce};

/// A block of a tensor on one device.
pub type Block<T> = ArcArray<T, IxDyn>;

/// Carries a transfer plan out on the blocks of this client, and returns those of the target.
///
/// At any time there are the blocks before an exchange, those after it, and one stage of bounded
/// size for what is on its way.
#[track_caller]
pub(crate) fn run<T: Scalar>(
    context: &Context,
    transfer_plan: &TransferPlan,
    blocks: PooledBlocks<T>,
) -> Result<Vec<Block<T>>, Error> {
    if transfer_plan.crosses {
        context.announce(&format!("{} of {}", transfer_plan.title, T::TYPE))?;
    }
    let mut held = blocks;
    for exchange in &transfer_plan.exchanges {
        let blocks = carried_out(context, exchange, &mut held)?;
        held = PooledBlocks::new(context.clone(), blocks);
    }
    Ok(transfer_plan
        .places
        .iter()
        .map(|&place| held.blocks()[place].clone())
        .collect())
}

#[track_caller]
fn carried_out<T: Scalar>(
    context: &Context,
    exchange: &Exchange,
    held: &mut PooledBlocks<T>,
) -> Result<Vec<Block<T>>, Error> {
    held.put_in_order();
    let held = held.blocks();
    let from: Vec<&[T]> = held.iter().filter_map(|block| block.as_slice()).collect();
    let mut made = taken(context, &exchange.targets);
    join(context, &exchange.targets, &from, &mut made);
    if exchange.traffic.crosses {
        exchange_messages(context, exchange, &from, &mut made)?;
    } else {
        // Nothing arrives, so that all terms are here.
        let all = 0..exchange.traffic.longest;
        reduce(exchange, &Round::of(exchange, all), &from, &[], &mut made)?;
    }
    let blocks = made.into_iter().map(|made| ArcArray::from(made).into_dyn());
    let blocks: Vec<Block<T>> = blocks.collect();
    let block = |(place, target): (usize, &Target)| {
        let block = match target.source {
            BlockSource::Kept(place) => &held[place],
            BlockSource::Shared(place) => &blocks[place],
            BlockSource::Joined(..) | BlockSource::Reduced(..) => &blocks[place],
        };
        reshaped(block.clone(), &target.shape)
    };
    Ok(exchange.targets.iter().enumerate().map(block).collect())
}

/// Memory for the new blocks, nothing where one is there already. It has what changes nothing where
/// no part may come; elsewhere its values are unspecified.
fn taken<T: Scalar>(context: &Context, targets: &[Target]) -> Vec<Vec<T>> {
    let lens: Vec<usize> = targets.iter().map(Target::fresh).collect();
    let free = context.buffer_pool().take(&lens);
    let memory = |((spare, len), target): ((Option<Vec<T>>, &usize), &Target)| {
        let fill = match target.source {
            BlockSource::Joined(_, Some(reduction)) => Some(T::neutral(reduction)),
            _ => None,
        };
        match (spare, fill) {
            (Some(memory), None) => memory,
            (Some(mut memory), Some(fill)) => {
                memory.fill(fill);
                memory
            }
            (None, fill) => vec![fill.unwrap_or_default(); *len],
        }
    };
    let memory = free.into_iter().zip(&lens).zip(targets).map(memory);
    memory.collect()
}

/// A part of a new block that one thread makes.
struct Share<'a, T> {
    parts: &'a [(LocalPart, Runs)],
    /// Where it begins in its block.
    start: usize,
    into: &'a mut [T],
}

impl<T: Scalar> Share<'_, T> {
    fn join(self, held: &[&[T]]) {
        for (source, target) in self.parts {
            let block = held[source.place];
            source.runs.copy(block, target, self.start, self.into);
        }
    }
}

/// Puts the parts that are here into the new blocks. Of large ones each core makes a share.
fn join<T: Scalar>(context: &Context, targets: &[Target], held: &[&[T]], made: &mut [Vec<T>]) {
    let bytes: usize = made.iter().map(|made| size_of_val(made.as_slice())).sum();
    let threads = match bytes >= LARGE {
        true => threads_of(context),
        false => 1,
    };
    let mut shares: Vec<Vec<Share<'_, T>>> = Vec::new();
    shares.resize_with(threads, Vec::new);
    for (target, made) in targets.iter().zip(made) {
        let BlockSource::Joined(parts, _) = &target.source else {
            continue;
        };
        let len = made.len().div_ceil(threads).max(1);
        for (number, into) in made.chunks_mut(len).enumerate() {
            let start = number * len;
            shares[number].push(Share { parts, start, into });
        }
    }
    let join_all =
        |shares: Vec<Share<'_, T>>| shares.into_iter().for_each(|share| share.join(held));
    let own = shares
        .pop()
        .expect("there is a thread at least, and a share for each");
    thread::scope(|threads| {
        for shares in shares {
            threads.spawn(move || join_all(shares));
        }
        join_all(own);
    });
}

/// How many threads this client may use beside the others, which are likely busy with the same.
fn threads_of(context: &Context) -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let clients = context.client().count() as usize;
    (cores / clients.max(1)).max(1)
}

/// The same elements in another shape; a block has as many as its shape says.
fn reshaped<T: Scalar>(block: Block<T>, shape: &[usize]) -> Block<T> {
    block
        .into_shape_with_order(shape)
        .expect("a target has as many elements as its shape says")
}

/// Elements from bytes of any alignment; `None` if some are not valid elements.
pub(crate) fn from_bytes<T: Scalar>(bytes: &[u8]) -> Option<Vec<T>> {
    let mut elements = vec![T::default(); bytes.len() / size_of::<T>()];
    match T::bytes_mut(&mut elements) {
        Some(memory) => memory.copy_from_slice(bytes),
        // Only bytes have values that are none of their type, and they lie right anywhere.
        None => elements.copy_from_slice(bytemuck::checked::try_cast_slice(bytes).ok()?),
    }
    Some(elements)
}

/// Bytes of new blocks from which on threads are worth starting.
const LARGE: usize = 8 << 20;
