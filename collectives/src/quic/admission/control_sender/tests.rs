//! Last words that arrive, and those that cannot.

use std::future::pending;
use std::thread;
use std::time::Instant;

use quinn::RecvStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::*;
use crate::config::{GroupConfig, Network};
use crate::identity::{Identity, Role};
use crate::quic::{ABORT, endpoint};
use crate::wire::Abort;
use crate::{JobSecret, Rank};

/// Far more than anything here takes, so that a test that hangs fails instead.
const DEADLINE: Duration = Duration::from_secs(20);
/// More than any first congestion window, less than any flow control window.
const LONG: usize = 1 << 20;

fn word() -> Message {
    Message::Abort(Abort {
        culprit: 1,
        reporter: 0,
        cause: 5,
        heard_ms: None,
        text: "no".to_owned(),
        calls: Vec::new(),
    })
}

/// Two ends of a connection, the one that dialled first.
async fn pair() -> [(Connection, quinn::Endpoint); 2] {
    let secret = JobSecret::generate().unwrap();
    let identity = |rank| Identity::new(&secret, Role::Rank(Rank::new(rank))).unwrap();
    let (dialling, listening) = (identity(1), identity(0));
    let members = ["127.0.0.1:1", "127.0.0.1:2"].map(str::to_owned).to_vec();
    let config = GroupConfig::new(members, Rank::CHIEF, secret.clone())
        .unwrap()
        .with_bind("127.0.0.1:0".parse().unwrap());
    let listener = endpoint::listen(&config, &listening)
        .await
        .unwrap()
        .endpoint;
    let address = listener.local_addr().unwrap();
    let dialler = endpoint::dialler(address.ip()).unwrap();
    let name = dialling.server_name(Role::Rank(Rank::CHIEF)).unwrap();
    let client = endpoint::client(&dialling, Network::default());
    let (dialled, accepted) = tokio::join!(
        async {
            let connecting = dialler.connect_with(client, address, &name.to_str());
            connecting.unwrap().await.unwrap()
        },
        async { listener.accept().await.unwrap().await.unwrap() }
    );
    endpoint::trust(&accepted);
    [(dialled, dialler), (accepted, listener)]
}

async fn heard(control: &mut RecvStream) -> Message {
    let read = timeout(DEADLINE, control::read(control)).await;
    read.expect("a word arrives").expect("it is a message")
}

#[test]
fn the_last_word_arrives_however_many_bytes_wait_to_be_sent() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for pause in 0..12 {
            let [(dialled, _dialler), (accepted, _listener)] = pair().await;
            let (control, _) = dialled.open_bi().await.unwrap();
            let (mut data, _) = dialled.open_bi().await.unwrap();
            let mut control_sender = ControlSender::new(control, vec![dialled], After::Close);
            control_sender.tell(Message::Heartbeat);
            data.write_all(&vec![1; LONG]).await.unwrap();
            for _ in 0..pause {
                yield_now().await;
            }
            control_sender.part(ABORT, Some(word()));
            // Nothing comes after it.
            control_sender.part(ABORT, None);
            control_sender.tell(Message::Heartbeat);
            let accept = timeout(DEADLINE, accepted.accept_bi());
            let (_, mut control) = accept.await.unwrap().unwrap();
            assert_eq!(heard(&mut control).await, Message::Heartbeat);
            assert_eq!(heard(&mut control).await, word());
            let ended = timeout(DEADLINE, accepted.closed()).await;
            assert!(ended.is_ok(), "the connection ends");
        }
    });
}

#[test]
fn who_has_ended_is_not_waited_for() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let [(dialled, _dialler), (accepted, _listener)] = pair().await;
        let (control, _) = dialled.open_bi().await.unwrap();
        let mut control_sender = ControlSender::new(control, vec![dialled], After::Close);
        control_sender.hang_up(ABORT, &word().encode());
        // Nothing is left to say, nor to wait for.
        control_sender.part(ABORT, Some(word()));
        assert!(control_sender.farewell().is_none());
        // Should it live after all, it hears why.
        let ended = timeout(DEADLINE, accepted.closed()).await;
        let Ok(ConnectionError::ApplicationClosed(close)) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(close.reason, word().encode());
    });
}

#[test]
fn a_connection_that_may_stay_is_left_open_once_all_is_said_and_ends_with_what_is_left_of_it() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for (is_queued, is_kept) in [(true, true), (true, false), (false, false)] {
            let [(dialled, _dialler), (accepted, _listener)] = pair().await;
            let (control, _) = dialled.open_bi().await.unwrap();
            let mut control_sender =
                ControlSender::new(control, vec![dialled.clone()], After::MayStay);
            // Signs of life leave room for what is said once.
            let before = match is_queued {
                true => Message::Heartbeat,
                false => Message::Goodbye,
            };
            (0..WAITING).for_each(|_| control_sender.tell(before.clone()));
            control_sender.part(ABORT, Some(word()));
            let left = match control_sender.farewell().unwrap().await.unwrap() {
                LastWord::Stays(parted) => Some(parted),
                LastWord::Closes(_) => None,
                LastWord::Unconfirmed => panic!("the member confirms all that it is told"),
            };
            assert_eq!(
                left.is_some(),
                is_queued,
                "of words that do not arrive nothing is left"
            );
            assert_eq!(dialled.close_reason().is_some(), !is_queued);
            match left {
                Some(parted) if is_kept => {
                    let (_, mut control) = accepted.accept_bi().await.unwrap();
                    let mut last = heard(&mut control).await;
                    while last == Message::Heartbeat {
                        last = heard(&mut control).await;
                    }
                    assert_eq!(last, word());
                    let kept = parted.into_kept().unwrap();
                    assert_eq!(kept.stable_id(), dialled.stable_id());
                    assert!(accepted.close_reason().is_none());
                }
                left => {
                    drop(left);
                    let ended = timeout(DEADLINE, accepted.closed()).await;
                    let Ok(ConnectionError::ApplicationClosed(end)) = ended else {
                        panic!("{ended:?}");
                    };
                    assert_eq!(
                        (end.error_code, &end.reason[..]),
                        (ABORT, &word().encode()[..])
                    );
                }
            }
        }
    });
}

#[tokio::test]
async fn a_process_that_was_held_up_still_hears_what_has_come_meanwhile() {
    let (says, heard) = oneshot::channel();
    let waiting = spawn(in_looks(heard));
    yield_now().await;
    // Nothing else of this process goes on.
    let held_up = Instant::now();
    while held_up.elapsed() < 2 * FAREWELL {
        thread::yield_now();
    }
    // What has come goes through several hands, while timers end that are over.
    spawn(async move {
        for _ in 0..1000 {
            yield_now().await;
        }
        says.send(())
    });
    assert_eq!(waiting.await.unwrap(), Some(Ok(())));
    let begun = Instant::now();
    assert_eq!(in_looks(pending::<()>()).await, None);
    assert!(begun.elapsed() >= FAREWELL);
}
