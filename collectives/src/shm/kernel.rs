//! Reduces several buffers into several buffers in one pass over memory.

#![expect(
    unsafe_code,
    reason = "sources and destinations overlap, and other ranks own some of them"
)]

use meshwork_accel::{Element, Reduction};
use smallvec::SmallVec;

use super::span::Span;

/// Elements that are reduced at a time, and stay in a core's first cache.
const BLOCK: usize = 2048;
/// The same for short buffers, where filling a block takes longer than what follows.
const SMALL: usize = 256;

/// One of two contributions, which are as long, becomes the reduction of both: every op commutes to
/// the last bit, so it does not matter which comes first.
pub(super) fn fold_into<T: Element>(reduction: Reduction<T>, into: &mut [T], from: &[T]) {
    reduction
        .complete_pair(into, from)
        .expect("both contributions are as long");
}

/// Each destination becomes the reduction of all sources, one per rank, in their order.
///
/// All spans have the same length. A destination may be one of the sources.
///
/// # Safety
/// All spans are mapped and aligned for `T`; during the call nobody writes to the sources, and
/// nobody else touches the destinations. Two spans are the same or do not overlap.
pub(super) unsafe fn blend<T: Element>(
    reduction: Reduction<T>,
    sources: &[Span],
    destinations: &[Span],
) {
    if let [left, right] = *sources {
        let in_place = [(left, right), (right, left)].into_iter();
        let mut in_place = in_place.filter(|(into, _)| destinations.contains(into));
        if let Some((into, from)) = in_place.next() {
            // SAFETY: the promises are the caller's, and the first of the pair is a destination.
            return unsafe { blend_in_place(reduction, into, from, destinations) };
        }
    }
    let short = |span: &Span| span.bytes() <= SMALL * size_of::<T>();
    let blend = match sources.first().is_some_and(short) {
        true => blend_by::<T, SMALL>,
        false => blend_by::<T, BLOCK>,
    };
    // SAFETY: the promises are the caller's.
    unsafe { blend(reduction, sources, destinations) }
}

/// The same of two sources, of which the first is a destination too, and takes the result.
///
/// # Safety
/// As for [`blend`].
unsafe fn blend_in_place<T: Element>(
    reduction: Reduction<T>,
    into: Span,
    from: Span,
    destinations: &[Span],
) {
    let block = BLOCK * size_of::<T>();
    let mut start = 0;
    while start < into.bytes() {
        let range = start..(start + block).min(into.bytes());
        let part = |span: &Span| span.part(range.clone()).expect("all spans are as long");
        // SAFETY: the caller's promise for destinations; it is not the other source.
        let result = unsafe { part(&into).write() };
        // SAFETY: the caller's promise for sources.
        let source = unsafe { part(&from).read() };
        fold_into(reduction, result, source);
        for destination in destinations.iter().filter(|span| **span != into) {
            // SAFETY: the caller's promise for destinations; the source is not read any more.
            unsafe { part(destination).write() }.copy_from_slice(result);
        }
        start = range.end;
    }
}

/// The same, so many elements at a time.
///
/// # Safety
/// As for [`blend`].
unsafe fn blend_by<T: Element, const LENGTH: usize>(
    reduction: Reduction<T>,
    sources: &[Span],
    destinations: &[Span],
) {
    let Some(first) = sources.first() else {
        return;
    };
    // Filled only where it is needed.
    let mut block = None;
    // A destination that is no source takes the result at once, the others copy it from there.
    let clear = destinations.iter().position(|span| !sources.contains(span));
    let bytes = first.bytes();
    let mut start = 0;
    while start < bytes {
        let range = start..(start + LENGTH * size_of::<T>()).min(bytes);
        let part = |span: &Span| span.part(range.clone()).expect("all spans are as long");
        let result = match clear {
            // SAFETY: the caller's promise for destinations; it overlaps no source.
            Some(index) => unsafe { part(&destinations[index]).write() },
            None => {
                let block = block.get_or_insert_with(|| [T::default(); LENGTH]);
                &mut block[..range.len() / size_of::<T>()]
            }
        };
        {
            // SAFETY: the caller's promise for sources.
            let read = |source| unsafe { part(source).read() };
            let parts: SmallVec<[&[T]; 8]> = sources.iter().map(read).collect();
            reduction
                .complete(result, &parts)
                .expect("there is a source, and all parts are as long as the result");
        }
        for (index, destination) in destinations.iter().enumerate() {
            if Some(index) != clear {
                // SAFETY: the caller's promise for destinations; no source is read at the same
                // time, and the result is in another.
                unsafe { part(destination).write() }.copy_from_slice(result);
            }
        }
        start = range.end;
    }
}
