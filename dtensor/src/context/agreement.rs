//! Clients that tell each other what they are about to do.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::sync::atomic::Ordering;

use super::{Connected, Context};
use crate::Error;
use crate::error::{ClientStatement, Subject};

/// The limit on a client's statement, in bytes.
const MOST: usize = 1 << 20;

/// The separator between a client's statement and where it comes from.
const FROM: &str = "\n";

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
        let all = self.views(subject, text)?;
        match all.iter().all(|view| view.said == all[0].said) {
            true => Ok(()),
            false => Err(Error::ClientsDisagree {
                subject,
                views: all,
            }),
        }
    }

    /// Whether all clients do this next. All of them call it; only two numbers go between them
    /// where they do.
    ///
    /// # Errors
    /// Those of [`agree`](Self::agree).
    #[track_caller]
    pub(crate) fn announce(&self, title: &str) -> Result<(), Error> {
        let turn = self.0.announcements.fetch_add(1, Ordering::Relaxed);
        let mut hasher = DefaultHasher::new();
        title.hash(&mut hasher);
        // As one number it would pass for the length of a statement, which others may tell now.
        let mark = [turn, hasher.finish()];
        let mut marks = vec![[0; 2]; self.client().count() as usize];
        self.process_group()
            .connected()?
            .group
            .all_gather(&mark, marks.as_flattened_mut())?;
        match marks.iter().all(|other| *other == mark) {
            true => Ok(()),
            false => Err(Error::ClientsDisagree {
                subject: Subject::Program,
                views: self.views(Subject::Program, title)?,
            }),
        }
    }

    /// The statement of each client, in their order, and where it comes from. All clients call it.
    #[track_caller]
    fn views(&self, subject: Subject, said: &str) -> Result<Vec<ClientStatement>, Error> {
        let told = format!("{said}{FROM}{}", Location::caller());
        let all = self.all_gather_bytes(subject, told.as_bytes())?;
        let view = |(client, bytes): (u32, &Vec<u8>)| {
            let text = String::from_utf8_lossy(bytes);
            let (said, caller) = text.rsplit_once(FROM).unwrap_or((&text, ""));
            ClientStatement {
                client,
                said: said.to_owned(),
                caller: caller.to_owned(),
            }
        };
        Ok((0..).zip(&all).map(view).collect())
    }

    /// The bytes of each client, in their order. All clients call it.
    #[track_caller]
    pub(crate) fn all_gather_bytes(
        &self,
        subject: Subject,
        own: &[u8],
    ) -> Result<Vec<Vec<u8>>, Error> {
        if self.is_alone() {
            return Ok(vec![own.to_vec()]);
        }
        let length = own.len() as u64;
        fitting(subject, length)?;
        let mut process_group = self.process_group();
        let Connected { group, .. } = process_group.connected()?;
        let mut lengths = vec![0; group.world() as usize];
        group.all_gather(&[length], &mut lengths)?;
        let lengths = lengths.into_iter().map(|len| fitting(subject, len));
        let lengths = lengths.collect::<Result<Vec<usize>, Error>>()?;
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
}

/// The length of a client's statement, this one's or another's.
fn fitting(subject: Subject, length: u64) -> Result<usize, Error> {
    let len = usize::try_from(length).unwrap_or(usize::MAX);
    match len <= MOST {
        true => Ok(len),
        false => Err(Error::TooLong {
            subject,
            len,
            most: MOST,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else their sum overflows, or takes all memory there is.
    #[test]
    fn another_client_cannot_tell_of_more_than_it_may_say() {
        let subject = Subject::Program;
        assert_eq!(fitting(subject, 1 << 20).unwrap(), MOST);
        for length in [(1 << 20) + 1, u64::MAX] {
            let refused = fitting(subject, length).unwrap_err();
            assert!(matches!(refused, Error::TooLong { .. }), "{refused}");
        }
    }
}
