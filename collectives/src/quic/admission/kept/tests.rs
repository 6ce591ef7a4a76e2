//! Connections between two members that change epochs together, and what may be on them.

use std::time::Instant;

use super::*;
use crate::quic::heads::SplitHead;
use crate::quic::testing::{Job, SILENCE, end};
use crate::quic::{Met, Remote};
use crate::wire::MemberState;
use crate::{JoinError, OperationError, Refusal};

/// A member that has agreed on the next epoch.
struct Changing {
    remote: Remote,
    next: View,
    /// With the other one.
    connection: Connection,
}

impl Changing {
    /// Two, the lower rank first.
    async fn two() -> (Self, Self) {
        let job = Job::new(2);
        let (low, high) = tokio::join!(job.member(0), job.member(1));
        end(&low).await;
        tokio::join!(Self::of(low, Rank::new(1)), Self::of(high, Rank::CHIEF))
    }

    /// One whose epoch ends.
    async fn of(remote: Remote, other: Rank) -> Self {
        let connection = remote.connection(other).unwrap();
        let failed = remote.failure().wait_for(Option::is_some).await.map(drop);
        failed.unwrap();
        remote.hand_over().await;
        let (own, evidence) = (MemberState::default(), remote.evidence(None));
        let agreed = remote.node().agree(remote.previous_epoch(), own, evidence);
        Self {
            next: agreed.await.unwrap(),
            remote,
            connection,
        }
    }

    async fn meet(&self) -> Met {
        self.remote.meet_next(self.next.clone()).await.unwrap()
    }

    fn dialled(&self) -> u64 {
        self.remote.node().endpoint.stats().outgoing_handshakes
    }

    /// Whether the connection with this rank is the one of the epoch before.
    fn has_kept(&self, met: &Met, other: Rank) -> bool {
        assert!(met.links.is_ok(), "{:?}", met.links.as_ref().err());
        let connection = met.remote.connection(other).unwrap();
        connection.stable_id() == self.connection.stable_id()
    }
}

/// As by a task that had opened them when its epoch ended, and was not heard.
#[tokio::test]
async fn streams_of_the_old_epoch_that_come_late_are_passed_over() {
    let (low, high) = Changing::two().await;
    for bytes in [&b""[..], b"SPL", &SplitHead { group: 3 }.encode()] {
        let (mut late, _) = high.connection.open_bi().await.unwrap();
        late.write_all(bytes).await.unwrap();
    }
    let dialled = high.dialled();
    let (low_met, high_met) = tokio::join!(low.meet(), high.meet());
    assert!(low.has_kept(&low_met, Rank::new(1)));
    assert!(high.has_kept(&high_met, Rank::CHIEF));
    assert_eq!(high.dialled(), dialled);
}

#[tokio::test]
async fn a_greeting_on_a_kept_connection_is_examined_like_any() {
    let (low, mut high) = Changing::two().await;
    high.next.number += 1;
    let dialled = high.dialled();
    let met = tokio::select! {
        met = high.meet() => met,
        _ = low.meet() => panic!("nobody else comes"),
    };
    let refused = met.links.err().unwrap();
    let OperationError::Join(JoinError::Refused { reason, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(reason, Refusal::Members);
    assert_eq!(
        high.dialled(),
        dialled,
        "it was said on the kept connection"
    );
}

/// The lower rank keeps the connection open and never looks at it, as if nothing of what is sent on
/// it arrived.
#[tokio::test]
async fn a_kept_connection_on_which_nobody_answers_is_given_up_and_another_dialled() {
    let (low, high) = Changing::two().await;
    let ignored = low.remote.admission.leave_to(&low.next).await;
    assert_eq!(ignored.len(), 1);
    let began = Instant::now();
    let met_anew = low.remote.node().meet(low.next.clone(), Kept::new());
    let (low_met, high_met) = tokio::join!(met_anew, high.meet());
    assert!(began.elapsed() >= SILENCE, "it was tried");
    assert!(!low.has_kept(&low_met.unwrap(), Rank::new(1)));
    assert!(!high.has_kept(&high_met, Rank::CHIEF));
    assert!(high.connection.close_reason().is_some());
}
