//! How the parts of an operation are spread over threads: those of rayon's current pool, and where
//! that has one, the calling one. Handing each operation to the other thread, and waiting for it,
//! would take longer than many of them.

use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;

/// Does `work` for each part.
pub(crate) fn each<P: IndexedParallelIterator>(parts: P, work: impl Fn(P::Item) + Send + Sync) {
    each_with(parts, || (), |(), part| work(part));
}

/// The same, with something that is made for each thread.
pub(crate) fn each_with<P: IndexedParallelIterator, S>(
    parts: P,
    made: impl Fn() -> S + Send + Sync,
    work: impl Fn(&mut S, P::Item) + Send + Sync,
) {
    if rayon::current_num_threads() > 1 {
        return parts.for_each_init(made, work);
    }
    let mut own = made();
    parts.with_producer(Here(|part| work(&mut own, part)));
}

/// What `work` makes of each part, in their order.
pub(crate) fn collect<P: IndexedParallelIterator, R: Send>(
    parts: P,
    work: impl Fn(P::Item) -> R + Send + Sync,
) -> Vec<R> {
    if rayon::current_num_threads() > 1 {
        return parts.map(work).collect();
    }
    let mut all = Vec::with_capacity(parts.len());
    parts.with_producer(Here(|part| all.push(work(part))));
    all
}

/// Takes one part after the other, on the calling thread.
struct Here<F>(F);

impl<T, F: FnMut(T)> ProducerCallback<T> for Here<F> {
    type Output = ();

    fn callback<P: Producer<Item = T>>(self, producer: P) {
        producer.into_iter().for_each(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rayon::ThreadPoolBuilder;

    use super::*;

    #[test]
    fn all_parts_are_worked_on_once_and_by_the_caller_where_the_pool_has_one_thread() {
        for threads in [1, 3] {
            let pool = ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            pool.install(|| {
                let caller = thread::current().id();
                let mut values: Vec<usize> = (0..1000).collect();
                each(values.par_chunks_mut(7), |part| {
                    assert!(threads > 1 || thread::current().id() == caller);
                    part.iter_mut().for_each(|value| *value += 1);
                });
                let expected: Vec<usize> = (1..=1000).collect();
                assert_eq!(values, expected);
                let sums = collect(values.par_chunks(7), |part| part.iter().sum::<usize>());
                let expected: Vec<usize> = values.chunks(7).map(|part| part.iter().sum()).collect();
                assert_eq!(sums, expected);
            });
        }
    }
}
