//! Copies of a model told apart by a hash, and hashes as numbers that survive a sum of `f32`.

use meshwork_collectives::Rank;
use twox_hash::XxHash3_64;

/// Numbers that one hash takes: 16 bits in each, which `f32` holds exactly.
const PARTS: usize = 4;

/// A hash (XXH3, 64 bits) of one copy of a model, computed piece by piece where its values are:
/// equal pieces of equal bits have equal fingerprints.
///
/// ```
/// use meshwork_strategy::{Error, Fingerprint, MultiWorkerMirroredStrategy};
///
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// let (weight, bias) = ([0.5, 0.25, 0.0], [1.0]);
/// let mut copy = Fingerprint::new();
/// copy.add(&weight);
/// copy.add(&bias);
/// assert_eq!(strategy.verify_fingerprint(copy)?, copy.value());
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the next piece.
    pub fn add(&mut self, piece: &[f32]) {
        // The hash so far is the next one's seed; a first piece is hashed as if it were the only
        // one.
        self.0 = XxHash3_64::oneshot_with_seed(self.0, bytemuck::cast_slice(piece));
    }

    /// The hash.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }

    /// Of a contiguous copy.
    #[must_use]
    pub fn of(copy: &[f32]) -> Self {
        let mut fingerprint = Self::new();
        fingerprint.add(copy);
        fingerprint
    }
}

/// The length, in numbers, of the hashes of this many replicas.
pub(crate) fn room(replicas: usize) -> usize {
    replicas * PARTS
}

/// Writes one replica's hash in its own place of `room`, and zero in all others: a sum over all
/// replicas, in whatever order, then holds the hashes of all.
pub(crate) fn write(copy: Fingerprint, replica: Rank, room: &mut [f32]) {
    room.fill(0.0);
    for (part, number) in room
        .iter_mut()
        .skip(replica.index() * PARTS)
        .take(PARTS)
        .enumerate()
    {
        *number = f32::from(parts(copy)[part]);
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

fn parts(copy: Fingerprint) -> [u16; PARTS] {
    let bytes = copy.0.to_le_bytes();
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
                write(Fingerprint(hashes[replica]), Rank::new(u32::try_from(replica).unwrap()), &mut own);
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
        let before = Fingerprint::of(&copy);
        copy[50] = f32::from_bits(1.0_f32.to_bits() + 1);
        assert_ne!(Fingerprint::of(&copy), before);
    }

    #[test]
    fn each_piece_counts_and_so_does_their_order() {
        let of = |pieces: &[&[f32]]| {
            let mut copy = Fingerprint::new();
            pieces.iter().for_each(|piece| copy.add(piece));
            copy
        };
        let in_order = of(&[&[1.0, 2.0], &[3.0]]);
        assert_eq!(in_order, of(&[&[1.0, 2.0], &[3.0]]));
        assert_ne!(in_order, of(&[&[3.0], &[1.0, 2.0]]));
        assert_ne!(in_order, of(&[&[1.0, 2.0]]));
        assert_ne!(in_order, of(&[&[1.0, 2.5], &[3.0]]));
    }

    #[test]
    fn one_piece_has_the_hash_that_other_programs_give_its_bytes() {
        let bytes: Vec<u8> = [1.0_f32, 2.0]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let expected = XxHash3_64::oneshot(&bytes);
        assert_eq!(Fingerprint::of(&[1.0, 2.0]).value(), expected);
    }
}
