//! The thread that reads the stdout and stderr pipes of all workers by `poll` and copies them, line
//! by line, to the launcher's own. Line splitting is in `lines`, writing in `sink`.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::iter::once;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use meshwork_collectives::Rank;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::lines::Lines;
use super::shown::{Filter, Shown};
use super::sink::{LostLines, Sink, Stream};
use crate::LaunchError;
use crate::event::Event;

/// The end of a worker's stdout or stderr that the launcher reads.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) rank: Rank,
    pub(crate) stream: Stream,
    pub(crate) end: OwnedFd,
}

/// The one thread that reads all workers' output and writes it, prefixed, to the launcher's own.
///
/// It ends when all pipes are at their end and no more can come, and soon after [`Pump::stop`] or
/// when dropped, then with what is in the pipes at that moment.
#[derive(Debug)]
pub(crate) struct Pump {
    thread: JoinHandle<OutputSummary>,
    /// `None` when no more comes.
    more: Option<Sender<Message>>,
    /// A byte says that there is something to look at, its end that there is nothing any more.
    stop: PipeWriter,
}

/// What the thread is told later.
#[derive(Debug)]
enum Message {
    /// The pipes of a worker that was started again.
    Pipes(Vec<Pipe>),
    /// A line of the launcher's own for its stderr, with its newline.
    Line(String),
}

impl Pump {
    /// Starts to read; sends [`Event::OutputEnded`] when done.
    ///
    /// # Errors
    /// [`LaunchError::Watch`]
    pub(crate) fn start(
        pipes: Vec<Pipe>,
        workers: usize,
        shown: Shown,
        events: SyncSender<Event>,
    ) -> Result<Self, LaunchError> {
        let (stopped, stop) = io::pipe().map_err(|source| LaunchError::Watch { source })?;
        // Where it is full the thread has yet to look, and whoever calls must not wait for that.
        rustix::io::ioctl_fionbio(&stop, true).map_err(|error| LaunchError::Watch {
            source: error.into(),
        })?;
        let (more, coming) = channel();
        let thread = thread::Builder::new()
            .name("launch output".to_owned())
            .spawn(move || {
                let _announced = AnnouncedEnd(events);
                Pumping::new(pipes, workers, shown, coming).pump(&stopped)
            })
            .map_err(|source| LaunchError::Watch { source })?;
        Ok(Self {
            thread,
            more: Some(more),
            stop,
        })
    }

    /// Reads the output of another worker, too.
    pub(crate) fn add(&mut self, pipes: Vec<Pipe>) {
        self.send(Message::Pipes(pipes));
    }

    /// Writes a line of the launcher's own to its stderr, with its newline: by the thread, so that
    /// nobody else waits for whoever reads it. Nothing after [`Pump::close`].
    pub(crate) fn tell(&mut self, line: String) {
        self.send(Message::Line(line));
    }

    fn send(&mut self, message: Message) {
        if let Some(more) = &self.more {
            // A thread that has ended early does nothing any more.
            let _ = more.send(message);
            self.wake();
        }
    }

    /// No more workers come, and no more lines.
    pub(crate) fn close(&mut self) {
        if self.more.take().is_some() {
            self.wake();
        }
    }

    fn wake(&mut self) {
        let _ = self.stop.write_all(&[0]);
    }

    /// Makes the thread end even if another process still holds a pipe open.
    pub(crate) fn stop(self) -> Stopped {
        drop(self.stop);
        Stopped(self.thread)
    }
}

/// A [`Pump`] that reads what there is and ends.
#[derive(Debug)]
pub(crate) struct Stopped(JoinHandle<OutputSummary>);

impl Stopped {
    /// Waits until all is written.
    pub(crate) fn summary(self) -> OutputSummary {
        self.0.join().unwrap_or_default()
    }
}

/// What remains of the workers' output when all is read.
#[derive(Debug, Default)]
pub(crate) struct OutputSummary {
    /// The last line of every rank's stderr, where there was one.
    last_words: Vec<Option<String>>,
    /// Lines of survivors of a failure that were not shown.
    pub(crate) hidden: usize,
    /// Lines that could not be written, if there are any.
    pub(crate) lost: Option<LostLines>,
}

impl OutputSummary {
    /// The last line of this rank's stderr, once.
    pub(crate) fn last_words_of(&mut self, rank: Rank) -> Option<String> {
        self.last_words.get_mut(rank.index()).and_then(Option::take)
    }
}

/// Says that the output has ended on every way out of the thread.
struct AnnouncedEnd(SyncSender<Event>);

impl Drop for AnnouncedEnd {
    fn drop(&mut self) {
        let _ = self.0.send(Event::OutputEnded);
    }
}

struct Pumping {
    sources: Vec<Source>,
    stdout: Sink,
    stderr: Sink,
    /// It was said that lines are lost.
    is_loss_told: bool,
    filter: Filter,
    last_words: Vec<Option<String>>,
    /// `None` when no more comes.
    coming: Option<Receiver<Message>>,
}

impl Pumping {
    fn new(pipes: Vec<Pipe>, workers: usize, shown: Shown, coming: Receiver<Message>) -> Self {
        let mut pumping = Self {
            sources: Vec::new(),
            stdout: Sink::new(Stream::Stdout),
            stderr: Sink::new(Stream::Stderr),
            is_loss_told: false,
            filter: Filter::new(shown),
            last_words: vec![None; workers],
            coming: Some(coming),
        };
        pumping.add(pipes);
        pumping
    }

    fn add(&mut self, pipes: Vec<Pipe>) {
        let workers = self.last_words.len();
        self.sources.extend(pipes.into_iter().map(|pipe| Source {
            lines: Lines::new(pipe.stream.style().prefix(pipe.rank, workers)),
            pipe,
        }));
    }

    fn pump(mut self, mut stop: &PipeReader) -> OutputSummary {
        let mut buffer = vec![0; READ];
        while !self.sources.is_empty() || self.coming.is_some() {
            let Ok(Readable { called, sources }) = self.readable(stop, None) else {
                break;
            };
            self.read(&sources, &mut buffer);
            if called {
                match stop.read(&mut [0; 64]) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => self.take_in(),
                }
            }
        }
        // Somebody may hold the rest open and write without end: what the pipes hold now counts.
        for _ in 0..LAST_READS {
            match self.readable(stop, Some(&Timespec::default())) {
                Ok(Readable { sources, .. }) if sources.contains(&true) => {
                    self.read(&sources, &mut buffer);
                }
                _ => break,
            }
        }
        for mut source in std::mem::take(&mut self.sources) {
            self.finish(&mut source);
        }
        OutputSummary {
            last_words: self.last_words,
            hidden: self.filter.hidden,
            lost: LostLines::of_both(self.stdout.into_lost(), self.stderr.into_lost()),
        }
    }

    /// Takes in the pipes of workers that came later, and writes lines of the launcher.
    fn take_in(&mut self) {
        loop {
            match self.coming.as_ref().map(Receiver::try_recv) {
                Some(Ok(Message::Pipes(pipes))) => self.add(pipes),
                Some(Ok(Message::Line(line))) => self.write_to(Stream::Stderr, line.as_bytes()),
                Some(Err(TryRecvError::Disconnected)) => self.coming = None,
                Some(Err(TryRecvError::Empty)) | None => return,
            }
        }
    }

    /// Waits until there is something to do; no time limit for `None`.
    fn readable(&self, stop: &PipeReader, limit: Option<&Timespec>) -> Result<Readable, Errno> {
        let mut polled: Vec<_> = once(PollFd::new(stop, PollFlags::IN))
            .chain(
                self.sources
                    .iter()
                    .map(|s| PollFd::new(&s.pipe.end, PollFlags::IN)),
            )
            .collect();
        while let Err(error) = poll(&mut polled, limit) {
            if error != Errno::INTR {
                return Err(error);
            }
        }
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        Ok(Readable {
            called: ready.next().expect("what calls is polled first"),
            sources: ready.collect(),
        })
    }

    /// Reads once from each source that is `ready`, and lets go of those at their end.
    fn read(&mut self, ready: &[bool], buffer: &mut [u8]) {
        let mut out = Vec::new();
        let mut open = Vec::with_capacity(self.sources.len());
        for (mut source, &ready) in std::mem::take(&mut self.sources).into_iter().zip(ready) {
            if !ready {
                open.push(source);
                continue;
            }
            match rustix::io::read(&source.pipe.end, &mut *buffer) {
                Ok(0) => self.finish(&mut source),
                Ok(len) => {
                    out.clear();
                    source.lines.push(&buffer[..len], &mut out);
                    self.write(&source.pipe, &out);
                    open.push(source);
                }
                Err(Errno::INTR | Errno::AGAIN) => open.push(source),
                Err(_) => self.finish(&mut source),
            }
        }
        self.sources = open;
    }

    fn finish(&mut self, source: &mut Source) {
        let mut out = Vec::new();
        source.lines.finish(&mut out);
        self.write(&source.pipe, &out);
        if let (Stream::Stderr, Some(words)) = (
            source.pipe.stream,
            self.last_words.get_mut(source.pipe.rank.index()),
        ) {
            *words = source.lines.last_words();
        }
    }

    fn write(&mut self, from: &Pipe, lines: &[u8]) {
        let lines = self.filter.pass(from.rank, lines);
        self.write_to(from.stream, lines);
    }

    /// Writes lines, and says once if some are lost: as soon as that is known.
    fn write_to(&mut self, stream: Stream, lines: &[u8]) {
        match stream {
            Stream::Stdout => self.stdout.write(lines),
            Stream::Stderr => self.stderr.write(lines),
        }
        let lost = self.stdout.lost().or_else(|| self.stderr.lost());
        if let Some(LostLines { source, .. }) = lost.filter(|_| !self.is_loss_told) {
            let told = format!("meshwork run: lines of the workers cannot be written: {source}\n");
            self.is_loss_told = true;
            self.stderr.write(told.as_bytes());
        }
    }
}

struct Source {
    pipe: Pipe,
    lines: Lines,
}

struct Readable {
    /// There is something new, or the end has come.
    called: bool,
    /// In order of the sources.
    sources: Vec<bool>,
}

/// Bytes that one read takes at most: what a pipe holds by default.
const READ: usize = 64 * 1024;

/// Reads after a stop: with [`READ`], the largest pipe that an ordinary user can make.
const LAST_READS: usize = 16;
