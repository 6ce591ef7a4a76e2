//! Copies of a model told apart by a hash, and hashes as numbers that survive a sum of `f32`.

use meshwork_collectives::Rank;
use twox_hash::XxHash3_64;

/// Numbers that one hash takes: 16 bits in each, which `f32` holds exactly.
const PARTS: usize = 4;

/// The hash of a copy (XXH3, 64 bits): equal bits have equal hashes.
pub(crate) fn of(copy: &[f32]) -> u64 {
    XxHash3_64::oneshot(bytemuck::cast_slice(copy))
}

/// Numbers that the hashes of so many replicas take.
pub(crate) fn room(replicas: usize) -> usize {
    replicas * PARTS
}

/// Writes one replica's hash in its own place of `room`, and zero in all others: a sum over all
/// replicas, in whatever order, then holds the hashes of all.
pub(crate) fn write(hash: u64, replica: Rank, room: &mut [f32]) {
    room.fill(0.0);
    for (part, number) in room
        .iter_mut()
        .skip(replica.index() * PARTS)
        .take(PARTS)
        .enumerate()
    {
        *number = f32::from(parts(hash)[part]);
    }
}

/// The replicas whose hash differs from the first one's.
pub(crate) fn different(room: &[f32]) -> Vec<Rank> {
    let mut hashes = room.chunks(PARTS);
    let first = hashes.next().unwrap_or_default();
    Rank::all(u32::MAX)
        .skip(1)
        .zip(hashes)
        .filter(|(_, hash)| *hash != first)
        .map(|(rank, _)| rank)
        .collect()
}

fn parts(hash: u64) -> [u16; PARTS] {
    let bytes = hash.to_le_bytes();
    std::array::from_fn(|part| u16::from_le_bytes([bytes[2 * part], bytes[2 * part + 1]]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn after_a_sum_in_any_order_exactly_those_that_differ_are_found(
            hashes in prop::collection::vec(prop_oneof![Just(u64::MAX), Just(7), any::<u64>()], 1..9),
            turn in 0_usize..9,
        ) {
            let mut sum = vec![0.0; room(hashes.len())];
            for place in 0..hashes.len() {
                let replica = (place + turn) % hashes.len();
                let mut own = vec![f32::NAN; sum.len()];
                write(hashes[replica], Rank::new(u32::try_from(replica).unwrap()), &mut own);
                sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
            let expected: Vec<usize> = (0..hashes.len()).filter(|at| hashes[*at] != hashes[0]).collect();
            let found: Vec<usize> = different(&sum).into_iter().map(Rank::index).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn one_bit_makes_another_hash() {
        let mut copy = vec![1.0_f32; 100];
        let before = of(&copy);
        copy[50] = f32::from_bits(1.0_f32.to_bits() + 1);
        assert_ne!(of(&copy), before);
    }
}
