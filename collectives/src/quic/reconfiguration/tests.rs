//! A member that another calls or that calls it, whose part the test plays.

use std::sync::Arc;
use std::time::SystemTime;

use quinn::{ClientConfig, Connection, RecvStream, SendStream};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::identity::RENEWAL;
use crate::quic::testing::{Job, PATIENCE, end};
use crate::quic::{Remote, control};
use crate::wire::{Ballot, Message, Newcomer, Spoken};
use crate::{GroupConfig, JobSecret, Rank};

/// As many as it takes for one that calls nobody of its own accord.
const WORLD: u32 = 4;
const CALLER: MemberId = 0;
const CALLED: MemberId = WORLD - 1;
/// Whom the lowest calls.
const NEXT: MemberId = 1;

/// The first epoch of a group, which is over.
struct Epoch {
    remotes: [Remote; WORLD as usize],
}

impl Epoch {
    async fn over() -> Self {
        let job = Job::new(WORLD as usize);
        let member = |rank| job.member(rank);
        let remotes: [Remote; WORLD as usize] =
            tokio::join!(member(0), member(1), member(2), member(3)).into();
        for remote in &remotes {
            end(remote).await;
            let mut failure = remote.failure();
            failure.wait_for(Option::is_some).await.unwrap();
            remote.hand_over().await;
        }
        Self { remotes }
    }

    fn node(&self, member_id: MemberId) -> &Arc<Node> {
        self.remotes[member_id as usize].node()
    }

    /// A member's agreement, which comes to no end.
    async fn agrees(&self, member_id: MemberId) {
        let remote = &self.remotes[member_id as usize];
        let (own, evidence) = (MemberState::default(), remote.evidence(None));
        let end = remote.node().agree(remote.previous_epoch(), own, evidence);
        panic!("{:?}", end.await.map(|view| view.number));
    }

    /// Ends with the test, while a member agrees.
    async fn while_one_agrees(&self, member_id: MemberId, test: impl Future<Output = ()>) {
        tokio::select! {
            () = test => {}
            () = self.agrees(member_id) => {}
        }
    }

    /// A member's connection of the epoch with another.
    fn connection(&self, of: MemberId, with: MemberId) -> Connection {
        let connection = self.remotes[of as usize].connection(Rank::new(with));
        connection.unwrap()
    }

    fn greeting(&self, of: MemberId, epoch: u64) -> Message {
        Message::JoinRequest(JoinRequest {
            epoch,
            newcomer: self.node(of).newcomer(),
            program: [0; 16],
            restarts: 0,
        })
    }

    /// The caller's line, on which no signs of life are asked for.
    async fn call(&self) -> (Connection, SendStream, RecvStream) {
        let (node, called) = (self.node(CALLER), self.node(CALLED));
        let name = node.identity.server_name(node.role(CALLED)).unwrap();
        let client = ClientConfig::new(node.identity.client());
        let address = called.endpoint.local_addr().unwrap();
        let dialled = node.endpoint.connect_with(client, address, &name.to_str());
        let connection = dialled.unwrap().await.unwrap();
        let (send, receive) = self.greet(&connection).await;
        (connection, send, receive)
    }

    /// A stream on which the called member has greeted.
    async fn greet(&self, connection: &Connection) -> (SendStream, RecvStream) {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let greeting = self.greeting(CALLER, 1);
        control::write(&mut send, &greeting).await.unwrap();
        greeted(&mut receive, self.node(CALLED)).await;
        (send, receive)
    }

    /// What the called member says first when it calls the caller.
    async fn is_called(&self) -> Spoken {
        let connection = self.node(CALLER).endpoint.accept().await.unwrap();
        let connection = connection.await.unwrap();
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        greeted(&mut receive, self.node(CALLED)).await;
        let greeting = self.greeting(CALLER, 1);
        control::write(&mut send, &greeting).await.unwrap();
        spoken(&mut receive).await
    }
}

/// Reads the greeting of a member.
async fn greeted(receive: &mut RecvStream, by: &Arc<Node>) {
    let Ok(Message::JoinRequest(greeting)) = control::read(receive).await else {
        panic!("no greeting");
    };
    assert_eq!((greeting.epoch, greeting.newcomer.process), (1, by.me));
}

async fn spoken(receive: &mut RecvStream) -> Spoken {
    match control::read(receive).await {
        Ok(Message::Spoken(spoken)) => spoken,
        other => panic!("{other:?}"),
    }
}

fn ballot() -> Ballot {
    Ballot::NONE.next(CALLER).unwrap()
}

async fn prepare(send: &mut SendStream) {
    let prepare = AgreementMessage::Prepare {
        ballot: ballot(),
        part: Vec::new(),
    };
    let spoken = Spoken {
        epoch: 1,
        message: prepare,
    };
    control::write(send, &Message::Spoken(spoken))
        .await
        .unwrap();
}

/// Whether the called member alone promises to follow.
#[track_caller]
fn promises(epoch: &Epoch, spoken: &Spoken) {
    let AgreementMessage::Promise {
        ballot: to,
        promises,
    } = &spoken.message
    else {
        panic!("{spoken:?}");
    };
    assert_eq!((spoken.epoch, *to), (1, ballot()));
    assert_eq!(promises.voters, [epoch.node(CALLED).me]);
}

/// What is said to be decided may be of another epoch, or made up.
#[tokio::test]
async fn a_decision_that_is_not_taken_up_tells_nothing_of_where_members_are() {
    let epoch = Epoch::over().await;
    let known = epoch.node(CALLED).address(NEXT);
    let asks = async {
        let (_connection, mut send, mut receive) = epoch.call().await;
        let decision = Decision {
            epoch: 1,
            survivors: Vec::new(),
            newcomers: vec![Newcomer::at(epoch.node(NEXT).me, "192.0.2.1:1")],
            completed: 0,
        };
        let message = AgreementMessage::Decided(decision);
        let spoken_of = Message::Spoken(Spoken { epoch: 1, message });
        control::write(&mut send, &spoken_of).await.unwrap();
        // It is heard before what follows it.
        prepare(&mut send).await;
        promises(&epoch, &spoken(&mut receive).await);
    };
    epoch.while_one_agrees(CALLED, asks).await;
    assert_eq!(epoch.node(CALLED).address(NEXT), known);
}

/// The caller takes no calls.
#[tokio::test]
async fn whoever_is_called_answers_without_a_call_of_its_own() {
    let epoch = Epoch::over().await;
    let asks = async {
        let (_connection, mut send, mut receive) = epoch.call().await;
        prepare(&mut send).await;
        promises(&epoch, &spoken(&mut receive).await);
    };
    epoch.while_one_agrees(CALLED, asks).await;
}

#[tokio::test]
async fn where_the_callers_line_has_ended_the_answer_comes_by_a_call() {
    let epoch = Epoch::over().await;
    let asks = async {
        let (_connection, mut send, mut receive) = epoch.call().await;
        receive.stop(0_u32.into()).unwrap();
        prepare(&mut send).await;
        promises(&epoch, &epoch.is_called().await);
    };
    epoch.while_one_agrees(CALLED, asks).await;
}

/// It may have died, and the called one would know by nothing else.
#[tokio::test]
async fn a_caller_that_was_answered_and_falls_silent_is_called() {
    let epoch = Epoch::over().await;
    let asks = async {
        let (_connection, mut send, mut receive) = epoch.call().await;
        prepare(&mut send).await;
        promises(&epoch, &spoken(&mut receive).await);
        let calls = epoch.node(CALLER).endpoint.accept().await;
        assert!(calls.is_some());
    };
    epoch.while_one_agrees(CALLED, asks).await;
}

#[tokio::test]
async fn whoever_is_called_over_the_connection_of_the_old_epoch_answers_there() {
    let epoch = Epoch::over().await;
    let asks = async {
        let connection = epoch.connection(CALLER, CALLED);
        // Of an agreement before.
        let (mut late, _) = connection.open_bi().await.unwrap();
        let greeting = epoch.greeting(CALLER, 7);
        control::write(&mut late, &greeting).await.unwrap();
        let (mut send, mut receive) = epoch.greet(&connection).await;
        prepare(&mut send).await;
        promises(&epoch, &spoken(&mut receive).await);
    };
    epoch.while_one_agrees(CALLED, asks).await;
}

/// As long as it acknowledges what comes, it is not silent.
#[tokio::test]
async fn a_higher_rank_is_called_over_the_connection_of_the_old_epoch_and_may_be_slow_to_answer() {
    let epoch = Epoch::over().await;
    let is_asked = async {
        let connection = epoch.connection(NEXT, CALLER);
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        greeted(&mut receive, epoch.node(CALLER)).await;
        let greeting = epoch.greeting(NEXT, 1);
        control::write(&mut send, &greeting).await.unwrap();
        let mut looks = 0;
        while looks < 2 * callee::LOOKS {
            let said = control::read(&mut receive).await.unwrap();
            looks += u32::from(said == Message::Heartbeat);
        }
    };
    tokio::select! {
        () = is_asked => {}
        _ = epoch.node(NEXT).endpoint.accept() => panic!("it is dialled"),
        () = epoch.agrees(CALLER) => {}
    }
}

#[tokio::test]
async fn who_does_not_answer_over_the_connection_of_the_old_epoch_is_dialled() {
    let epoch = Epoch::over().await;
    let is_dialled = async {
        let connection = epoch.node(NEXT).endpoint.accept().await.unwrap();
        let (_, mut receive) = connection.await.unwrap().accept_bi().await.unwrap();
        greeted(&mut receive, epoch.node(CALLER)).await;
    };
    epoch.while_one_agrees(CALLER, is_dialled).await;
}

/// It may wait for room for as long as a day.
#[tokio::test]
async fn who_waits_to_be_let_in_shows_a_new_certificate_in_time() {
    let config = GroupConfig::newcomer(["127.0.0.1:1"], JobSecret::generate().unwrap()).unwrap();
    let config = config.with_bind("127.0.0.1:0".parse().unwrap());
    let node = Node::open(&config).await.unwrap();
    // It is as old as one that has been shown for so long.
    let set_back = SystemTime::now() + 2 * RENEWAL;
    assert_eq!(node.identity.renew(set_back), Ok(true));
    let first = node.identity.client();
    let is_renewed = async {
        while Arc::ptr_eq(&first, &node.identity.client()) {
            yield_now().await;
        }
    };
    let (own, evidence) = (MemberState::default(), Evidence::default());
    tokio::select! {
        renewed = timeout(PATIENCE, is_renewed) => renewed.unwrap(),
        end = node.agree(PreviousEpoch::nowhere(), own, evidence) => {
            panic!("{:?}", end.map(|view| view.number));
        }
    }
}
