//! Exchanges carried out: parts of blocks copied here, and those of other clients, piece by piece.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::thread;

use ndarray::{ArcArray, IxDyn};

use crate::context::Context;
use crate::route::{Exchange, Make, Route, Target};
use crate::{Error, Scalar};

mod rounds;

use rounds::{Round, carry_over, reduce};

/// A block of a tensor on one device.
pub type Block<T> = ArcArray<T, IxDyn>;

/// Carries a route out on the blocks of this client, and returns those of the target.
///
/// At any time there are the blocks before an exchange, those after it, and one stage of bounded size
/// for what is on its way.
#[track_caller]
pub(crate) fn run<T: Scalar>(
    context: &Context,
    route: &Route,
    blocks: Vec<Block<T>>,
) -> Result<Vec<Block<T>>, Error> {
    if route.crosses {
        context.announce(&format!("{} of {}", route.title, T::TYPE))?;
    }
    let mut held = blocks;
    for exchange in &route.exchanges {
        held = carried_out(context, exchange, held)?;
    }
    Ok(route
        .places
        .iter()
        .map(|&place| held[place].clone())
        .collect())
}

#[track_caller]
fn carried_out<T: Scalar>(
    context: &Context,
    exchange: &Exchange,
    held: Vec<Block<T>>,
) -> Result<Vec<Block<T>>, Error> {
    let held: Vec<Block<T>> = held.into_iter().map(in_order).collect();
    let from: Vec<&[T]> = held.iter().filter_map(|block| block.as_slice()).collect();
    let mut made = begun(&exchange.targets, &from);
    if exchange.traffic.crosses {
        carry_over(context, exchange, (&from, &mut made))?;
    } else {
        // Nothing arrives, so that all terms are here.
        let all = 0..exchange.traffic.longest;
        reduce(exchange, &Round::of(exchange, all), (&from, &[], &mut made))?;
    }
    let targets = exchange.targets.iter().zip(made);
    let blocks = targets.map(|(target, elements)| match target.make {
        Make::Kept(place) => reshaped(held[place].clone(), &target.shape),
        _ => reshaped(ArcArray::from(elements).into_dyn(), &target.shape),
    });
    Ok(blocks.collect())
}

/// The new blocks with what is here; nothing where one is kept. Large ones are begun by a thread each,
/// as many as there are cores.
fn begun<T: Scalar>(targets: &[Target], held: &[&[T]]) -> Vec<Vec<T>> {
    let begin = |target: &Target| begun_one(target.shape.iter().product(), &target.make, held);
    let bytes = |target: &Target| target.shape.iter().product::<usize>() * size_of::<T>();
    let is_large = targets.iter().map(bytes).sum::<usize>() >= LARGE;
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let begin_all = |targets: &[Target]| -> Vec<Vec<T>> { targets.iter().map(begin).collect() };
    if !is_large || cores.min(targets.len()) < 2 {
        return begin_all(targets);
    }
    thread::scope(|threads| {
        let begin_all = &begin_all;
        let chunks = targets.chunks(targets.len().div_ceil(cores));
        let started: Vec<_> = chunks
            .map(|chunk| threads.spawn(move || begin_all(chunk)))
            .collect();
        let ended = started.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .flat_map(|made| made.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// A new block of so many elements.
fn begun_one<T: Scalar>(len: usize, make: &Make, held: &[&[T]]) -> Vec<T> {
    match make {
        Make::Kept(_) => Vec::new(),
        Make::Reduced(..) => vec![T::default(); len],
        Make::Joined(parts, fill) => {
            let mut elements = vec![fill.map_or_else(T::default, T::neutral); len];
            for (source, target) in parts {
                source.runs.copy(held[source.place], target, &mut elements);
            }
            elements
        }
    }
}

/// The block with its elements row-major and without gaps.
fn in_order<T: Scalar>(block: Block<T>) -> Block<T> {
    match block.as_slice() {
        Some(_) => block,
        None => block.as_standard_layout().into_owned().into_shared(),
    }
}

/// The same elements in another shape; a block has as many as its shape says.
fn reshaped<T: Scalar>(block: Block<T>, shape: &[usize]) -> Block<T> {
    block
        .into_shape_with_order(shape)
        .expect("a target has as many elements as its shape says")
}

/// Elements from bytes that may lie anywhere; none if some are no element.
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
