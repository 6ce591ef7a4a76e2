//! Elements of which each worker has another number, such as bytes, from every worker to all.

use meshwork_collectives::{Element, Group};

use super::ReplicaContext;
use crate::Error;

impl ReplicaContext<'_> {
    /// The bytes that each worker gives, in the order of the workers, for what is no array: it may
    /// have another length on each. A worker has one replica here.
    ///
    /// ```
    /// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let said = strategy.run(|replica| replica.all_gather_bytes(b"ready"))?;
    /// assert_eq!(said.into_first(), [b"ready"]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SeveralReplicas`], [`Error::GatherTooLarge`], [`Error::Group`]
    #[doc(alias = "all_gather_object")]
    #[track_caller]
    pub fn all_gather_bytes(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        gather_bytes(self.only_group()?, own)
    }
}

/// All-gathers a few words of each rank, in the order of these.
#[track_caller]
pub(crate) fn gather_words<const N: usize>(
    group: &mut Group,
    own: [u64; N],
) -> Result<Vec<u64>, Error> {
    let mut words = own.repeat(group.world() as usize);
    group.all_gather(&own, &mut words)?;
    Ok(words)
}

/// The bytes that each worker gives, in the order of their ranks.
#[track_caller]
pub(crate) fn gather_bytes(group: &mut Group, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let (lengths, all) = gather_uneven(group, own)?;
    let mut rest = &all[..];
    let each = lengths.into_iter().map(|len| {
        let (bytes, behind) = rest.split_at(len);
        rest = behind;
        bytes.to_vec()
    });
    Ok(each.collect())
}

/// How many elements each worker gives, and those of all.
#[track_caller]
pub(crate) fn gather_uneven<T: Element>(
    group: &mut Group,
    own: &[T],
) -> Result<(Vec<usize>, Vec<T>), Error> {
    let lengths = gather_words(group, [own.len() as u64])?;
    let (lengths, mut output) = room_for(&lengths)?;
    group.all_gather_uneven(own, &mut output, &lengths)?;
    Ok((lengths, output))
}

/// What a gather of `lengths` elements needs: the lengths as sizes, and where the elements go. The
/// lengths are other workers' words.
fn room_for<T: Clone + Default>(lengths: &[u64]) -> Result<(Vec<usize>, Vec<T>), Error> {
    let elements = lengths
        .iter()
        .fold(0_u64, |sum, len| sum.saturating_add(*len));
    let too_large = || Error::GatherTooLarge { elements };
    let all = usize::try_from(elements).map_err(|_| too_large())?;
    let mut output = Vec::new();
    output.try_reserve_exact(all).map_err(|_| too_large())?;
    output.resize(all, T::default());
    let lengths = lengths.iter().map(|len| usize::try_from(*len));
    let lengths = lengths.collect::<Result<_, _>>().map_err(|_| too_large())?;
    Ok((lengths, output))
}

#[cfg(test)]
mod tests {
    use meshwork_collectives::Rank;

    use super::*;
    use crate::testing::each;

    #[test]
    fn lengths_that_no_memory_holds_are_refused() {
        let (lengths, room) = room_for::<f32>(&[2, 0, 3]).unwrap();
        assert_eq!((lengths, room), (vec![2, 0, 3], vec![0.0; 5]));
        for lengths in [vec![u64::MAX], vec![u64::MAX, 1], vec![1 << 62, 1 << 62]] {
            let refused = room_for::<f32>(&lengths).unwrap_err();
            assert!(matches!(refused, Error::GatherTooLarge { .. }), "{refused}");
        }
    }

    #[test]
    fn more_bytes_than_memory_holds_are_not_believed_of_a_worker() {
        each(2, |mut strategy| {
            if strategy.rank() == Rank::CHIEF {
                let gathered = strategy.run(|replica| replica.all_gather_bytes(b"x"));
                let elements = u64::MAX;
                let expected = Error::GatherTooLarge { elements };
                assert_eq!(gathered, Err(expected));
            } else {
                let mut lengths = [0_u64; 2];
                let group = strategy.group_mut();
                group.all_gather(&[u64::MAX], &mut lengths).unwrap();
                // Until the chief has refused it.
                let ended = group.all_gather(&[0_u64], &mut lengths);
                assert!(ended.is_err());
            }
        });
    }
}
