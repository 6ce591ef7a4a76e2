use std::panic;
use std::thread;

/// What `run` makes of each of `all`, with a thread for each at the same time, in their order.
///
/// ```
/// let doubled = meshwork_testing::in_threads([1, 2, 3], |number| 2 * number);
/// assert_eq!(doubled, [2, 4, 6]);
/// ```
///
/// # Panics
/// As the first of them that does.
pub fn in_threads<T: Send, R: Send>(
    all: impl IntoIterator<Item = T>,
    run: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let run = &run;
        let start = |one| scope.spawn(move || run(one));
        let threads: Vec<_> = all.into_iter().map(start).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|ended| ended.unwrap_or_else(|panicked| panic::resume_unwind(panicked)))
            .collect()
    })
}
