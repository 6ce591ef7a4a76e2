//! A link on which all packets are lost for a while in the middle of an exchange: workers whose
//! patience is longer go on, and end with what they end with on a link that has lost none.
//!
//! `MESHWORK_SOAK` makes an outage of 32 s of one of 4.

use std::env;
use std::path::Path;

use meshwork_collectives::{JobSecret, Timeouts};
use meshwork_testing::{Need, in_threads};

use crate::namespaces::Namespaces;
use crate::worker::{Worker, over, tf_config};

/// Two workers on links of 16 Mbit/s, on which an exchange takes two seconds, and inner steps next
/// to nothing.
fn start(namespaces: &Namespaces, transport: &str, patience: u32, more: &[&str]) -> [Worker; 2] {
    let secret = JobSecret::generate().unwrap();
    [0, 1].map(|rank| {
        namespaces.limit(rank, 16).unwrap();
        // It is not told of the other's end.
        let mut command = namespaces.on_own_host(rank, Path::new(env!("CARGO_BIN_EXE_diloco")));
        over(&mut command, transport)
            .args(["--steps=40", "--parameters=1000000"])
            .args(more)
            .env("TF_CONFIG", tf_config(&namespaces.addresses(), rank))
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .env(Timeouts::SILENCE_ENV, patience.to_string())
            .env(Timeouts::JOIN_ENV, "40");
        Worker::start_merged(command)
    })
}

/// What both have ended with.
#[track_caller]
fn result(workers: [Worker; 2]) -> String {
    let [one, other] = workers.map(|worker| {
        let ended = worker.end();
        assert!(ended.status.success(), "{:?}", ended.lines);
        let line = ended.lines.iter().find(|line| line.starts_with("trained "));
        line.expect("a line with the result").clone()
    });
    assert_eq!(one, other);
    one
}

#[test]
fn a_link_that_drops_for_less_than_the_patience_changes_nothing() {
    // Who waits says so after 2 s, 4 s, 8 s and so on; what was lost is sent again up to as much
    // later.
    let (patience, told) = match env::var("MESHWORK_SOAK") {
        Ok(_) => (75, 5),
        Err(_) => (15, 2),
    };
    let streaming = ["--compress", "--fragments=4", "--delay=5"];
    let pairs = || [Namespaces::new(2), Namespaces::new(2)];
    let networks = [pairs(), pairs(), pairs()].into_iter().flatten();
    let Some(networks) = Need::Namespaces.or_skip(networks.collect::<Result<Vec<_>, _>>()) else {
        return;
    };
    let kinds = [("quic", &[][..]), ("tls", &[]), ("quic", &streaming)];
    let cases = kinds.iter().flat_map(|kind| [(kind, false), (kind, true)]);
    // All at once, as most of it is waiting.
    let ended = in_threads(cases.zip(&networks), |((kind, is_cut), namespaces)| {
        let mut workers = start(namespaces, kind.0, patience, kind.1);
        if is_cut {
            workers[0].reaches("step 20 ");
            namespaces.unplug(1).unwrap();
            for _ in 0..told {
                workers[0].reaches("nothing was heard for ");
            }
            namespaces.plug_in(1).unwrap();
        }
        result(workers)
    });
    for (pair, kind) in ended.chunks(2).zip(kinds) {
        assert_eq!(pair[0], pair[1], "{kind:?}");
    }
}
