//! Bytes of any length, from every worker to all.

use meshwork_collectives::Group;

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
    /// [`Error::SeveralReplicas`], [`Error::Group`]
    #[doc(alias = "all_gather_object")]
    #[track_caller]
    pub fn all_gather_bytes(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        gather_bytes(self.only_group()?, own)
    }
}

/// The bytes that each worker gives, in the order of their ranks.
#[track_caller]
pub(crate) fn gather_bytes(group: &mut Group, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let mut lengths = vec![0; group.world() as usize];
    group.all_gather(&[own.len() as u64], &mut lengths)?;
    // Workers are trusted with the length of what they say.
    let length = |len: u64| usize::try_from(len).expect("a worker holds as many bytes in memory");
    let lengths: Vec<usize> = lengths.into_iter().map(length).collect();
    let mut all = vec![0; lengths.iter().sum()];
    group.all_gather_uneven(own, &mut all, &lengths)?;
    let mut rest = &all[..];
    let each = lengths.into_iter().map(|len| {
        let (bytes, behind) = rest.split_at(len);
        rest = behind;
        bytes.to_vec()
    });
    Ok(each.collect())
}
