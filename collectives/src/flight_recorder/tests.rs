//! Dumps as they are written: every operation, wait and ending, read back as JSON.

use std::panic::Location;

use serde_json::Value;

use super::clock::Scale;
use super::journal::LENGTH;
use super::long::Waits;
use super::*;
use crate::contract::Kind;
use crate::session::GroupId;
use crate::wire::Cores;
use crate::{ElementType, LossCause, OperationError, local};

fn contract(group: u64, sequence: u64) -> Contract {
    Contract {
        epoch: 0,
        group,
        sequence,
        kind: Kind::Broadcast,
        algorithm: None,
        element: ElementType::F32,
        count: 8,
        op: None,
        root: Some(Rank::new(1)),
    }
}

fn recorder(folder: Option<PathBuf>) -> Arc<FlightRecorder> {
    FlightRecorder::new(Rank::CHIEF, local::members(3), folder)
}

fn open(recorder: &FlightRecorder, group: u64) -> OperationLog {
    let id = GroupId {
        epoch: 0,
        number: group,
    };
    recorder.open(id, Rank::CHIEF, local::members(3))
}

fn read(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("rank-0.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn lost() -> OperationError {
    OperationError::lost(local::members(3)[1].clone(), LossCause::Died)
}

#[test]
fn a_dump_has_the_last_operations_in_their_order_and_no_more() {
    let here = Location::caller();
    for count in [0, 1, LENGTH - 1, LENGTH, LENGTH + 1, 3 * LENGTH + 7] {
        let folder = tempfile::tempdir().unwrap();
        let recorder = recorder(Some(folder.path().to_owned()));
        let mut log = open(&recorder, 0);
        for sequence in 1..=count as u64 {
            log.begin(&contract(0, sequence), here, MediumKind::Memory, 0);
            log.end(Ending::Well);
        }
        recorder.fail(&lost());
        let dump = read(folder.path());
        let operations = dump["operations"].as_array().unwrap();
        let sequences = operations.iter().map(|operation| &operation["sequence"]);
        let first = (count + 1).saturating_sub(LENGTH).max(1);
        let expected: Vec<usize> = (first..=count).collect();
        assert!(
            sequences.eq(expected.iter()),
            "{count}: {} operations",
            operations.len()
        );
    }
}

#[test]
fn a_dump_says_what_was_called_from_where_and_what_became_of_it() {
    let (folder, here) = (tempfile::tempdir().unwrap(), Location::caller());
    let recorder = recorder(Some(folder.path().to_owned()));
    let mut log = open(&recorder, 0);
    log.begin(&contract(0, 1), here, MediumKind::Links, 0);
    log.end(Ending::Well);
    let second = log.begin(&contract(0, 2), here, MediumKind::Memory, 0);
    assert_eq!(
        recorder.waits(&log.stall_observer(), second, Rank::new(2), |_| true),
        None
    );
    recorder.fail(&lost());
    let dump = read(folder.path());
    let [done, stuck] = dump["operations"].as_array().unwrap().as_slice() else {
        panic!("{dump}")
    };
    assert_eq!(done["what"], "broadcast of 8 f32, from rank 1");
    assert_eq!(done["site"], site(here));
    assert_eq!(
        (&done["well"], &done["carrier"]),
        (&true.into(), &"quic".into())
    );
    assert!(done["began"].as_u64() <= done["ended"].as_u64());
    assert_eq!(stuck["ended"], Value::Null);
    assert_eq!(stuck["waits"][0]["rank"], 2);
    assert_eq!(dump["failure"]["cause"], "died");
    assert_eq!(dump["failure"]["peer"], 1);
}

#[test]
fn the_first_thing_that_is_done_after_the_failure_is_noted() {
    let (folder, here) = (tempfile::tempdir().unwrap(), Location::caller());
    let recorder = recorder(Some(folder.path().to_owned()));
    recorder.dropped();
    recorder.fail(&lost());
    assert_eq!(read(folder.path())["afterwards"], Value::Null);
    recorder.came_late(&contract(0, 9), here);
    recorder.dropped();
    let afterwards = &read(folder.path())["afterwards"];
    assert_eq!(afterwards["called"]["sequence"], 9);
}

#[test]
fn a_dump_tells_which_run_it_is_of_and_when_its_rank_joined() {
    let record = |incarnation| MemberRecord {
        incarnation,
        process: 1,
        host: [0; 16],
        cores: Cores::default(),
    };
    let dump = |met: Option<[u64; 3]>| {
        let folder = tempfile::tempdir().unwrap();
        let recorder = recorder(Some(folder.path().to_owned()));
        if let Some(incarnations) = met {
            recorder.met(&incarnations.map(record));
        }
        recorder.fail(&lost());
        read(folder.path())
    };
    let run = |met| dump(Some(met))["run"].as_str().unwrap().to_owned();
    let first = [u64::MAX, 2, 3];
    assert_eq!(run(first), run(first));
    assert_ne!(
        run(first),
        run([u64::MAX, 2, 4]),
        "a rank was started again"
    );
    let alone = dump(None);
    assert_eq!(alone["run"], Value::Null);
    let (joined, written) = (&alone["joined"], &alone["written"]);
    assert!(
        joined.as_u64().unwrap() <= written.as_u64().unwrap(),
        "{alone}"
    );
}

#[test]
fn a_folder_that_cannot_be_written_to_ends_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    recorder(Some(file.path().join("below"))).fail(&lost());
    recorder(None).fail(&lost());
}

#[test]
fn of_many_groups_the_last_operations_and_those_under_way_are_dumped() {
    let (folder, here) = (tempfile::tempdir().unwrap(), Location::caller());
    let recorder = recorder(Some(folder.path().to_owned()));
    let mut stuck = open(&recorder, 9);
    stuck.begin(&contract(9, 1), here, MediumKind::Memory, 0);
    let mut pens = [1, 2, 3].map(|group| open(&recorder, group));
    for sequence in 1..=200 {
        for (log, group) in pens.iter_mut().zip(1..) {
            log.begin(&contract(group, sequence), here, MediumKind::Memory, 0);
            log.end(Ending::Well);
        }
    }
    recorder.fail(&lost());
    let dump = read(folder.path());
    let operations = dump["operations"].as_array().unwrap();
    assert_eq!(operations.len(), LENGTH + 1);
    assert_eq!(operations[0]["group"], "0000000000000009");
    assert_eq!(operations[1]["sequence"], 200 - 256 / 3);
    let last = &operations[LENGTH];
    assert_eq!(
        (&last["group"], &last["sequence"]),
        (&"0000000000000003".into(), &200.into())
    );
}

#[test]
fn groups_that_are_no_more_make_room_for_others() {
    let recorder = recorder(None);
    let kept = open(&recorder, 1);
    for group in 2..1000 {
        open(&recorder, group);
    }
    let state = recorder.state();
    assert_eq!(state.logs.len(), GROUPS);
    assert!(state.logs.iter().any(|log| Arc::ptr_eq(log, &kept.log)));
}

/// An operation has waited for so many milliseconds.
fn waits_after(millis: u64, long: &mut LongWaits, record: &journal::Record) -> Waits {
    let now = Tick(record.began.0 + millis);
    long.note(record, Rank::new(1), now, Scale::MILLIS)
}

fn record(contract: Contract) -> journal::Record {
    journal::Record {
        serial: Serial(4),
        contract,
        caller: Location::caller(),
        medium: MediumKind::Memory,
        moved: 0,
        began: Tick(1000),
        ended: None,
    }
}

#[test]
fn the_more_ranks_the_longer_a_wait_is_nothing_to_ask_about() {
    let millis = |ranks| long::patience(ranks).as_millis();
    assert_eq!([2, 50, 64, 512].map(millis), [50, 50, 64, 512]);
}

#[test]
fn the_log_says_that_a_wait_is_long_less_and_less_often() {
    let (mut long, record) = (LongWaits::default(), record(contract(7, 4)));
    let mut slow = Vec::new();
    for millis in (0..10_000).step_by(5) {
        let waits = waits_after(millis, &mut long, &record);
        assert_eq!(waits.waited.as_millis(), u128::from(millis));
        slow.extend(waits.slow.then_some(millis));
    }
    assert_eq!(slow, [1000, 2000, 4000, 8000]);
}

#[test]
fn the_last_wait_of_an_operation_is_over_when_the_operation_is() {
    let (mut long, mut record) = (LongWaits::default(), record(contract(7, 4)));
    waits_after(10, &mut long, &record);
    waits_after(20, &mut long, &record);
    let until = |record: &journal::Record| long.of(record)[0].until;
    assert_eq!(until(&record), Tick(1020));
    record.ended = Some((Tick(1700), Ending::Well));
    assert_eq!(until(&record), Tick(1700));
}

#[test]
fn a_gather_or_scatter_counts_the_blocks_of_all_ranks() {
    let (recorder, here) = (recorder(None), Location::caller());
    let mut log = open(&recorder, 0);
    for (kind, total) in [
        (Kind::Gather, 96),
        (Kind::Scatter, 192),
        (Kind::Reduce, 224),
    ] {
        let contract = Contract {
            kind,
            ..contract(0, 1)
        };
        let moved = buffer_bytes(&contract, 3);
        log.begin(&contract, here, MediumKind::Memory, moved);
        log.end(Ending::Well);
        assert_eq!(recorder.totals().memory.bytes, total);
    }
}

#[test]
fn of_many_waits_of_an_operation_the_last_are_remembered() {
    let (mut long, record) = (LongWaits::default(), record(contract(7, 4)));
    for rank in 0..11 {
        let now = Tick(record.began.0 + u64::from(rank));
        long.note(&record, Rank::new(rank), now, Scale::MILLIS);
    }
    let waits = long.of(&record);
    let ranks = waits.iter().map(|wait| wait.rank.number());
    assert!(ranks.eq(3..11), "{waits:?}");
    assert_eq!(waits[7].from, Tick(1010));
}

/// Waits so long that others are told.
fn wait(recorder: &FlightRecorder, log: &OperationLog, serial: Serial) -> Option<WaitEdge> {
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(60) {
        std::thread::yield_now();
    }
    recorder.waits(&log.stall_observer(), serial, Rank::new(1), |_| true)
}

#[test]
fn once_all_agree_nobody_waits_for_a_rank_but_in_the_parts() {
    let (recorder, here) = (recorder(None), Location::caller());
    let (mut whole, mut part) = (open(&recorder, 0), open(&recorder, 9));
    let outer = whole.begin(&contract(0, 5), here, MediumKind::Links, 0);
    part.is_part_of(0);
    let finished = |wait: WaitEdge| {
        wait.held_groups
            .iter()
            .map(|hold| (hold.group, hold.finished))
            .collect::<Vec<_>>()
    };
    let told = wait(&recorder, &whole, outer).unwrap();
    assert_eq!(finished(told), [(0, 0), (9, 0)]);
    whole.agreed();
    let inner = part.begin(&contract(9, 1), here, MediumKind::Memory, 0);
    let told = wait(&recorder, &part, inner).unwrap();
    assert_eq!(finished(told), [(0, 5), (9, 0)]);
}

#[test]
fn of_messages_it_is_told_which_were_asked_for() {
    let (recorder, here) = (recorder(None), Location::caller());
    let mut log = open(&recorder, 7);
    log.sends(Rank::new(2));
    log.receives(Rank::new(2));
    log.receives(Rank::new(2));
    log.receives(Rank::new(1));
    assert_eq!(log.messages(Rank::new(2)), (1, 2));
    for medium in [MediumKind::Links, MediumKind::Memory] {
        for (root, receives) in [(Rank::CHIEF, true), (Rank::new(1), false)] {
            let message = Contract {
                kind: Kind::Send,
                root: Some(root),
                ..contract(7, 1)
            };
            let serial = log.begin(&message, here, medium, 0);
            let told = wait(&recorder, &log, serial).unwrap();
            assert_eq!(told.receives, receives);
            let message_counts = |with, sent, received| MessageCounts {
                group: 7,
                with: Rank::new(with),
                sent,
                received,
            };
            assert_eq!(
                told.message_counts,
                Some(vec![message_counts(1, 0, 1), message_counts(2, 1, 2)])
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn nothing_is_written_through_a_link_in_the_place_of_a_dump_that_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let others = folder.path().join("others");
    fs::write(&others, "theirs").unwrap();
    let path = folder.path().join("rank-0.json");
    let guess = path.with_extension(format!("{}.draft", std::process::id()));
    std::os::unix::fs::symlink(&others, guess).unwrap();
    replace(folder.path(), &path, "ours").unwrap();
    assert_eq!(fs::read_to_string(&others).unwrap(), "theirs");
    assert!(path.symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
}
