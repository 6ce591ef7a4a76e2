//! Each way for a job to fail, provoked with real processes: their dumps name the cause.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use meshwork_collectives::diagnosis::{Cause, Diagnosis, Dump, diagnose, trace};
use meshwork_collectives::{JobSecret, Rank, Timeouts, Transport};
use meshwork_testing::in_threads;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::relay::Relay;
use crate::worker::{Worker, free_addresses};

const RANKS: usize = 3;

/// Ranks that reduce until something happens, and the folder for their dumps.
struct Scene {
    ranks: Vec<Worker>,
    folder: TempDir,
}

impl Scene {
    /// Three ranks over this transport, of which `odd` has these arguments more.
    fn new(transport: &str, odd: usize, args: &[&str]) -> Self {
        let members = free_addresses(RANKS);
        Self::of(transport, &members, odd, args, &[])
    }

    /// The same at these addresses, and all have `more`.
    fn of(transport: &str, members: &[String], odd: usize, args: &[&str], more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = JobSecret::generate().unwrap();
        let start = |rank| {
            let mut command = rank_of(members, rank, folder.path());
            if rank == odd {
                command.args(args);
            }
            command
                .env(JobSecret::ENV, secret.to_hex().as_str())
                .env(Transport::ENV, transport)
                .args(more)
                .env(Timeouts::SILENCE_ENV, "1");
            Worker::start_with_input(command, Stdio::piped())
        };
        let ranks = (0..RANKS).map(start).collect();
        Self { ranks, folder }
    }

    fn all_reach(&mut self, text: &str) {
        for rank in &mut self.ranks {
            rank.reaches(text);
        }
    }

    /// What the dumps say when all ranks but these have ended.
    fn found(mut self, without: &[usize]) -> Diagnosis {
        let ranks = std::mem::take(&mut self.ranks).into_iter().enumerate();
        let (left, ending): (Vec<_>, Vec<_>) = ranks.partition(|(rank, _)| without.contains(rank));
        for (_, rank) in ending {
            rank.end();
        }
        drop(left);
        diagnose(&self.dumps())
    }

    fn dumps(&self) -> Vec<Dump> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        files
            .map(|file| {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                Dump::from_json(&text).unwrap()
            })
            .collect()
    }
}

fn rank_of(members: &[String], rank: usize, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    command
        .arg(format!("--as-rank={rank}"))
        .arg(format!("--members={}", members.join(",")))
        .arg(format!("--dump={}", folder.display()))
        .args(["--elements=300", "--patience=5"]);
    command
}

#[track_caller]
fn blames(found: &Diagnosis, class: &str, rank: usize) {
    let all = format!("{}\n{}", found.cause(), found.evidence().join("\n"));
    assert_eq!(found.cause().class(), class, "{all}");
    let rank = Rank::new(u32::try_from(rank).unwrap());
    assert!(found.cause().ranks().contains(&rank), "{all}");
}

#[test]
fn a_rank_that_leaves_a_call_out_is_found_with_the_call() {
    for (transport, odd) in [("auto", 0), ("quic", 2)] {
        let found = Scene::new(transport, odd, &["--at=40:skip"]).found(&[]);
        blames(&found, "missing call", odd);
        let Cause::MissingCall {
            missing: Some(missing),
            instead: Some(instead),
            ..
        } = found.cause()
        else {
            panic!("{}", found.cause())
        };
        assert!(missing.what().starts_with("all_reduce of 300 f32, sum"));
        assert!(instead.what().starts_with("broadcast of 1 u64"));
        for call in [missing, instead] {
            assert!(call.site().contains("soak/rank.rs:"), "{call}");
        }
    }
}

#[test]
fn a_rank_that_drops_its_group_is_found_with_the_call_that_it_missed() {
    for (transport, odd) in [("auto", 1), ("quic", 0)] {
        let found = Scene::new(transport, odd, &["--at=40:drop"]).found(&[]);
        blames(&found, "missing call", odd);
        let text = found.cause().to_string();
        assert!(
            text.contains("did not call all_reduce of 300 f32, sum"),
            "{text}"
        );
        assert!(text.ends_with("dropped its group"), "{text}");
    }
}

#[test]
fn a_rank_that_makes_another_call_is_found_as_a_mismatch_with_both() {
    for (transport, odd) in [("auto", 2), ("quic", 1)] {
        let found = Scene::new(transport, odd, &["--at=40:other"]).found(&[]);
        blames(&found, "mismatch", odd);
        let text = found.cause().to_string();
        assert!(text.contains("sum") && text.contains("max"), "{text}");
        assert_eq!(text.matches("soak/rank.rs:").count(), 2, "{text}");
    }
}

#[test]
fn a_rank_that_comes_too_late_is_found_to_be_slow() {
    in_threads([("auto", 0), ("quic", 2)], |(transport, odd)| {
        let mut scene = Scene::new(transport, odd, &["--at=40:hold"]);
        // The others are more patient than the time that it takes all to begin.
        scene.ranks[odd].reaches("holding");
        let others = (0..RANKS).filter(|rank| *rank != odd);
        for rank in others {
            scene.ranks[rank].reaches("failed");
        }
        scene.ranks[odd].input().unwrap().write_all(b"\n").unwrap();
        blames(&scene.found(&[]), "slow rank", odd);
    });
}

#[test]
fn a_rank_that_is_killed_is_found_dead() {
    for (transport, odd) in [("auto", 0), ("quic", 1)] {
        let mut scene = Scene::new(transport, odd, &[]);
        scene.all_reach("reached step");
        scene.ranks[odd].kill();
        blames(&scene.found(&[odd]), "dead rank", odd);
    }
}

#[test]
fn a_rank_that_is_stopped_is_found_dead_by_its_silence() {
    in_threads([("auto", 2), ("quic", 0)], |(transport, odd)| {
        let mut scene = Scene::new(transport, odd, &[]);
        scene.all_reach("reached step");
        let process = i32::try_from(scene.ranks[odd].id()).unwrap();
        kill_process(Pid::from_raw(process).unwrap(), Signal::STOP).unwrap();
        blames(&scene.found(&[odd]), "dead rank", odd);
    });
}

#[test]
fn a_cut_between_two_ranks_is_found_as_a_dead_link_and_a_trace_shows_it_all() {
    let server = free_addresses(1).remove(0);
    let relay = Relay::to(server.parse().unwrap());
    let mut members = free_addresses(RANKS);
    members[0] = relay.address().to_string();
    let bind = format!("--bind={server}");
    let mut scene = Scene::of("quic", &members, 0, &[&bind], &["--apart"]);
    scene.all_reach("reached step");
    relay.cut(members[1].parse().unwrap());
    let ranks = std::mem::take(&mut scene.ranks);
    ranks.into_iter().for_each(|rank| {
        rank.end();
    });
    let dumps = scene.dumps();
    let found = diagnose(&dumps);
    blames(&found, "dead link", 0);
    blames(&found, "dead link", 1);
    let trace: serde_json::Value = serde_json::from_str(&trace(&dumps)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for rank in 0..RANKS {
        let own = |event: &&serde_json::Value| event["pid"] == rank && event["ph"] == "X";
        assert!(events.iter().filter(own).count() > 3, "rank {rank}");
    }
}
