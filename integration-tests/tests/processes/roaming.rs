//! Workers in networks of their own: one gets another address in the middle of an exchange, and
//! links are slower in one direction than in the other.

use std::path::Path;
use std::process::Command;

use meshwork_collectives::{JobSecret, Timeouts, Transport};
use meshwork_testing::{Need, in_threads};

use crate::namespaces::Namespaces;
use crate::worker::{Ended, Worker, tf_config};

/// Two workers that train over slow links, each where its namespace is; the second dials the first.
fn workers(namespaces: &Namespaces, second: &str, more: &[&str]) -> [Worker; 2] {
    let secret = JobSecret::generate().unwrap();
    let addresses = ["10.0.0.1:4000".to_owned(), second.to_owned()];
    [0, 1].map(|rank| {
        let program = Path::new(env!("CARGO_BIN_EXE_diloco"));
        let mut command: Command = namespaces.command(rank, program);
        command
            .args(more)
            .env("TF_CONFIG", tf_config(&addresses, rank))
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .env(Transport::ENV, "quic")
            .env(Timeouts::JOIN_ENV, "40");
        Worker::start_merged(command)
    })
}

/// So many networks of two, as exchanges over slow links are waits that pass at the same time.
#[track_caller]
fn networks(count: usize) -> Option<Vec<Namespaces>> {
    let all = (0..count).map(|_| Namespaces::new(2));
    Need::Namespaces.or_skip(all.collect::<Result<_, _>>())
}

/// Both have ended well, as two, with the same.
#[track_caller]
fn end_alike(workers: [Worker; 2]) {
    let trained = |ended: &Ended| {
        assert!(ended.status.success(), "{:?}", ended.lines);
        let alone = ended
            .lines
            .iter()
            .find(|line| line.contains(" of 1 workers"));
        assert_eq!(alone, None);
        let line = ended.lines.iter().find(|line| line.starts_with("trained "));
        line.expect("a line with the result").clone()
    };
    let [one, other] = workers.map(|worker| trained(&worker.end()));
    assert_eq!(one, other);
}

/// Where the second is, and where nobody finds it, as behind address translation.
const SECOND: &str = "10.0.0.2:4000";
const NOWHERE: &str = "192.0.2.9:4000";

#[test]
fn a_worker_that_gets_another_address_in_the_middle_of_an_exchange_ends_it() {
    let Some(networks) = networks(2) else { return };
    in_threads(
        [SECOND, NOWHERE].into_iter().zip(networks),
        |(second, namespaces)| {
            // An exchange of 4 MB each way takes two seconds, of which the inner steps are a
            // hundredth.
            for rank in [0, 1] {
                namespaces.limit(rank, 16).unwrap();
            }
            let large = ["--steps=100", "--parameters=1000000"];
            let mut workers = workers(&namespaces, second, &large);
            for (round, host) in [(20, 12), (40, 13), (60, 14)] {
                workers[1].reaches(&format!("step {round} "));
                let lines = format!("addr flush dev eth0\naddr add 10.0.0.{host}/24 dev eth0\n");
                namespaces.change(1, &lines).unwrap();
            }
            end_alike(workers);
        },
    );
}

#[test]
fn links_that_are_ten_times_slower_in_one_direction_carry_exchanges_of_every_kind() {
    let kinds = [
        &[][..],
        &["--compress", "--fragments=3", "--delay=9"],
        &["--measure-links"],
    ];
    let Some(networks) = networks(2 * kinds.len()) else {
        return;
    };
    let cases = kinds.iter().flat_map(|kind| [(kind, 0), (kind, 1)]);
    in_threads(cases.zip(networks), |((kind, slow), namespaces)| {
        namespaces.limit(slow, 4).unwrap();
        namespaces.limit(1 - slow, 40).unwrap();
        let more = [kind, &["--steps=40", "--parameters=200000"][..]].concat();
        end_alike(workers(&namespaces, SECOND, &more));
    });
}
