//! What can go wrong with a group: how it is configured, how its members meet, what its operations
//! end with.
//!
//! Each call returns the narrowest of these types; [`Error`] holds any of them. Why the transport
//! of a single operation stopped is a [`Failure`](crate::failure::Failure), which callers never
//! see.

mod certificate;
mod config;
mod join;
mod loss;
mod member;
mod operation;
mod refusal;
mod system;
mod unauthenticated;
mod wire;

use crate::Rank;

pub use certificate::CertificateProblem;
pub use config::ConfigError;
pub use join::JoinError;
pub use loss::LossCause;
pub use member::Member;
pub use operation::OperationError;
pub use refusal::{Refusal, RelayRefusal};
pub use system::{FileLimit, SystemError};
pub use unauthenticated::{UnauthenticatedCause, UnauthenticatedPeer};
pub use wire::WireError;

/// Anything that can go wrong with a group.
///
/// `?` makes one of any error of this crate, so it is what a program's own functions return. Its
/// `Debug` form is its message, so that `fn main() -> Result<(), Error>` and `unwrap` show a
/// sentence.
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process was not configured as it has to be.
    #[error(transparent)]
    Config(ConfigError),
    /// The members did not meet.
    #[error(transparent)]
    Join(JoinError),
    /// An operation failed.
    #[error(transparent)]
    Operation(OperationError),
}

/// Writes an error and its causes as one sentence: the `Debug` form of the errors of Meshwork's
/// crates.
///
/// # Errors
/// Those of the formatter.
pub fn fmt_with_causes(
    error: &dyn std::error::Error,
    f: &mut std::fmt::Formatter<'_>,
) -> std::fmt::Result {
    write!(f, "{error}")?;
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(f, ": {error}")?;
        cause = error.source();
    }
    Ok(())
}

/// Makes the message the `Debug` form too: it is what `main` and `unwrap` print.
macro_rules! show_the_sentence {
    ($($error:ident),*) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}
use show_the_sentence;

show_the_sentence!(Error);

impl Error {
    /// Exit status of a process whose configuration has to be changed before it is started again:
    /// `EX_CONFIG` of `sysexits.h`.
    pub const EXIT_CONFIG: u8 = 78;

    /// Whether a rank is gone, or did not come: the others can go on by
    /// [`shrink`](crate::Group::shrink).
    #[must_use]
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Config(_) => false,
            Self::Join(error) => error.is_loss(),
            Self::Operation(error) => error.is_loss(),
        }
    }

    /// The one rank that something is wrong with, if there is one and it is known.
    #[must_use]
    pub fn rank_at_fault(&self) -> Option<Rank> {
        match self {
            Self::Config(_) => None,
            Self::Join(error) => error.rank_at_fault(),
            Self::Operation(error) => error.rank_at_fault(),
        }
    }

    /// Whether the same program may succeed if it is started again, with nothing else changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config(_) => false,
            Self::Join(error) => error.is_retryable(),
            Self::Operation(error) => error.is_retryable(),
        }
    }

    /// The status for a process that ends with this error, as `meshwork run` understands it: a
    /// worker that ends with [`EXIT_CONFIG`](Self::EXIT_CONFIG) is not started again. Others are 1.
    ///
    /// ```no_run
    /// use std::process::ExitCode;
    ///
    /// fn main() -> ExitCode {
    ///     match train() {
    ///         Ok(()) => ExitCode::SUCCESS,
    ///         Err(error) => {
    ///             eprintln!("error: {error}");
    ///             error.exit_status().into()
    ///         }
    ///     }
    /// }
    /// # fn train() -> Result<(), meshwork_collectives::Error> { Ok(()) }
    /// ```
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Config(_) => Self::EXIT_CONFIG,
            Self::Join(_) | Self::Operation(_) => 1,
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<JoinError> for Error {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Config(error) => Self::Config(error),
            error => Self::Join(error),
        }
    }
}

impl From<OperationError> for Error {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Join(error) => error.into(),
            error => Self::Operation(error),
        }
    }
}

impl From<SystemError> for Error {
    fn from(error: SystemError) -> Self {
        Self::Join(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn messages_name_the_rank_the_place_and_the_remedy() {
        let member = Member::new(Rank::new(2), "10.0.0.3:4000");
        let cases = [
            (
                Error::from(OperationError::lost(member.clone(), LossCause::Died)),
                "rank 2 (10.0.0.3:4000) was lost: its process ended",
            ),
            (
                Error::Operation(OperationError::RankLost {
                    peer: member.clone(),
                    cause: LossCause::Silent(Duration::from_millis(1500)),
                    reporter: Some(Rank::new(1)),
                    heard: Some(Duration::from_millis(1500)),
                    completed: 0,
                }),
                "rank 2 (10.0.0.3:4000) was lost: nothing was heard of it for 1.5s (reported by rank 1)",
            ),
            (
                Error::Operation(OperationError::RankLost {
                    peer: member.clone(),
                    cause: LossCause::Disconnected,
                    reporter: None,
                    heard: Some(Duration::from_millis(120)),
                    completed: 17,
                }),
                "rank 2 (10.0.0.3:4000) was lost: its connection closed without a goodbye (last heard of 120.0ms before); 17 operations were completed here",
            ),
            (
                Error::Join(JoinError::NotJoined {
                    missing: vec![member],
                    waited: Duration::from_secs(30),
                    refused: vec![],
                }),
                "rank 2 (10.0.0.3:4000) did not join within 30.0s; is every process started, and can its address be reached?",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
            // What `main` and `unwrap` print.
            assert_eq!(format!("{error:?}"), text);
        }
    }

    #[test]
    fn an_error_is_found_in_one_place_however_it_came_about() {
        let config = ConfigError::SecretMissing;
        let join = JoinError::StartedAgain { restarts: 1 };
        let again = OperationError::from(JoinError::from(config.clone()));
        assert_eq!(Error::from(again), Error::Config(config.clone()));
        assert_eq!(Error::from(JoinError::from(config.clone())), config.into());
        assert_eq!(Error::from(OperationError::from(join.clone())), join.into());
    }

    #[test]
    fn errors_say_whose_fault_they_are_and_whether_another_try_may_help() {
        let member = |rank| Member::new(Rank::new(rank), "h:1");
        let missing = |missing| JoinError::NotJoined {
            missing,
            waited: Duration::from_secs(1),
            refused: vec![],
        };
        let own = OperationError::OwnRank { rank: Rank::CHIEF };
        let (lost, peer) = (LossCause::Died, Some(Rank::new(2)));
        let cases: [(Error, bool, Option<Rank>, bool); 5] = [
            (ConfigError::SecretMissing.into(), false, None, false),
            (missing(vec![member(2)]).into(), true, peer, true),
            (missing(vec![member(1), member(2)]).into(), true, None, true),
            (
                OperationError::lost(member(2), lost).into(),
                true,
                peer,
                true,
            ),
            (own.into(), false, None, false),
        ];
        for (error, is_loss, at_fault, is_retryable) in cases {
            assert_eq!(error.is_loss(), is_loss, "{error}");
            assert_eq!(error.rank_at_fault(), at_fault, "{error}");
            assert_eq!(error.is_retryable(), is_retryable, "{error}");
            let is_config = matches!(error, Error::Config(_));
            assert_eq!(error.exit_status() == Error::EXIT_CONFIG, is_config);
        }
    }

    #[test]
    fn a_long_list_of_missing_ranks_is_cut() {
        let missing = Rank::all(12).map(|rank| Member::new(rank, "h:1")).collect();
        let error = JoinError::NotJoined {
            missing,
            waited: Duration::from_secs(1),
            refused: vec![],
        };
        assert!(
            error
                .to_string()
                .contains("rank 7 (h:1) and 4 more did not join"),
            "{error}"
        );
    }
}
