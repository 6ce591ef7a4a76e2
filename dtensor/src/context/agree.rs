//! Clients that tell each other what they are about to do.

use meshwork_collectives::Group;

use super::Context;
use crate::Error;
use crate::error::Subject;

/// What a client can say about itself, in bytes.
const MOST: usize = 1 << 20;

impl Context {
    /// Whether all clients have the same text about something. All of them call it.
    ///
    /// # Errors
    /// [`Error::ClientsDisagree`], the same on all clients, and those of an all-gather.
    #[track_caller]
    pub(crate) fn agree(&self, subject: Subject, text: &str) -> Result<(), Error> {
        if self.is_alone() {
            return Ok(());
        }
        let all = self.tell(subject, text.as_bytes())?;
        let mut clients = (0..).zip(&all);
        let Some((client, said)) = clients.find(|(_, said)| **said != all[0]) else {
            return Ok(());
        };
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Err(Error::ClientsDisagree {
            subject,
            client,
            said: shown(said),
            expected: shown(&all[0]),
        })
    }

    /// What each client says, in their order. All of them call it.
    #[track_caller]
    pub(crate) fn tell(&self, subject: Subject, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        if self.is_alone() {
            return Ok(vec![own.to_vec()]);
        }
        self.with_group(|group| all_told(group, subject, own))
    }
}

#[track_caller]
fn all_told(group: &mut Group, subject: Subject, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    if own.len() > MOST {
        return Err(Error::TooLong {
            subject,
            len: own.len(),
            most: MOST,
        });
    }
    let mut lengths = vec![0; group.world() as usize];
    group.all_gather(&[own.len() as u64], &mut lengths)?;
    let lengths = lengths
        .into_iter()
        .map(|len| usize::try_from(len).unwrap_or(MOST));
    let lengths: Vec<usize> = lengths.collect();
    let mut all = vec![0_u8; lengths.iter().sum()];
    group.all_gather_uneven(own, &mut all, &lengths)?;
    let mut rest = all.as_slice();
    let told = lengths.iter().map(|&len| {
        let (first, behind) = rest.split_at(len);
        rest = behind;
        first.to_vec()
    });
    Ok(told.collect())
}
