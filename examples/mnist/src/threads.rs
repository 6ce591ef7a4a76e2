//! How many threads the numerical libraries of one worker use.
//!
//! candle asks two environment variables, each time it multiplies matrices, and rayon's current pool for the rest. A
//! process cannot safely change its own environment, but it can start others with one and it can work inside a pool.

use std::num::NonZeroUsize;

use rayon::ThreadPoolBuilder;

use crate::error::Error;

/// What to set in the environment of a worker process before it is started.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "no worker is started by another process yet")
)]
pub(crate) fn environment(threads: NonZeroUsize) -> [(&'static str, String); 2] {
    VARIABLES.map(|name| (name, threads.to_string()))
}

/// Runs `work` on a thread of a pool of this size, so that everything it splits up stays inside.
///
/// # Errors
///
/// [`Error::Threads`] if the pool cannot be made, or what `work` returns.
pub(crate) fn within<T: Send>(
    threads: NonZeroUsize,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads.get())
        .build()
        .map_err(|source| Error::Threads {
            threads: threads.get(),
            source,
        })?;
    pool.install(work)
}

const VARIABLES: [&str; 2] = ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_sees_a_pool_of_the_size_asked_for() {
        for threads in 1..=3 {
            let threads = NonZeroUsize::new(threads).unwrap();
            let seen = within(threads, || Ok(rayon::current_num_threads())).unwrap();
            assert_eq!(seen, threads.get());
        }
    }

    #[test]
    fn both_libraries_are_told_the_same() {
        let [(rayon, a), (candle, b)] = environment(NonZeroUsize::new(2).unwrap());
        assert_eq!((rayon, candle), ("RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"));
        assert_eq!((a, b), ("2".to_owned(), "2".to_owned()));
    }
}
