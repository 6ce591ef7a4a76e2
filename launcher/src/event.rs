use std::io;

use meshwork_collectives::Rank;

use crate::{Signal, WorkerEnd};

/// An event that the threads of a run report.
#[derive(Debug)]
pub(crate) enum Event {
    /// The worker of this rank has ended, if that could be seen.
    Ended(Rank, io::Result<WorkerEnd>),
    /// A signal that is to be handed on has come.
    Signal(Signal),
    /// All output of the workers is written, or can no longer be.
    OutputEnded,
}
