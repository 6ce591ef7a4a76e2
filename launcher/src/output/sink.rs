//! The launcher's own stdout and stderr: whole lines, coloured rank prefixes, retries where a
//! terminal was made non-blocking, output dropped once its reader is gone, and a count of lines
//! that were lost for another reason.

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
    /// At first: it cannot be told of one that was hung up.
    is_terminal: bool,
    closed: bool,
    lost: Option<LostLines>,
}

/// Lines that could not be written though somebody may read them, as on a full disk.
#[derive(Debug)]
pub(crate) struct LostLines {
    pub(crate) lines: usize,
    /// Why the first of them was not.
    pub(crate) source: io::Error,
}

/// What was not written, and why.
#[derive(Debug)]
struct Unwritten<'a> {
    bytes: &'a [u8],
    error: io::Error,
}

impl Sink {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            is_terminal: match stream {
                Stream::Stdout => io::stdout().is_terminal(),
                Stream::Stderr => io::stderr().is_terminal(),
            },
            closed: false,
            lost: None,
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
                match stdout.flush() {
                    Ok(()) => write_all(stdout.as_fd(), lines),
                    Err(error) => Err(Unwritten {
                        bytes: lines,
                        error,
                    }),
                }
            }
            Stream::Stderr => write_all(io::stderr().lock().as_fd(), lines),
        };
        if let Err(unwritten) = written {
            self.fail(unwritten);
        }
    }

    /// Whoever has closed the stream does not want the lines. Anything else may pass, as when
    /// somebody makes room on the disk.
    fn fail(&mut self, Unwritten { bytes, error }: Unwritten<'_>) {
        self.closed = match Errno::from_io_error(&error) {
            Some(Errno::PIPE | Errno::BADF | Errno::CONNRESET) => true,
            // What was hung up says so by this.
            Some(Errno::IO) => self.is_terminal,
            Some(_) | None => false,
        };
        if self.closed {
            return;
        }
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        let lost = self.lost.get_or_insert(LostLines {
            lines: 0,
            source: error,
        });
        lost.lines += lines;
    }

    pub(super) fn lost(&self) -> Option<&LostLines> {
        self.lost.as_ref()
    }

    pub(super) fn into_lost(self) -> Option<LostLines> {
        self.lost
    }
}

impl LostLines {
    /// Those of both streams.
    pub(super) fn of_both(stdout: Option<Self>, stderr: Option<Self>) -> Option<Self> {
        match (stdout, stderr) {
            (Some(one), Some(other)) => Some(Self {
                lines: one.lines + other.lines,
                source: one.source,
            }),
            (one, None) | (None, one) => one,
        }
    }
}

/// As [`Write::write_all`], and also where another process has made the stream non-blocking, as one
/// that shares a terminal may.
fn write_all<'a>(stream: BorrowedFd<'_>, mut bytes: &'a [u8]) -> Result<(), Unwritten<'a>> {
    while !bytes.is_empty() {
        let written = match rustix::io::write(stream, bytes) {
            Err(Errno::AGAIN) => await_room(stream).map(|()| 0),
            written => written,
        };
        match written {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => {
                let error = error.into();
                return Err(Unwritten { bytes, error });
            }
        }
    }
    Ok(())
}

fn await_room(stream: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut writable = [PollFd::from_borrowed_fd(stream, PollFlags::OUT)];
    poll(&mut writable, None).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(sink: &mut Sink, bytes: &[u8], error: Errno) {
        let error = error.into();
        sink.fail(Unwritten { bytes, error });
    }

    #[test]
    fn lines_are_counted_that_find_no_room_and_dropped_once_nobody_reads() {
        let sink = |stream, is_terminal| Sink {
            is_terminal,
            ..Sink::new(stream)
        };
        let (disk, terminal) = (false, true);
        let mut sink_of_disk = sink(Stream::Stdout, disk);
        failed(&mut sink_of_disk, b"e\nwhole\n", Errno::NOSPC);
        failed(&mut sink_of_disk, b"one\n", Errno::IO);
        assert!(!sink_of_disk.closed);
        let lost = sink_of_disk.lost().unwrap();
        assert_eq!(lost.lines, 3);
        assert_eq!(Errno::from_io_error(&lost.source), Some(Errno::NOSPC));
        for (gone, kind) in [
            (Errno::PIPE, disk),
            (Errno::BADF, disk),
            (Errno::CONNRESET, disk),
            (Errno::IO, terminal),
        ] {
            let mut other = sink(Stream::Stderr, kind);
            failed(&mut other, b"one\n", gone);
            assert!(other.closed && other.lost().is_none());
        }
        let mut other = sink(Stream::Stderr, disk);
        failed(&mut other, b"one\n", Errno::IO);
        let both = LostLines::of_both(sink_of_disk.into_lost(), other.into_lost()).unwrap();
        assert_eq!(both.lines, 4);
        assert_eq!(Errno::from_io_error(&both.source), Some(Errno::NOSPC));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_what_was_not_written() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let full = full.unwrap();
        let unwritten = write_all(full.as_fd(), b"one\n").unwrap_err();
        assert_eq!(unwritten.bytes, b"one\n");
        assert_eq!(unwritten.error.kind(), io::ErrorKind::StorageFull);
    }

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
