//! A group's last error as it is told to the other ranks, and as they understand it.

use std::time::Duration;

use crate::wire::{Abort, WireCall, truncate};
use crate::{JoinError, LossCause, Member, OperationError, Rank};

const DIED: u8 = 1;
const SILENT: u8 = 2;
const DISCONNECTED: u8 = 3;
const LEFT: u8 = 4;
const GAVE_UP: u8 = 5;
const DISAGREED: u8 = 6;
const STOPPED: u8 = 7;
const NOT_JOINED: u8 = 8;
const PORT_CLOSED: u8 = 9;

/// What `me` tells the others when its group ends with `error`.
pub(crate) fn tell(error: &OperationError, me: Rank) -> Abort {
    let blame = |culprit: Rank, cause, text: &str| Abort {
        culprit: culprit.number(),
        reporter: me.number(),
        cause,
        heard_ms: None,
        text: truncate(text),
        calls: Vec::new(),
    };
    match error {
        OperationError::RankLost {
            peer,
            cause,
            heard,
            reporter,
            ..
        } => {
            let heard = match cause {
                LossCause::Silent(silence) => Some(*silence),
                _ => *heard,
            };
            let millis = |heard: Duration| u64::try_from(heard.as_millis()).unwrap_or(u64::MAX);
            Abort {
                heard_ms: heard.map(millis),
                reporter: reporter.unwrap_or(me).number(),
                ..blame(peer.rank(), code(*cause), "")
            }
        }
        OperationError::Aborted { peer, message } => blame(peer.rank(), GAVE_UP, message),
        OperationError::Disagreement {
            rank,
            mine,
            peer,
            theirs,
        } => Abort {
            calls: vec![WireCall::new(*rank, mine), WireCall::new(*peer, theirs)],
            ..blame(*peer, DISAGREED, "")
        },
        OperationError::Join(JoinError::NotJoined { .. }) => {
            blame(me, NOT_JOINED, &error.to_string())
        }
        other => blame(me, GAVE_UP, &other.to_string()),
    }
}

impl Abort {
    /// Whether it is over because not all have come.
    pub(super) fn reports_absence(&self) -> bool {
        self.cause == NOT_JOINED
    }

    /// Whether it says that this rank's process has ended, or that nobody listens at its port: then
    /// nobody is waited for to confirm it.
    pub(crate) fn reports_end_of(&self, rank: Rank) -> bool {
        matches!(self.cause, DIED | PORT_CLOSED) && self.culprit == rank.number()
    }
}

/// What `by`'s abort means here. Codes and ranks from the wire are taken for what they can be at
/// most: an unknown one is the reporter's own giving up.
pub(super) fn from_wire(abort: &Abort, by: Rank, members: &[Member]) -> OperationError {
    let culprit = members
        .get(abort.culprit as usize)
        .unwrap_or_else(|| &members[by.index()])
        .clone();
    let reporter = members.get(abort.reporter as usize);
    let reporter = reporter.map_or(by, Member::rank);
    let reporter = (culprit.rank() != reporter).then_some(reporter);
    let heard = abort.heard_ms.map(Duration::from_millis);
    let lost = |cause| OperationError::RankLost {
        peer: culprit.clone(),
        cause,
        reporter,
        heard,
        completed: 0,
    };
    match abort.cause {
        DIED => lost(LossCause::Died),
        SILENT if let Some(silence) = heard => lost(LossCause::Silent(silence)),
        DISCONNECTED => lost(LossCause::Disconnected),
        LEFT => lost(LossCause::Left),
        STOPPED => lost(LossCause::Stopped),
        PORT_CLOSED => lost(LossCause::PortClosed),
        DISAGREED => disagreement(&abort.calls).unwrap_or_else(|| OperationError::Aborted {
            peer: culprit,
            message: "ranks made different calls".to_owned(),
        }),
        _ => OperationError::Aborted {
            peer: culprit,
            message: truncate(&abort.text),
        },
    }
}

fn disagreement(calls: &[WireCall]) -> Option<OperationError> {
    let [mine, theirs] = calls else { return None };
    let ((rank, mine), (peer, theirs)) = (mine.call().ok()?, theirs.call().ok()?);
    Some(OperationError::Disagreement {
        rank,
        mine: Box::new(mine),
        peer,
        theirs: Box::new(theirs),
    })
}

fn code(cause: LossCause) -> u8 {
    match cause {
        LossCause::Died => DIED,
        LossCause::Silent(_) => SILENT,
        LossCause::Disconnected => DISCONNECTED,
        LossCause::Left => LEFT,
        LossCause::Stopped => STOPPED,
        LossCause::PortClosed => PORT_CLOSED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever is wrongly taken for silent still has to hear why the group is over.
    #[test]
    fn only_where_nobody_is_left_nobody_confirms() {
        let [me, lost] = [0, 1].map(Rank::new);
        let causes = [
            (LossCause::Died, true),
            (LossCause::Silent(Duration::ZERO), false),
            (LossCause::Stopped, false),
            (LossCause::PortClosed, true),
            (LossCause::Disconnected, false),
            (LossCause::Left, false),
        ];
        for (cause, gone) in causes {
            let abort = tell(&OperationError::lost(Member::new(lost, ""), cause), me);
            assert_eq!(abort.reports_end_of(lost), gone, "{cause:?}");
            assert!(!abort.reports_end_of(me), "{cause:?}");
        }
    }
}
