//! Connections of an epoch that is over, by which its members call each other until they agree.
//!
//! Only the lower rank of two opens streams for that. While an epoch lasts, and at the beginning of
//! the next, only the higher one opens any ([`kept`](super::kept)), so neither takes the other's.

use std::time::Duration;

use quinn::Connection;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Admission, AdmittedMember, lock};
use crate::agreement::MemberId;
use crate::tasks::spawn;

/// How long connections that nobody needs stay open for the last words of an agreement.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A connection that stays open as long as this lives, up to [`LAST_WORDS`] after the agreement.
#[derive(Clone)]
pub(in crate::quic) struct LentConnection {
    pub(in crate::quic) with: MemberId,
    pub(in crate::quic) connection: Connection,
    _until: mpsc::Sender<()>,
}

/// The connections of a rank.
#[derive(Default)]
pub(crate) struct Lent {
    /// With lower ranks, which may call.
    pub(in crate::quic) lower: Vec<LentConnection>,
    /// With higher ranks, which may be called.
    pub(in crate::quic) higher: Vec<LentConnection>,
}

impl Admission {
    /// The connections that may serve another epoch and have not ended.
    pub(in crate::quic) fn lend(&self) -> Lent {
        let (until, returned) = mpsc::channel(1);
        let mut lent = Lent::default();
        for (rank, member) in self.admitted().iter() {
            if let Some(connection) = member.control_sender.lasting() {
                let connection = LentConnection {
                    with: self.member_id(*rank),
                    connection: connection.clone(),
                    _until: until.clone(),
                };
                match *rank < self.me {
                    true => lent.lower.push(connection),
                    false => lent.higher.push(connection),
                }
            }
        }
        *lock(&self.lent) = Some(returned);
        lent
    }

    /// Closes the connections with these members once no line is on them.
    pub(super) fn close_when_returned(&self, members: Vec<AdmittedMember>) {
        let returned = lock(&self.lent).take();
        spawn(async move {
            if let Some(mut returned) = returned {
                let _ = timeout(LAST_WORDS, returned.recv()).await;
            }
            drop(members);
        });
    }
}
