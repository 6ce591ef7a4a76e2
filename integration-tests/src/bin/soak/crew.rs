//! The processes of a job.

use std::io::{self, BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use meshwork_collectives::{self as collectives, JobSecret, Timeouts, Transport};
use rustix::process::{Pid, Signal, kill_process};

use crate::args::{Args, Buffers, DataTransport};
use crate::fault::Load;
use crate::namespaces::Namespaces;

#[expect(
    clippy::unwrap_used,
    dead_code,
    reason = "tests look at what goes through it, and their locks do not break"
)]
#[path = "../../../tests/processes/relay.rs"]
mod relay;

use relay::Relay;

/// What lies between the ranks of a job.
pub(crate) enum Between {
    /// Nothing but this host.
    Loopback,
    /// Rank 0 is reached through this, at the address that it binds.
    Relay(Relay, String),
    /// Each has a network of its own.
    Namespaces(Namespaces),
}

/// The processes of a job; killed when dropped.
pub(crate) struct Crew {
    program: PathBuf,
    ranks: Vec<Child>,
    members: Vec<String>,
    between: Between,
    secret: JobSecret,
    carrier: DataTransport,
    load: Load,
    heard: (Sender<Heard>, Receiver<Heard>),
}

/// What is heard of a rank.
#[derive(Debug)]
pub(crate) enum RankEvent {
    /// It has printed this.
    Line(String),
    /// Its process has ended.
    Ended(ExitStatus),
}

/// A line, or the end of all lines, of a rank's process.
struct Heard {
    rank: usize,
    process: u32,
    line: Option<String>,
}

impl Between {
    pub(crate) fn relay(front: String) -> io::Result<Self> {
        let server = front.parse().map_err(io::Error::other)?;
        Ok(Self::Relay(Relay::forgetful(server), front))
    }
}

impl Crew {
    /// Starts all ranks at these addresses, with this to reduce, each with these arguments besides.
    pub(crate) fn start(
        args: &Args,
        members: Vec<String>,
        between: Between,
        load: Load,
        more: &[&str],
    ) -> io::Result<Self> {
        let mut crew = Self {
            program: std::env::current_exe()?,
            ranks: Vec::new(),
            members,
            between,
            secret: JobSecret::generate().map_err(io::Error::other)?,
            carrier: args.carrier(),
            load,
            heard: channel(),
        };
        if let Between::Relay(relay, _) = &crew.between {
            crew.members[0] = relay.address().to_string();
        }
        for rank in 0..crew.members.len() {
            let child = crew.spawn(rank, more)?;
            crew.ranks.push(child);
        }
        Ok(crew)
    }

    pub(crate) fn members(&self) -> &[String] {
        &self.members
    }

    /// What is heard next of any rank before the deadline. Processes in whose place others are by
    /// now are not heard any more.
    pub(crate) fn rank_event(
        &mut self,
        deadline: Instant,
    ) -> io::Result<Option<(usize, RankEvent)>> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(Heard {
                rank,
                process,
                line,
            }) = self.heard.1.recv_timeout(left)
            else {
                return Ok(None);
            };
            if self.ranks[rank].id() != process {
                continue;
            }
            let rank_event = match line {
                Some(line) => RankEvent::Line(line),
                // Whoever says nothing more is about to end.
                None => RankEvent::Ended(self.ranks[rank].wait()?),
            };
            return Ok(Some((rank, rank_event)));
        }
    }

    pub(crate) fn kill(&mut self, rank: usize) -> io::Result<()> {
        self.ranks[rank].kill()
    }

    /// Starts another process in the place of one that was killed.
    pub(crate) fn replace(&mut self, rank: usize, more: &[&str]) -> io::Result<()> {
        self.ranks[rank].wait()?;
        self.ranks[rank] = self.spawn(rank, more)?;
        Ok(())
    }

    pub(crate) fn stop(&self, rank: usize) -> io::Result<()> {
        self.signal(rank, Signal::STOP)
    }

    /// Lets one that was stopped continue.
    pub(crate) fn proceed(&self, rank: usize) -> io::Result<()> {
        self.signal(rank, Signal::CONT)
    }

    fn signal(&self, rank: usize, signal: Signal) -> io::Result<()> {
        let process = i32::try_from(self.ranks[rank].id());
        let process = process.ok().and_then(Pid::from_raw);
        let process = process.ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(process, signal)?)
    }

    /// Lets nothing through any more: between this rank and all others, or through a relay between
    /// this rank and rank 0.
    pub(crate) fn cut(&self, rank: usize) -> io::Result<()> {
        match &self.between {
            Between::Loopback => Err(io::ErrorKind::Unsupported.into()),
            Between::Relay(relay, _) => {
                let caller = self.members[rank].parse().map_err(io::Error::other)?;
                relay.cut(caller);
                Ok(())
            }
            Between::Namespaces(namespaces) => namespaces.cut(rank),
        }
    }

    fn spawn(&self, rank: usize, more: &[&str]) -> io::Result<Child> {
        let mut command = match &self.between {
            Between::Namespaces(namespaces) => namespaces.command(rank, &self.program),
            Between::Loopback | Between::Relay(..) => Command::new(&self.program),
        };
        let (transport, carrier) = match self.carrier {
            DataTransport::Shm => ("auto", "quic"),
            DataTransport::Quic => ("quic", "quic"),
            DataTransport::Tls => ("quic", "tls"),
        };
        let buffers = match self.load.buffers {
            Buffers::Registered => "registered",
            Buffers::Private => "private",
        };
        command
            .arg(format!("--as-rank={rank}"))
            .arg(format!("--members={}", self.members.join(",")))
            .arg(format!("--elements={}", self.load.elements))
            .arg(format!("--buffers={buffers}"))
            .args(more)
            .env(JobSecret::ENV, self.secret.to_hex().as_str())
            .env(Transport::ENV, transport)
            .env(Timeouts::SILENCE_ENV, SILENCE)
            .env(collectives::DataTransport::ENV, carrier)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        // Whoever can be parted is not on one host.
        match &self.between {
            Between::Loopback => {}
            Between::Relay(..) | Between::Namespaces(_) => {
                command.arg("--apart");
            }
        }
        if let (0, Between::Relay(_, front)) = (rank, &self.between) {
            command.arg(format!("--bind={front}"));
        }
        let mut child = command.spawn()?;
        if let Some(output) = child.stdout.take() {
            let (sender, process) = (self.heard.0.clone(), child.id());
            thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                for line in lines.map(Some).chain([None]) {
                    let heard = Heard {
                        rank,
                        process,
                        line,
                    };
                    if sender.send(heard).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(child)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for child in &mut self.ranks {
            // One that has ended cannot be killed, and that is just as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Seconds that a rank may be silent or stopped: many are in a soak.
const SILENCE: &str = "1";
/// Beyond any time a correct job takes: whoever has not ended by then hangs.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Addresses that were free a moment ago, over UDP and TCP.
pub(crate) fn free_addresses(count: u32) -> io::Result<Vec<String>> {
    // All are held until there are enough, or the system would offer the same ones again.
    let mut held = Vec::new();
    let mut free = Vec::new();
    while free.len() < count as usize {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let address = socket.local_addr()?;
        let listener = TcpListener::bind(address).ok();
        // Even ones are what Linux takes for connections that are made meanwhile.
        if listener.is_some() && address.port() % 2 == 1 {
            free.push(address.to_string());
        }
        held.push((socket, listener));
    }
    Ok(free)
}
