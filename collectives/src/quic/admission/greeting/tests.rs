//! Of three ranks the last never comes, and the first fails while it greets the second.

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::membership::{Event, tell};
use crate::quic::admission::accept;
use crate::quic::admission::dial::{Greeted, greet, over_streams};
use crate::quic::node::{Node, View};
use crate::quic::testing::{Job, SILENCE};
use crate::quic::ways::Way;
use crate::tasks::spawn_in;
use crate::{LossCause, Member, OperationError};

/// A rank without a driver.
struct Part {
    admission: Arc<Admission>,
    events: mpsc::Receiver<Event>,
}

impl Part {
    async fn of(job: &Job, rank: u32) -> Self {
        let (send, events) = mpsc::channel(16);
        let node = Node::open(&job.config(rank)).await.unwrap();
        let view = View::first(Rank::new(rank), job.members());
        Self {
            admission: Admission::new(&node, view, BTreeMap::new(), send),
            events,
        }
    }

    fn member(&self, rank: u32) -> Member {
        self.admission.member(Rank::new(rank))
    }

    async fn greets(&self, peer: &Member) -> Greeted {
        let endpoint = &self.admission.node.endpoint;
        let greeted = greet(&self.admission, endpoint, peer, Way::Direct).await;
        greeted.unwrap()
    }

    async fn joins(&self, peer: &Member, greeted: Greeted) {
        let endpoint = &self.admission.node.endpoint;
        let joined = over_streams(&self.admission, endpoint, peer, 0, greeted).await;
        self.admission.admit(peer.rank(), joined.unwrap());
    }

    async fn hears(&mut self) -> (Rank, Abort) {
        loop {
            match self.events.recv().await {
                Some(Event::Joined(_) | Event::Unwatched(_)) => {}
                Some(Event::Aborted { by, abort }) => return (by, abort),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_rank_is_greeted_a_few_times_at_once_and_keeps_no_other_out() {
    let job = Job::new(3);
    let low = Part::of(&job, 0).await;
    let begin = |rank| low.admission.begin_greeting(Rank::new(rank));
    let mut greetings: Vec<_> = (0..2 * GREETINGS).filter_map(|_| begin(1)).collect();
    assert_eq!(greetings.len(), GREETINGS);
    assert!(begin(2).is_some());
    greetings.pop();
    greetings.extend(begin(1));
    assert_eq!(greetings.len(), GREETINGS);
    drop(greetings);
    assert!(low.admission.greetings.borrow().is_empty());
}

#[tokio::test]
async fn who_is_greeted_while_a_rank_fails_hears_why() {
    let job = Job::new(3);
    let (low, mut high) = (Part::of(&job, 0).await, Part::of(&job, 1).await);
    let mut answering = JoinSet::new();
    let (admission, node) = (low.admission.clone(), low.admission.node.clone());
    spawn_in(&mut answering, accept(admission, node));
    let peer = high.member(0);
    let greeted = high.greets(&peer).await;

    let lost = OperationError::lost(low.member(2), LossCause::Died);
    let abort = tell(&lost, Rank::CHIEF);
    low.admission.fail(abort.clone());
    let hears = async {
        high.joins(&peer, greeted).await;
        assert_eq!(high.hears().await, (Rank::CHIEF, abort));
    };
    let told = async { tokio::join!(low.admission.farewells(), hears) };
    let (confirmed, ()) = timeout(SILENCE, told).await.unwrap();
    // It was waited for.
    assert_eq!(confirmed.map(|closing| closing.len()), Some(1));
}
