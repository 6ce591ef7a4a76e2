//! When a newcomer gives up: what the answers of a round of asking say of its hope.

use std::time::{Duration, Instant};

use crate::JoinError;

/// What came of asking.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// This process waits to be let in, or is.
    Noted,
    /// It is of this job and between two epochs, so it hears newcomers a little later.
    Between,
    /// It is of this job, and never lets this process in.
    Denied(JoinError),
    /// It is of another job, as it seems. The address may be an old one of this job.
    Stranger(JoinError),
    /// Nobody listens there, or who does is busy, or waits itself.
    Nobody,
}

impl Answer {
    /// Whether a member of this job gave it, which may let this process in.
    pub(super) fn is_hopeful(&self) -> bool {
        matches!(self, Self::Noted | Self::Between)
    }
}

/// Those that were taken for strangers since a member of this job has answered.
pub(super) struct Denials {
    /// How long others are waited for beside a stranger.
    patience: Duration,
    /// Rounds in a row in which all that were asked were strangers.
    in_a_row: usize,
    since: Option<Instant>,
}

impl Denials {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience,
            in_a_row: 0,
            since: None,
        }
    }

    /// Takes in the answers of one round, of `of_all` in which everybody is asked. Returns why
    /// there is no hope: a member of this job has said so, or all are strangers, or some are and
    /// nobody else has answered for the whole patience.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        answers: Vec<Answer>,
        of_all: usize,
    ) -> Option<JoinError> {
        if answers.iter().any(Answer::is_hopeful) {
            *self = Self::new(self.patience);
            return None;
        }
        self.in_a_row = match answers.contains(&Answer::Nobody) {
            true => 0,
            false => self.in_a_row + 1,
        };
        let mut stranger = None;
        for answer in answers {
            match answer {
                Answer::Denied(error) => return Some(error),
                Answer::Stranger(error) => stranger = Some(error),
                Answer::Noted | Answer::Between | Answer::Nobody => {}
            }
        }
        let error = stranger?;
        let since = *self.since.get_or_insert(now);
        let is_over = now.saturating_duration_since(since) >= self.patience;
        (is_over || self.in_a_row >= of_all).then_some(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn stranger() -> Answer {
        Answer::Stranger(JoinError::SeedOfOtherJob {
            seed: ([127, 0, 0, 1], 1).into(),
        })
    }

    fn denied() -> Answer {
        Answer::Denied(JoinError::Denied {
            seed: ([127, 0, 0, 1], 2).into(),
            reason: Refusal::Program,
        })
    }

    #[track_caller]
    fn gives_up(heard: Option<JoinError>, because: Answer) {
        let (Answer::Denied(error) | Answer::Stranger(error)) = because else {
            panic!("{because:?} is no reason");
        };
        assert_eq!(heard, Some(error));
    }

    #[test]
    fn all_that_are_asked_are_strangers() {
        let (now, mut denials) = (Instant::now(), Denials::new(PATIENCE));
        gives_up(denials.hear(now, vec![stranger(); 3], 1), stranger());
        // Where not all are asked at once, when all have been.
        let mut denials = Denials::new(PATIENCE);
        assert_eq!(denials.hear(now, vec![stranger(); 8], 2), None);
        gives_up(denials.hear(now, vec![stranger(); 8], 2), stranger());
    }

    #[test]
    fn a_member_of_this_job_is_believed_at_once() {
        let (now, mut denials) = (Instant::now(), Denials::new(PATIENCE));
        let answers = vec![Answer::Nobody, denied(), stranger()];
        gives_up(denials.hear(now, answers, 9), denied());
    }

    #[test]
    fn a_stranger_beside_somebody_silent_is_no_reason_before_the_patience_is_over() {
        let (now, mut denials) = (Instant::now(), Denials::new(PATIENCE));
        let answers = || vec![Answer::Nobody, stranger()];
        assert_eq!(denials.hear(now, answers(), 1), None);
        let late = now + PATIENCE - Duration::from_millis(1);
        assert_eq!(denials.hear(late, answers(), 1), None);
        // Who is silent altogether is waited for until the time to join is over.
        assert_eq!(denials.hear(now + PATIENCE, vec![Answer::Nobody], 1), None);
        gives_up(denials.hear(now + PATIENCE, answers(), 1), stranger());
    }

    #[test]
    fn whoever_is_of_this_job_and_does_not_deny_is_waited_for_anew() {
        for hopeful in [Answer::Noted, Answer::Between] {
            let (now, mut denials) = (Instant::now(), Denials::new(PATIENCE));
            let silent = || vec![Answer::Nobody, stranger()];
            assert_eq!(denials.hear(now, silent(), 1), None);
            let answers = vec![denied(), stranger(), hopeful];
            assert_eq!(denials.hear(now + PATIENCE, answers, 1), None);
            assert_eq!(denials.hear(now + PATIENCE, silent(), 1), None);
            gives_up(denials.hear(now + 2 * PATIENCE, silent(), 1), stranger());
        }
    }

    #[test]
    fn where_nobody_is_known_nobody_denies() {
        let mut denials = Denials::new(PATIENCE);
        assert_eq!(denials.hear(Instant::now(), Vec::new(), 0), None);
    }
}
