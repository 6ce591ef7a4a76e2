//! The balanced tree in which several sources are reduced.

use super::accumulate::Accumulate;
use super::ops::Op;

/// Up to four sources are one loop, in registers. More are reduced tile by tile, so that what is in
/// between stays in a cache: by fours, and these like the digits of a binary counter.
#[inline(always)]
pub(super) fn tree<T: Accumulate, O: Op<T::Wide>>(
    into: &mut [T::Bits],
    sources: &[&[T::Bits]],
    finish: impl Fn(T::Wide) -> T::Bits,
) {
    if sources.len() <= 4 {
        return leaf::<T, O>(into, sources, 0, finish);
    }
    let depth = sources.len().div_ceil(4).ilog2() as usize + 1;
    // `partial[level]` is the reduction of `4 << level` sources that waits for its other half.
    let mut partial = vec![[T::widen(T::Bits::default()); TILE]; depth];
    for (index, tile) in into.chunks_mut(TILE).enumerate() {
        let mut total = [T::widen(T::Bits::default()); TILE];
        for (four, group) in sources.chunks(4).enumerate() {
            let len = tile.len();
            group_of::<T, O>(&mut total[..len], group, index * TILE);
            let halves = four.trailing_ones() as usize;
            for earlier in &partial[..halves] {
                join::<T, O>(earlier, &mut total);
            }
            if let Some(waiting) = partial.get_mut(halves) {
                *waiting = total;
            }
        }
        let groups = sources.len().div_ceil(4);
        // The last group has joined the levels below the lowest that is left.
        let joined = groups.trailing_zeros() as usize + 1;
        for (level, earlier) in partial.iter().enumerate().skip(joined) {
            if groups >> level & 1 == 1 {
                join::<T, O>(earlier, &mut total);
            }
        }
        for (into, total) in tile.iter_mut().zip(total) {
            *into = finish(total);
        }
    }
}

/// Elements that are reduced at a time, and fit a first-level cache several times over.
const TILE: usize = 256;

#[inline(always)]
fn join<T: Accumulate, O: Op<T::Wide>>(earlier: &[T::Wide; TILE], later: &mut [T::Wide; TILE]) {
    for (later, earlier) in later.iter_mut().zip(earlier) {
        *later = O::of(*earlier, *later);
    }
}

/// The balanced tree of at most four sources, from their element `at` on, to be joined with others.
/// All but the last group of a reduction are four; of fewer the tree goes from left to right.
#[inline(always)]
fn group_of<T: Accumulate, O: Op<T::Wide>>(
    into: &mut [T::Wide],
    sources: &[&[T::Bits]],
    at: usize,
) {
    match *sources {
        [a, b, c, d] => {
            let left = a[at..].iter().zip(&b[at..]);
            let right = c[at..].iter().zip(&d[at..]);
            for (into, ((a, b), (c, d))) in into.iter_mut().zip(left.zip(right)) {
                let left = O::of(T::widen(*a), T::widen(*b));
                *into = O::of(left, O::of(T::widen(*c), T::widen(*d)));
            }
        }
        [first, ref others @ ..] => {
            for (into, first) in into.iter_mut().zip(&first[at..]) {
                *into = T::widen(*first);
            }
            for other in others {
                for (into, other) in into.iter_mut().zip(&other[at..]) {
                    *into = O::of(*into, T::widen(*other));
                }
            }
        }
        [] => {}
    }
}

/// The result of at most four sources, from their element `at` on.
#[inline(always)]
pub(super) fn leaf<T: Accumulate, O: Op<T::Wide>>(
    into: &mut [T::Bits],
    sources: &[&[T::Bits]],
    at: usize,
    finish: impl Fn(T::Wide) -> T::Bits,
) {
    match *sources {
        [a] => {
            for (into, a) in into.iter_mut().zip(&a[at..]) {
                *into = finish(T::widen(*a));
            }
        }
        [a, b] => {
            for (into, (a, b)) in into.iter_mut().zip(a[at..].iter().zip(&b[at..])) {
                *into = finish(O::of(T::widen(*a), T::widen(*b)));
            }
        }
        [a, b, c] => {
            let pairs = a[at..].iter().zip(&b[at..]);
            for (into, ((a, b), c)) in into.iter_mut().zip(pairs.zip(&c[at..])) {
                *into = finish(O::of(O::of(T::widen(*a), T::widen(*b)), T::widen(*c)));
            }
        }
        [a, b, c, d] => {
            let left = a[at..].iter().zip(&b[at..]);
            let right = c[at..].iter().zip(&d[at..]);
            for (into, ((a, b), (c, d))) in into.iter_mut().zip(left.zip(right)) {
                let left = O::of(T::widen(*a), T::widen(*b));
                *into = finish(O::of(left, O::of(T::widen(*c), T::widen(*d))));
            }
        }
        _ => {}
    }
}
