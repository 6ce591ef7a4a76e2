//! How many threads the numerical libraries of one worker use.
//!
//! candle asks an environment variable each time it multiplies matrices, and without it takes all
//! cores, which makes the small products of this network half as fast again; for the rest it uses
//! rayon's current pool. A process cannot safely change its own environment, but it can start
//! others with one, restart as one of them, and work inside a pool.

use std::env;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rayon::ThreadPoolBuilder;

use crate::error::Error;

/// The variables to set in the environment of a worker process before it is started.
pub(crate) fn environment(threads: NonZeroUsize) -> [(&'static str, String); 2] {
    VARIABLES.map(|name| (name, threads.to_string()))
}

/// Starts this program over in the same process, with the same arguments and [`environment`],
/// unless that is set already.
///
/// # Errors
///
/// [`Error::Restart`] if the program cannot be started again.
pub(crate) fn require_environment(threads: NonZeroUsize) -> Result<(), Error> {
    let wanted = environment(threads);
    if wanted
        .iter()
        .all(|(name, value)| env::var_os(name) == Some(OsString::from(value)))
    {
        return Ok(());
    }
    let program = env::current_exe().map_err(|source| Error::Restart { source })?;
    let source = Command::new(program)
        .args(env::args_os().skip(1))
        .envs(wanted)
        .exec();
    Err(Error::Restart { source })
}

/// Runs `work` as the calling thread's share of a pool of this size, so that everything it splits
/// up stays inside.
///
/// The calling thread is one of the pool's: with a pool of one nothing is handed over, and the
/// memory of the main thread, which the allocator trims least, is used. A thread can do this once.
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
        .use_current_thread()
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
            let work = move || within(threads, || Ok(rayon::current_num_threads()));
            assert_eq!(
                std::thread::spawn(work).join().unwrap().unwrap(),
                threads.get()
            );
        }
    }

    #[test]
    fn both_libraries_are_told_the_same() {
        let [(rayon, a), (candle, b)] = environment(NonZeroUsize::new(2).unwrap());
        assert_eq!((rayon, candle), ("RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"));
        assert_eq!((a, b), ("2".to_owned(), "2".to_owned()));
    }
}
