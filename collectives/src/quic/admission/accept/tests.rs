//! Callers that are no members, and a rank 0 that waits for others.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use super::*;
use crate::Network;
use crate::identity::Identity;
use crate::quic::admission::Kept;
use crate::quic::node::View;
use crate::quic::testing::{Job, PATIENCE};

/// As many streams as a member may open, and more bytes than anybody else needs.
const STREAMS: usize = 130;
const MUCH: usize = 1 << 20;

/// Rank 0 in the first epoch, which nobody follows.
fn admission(job: &Job, node: &Arc<Node>) -> (Arc<Admission>, mpsc::Receiver<Event>) {
    let (events, heard) = mpsc::channel(16);
    let view = View::first(Rank::CHIEF, job.members());
    (Admission::new(node, view, Kept::new(), events), heard)
}

/// Writes on one more stream, for as long as it lasts.
async fn fill(connection: &Connection, accepted: &Cell<usize>) {
    let Ok((mut send, _receive)) = connection.open_bi().await else {
        return;
    };
    while let Ok(count) = send.write(&[0; 4096]).await {
        accepted.set(accepted.get() + count);
    }
}

/// It has a certificate of the authority, as those of other jobs have where that is the user's.
#[tokio::test]
async fn who_has_not_proved_to_be_a_member_has_little_room() {
    let job = Job::new(2);
    let node = Node::open(&job.config(0)).await.unwrap();
    let (admission, _heard) = admission(&job, &node);
    let mut accepting = JoinSet::new();
    spawn_in(&mut accepting, accept(admission, node.clone()));
    let stranger = Identity::of_job(job.config(0).identity(), Role::Launcher).unwrap();
    let dialler = endpoint::dialler(Ipv4Addr::LOCALHOST.into()).unwrap();
    let client = endpoint::client(&stranger, Network::default());
    let address = node.endpoint.local_addr().unwrap();
    let name = stranger.server_name(Role::Rank(Rank::CHIEF)).unwrap();
    let connecting = dialler.connect_with(client, address, &name.to_str());
    let connection = connecting.unwrap().await.unwrap();
    let (mut said, _receive) = connection.open_bi().await.unwrap();
    let half = &Message::Heartbeat.encode()[..7];
    said.write_all(half).await.unwrap();

    let accepted = Cell::new(half.len());
    let filling = join_all((0..STREAMS).map(|_| fill(&connection, &accepted)));
    let is_full = async {
        while connection.stats().frame_tx.data_blocked == 0 && accepted.get() < MUCH {
            yield_now().await;
        }
    };
    let full = async {
        tokio::select! {
            _ = filling => panic!("{:?}", connection.close_reason()),
            () = is_full => {}
        }
    };
    timeout(PATIENCE, full).await.unwrap();
    assert!(accepted.get() < MUCH, "{} bytes", accepted.get());
}

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_stranger_that_calls_in_two_epochs_is_logged_once() {
    let job = Job::new(2);
    let node = Node::open(&job.config(0)).await.unwrap();
    let address = (Ipv4Addr::new(192, 0, 2, 1), 4000).into();
    let warnings = Warnings::default();
    // As long as there is one, what another thread says first is never heard of any thread.
    let _second = tracing::Dispatch::new(warnings.clone());
    let _here = tracing::subscriber::set_default(warnings.clone());
    for _epoch in 0..2 {
        let (admission, mut heard) = admission(&job, &node);
        report(&admission, address, UnauthenticatedCause::OtherJob).await;
        assert!(matches!(heard.try_recv(), Ok(Event::Refused(_))));
    }
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
}
