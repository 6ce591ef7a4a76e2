use std::ops::Range;

/// Groups neighbouring tensors of these sizes in bytes into buckets, each reduced as one buffer.
///
/// A bucket takes one more tensor until it has more than `bytes_per_bucket` bytes, so it may be
/// larger by that tensor. With a limit of 0 there is no limit: everything is one bucket, which is
/// empty where there are no tensors.
///
/// ```
/// use meshwork_strategy::bucket_ranges;
///
/// assert_eq!(bucket_ranges(&[4, 4, 4, 4], 4), [0..2, 2..4]);
/// assert_eq!(bucket_ranges(&[4, 4, 4, 4], 0), [0..4]);
/// ```
#[must_use]
#[doc(alias("bytes_per_pack", "group_by_size"))]
pub fn bucket_ranges(bytes: &[usize], bytes_per_bucket: usize) -> Vec<Range<usize>> {
    if bytes_per_bucket == 0 {
        return std::iter::once(0..bytes.len()).collect();
    }
    let mut buckets: Vec<Range<usize>> = Vec::new();
    let mut held = usize::MAX;
    for (tensor, size) in bytes.iter().enumerate() {
        match buckets.last_mut() {
            Some(bucket) if held <= bytes_per_bucket => {
                bucket.end = tensor + 1;
                held = held.saturating_add(*size);
            }
            _ => {
                buckets.push(tensor..tensor + 1);
                held = *size;
            }
        }
    }
    buckets
}

/// Which of `count` things are in this place of so many: as even as they go, more in the first.
pub(crate) fn even_part(count: usize, places: usize, place: usize) -> Range<usize> {
    let start = |place: usize| place * (count / places) + place.min(count % places);
    start(place)..start(place + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn buckets_tile_the_tensors_and_close_as_soon_as_they_exceed_the_limit(
            bytes in prop::collection::vec(0_usize..50, 0..12), limit in 1_usize..60,
        ) {
            let buckets = bucket_ranges(&bytes, limit);
            let tensors: Vec<usize> = buckets.iter().cloned().flatten().collect();
            prop_assert_eq!(tensors, (0..bytes.len()).collect::<Vec<_>>());
            for (number, bucket) in buckets.iter().enumerate() {
                let is_last = number + 1 == buckets.len();
                let all: usize = bytes[bucket.clone()].iter().sum();
                let but_last: usize = bytes[bucket.start..bucket.end - 1].iter().sum();
                prop_assert!(but_last <= limit && (all > limit || is_last));
            }
        }
    }
}
