//! What several workers have is given to those who have it not: each gives a part of every chunk.

use std::ops::Range;

use meshwork_collectives::{Group, Rank};
use twox_hash::XxHash3_64;

use super::standing::Gift;
use crate::{Error, LowCommunicationError};

/// Bytes that all givers together send a taker at a time: each chunk has a deadline of its own.
const CHUNK: usize = 16 << 20;
/// Behind each part is its hash.
const HASH: usize = size_of::<u64>();

/// Gives the package of the givers to the takers, who get it back.
///
/// # Errors
/// [`Error::ReplicasDiverged`] on all where packages differ, [`LowCommunicationError::Damaged`],
/// [`Error::Group`].
pub(super) fn transfer(
    group: &mut Group,
    gift: &Gift,
    package: &[u8],
) -> Result<Option<Vec<u8>>, Error> {
    let length = check_packages(group, gift, package)?;
    let mut taken = Vec::new();
    for start in (0..length).step_by(CHUNK) {
        let chunk = start..length.min(start + CHUNK);
        let received = exchange_chunk(group, gift, package, chunk.clone())?;
        let mut rest = received.as_slice();
        for (at, giver) in gift.givers.iter().enumerate() {
            if rest.is_empty() {
                break;
            }
            let bytes = part(&chunk, at, gift.givers.len()).len();
            let (part, behind) = rest.split_at(bytes);
            let (hash, behind) = behind.split_at(HASH);
            rest = behind;
            if hash != XxHash3_64::oneshot(part).to_le_bytes() {
                return Err(LowCommunicationError::Damaged {
                    giver: *giver,
                    bytes,
                }
                .into());
            }
            taken.extend_from_slice(part);
        }
    }
    Ok(gift.takers.contains(&group.rank()).then_some(taken))
}

/// The length of all givers' packages, which are equal.
fn check_packages(group: &mut Group, gift: &Gift, package: &[u8]) -> Result<usize, Error> {
    let own = [package.len() as u64, XxHash3_64::oneshot(package)];
    let mut words = vec![0; own.len() * group.world() as usize];
    group.all_gather(&own, &mut words)?;
    let (each, _) = words.as_chunks::<2>();
    let first = each[gift.givers[0].index()];
    let others = gift.givers.iter().copied();
    let ranks: Vec<Rank> = others.filter(|rank| each[rank.index()] != first).collect();
    if !ranks.is_empty() {
        return Err(Error::ReplicasDiverged { ranks });
    }
    // A worker is trusted with the size of its own state.
    Ok(usize::try_from(first[0]).expect("a worker holds as many bytes in memory"))
}

/// What this rank gets of a chunk: nothing, or a part and its hash from each giver.
fn exchange_chunk(
    group: &mut Group,
    gift: &Gift,
    package: &[u8],
    chunk: Range<usize>,
) -> Result<Vec<u8>, Error> {
    let (world, own, givers) = (group.world() as usize, group.rank(), gift.givers.len());
    let (mut sent, mut received) = (vec![0; world], vec![0; world]);
    let mut input = Vec::new();
    if let Some(at) = gift.givers.iter().position(|giver| *giver == own) {
        let part = &package[part(&chunk, at, givers)];
        for taker in &gift.takers {
            sent[taker.index()] = part.len() + HASH;
            input.extend_from_slice(part);
            input.extend(XxHash3_64::oneshot(part).to_le_bytes());
        }
    }
    if gift.takers.contains(&own) {
        for (at, giver) in gift.givers.iter().enumerate() {
            received[giver.index()] = part(&chunk, at, givers).len() + HASH;
        }
    }
    let mut output = vec![0; received.iter().sum()];
    group.all_to_all_uneven(&input, &sent, &mut output, &received)?;
    Ok(output)
}

/// The part of a chunk that one of so many givers sends.
fn part(chunk: &Range<usize>, at: usize, givers: usize) -> Range<usize> {
    let bound = |at: usize| chunk.start + chunk.len() * at / givers;
    bound(at)..bound(at + 1)
}
