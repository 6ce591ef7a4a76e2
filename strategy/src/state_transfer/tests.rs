//! Transfers among threads: equal bits at the end, what a loss half-way leaves, chunks and states
//! that are wrong.

use std::sync::Mutex;

use meshwork_testing::in_threads;

use super::*;

/// Bytes of a chunk here.
const SMALL: usize = 8;

/// Runs this on each rank of a group; the results are in the order of the ranks.
fn among<R: Send>(world: u32, run: impl Fn(Group) -> R + Sync) -> Vec<R> {
    in_threads(Group::local(world).unwrap(), run)
}

fn gift(givers: &[u32], world: u32) -> Gift {
    let (givers, takers) = Rank::all(world).partition(|rank| givers.contains(&rank.number()));
    Gift { givers, takers }
}

/// A state that no other chunk of it, and no other state, has a part of.
fn state(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 31 + at / 251 + seed * 7).to_le_bytes()[0])
        .collect()
}

fn manifest(state: &mut [u8]) -> Manifest {
    Manifest::of(b"outline".to_vec(), &Parts::one(state), SMALL)
}

/// What one rank ends with, and how.
type Ended = (Vec<u8>, Result<(), Error>);

/// Gives or takes, as the terms have it. An error ends the group.
fn exchange(group: &mut Group, gift: &Gift, own: &mut Vec<u8>) -> Result<(), Error> {
    let gives = gift.givers.contains(&group.rank());
    let manifest = gives.then(|| manifest(own));
    let terms = agree(group, gift, manifest.as_ref())?;
    assert_eq!(terms.manifest.outline(), b"outline");
    match terms.takes(group.rank()) {
        false => give(group, &terms, &mut Parts::one(own)),
        true => {
            let mut partial = Partial::new(&terms, vec![0; terms.manifest.total()]);
            take(group, &terms, &mut partial, |state| Parts::one(state))?;
            *own = partial.state;
            Ok(())
        }
    }
}

fn exchanged(gift: &Gift, mut own: impl FnMut(Rank) -> Vec<u8>) -> Vec<Ended> {
    let world = u32::try_from(gift.givers.len() + gift.takers.len()).unwrap();
    let states: Mutex<Vec<_>> = Mutex::new(Rank::all(world).map(|rank| Some(own(rank))).collect());
    among(world, |mut group| {
        let mut own = states.lock().unwrap()[group.rank().index()].take().unwrap();
        let done = exchange(&mut group, gift, &mut own);
        group.leave().unwrap();
        (own, done)
    })
}

#[test]
fn all_end_with_the_bits_of_those_who_give() {
    // Chunks that are whole, that are not, none, and more than go in one pass.
    for len in [0, 1, SMALL, 3 * SMALL + 5, 40 * SMALL + 1] {
        for (givers, world) in [
            (&[0][..], 2),
            (&[1], 3),
            (&[0, 1], 3),
            (&[0, 2, 3], 4),
            (&[1, 3], 5),
        ] {
            let gift = gift(givers, world);
            let own = |rank| match gift.givers.contains(&rank) {
                true => state(len, 0),
                false => Vec::new(),
            };
            for (own, done) in exchanged(&gift, own) {
                assert_eq!((own, done), (state(len, 0), Ok(())), "{len} {givers:?}");
            }
        }
    }
}

#[test]
fn a_giver_whose_state_differs_takes_over_that_of_most() {
    let gift = gift(&[0, 1, 3], 4);
    let own = |rank: Rank| match rank.number() {
        0 => state(50, 1),
        2 => Vec::new(),
        _ => state(50, 0),
    };
    for (own, done) in exchanged(&gift, own) {
        assert_eq!((own, done), (state(50, 0), Ok(())));
    }
}

/// Bytes of a state of more chunks than go in one pass.
const LEN: usize = 20 * SMALL + 3;

/// Of two givers and a taker, the second giver goes after each possible number of deliveries.
#[test]
fn what_came_before_a_giver_died_is_not_sent_again() {
    for cut in 0..=PASS {
        let gift = gift(&[0, 1], 3);
        let left = among(3, |mut group| {
            let mut own = state(LEN, 0);
            let gives = group.rank().number() < 2;
            let manifest = gives.then(|| manifest(&mut own));
            let terms = agree(&mut group, &gift, manifest.as_ref()).unwrap();
            match group.rank().number() {
                0 => {
                    let given = give(&mut group, &terms, &mut Parts::one(&mut own));
                    assert!(given.unwrap_err().is_loss());
                    None
                }
                1 => {
                    let (mut parts, mut held) = (Parts::one(&mut own), ChunkSet::none(0));
                    let mut transfer =
                        Transfer::begin(&mut group, &terms, &mut parts, &mut held).unwrap();
                    let pass = plan::next_pass(&gift.givers, &transfer.takers, PASS);
                    assert_eq!(pass.len(), PASS);
                    transfer.carry_out(&pass[..cut]).unwrap();
                    None
                }
                _ => {
                    let mut partial = Partial::new(&terms, vec![0; LEN]);
                    let taken = take(&mut group, &terms, &mut partial, |state| Parts::one(state));
                    assert!(taken.unwrap_err().is_loss());
                    Some(partial)
                }
            }
        });
        goes_on(left.into_iter().flatten().next().unwrap(), cut);
    }
}

/// The first giver and the taker, in a group of their own.
#[track_caller]
fn goes_on(partial: Partial<Vec<u8>>, cut: usize) {
    let missing = partial.held.missing().count();
    // They give by turns: the taker has what the second gave, and stops at its next at the latest.
    let held = LEN.div_ceil(SMALL) - missing;
    assert!(
        (cut & !1..=(cut | 1).min(PASS)).contains(&held),
        "{held} {cut}"
    );
    let (gift, partial) = (gift(&[0], 2), Mutex::new(Some(partial)));
    among(2, |mut group| {
        let mut own = state(LEN, 0);
        let gives = group.rank() == Rank::CHIEF;
        let manifest = gives.then(|| manifest(&mut own));
        let terms = agree(&mut group, &gift, manifest.as_ref()).unwrap();
        if gives {
            let (mut parts, mut none) = (Parts::one(&mut own), ChunkSet::none(0));
            let transfer = Transfer::begin(&mut group, &terms, &mut parts, &mut none).unwrap();
            assert_eq!(transfer.takers[0].held.missing().count(), missing, "{cut}");
            transfer.run().unwrap();
        } else {
            let mut partial = partial.lock().unwrap().take().unwrap();
            assert!(partial.is_of(&terms));
            take(&mut group, &terms, &mut partial, |state| Parts::one(state)).unwrap();
            assert_eq!(partial.state, own, "{cut}");
        }
        group.leave().unwrap();
    });
}

/// A chunk that the second giver sends, by either way.
const WRONG: usize = 9;

/// A chunk of the second giver is another than stated: of a few that go straight, and of one that
/// goes to more takers than there are givers.
#[test]
fn who_sends_a_wrong_chunk_is_named_by_all_and_the_chunk_is_not_kept() {
    for world in [3, 5] {
        let gift = gift(&[0, 1], world);
        let ended = among(world, |mut group| {
            let (rank, mut own) = (group.rank().number(), state(LEN, 0));
            let manifest = (rank < 2).then(|| manifest(&mut own));
            let terms = agree(&mut group, &gift, manifest.as_ref()).unwrap();
            let mut partial = Partial::new(&terms, vec![0; LEN]);
            let done = match rank {
                0 | 1 => {
                    own[WRONG * SMALL + 1] ^= u8::from(rank == 1);
                    give(&mut group, &terms, &mut Parts::one(&mut own))
                }
                _ => take(&mut group, &terms, &mut partial, |state| Parts::one(state)),
            };
            if let Err(error) = &done {
                group.abort(error.to_string());
            }
            (done.unwrap_err(), partial)
        });
        for (rank, (error, partial)) in ended.into_iter().enumerate() {
            assert_eq!(error.rank_at_fault(), Some(Rank::new(1)), "{error}");
            assert!(error.to_string().contains("chunk 9 of the 21"), "{error}");
            if rank >= 2 {
                assert!(!partial.held.contains(WRONG) && partial.held.contains(WRONG - 1));
                assert_eq!(partial.state[WRONG * SMALL..][..SMALL], [0; SMALL]);
            }
        }
    }
}

/// The first giver is played by hand: its hashes are those of another state.
#[test]
fn a_list_of_hashes_that_was_not_offered_is_not_believed() {
    let gift = gift(&[0], 2);
    let errors = among(2, |mut group| {
        if group.rank() == Rank::new(1) {
            return Some(agree(&mut group, &gift, None).unwrap_err());
        }
        let (offered, other) = (manifest(&mut state(LEN, 0)), manifest(&mut state(LEN, 1)));
        let mut words = vec![0; manifest::WORDS * 2];
        group
            .all_gather(&offered.offer().words(), &mut words)
            .unwrap();
        group.broadcast(&mut other.to_bytes(), Rank::CHIEF).unwrap();
        group.abort("its list was wrong");
        None
    });
    let error = errors.into_iter().flatten().next().unwrap();
    assert_eq!(error.rank_at_fault(), Some(Rank::CHIEF));
    assert!(error.to_string().contains("its list was wrong"), "{error}");
}

/// The first giver is played by hand: it says that its list is longer than any memory.
#[test]
fn a_list_that_no_memory_holds_is_refused_by_name() {
    let gift = gift(&[0], 2);
    let errors = among(2, |mut group| {
        if group.rank() == Rank::new(1) {
            return Some(agree(&mut group, &gift, None).unwrap_err());
        }
        let mut words = vec![0; manifest::WORDS * 2];
        let offer = [1, u64::MAX / 2, 8, 8];
        group.all_gather(&offer, &mut words).unwrap();
        None
    });
    let error = errors.into_iter().flatten().next().unwrap();
    assert_eq!(error.rank_at_fault(), Some(Rank::CHIEF), "{error}");
    assert!(
        matches!(error, Error::State(StateError::Manifest { .. })),
        "{error}"
    );
}
