//! One job of real processes, and what its fault does to it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use meshwork_collectives::{JobSecret, Transport};
use rustix::process::{Pid, Signal, kill_process};

use crate::args::{Args, Carrier};
use crate::fault::{Fault, Moments};

#[expect(
    clippy::unwrap_used,
    dead_code,
    reason = "tests look at what goes through it, and their locks do not break"
)]
#[path = "../../../tests/processes/relay.rs"]
mod relay;

use relay::Relay;

/// Beyond any time a correct job takes: whoever has not ended by then hangs.
const HANG: Duration = Duration::from_secs(20);

/// What became of one job.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) hangs: usize,
    pub(crate) wrong_values: usize,
    /// Errors of survivors that blame a rank that was not at fault.
    pub(crate) wrong_names: Vec<String>,
    /// From the fault to the error of each survivor.
    pub(crate) detections: Vec<Duration>,
}

impl Story {
    /// What should not have happened.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.hangs > 0 {
            return Some(format!("{} ranks hang", self.hangs));
        }
        if self.wrong_values > 0 {
            return Some(format!("{} ranks saw a wrong value", self.wrong_values));
        }
        self.wrong_names.first().cloned()
    }
}

/// The processes of a job; killed when dropped.
struct Job {
    ranks: Vec<Child>,
    /// What they print, by rank.
    lines: Receiver<(usize, String)>,
    relay: Option<Relay>,
    members: Vec<String>,
}

/// Starts a job, waits until all its ranks are at work, does the fault, and watches.
pub(crate) fn suffer(args: &Args, fault: Fault, moments: &mut Moments) -> io::Result<Story> {
    let mut job = Job::start(args, fault)?;
    let mut story = Story::default();
    if !job.reaches_work() {
        story.hangs = job.ranks.len();
        return Ok(story);
    }
    let until = Instant::now() + moments.delay();
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    let at = job.strike(fault)?;
    job.watch(fault, at, &mut story);
    Ok(story)
}

impl Job {
    fn start(args: &Args, fault: Fault) -> io::Result<Self> {
        let mut members = free_addresses(args.ranks())?;
        let secret = JobSecret::generate().map_err(io::Error::other)?;
        let front = members[0].clone();
        let relay = match fault {
            Fault::Cut(_) => Some(Relay::to(front.parse().map_err(io::Error::other)?)),
            Fault::Kill(_) | Fault::Stop(_) => None,
        };
        if let Some(relay) = &relay {
            members[0] = relay.address().to_string();
        }
        let (sender, lines) = channel();
        let mut job = Self {
            ranks: Vec::new(),
            lines,
            relay,
            members,
        };
        let transport = match args.carrier() {
            Carrier::Shm => "auto",
            Carrier::Quic => "quic",
        };
        for rank in 0..args.ranks() as usize {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .arg(format!("--as-rank={rank}"))
                .arg(format!("--members={}", job.members.join(",")))
                .arg(format!("--elements={}", args.elements()))
                .env(JobSecret::ENV, secret.to_hex().as_str())
                .env(Transport::ENV, transport)
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            if rank == 0 && job.relay.is_some() {
                command.arg(format!("--bind={front}"));
            }
            let mut child = command.spawn()?;
            if let Some(output) = child.stdout.take() {
                let sender = sender.clone();
                thread::spawn(move || pass_on(rank, BufReader::new(output), &sender));
            }
            job.ranks.push(child);
        }
        Ok(job)
    }

    /// Whether all ranks say that they have been at work for a few steps.
    fn reaches_work(&self) -> bool {
        let deadline = Instant::now() + HANG;
        let mut at_work = 0;
        while at_work < self.ranks.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((_, line)) if line.starts_with("reached") => at_work += 1,
                Ok((_, line)) if line.starts_with("joined") => {}
                _ => return false,
            }
        }
        true
    }

    /// Does the fault, and says when.
    fn strike(&mut self, fault: Fault) -> io::Result<SystemTime> {
        let at = SystemTime::now();
        match fault {
            Fault::Kill(rank) => self.ranks[rank as usize].kill()?,
            Fault::Stop(rank) => {
                let process = i32::try_from(self.ranks[rank as usize].id());
                let process = process.ok().and_then(Pid::from_raw);
                let process = process.ok_or(io::ErrorKind::NotFound)?;
                kill_process(process, Signal::STOP)?;
            }
            Fault::Cut(rank) => {
                let cut = self.members[rank as usize].parse();
                if let (Some(relay), Ok(caller)) = (&self.relay, cut) {
                    relay.cut(caller);
                }
            }
        }
        Ok(at)
    }

    /// Hears every survivor out.
    fn watch(&self, fault: Fault, at: SystemTime, story: &mut Story) {
        let deadline = Instant::now() + HANG;
        let victim = fault.victim().map(|rank| rank as usize);
        let mut left: BTreeMap<usize, ()> = (0..self.ranks.len())
            .filter(|rank| Some(*rank) != victim)
            .map(|rank| (rank, ()))
            .collect();
        while !left.is_empty() {
            let time = deadline.saturating_duration_since(Instant::now());
            let Ok((rank, line)) = self.lines.recv_timeout(time) else {
                story.hangs += left.len();
                return;
            };
            if let Some(failure) = line.strip_prefix("failed ") {
                left.remove(&rank);
                story.failed(fault, at, failure);
            } else if line.starts_with("wrong") {
                left.remove(&rank);
                story.wrong_values += 1;
            }
        }
    }
}

impl Story {
    /// Takes in when a survivor failed, and whom it blames.
    fn failed(&mut self, fault: Fault, at: SystemTime, failure: &str) {
        let (micros, error) = failure.split_once(' ').unwrap_or((failure, ""));
        let micros = Duration::from_micros(micros.parse().unwrap_or(u64::MAX));
        let struck = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.detections.push(micros.saturating_sub(struck));
        let names = |rank: u32| error.starts_with(&format!("rank {rank} ("));
        if !fault.culprits().into_iter().any(names) || !error.contains("was lost") {
            self.wrong_names.push(format!("named wrongly: {error}"));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.ranks {
            // One that has ended cannot be killed, and that is just as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn pass_on(rank: usize, output: impl BufRead, lines: &Sender<(usize, String)>) {
    for line in output.lines().map_while(Result::ok) {
        if lines.send((rank, line)).is_err() {
            return;
        }
    }
}

/// Addresses that were free a moment ago.
fn free_addresses(count: u32) -> io::Result<Vec<String>> {
    // All are held until there are enough, or the system would offer the same ones again.
    let held: Vec<UdpSocket> = (0..count)
        .map(|_| UdpSocket::bind("127.0.0.1:0"))
        .collect::<io::Result<_>>()?;
    held.iter()
        .map(|socket| Ok(socket.local_addr()?.to_string()))
        .collect()
}
