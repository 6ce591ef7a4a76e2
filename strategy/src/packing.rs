use std::ops::Range;

/// Which neighbours among tensors of so many bytes are reduced together, as one buffer.
///
/// A pack takes one more tensor until it has more than `bytes_per_pack` bytes, so it may be larger
/// by that tensor. With a limit of 0 there is no limit: everything is one pack, which is empty
/// where there are no tensors.
///
/// ```
/// use meshwork_strategy::packs;
///
/// assert_eq!(packs(&[4, 4, 4, 4], 4), [0..2, 2..4]);
/// assert_eq!(packs(&[4, 4, 4, 4], 0), [0..4]);
/// ```
#[must_use]
#[doc(alias("bytes_per_pack", "group_by_size"))]
pub fn packs(bytes: &[usize], bytes_per_pack: usize) -> Vec<Range<usize>> {
    if bytes_per_pack == 0 {
        return std::iter::once(0..bytes.len()).collect();
    }
    let mut packs: Vec<Range<usize>> = Vec::new();
    let mut held = usize::MAX;
    for (tensor, size) in bytes.iter().enumerate() {
        match packs.last_mut() {
            Some(pack) if held <= bytes_per_pack => {
                pack.end = tensor + 1;
                held = held.saturating_add(*size);
            }
            _ => {
                packs.push(tensor..tensor + 1);
                held = *size;
            }
        }
    }
    packs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packs_tile_the_tensors_and_close_as_soon_as_they_exceed_the_limit(
            bytes in prop::collection::vec(0_usize..50, 0..12), limit in 1_usize..60,
        ) {
            let packs = packs(&bytes, limit);
            let tensors: Vec<usize> = packs.iter().cloned().flatten().collect();
            prop_assert_eq!(tensors, (0..bytes.len()).collect::<Vec<_>>());
            for (number, pack) in packs.iter().enumerate() {
                let is_last = number + 1 == packs.len();
                let all: usize = bytes[pack.clone()].iter().sum();
                let but_last: usize = bytes[pack.start..pack.end - 1].iter().sum();
                prop_assert!(but_last <= limit && (all > limit || is_last));
            }
        }
    }
}
