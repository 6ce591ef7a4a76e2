//! The launcher's own stdout and stderr: whole lines, coloured rank prefixes, retries where a
//! terminal was made non-blocking, and output dropped once its reader is gone.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};

use meshwork_collectives::Rank;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// One of the two streams that every process writes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// How prefixes look on the launcher's own stream (<https://no-color.org>).
    pub(super) fn style(self) -> Style {
        let terminal = match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        };
        let refused = env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        if terminal && !refused {
            Style::Coloured
        } else {
            Style::Plain
        }
    }
}

/// How prefixes look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Style {
    Plain,
    Coloured,
}

impl Style {
    /// `[2] `, equally wide for all ranks of a run.
    pub(super) fn prefix(self, rank: Rank, workers: usize) -> String {
        let rank = rank.index();
        let width = workers.saturating_sub(1).to_string().len();
        match self {
            Self::Plain => format!("[{rank:>width$}] "),
            // Foreground colours 31 to 36 (ECMA-48, 8.3.117): neither black nor white.
            Self::Coloured => format!("\x1b[{}m[{rank:>width$}]\x1b[0m ", 31 + rank % 6),
        }
    }
}

/// The launcher's own stream: takes lines until it is closed, and drops them from then on.
#[derive(Debug)]
pub(super) struct Sink {
    stream: Stream,
    closed: bool,
}

impl Sink {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            closed: false,
        }
    }

    /// Writes whole lines, as fast as they are read.
    pub(super) fn write(&mut self, lines: &[u8]) {
        if self.closed || lines.is_empty() {
            return;
        }
        let written = match self.stream {
            // What this process has printed before stands before.
            Stream::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout
                    .flush()
                    .and_then(|()| write_all(stdout.as_fd(), lines))
            }
            Stream::Stderr => write_all(io::stderr().lock().as_fd(), lines),
        };
        self.closed = written.is_err();
    }
}

/// As [`Write::write_all`], and also where another process has made the stream non-blocking, as one
/// that shares a terminal may.
fn write_all(stream: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut writable = [PollFd::from_borrowed_fd(stream, PollFlags::OUT)];
                match poll(&mut writable, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_one_run_are_equally_wide() {
        assert_eq!(Style::Plain.prefix(Rank::new(0), 1), "[0] ");
        assert_eq!(Style::Plain.prefix(Rank::new(9), 10), "[9] ");
        assert_eq!(Style::Plain.prefix(Rank::new(9), 11), "[ 9] ");
        assert_eq!(Style::Plain.prefix(Rank::new(1023), 1024), "[1023] ");
        assert_eq!(
            Style::Coloured.prefix(Rank::new(7), 8),
            "\x1b[32m[7]\x1b[0m "
        );
    }
}
