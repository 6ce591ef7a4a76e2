//! Processes that are each alone on a host: what the others are told when one of them ends, and
//! when its host cannot be reached any more.

use std::path::Path;
use std::time::{Duration, Instant};

use meshwork_collectives::Timeouts;
use meshwork_testing::{Need, in_threads};

use crate::namespaces::Namespaces;
use crate::worker::{Job, Worker};

/// How long the others wait for one of whom nothing is heard, where its host is cut off.
const PATIENCE: Duration = Duration::from_secs(3);
/// From the death to the end of the last survivor: far below the patience, which is 10 s.
const LIMIT: Duration = Duration::from_secs(2);
/// How it is told that nobody was heard of, and for how long.
const SILENCE: &str = "nothing was heard of it for ";

/// So many networks of three hosts.
#[track_caller]
fn networks(count: usize) -> Option<Vec<Namespaces>> {
    let all = (0..count).map(|_| Namespaces::new(3));
    Need::Namespaces.or_skip(all.collect::<Result<_, _>>())
}

/// Three workers, each on a host of its own, all in the middle of their training.
fn start(
    namespaces: &Namespaces,
    transport: &'static str,
    patience: Option<Duration>,
) -> Vec<Worker> {
    let mut job = Job::new(3).over(transport);
    job.addresses = namespaces.addresses();
    let start = |rank| {
        let mut command = namespaces.on_own_host(rank, Path::new(env!("CARGO_BIN_EXE_mlp")));
        job.configure(&mut command, rank)
            .arg("--epochs=1000000")
            .envs(patience.map(|patience| (Timeouts::SILENCE_ENV, patience.as_secs().to_string())));
        Worker::start(command)
    };
    let mut workers: Vec<_> = (0..3).map(start).collect();
    for worker in &mut workers {
        worker.reaches("step 3 ");
    }
    workers
}

/// The line that a worker has ended with, and how long after this.
#[track_caller]
fn error_of(worker: Worker, began: Instant) -> (String, Duration) {
    let ended = worker.end();
    assert!(!ended.status.success(), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("mlp: error: "), "{ended:?}");
    (last.to_owned(), ended.at.saturating_duration_since(began))
}

/// Whom a worker calls lost, after how long a silence.
#[track_caller]
fn lost(line: &str) -> (usize, Duration) {
    let (_, rank) = line.split_once("error: rank ").expect(line);
    let (rank, _) = rank.split_once(" (10.0.0.").expect(line);
    let (_, silence) = line.split_once(SILENCE).expect(line);
    let (seconds, _) = silence.split_once('s').expect(line);
    let silence = Duration::from_secs_f64(seconds.parse().unwrap());
    (rank.parse().unwrap(), silence)
}

/// Nobody is left on its host to tell. The host says it itself: it refuses packets to the port.
#[test]
fn the_end_of_the_only_process_of_a_host_is_told_long_before_the_patience_is_over() {
    for transport in ["quic", "tls"] {
        for victim in 0..3 {
            let Some(networks) = networks(1) else { return };
            let mut workers = start(&networks[0], transport, None);
            let died = workers[victim].kill();
            drop(workers.remove(victim));
            for worker in workers {
                let (line, took) = error_of(worker, died);
                let named = format!("rank {victim} (10.0.0.{}:4000) was lost", victim + 1);
                assert!(line.contains(&named) && !line.contains(SILENCE), "{line}");
                assert!(took <= LIMIT, "after {took:?}: {line}");
                println!("{transport}, rank {victim} killed, told after {took:.0?}");
            }
        }
    }
}

/// Nothing says whether the process lives, neither the ends of a link that has lost its carrier.
#[test]
fn a_host_that_is_cut_off_is_given_up_when_the_patience_is_over_and_not_before() {
    let cuts = [Namespaces::unplug, Namespaces::cut];
    let cases = ["quic", "tls"]
        .into_iter()
        .flat_map(|transport| cuts.map(|cut| (transport, cut)));
    let Some(networks) = networks(4) else { return };
    in_threads(cases.zip(&networks), |((transport, cut), namespaces)| {
        let workers = start(namespaces, transport, Some(PATIENCE));
        let (began, victim) = (Instant::now(), 1);
        cut(namespaces, victim).unwrap();
        for (rank, worker) in workers.into_iter().enumerate() {
            let (line, took) = error_of(worker, began);
            let (named, silence) = lost(&line);
            assert!(silence >= PATIENCE, "{line}");
            match rank == victim {
                // It cannot tell from whom it is cut off.
                true => assert_ne!(named, victim, "{line}"),
                false => assert_eq!(named, victim, "{line}"),
            }
            println!("{transport}, rank {victim} cut off, rank {rank} told after {took:.1?}");
        }
    });
}
