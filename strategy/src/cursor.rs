//! `Cursor`: the position in the data, as text in snapshots: `epoch:position:replicas`, with
//! `:workers` behind it where the position depends on who reads. Such a cursor is refused by a job
//! with other numbers of replicas or workers.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::{Error, Readers};

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
    /// Those that the position depends on; no replicas where it depends on none.
    readers: Readers,
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
            readers: Readers::default(),
        }
    }

    /// One position further.
    pub(crate) fn step(mut self) -> Self {
        self.position += 1;
        self
    }

    pub(crate) fn bound_to(mut self, readers: Readers) -> Self {
        self.readers = readers;
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
        self.readers.replicas == 0 && self.position > 0
    }

    /// Whether a job of these can continue from here. Where nobody noted the workers, any number of
    /// them may have saved it.
    pub(crate) fn check(self, readers: Readers) -> Result<(), Error> {
        let Readers { replicas, workers } = self.readers;
        let is_same = [0, readers.workers].contains(&workers) && replicas == readers.replicas;
        match replicas == 0 || is_same {
            true => Ok(()),
            false => Err(Error::CursorElsewhere {
                saved: self.readers,
                readers,
            }),
        }
    }
}

impl Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Readers { replicas, workers } = self.readers;
        write!(f, "{}:{}:{replicas}", self.epoch, self.position)?;
        match workers {
            0 => Ok(()),
            _ => write!(f, ":{workers}"),
        }
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = || Error::CursorText {
            text: text.to_owned(),
        };
        let numbers: Result<Vec<u64>, _> = text.split(':').map(str::parse).collect();
        let numbers = numbers.map_err(|_| malformed())?;
        let (epoch, position, replicas, workers) = match *numbers {
            [epoch, position, replicas] => (epoch, position, replicas, 0),
            [epoch, position, replicas, workers] => (epoch, position, replicas, workers),
            _ => return Err(malformed()),
        };
        Ok(Self {
            epoch,
            position,
            readers: Readers { replicas, workers },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_cursor_are_inverse_and_other_text_is_refused() {
        for cursor in [
            Cursor::new(3, u64::MAX),
            Cursor::new(3, u64::MAX).bound_to(Readers::new(4, 2)),
            Cursor::new(3, u64::MAX).bound_to(Readers::new(4, 0)),
        ] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in [
            "",
            "1",
            "1:2",
            "1:2:3:",
            "1:2:3:4:5",
            "1:2:-3",
            "a:b:c",
            "1:2:3 ",
        ] {
            let expected = Error::CursorText {
                text: text.to_owned(),
            };
            assert_eq!(text.parse::<Cursor>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn only_a_bound_cursor_minds_who_reads() {
        let cursor = Cursor::new(1, 2);
        assert_eq!(cursor.check(Readers::new(9, 3)), Ok(()));
        let bound = cursor.bound_to(Readers::new(4, 2));
        assert_eq!(bound.check(Readers::new(4, 2)), Ok(()));
        assert!(bound.check(Readers::new(2, 2)).is_err());
        assert!(bound.check(Readers::new(4, 4)).is_err());
    }

    #[test]
    fn a_cursor_whose_workers_nobody_noted_minds_the_number_of_replicas_alone() {
        let saved: Cursor = "1:2:4".parse().unwrap();
        assert_eq!(saved.check(Readers::new(4, 2)), Ok(()));
        let refused = saved.check(Readers::new(2, 2)).unwrap_err().to_string();
        assert!(
            refused.contains("saved by 4 replicas, and means nothing to 2 replicas of 2 workers"),
            "{refused}"
        );
    }
}
