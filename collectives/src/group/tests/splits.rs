//! Groups that are split off, kept and dropped, and what is left of them.

use super::*;

/// Groups that two ranks can use at a time over the network.
const MOST: usize = 64;

/// What has arrived at a rank for this group and those split from it, and nobody has asked for.
fn unasked(group: &Group) -> usize {
    let session = group.settled();
    let ControlPlane::Remote(remote) = &session.context.control else {
        panic!("a group of processes");
    };
    remote.admission().upgrade().unwrap().unasked()
}

/// One more group of all ranks, which has been used.
fn one_more(group: &mut Group) -> Group {
    let mut split = group.split(Some(0), 0).unwrap().unwrap();
    split.barrier().unwrap();
    split
}

#[test]
fn one_group_more_than_two_ranks_can_use_ends_all_at_once_with_the_limit_and_the_remedy() {
    for over in [Over::Quic, Over::Tls] {
        let errors = over.run(2, |mut group| {
            // Those that are dropped leave room for others.
            for _ in 0..2 {
                let dropped: Vec<Group> = (0..MOST).map(|_| one_more(&mut group)).collect();
                drop(dropped);
            }
            let _kept: Vec<Group> = (0..MOST).map(|_| one_more(&mut group)).collect();
            let mut last = group.split(Some(0), 0).unwrap().unwrap();
            let began = Instant::now();
            let error = last.barrier().unwrap_err();
            assert!(began.elapsed() < PATIENCE / 2, "{over:?}: {error}");
            error
        });
        let is_own = |error: &OperationError| {
            matches!(error, OperationError::TooManyGroups { most: 64, .. })
        };
        assert!(errors.iter().any(is_own), "{over:?}: {errors:?}");
        for error in errors {
            let text = error.to_string();
            let named = text.contains("uses 64 groups with rank");
            let remedy = text.ends_with("drop those that are done with");
            assert!(named && remedy, "{over:?}: {text}");
        }
    }
}

#[test]
fn a_group_that_was_split_has_completed_nothing_yet() {
    for over in Over::ALL {
        over.run(2, |mut group| {
            let mut split = group.split(Some(0), 0).unwrap().unwrap();
            assert_eq!(split.completed(), 0, "{over:?}");
            split.barrier().unwrap();
            assert_eq!(split.completed(), 1, "{over:?}");
            group.leave().unwrap();
        });
    }
}

#[test]
fn what_nobody_has_asked_for_goes_with_its_group() {
    for over in [Over::Quic, Over::Tls] {
        over.run(2, |mut group| {
            let mut split = group.split(Some(0), 0).unwrap().unwrap();
            if group.rank() == Rank::CHIEF {
                let began = Instant::now();
                while unasked(&group) == 0 {
                    assert!(began.elapsed() < PATIENCE, "{over:?}: nothing arrives");
                    thread::yield_now();
                }
                drop(split);
                assert_eq!(unasked(&group), 0, "{over:?}");
            } else {
                // The higher rank opens the stream, unasked.
                split.send(&[1_u8], Rank::CHIEF).unwrap();
            }
            group.barrier().unwrap();
            group.leave().unwrap();
        });
    }
}
