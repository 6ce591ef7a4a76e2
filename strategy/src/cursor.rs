//! `Cursor`: the position in the data, as text in snapshots (`epoch:position:replicas`). A cursor
//! that depends on the number of replicas is refused by a job with another number.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::Error;

/// The position in the data, to be saved with the model and resumed from.
///
/// ```
/// use meshwork_strategy::{Cursor, MultiWorkerMirroredStrategy};
///
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// let dataset = strategy.distribute_dataset(10, 4)?;
/// let mut epoch = dataset.epoch(3);
/// epoch.next();
/// let saved = epoch.cursor().to_string();
///
/// let mut rest = dataset.resume(saved.parse()?)?;
/// assert_eq!(rest.next().unwrap().indices(), [4, 5, 6, 7]);
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Cursor {
    epoch: u64,
    position: u64,
    /// The replicas that the position depends on; 0 where it depends on none.
    replicas: u64,
}

impl Cursor {
    /// Before the first sample of the first epoch.
    #[must_use]
    pub fn start() -> Self {
        Self::default()
    }

    /// A position that means the same to any number of workers.
    pub(crate) fn new(epoch: u64, position: u64) -> Self {
        Self {
            epoch,
            position,
            replicas: 0,
        }
    }

    /// One position further.
    pub(crate) fn step(mut self) -> Self {
        self.position += 1;
        self
    }

    pub(crate) fn bound_to(mut self, replicas: usize) -> Self {
        self.replicas = replicas as u64;
        self
    }

    /// The epoch, from 0.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The position in the epoch: samples of a data set by index, steps of one by batches.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether it is amid an epoch whose steps are the same batches for any number of replicas.
    pub(crate) fn is_within_batches(self) -> bool {
        self.replicas == 0 && self.position > 0
    }

    /// Whether a job of `replicas` replicas can continue from here.
    pub(crate) fn check(self, replicas: usize) -> Result<(), Error> {
        if self.replicas == 0 || self.replicas == replicas as u64 {
            return Ok(());
        }
        Err(Error::CursorElsewhere {
            saved: self.replicas,
            replicas,
        })
    }
}

impl Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.epoch, self.position, self.replicas)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || Error::CursorText {
            text: text.to_owned(),
        };
        let mut numbers = text.split(':').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let cursor = match (next(), next(), next()) {
            (Some(epoch), Some(position), Some(replicas)) => Self {
                epoch,
                position,
                replicas,
            },
            _ => return Err(malformed()),
        };
        if numbers.next().is_some() {
            return Err(malformed());
        }
        Ok(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_cursor_are_inverse_and_other_text_is_refused() {
        let cursor = Cursor::new(3, u64::MAX).bound_to(4);
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "1", "1:2", "1:2:3:4", "1:2:-3", "a:b:c", "1:2:3 "] {
            let expected = Error::CursorText {
                text: text.to_owned(),
            };
            assert_eq!(text.parse::<Cursor>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn only_a_bound_cursor_minds_the_number_of_replicas() {
        assert_eq!(Cursor::new(1, 2).check(9), Ok(()));
        assert_eq!(Cursor::new(1, 2).bound_to(4).check(4), Ok(()));
        assert!(Cursor::new(1, 2).bound_to(4).check(2).is_err());
    }
}
