//! `Readers`: how many replicas and workers read an input, on which a place in it may depend.

use std::fmt::{self, Display};

/// The replicas among which an input is shared, and the workers that read it for them.
///
/// ```
/// use meshwork_strategy::{AutoShard, Cursor, Error, Input, MultiWorkerMirroredStrategy};
///
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// let input = Input::sharded(|shard, _| shard.of(0..12).map(|number| vec![number]));
/// let saved: Cursor = "0:3:4:2".parse()?;
/// let refused = strategy.distribute_batches(&input, AutoShard::Hint, saved);
/// let Err(Error::CursorElsewhere { saved, readers }) = refused else {
///     panic!("another job's shares");
/// };
/// assert_eq!(saved.to_string(), "4 replicas of 2 workers");
/// assert_eq!(readers.to_string(), "1 replica of 1 worker");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Readers {
    pub(crate) replicas: u64,
    /// 0 where nobody noted how many.
    pub(crate) workers: u64,
}

impl Readers {
    pub(crate) fn new(replicas: usize, workers: usize) -> Self {
        Self {
            replicas: replicas as u64,
            workers: workers as u64,
        }
    }
}

impl Display for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replicas, workers } = *self;
        let plural = |number| if number == 1 { "" } else { "s" };
        write!(f, "{replicas} replica{}", plural(replicas))?;
        match workers {
            0 => Ok(()),
            _ => write!(f, " of {workers} worker{}", plural(workers)),
        }
    }
}
