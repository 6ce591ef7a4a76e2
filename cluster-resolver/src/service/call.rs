//! One question to a service: attempts, pauses between them, and a deadline over all.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::panic;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use super::retry::{Pauses, RetryPolicy};
use crate::error::{ServiceError, ServiceErrorKind};

/// One question to a service, from the first attempt to the last: all of them share its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    retry: RetryPolicy,
    begun: Instant,
}

/// What came of one attempt.
pub(crate) enum Attempt<T> {
    /// It is decided.
    Done(T),
    /// Another attempt may do better, after this pause at least.
    Again(ServiceErrorKind, Option<Duration>),
}

impl<T> Attempt<T> {
    /// What follows from an answer that could not be read: one that is too long stays so.
    pub(crate) fn unread(problem: ServiceErrorKind) -> Self {
        let is_too_long = problem == ServiceErrorKind::TooLong;
        Self::Again(problem, is_too_long.then_some(Duration::MAX))
    }
}

/// Runs this to its end on a thread of its own, whatever the caller's thread is busy with.
pub(crate) fn run<T: Send>(
    work: impl Future<Output = Result<T, ServiceError>> + Send,
) -> Result<T, ServiceError> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("cluster-resolver".to_owned());
        let worker = worker.spawn_scoped(scope, || block_on(runtime()?, work));
        let ended = worker.map_err(no_runtime)?.join();
        ended.unwrap_or_else(|cause| panic::resume_unwind(cause))
    })
}

/// A runtime for the requests of one thread.
pub(crate) fn runtime() -> Result<Runtime, ServiceError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(no_runtime)
}

/// Drives this to its end, and waits for nothing that it left behind: the look-up of a name cannot
/// be ended, and goes on past every deadline.
pub(crate) fn block_on<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let ended = runtime.block_on(work);
    runtime.shutdown_background();
    ended
}

pub(crate) fn no_runtime(error: io::Error) -> ServiceError {
    ServiceError::NoRuntime { kind: error.kind() }
}

impl Call {
    /// A question that begins now.
    pub(crate) fn begin(retry: RetryPolicy) -> Self {
        Self {
            retry,
            begun: Instant::now(),
        }
    }

    /// The time that is left of the question.
    pub(crate) fn left(&self) -> Duration {
        self.retry.deadline().saturating_sub(self.begun.elapsed())
    }

    /// The pauses between attempts at this URL.
    pub(crate) fn pauses(&self, url: &str) -> Pauses {
        self.retry.pauses(RandomState::new().hash_one(url))
    }

    /// Tries until it is decided or the deadline has come. No pause is begun that would end after
    /// the deadline, and the last attempt ends with it.
    pub(crate) async fn retry<T, W>(
        &self,
        url: &str,
        mut attempt: impl FnMut() -> W,
    ) -> Result<T, ServiceError>
    where
        W: Future<Output = Result<Attempt<T>, ServiceError>>,
    {
        let mut pauses = self.pauses(url);
        let mut attempts = 0;
        let mut last = None;
        loop {
            attempts += 1;
            let time = self.retry.attempt_timeout().min(self.left());
            let (problem, at_least) = match tokio::time::timeout(time, attempt()).await {
                Ok(Ok(Attempt::Done(answer))) => return Ok(answer),
                Ok(Ok(Attempt::Again(problem, at_least))) => (problem, at_least),
                Ok(Err(error)) => return Err(error),
                // An attempt that the deadline cut short says less than the one before it.
                Err(_) if time < self.retry.attempt_timeout() => {
                    (last.unwrap_or(ServiceErrorKind::TooSlow), None)
                }
                Err(_) => (ServiceErrorKind::TooSlow, None),
            };
            last = Some(problem);
            let pause = pauses.next().unwrap_or_default();
            let pause = pause.max(at_least.unwrap_or_default());
            if pause >= self.left() {
                return Err(self.ended(url, attempts, problem));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// No time is left after so many attempts, of which the last failed so.
    pub(crate) fn ended(
        &self,
        url: &str,
        attempts: u32,
        problem: ServiceErrorKind,
    ) -> ServiceError {
        ServiceError::Unreachable {
            url: url.to_owned(),
            attempts,
            waited: self.begun.elapsed(),
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    const URL: &str = "http://service";

    fn policy() -> RetryPolicy {
        let pauses = (Duration::from_millis(1), Duration::from_millis(2));
        RetryPolicy::new(Duration::from_secs(30)).with_backoff(pauses.0, pauses.1)
    }

    /// Fails this often, then answers; gives the answer and the number of attempts.
    fn after(failures: u32, retry: RetryPolicy) -> (Result<u32, ServiceError>, u32) {
        let made = AtomicU32::new(0);
        let call = Call::begin(retry);
        let answer = run(call.retry(URL, async || {
            let attempt = made.fetch_add(1, Ordering::Relaxed);
            Ok(if attempt < failures {
                Attempt::Again(ServiceErrorKind::Busy(503), None)
            } else {
                Attempt::Done(7)
            })
        }));
        (answer, made.into_inner())
    }

    #[test]
    fn it_goes_on_until_there_is_an_answer() {
        for failures in 0..5 {
            assert_eq!(after(failures, policy()), (Ok(7), failures + 1));
        }
    }

    #[test]
    fn it_ends_by_the_deadline_and_says_what_the_last_problem_was() {
        let short = RetryPolicy::new(Duration::from_millis(300));
        let (answer, attempts) = after(
            u32::MAX,
            short.with_backoff(Duration::from_millis(1), Duration::from_millis(4)),
        );
        let Err(ServiceError::Unreachable {
            problem,
            attempts: said,
            waited,
            ..
        }) = answer
        else {
            panic!("{answer:?}");
        };
        assert_eq!((problem, said), (ServiceErrorKind::Busy(503), attempts));
        assert!(
            attempts > 1 && waited < Duration::from_secs(10),
            "{attempts} in {waited:?}"
        );
    }

    #[test]
    fn a_pause_that_the_service_asks_for_is_kept_or_given_up_at_once() {
        let call = Call::begin(policy());
        let asked = run(call.retry(URL, async || {
            Ok::<Attempt<()>, _>(Attempt::Again(
                ServiceErrorKind::Busy(429),
                Some(Duration::from_secs(60)),
            ))
        }));
        assert!(
            matches!(asked, Err(ServiceError::Unreachable { attempts: 1, .. })),
            "{asked:?}"
        );
    }

    #[test]
    fn an_answer_that_is_too_long_is_asked_for_once() {
        let mut left = vec![ServiceErrorKind::TooLong, ServiceErrorKind::BrokenOff];
        let call = Call::begin(policy());
        let asked = run(call.retry(URL, || {
            let problem = left.pop().expect("an attempt too many");
            async move { Ok(Attempt::<()>::unread(problem)) }
        }));
        let Err(ServiceError::Unreachable {
            problem, attempts, ..
        }) = asked
        else {
            panic!("{asked:?}");
        };
        assert_eq!((problem, attempts), (ServiceErrorKind::TooLong, 2));
    }

    #[test]
    fn an_attempt_that_hangs_is_ended() {
        let brief = RetryPolicy::new(Duration::from_millis(500))
            .with_attempt_timeout(Duration::from_millis(5));
        let call = Call::begin(brief.with_backoff(Duration::ZERO, Duration::ZERO));
        let hung = run(call.retry(URL, || {
            std::future::pending::<Result<Attempt<()>, ServiceError>>()
        }));
        let Err(ServiceError::Unreachable {
            problem, attempts, ..
        }) = hung
        else {
            panic!("{hung:?}");
        };
        assert_eq!(problem, ServiceErrorKind::TooSlow);
        assert!(attempts > 1, "{attempts}");
    }

    #[test]
    fn what_cannot_be_ended_is_not_waited_for() {
        let (end, ended) = mpsc::channel::<()>();
        let done = run(async {
            tokio::task::spawn_blocking(move || ended.recv_timeout(Duration::from_secs(10)));
            Ok(())
        });
        assert_eq!(done, Ok(()));
        assert!(end.send(()).is_ok(), "it was waited for");
    }

    #[test]
    fn it_may_be_asked_inside_an_asynchronous_runtime() {
        let outer = Builder::new_current_thread().build().unwrap();
        let answer = outer.block_on(async { run(async { Ok(1) }) });
        assert_eq!(answer, Ok(1));
    }
}
