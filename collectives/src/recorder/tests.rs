use std::panic::Location;

use serde_json::Value;

use super::ring::LENGTH;
use super::*;
use crate::contract::Kind;
use crate::{ElementType, LossCause, local};

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

fn recorder(folder: Option<PathBuf>) -> Arc<Recorder> {
    Recorder::new(Rank::CHIEF, local::members(3), folder)
}

fn read(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("rank-0.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn lost() -> Error {
    Error::RankLost {
        peer: local::members(3)[1].clone(),
        cause: LossCause::Died,
        reporter: None,
    }
}

#[test]
fn a_dump_has_the_last_operations_in_their_order_and_no_more() {
    let here = Location::caller();
    for count in [0, 1, LENGTH - 1, LENGTH, LENGTH + 1, 3 * LENGTH + 7] {
        let folder = tempfile::tempdir().unwrap();
        let recorder = recorder(Some(folder.path().to_owned()));
        for sequence in 1..=count as u64 {
            let serial = recorder.begin(&contract(0, sequence), here, Carrier::Memory);
            recorder.end(serial, Ending::Well);
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
    let first = recorder.begin(&contract(0, 1), here, Carrier::Links);
    recorder.end(first, Ending::Well);
    let second = recorder.begin(&contract(0, 2), here, Carrier::Memory);
    assert_eq!(recorder.waits(second, Rank::new(2)), None);
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
fn a_folder_that_cannot_be_written_to_ends_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    recorder(Some(file.path().join("below"))).fail(&lost());
    recorder(None).fail(&lost());
}

#[test]
fn others_are_told_of_long_waits_only_and_less_and_less_often() {
    let mut ring = Ring::new();
    let (start, here) = (Instant::now(), Location::caller());
    let operation = (contract(7, 4), here, Carrier::Memory);
    let serial = ring.begin((start, thread()), operation);
    let told = (0..2000_u64).filter(|millis| {
        let now = start + Duration::from_millis(5 * millis);
        let wait = ring.waits(now, serial, (Rank::CHIEF, Rank::new(1)));
        wait.is_some_and(|wait| wait.holds.iter().any(|hold| hold.group == 7))
    });
    let told: Vec<u64> = told.map(|millis| 5 * millis).collect();
    assert_eq!(told[..6], [50, 100, 200, 400, 800, 1600]);
    let last = told.windows(2).next_back().unwrap();
    assert_eq!(last[1] - last[0], 1000);
}

#[test]
fn once_all_agree_nobody_waits_for_a_rank_but_in_the_parts() {
    let mut ring = Ring::new();
    let (start, here) = (Instant::now(), Location::caller());
    let (whole, part) = (contract(0, 5), contract(9, 1));
    ring.adopt(9, thread());
    let outer = ring.begin((start, thread()), (whole, here, Carrier::Links));
    ring.is_part(9, 0);
    let finished = |ring: &mut Ring, serial| {
        let later = start + Duration::from_secs(9);
        let wait = ring.waits(later, serial, (Rank::CHIEF, Rank::new(1)));
        let mut holds = wait.unwrap().holds;
        holds.sort_by_key(|hold| hold.group);
        [0, 1].map(|place| (holds[place].group, holds[place].finished))
    };
    assert_eq!(finished(&mut ring, outer), [(0, 0), (9, 0)]);
    ring.finish(outer);
    let inner = ring.begin((start, thread()), (part, here, Carrier::Memory));
    assert_eq!(finished(&mut ring, inner), [(0, 5), (9, 0)]);
}

#[test]
fn a_message_over_links_is_no_wait_for_its_senders_call() {
    let mut ring = Ring::new();
    let (start, here) = (Instant::now(), Location::caller());
    let message = Contract {
        kind: Kind::Send,
        ..contract(0, 1)
    };
    let later = start + Duration::from_secs(9);
    let serial = ring.begin((start, thread()), (message, here, Carrier::Links));
    assert_eq!(ring.waits(later, serial, (Rank::CHIEF, Rank::new(1))), None);
    let serial = ring.begin((start, thread()), (message, here, Carrier::Memory));
    assert!(
        ring.waits(later, serial, (Rank::CHIEF, Rank::new(1)))
            .is_some()
    );
}
