//! Whether a member that is called lives: by evidence, or else by its silence.

use std::time::{Duration, Instant};

use quinn::Connection;

use crate::agreement::MemberId;
use crate::host;
use crate::quic::admission::{Sight, Whereabouts};
use crate::quic::node::Node;
use crate::tasks::spawn;

/// How many times within the patience with a silent member it is looked at. It is the looks that
/// are counted: a process that does not come to look was itself held up.
pub(super) const LOOKS: u32 = 8;

/// A member that is called.
pub(super) struct Callee {
    pub(super) member_id: MemberId,
    whereabouts: Option<Whereabouts>,
}

/// What is known of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Life {
    /// Its kernel says that it runs.
    Certain,
    /// Nothing: only silence can tell.
    Unknown,
    /// Nobody listens any more where it was.
    Over,
}

impl Callee {
    /// `process` is its process id, if it is on this host.
    pub(super) fn new(member_id: MemberId, process: Option<u32>) -> Self {
        // Of a member in this process, its kernel tells nothing.
        let process = process.filter(|process| *process != std::process::id());
        Self {
            member_id,
            whereabouts: process.map(Whereabouts::Process),
        }
    }

    /// It has answered, over this connection that is direct: from now on it can be told if nobody
    /// is there any more.
    pub(super) fn answered(&mut self, connection: &Connection, node: &Node) {
        if self.whereabouts.is_none() {
            let port = Whereabouts::port(node, connection);
            spawn(port.clone().test());
            self.whereabouts = Some(port);
        }
    }

    fn has_left(&self, connection: &Connection) -> bool {
        let whereabouts = self.whereabouts.as_ref();
        whereabouts.is_some_and(|whereabouts| whereabouts.is_left(connection))
    }

    /// What a look tells of a member that was last heard then.
    pub(super) async fn look(&self, heard: Instant) -> Life {
        let Some(whereabouts) = self.whereabouts.clone() else {
            return Life::Unknown;
        };
        let has_ended = match &whereabouts {
            Whereabouts::Process(process) => host::has_ended(*process),
            Whereabouts::Port { .. } => false,
        };
        match whereabouts.look(heard).await {
            Some(Sight::Runs) if !has_ended => Life::Certain,
            Some(Sight::PortClosed) => Life::Over,
            // Whoever watches a process is told of its end.
            Some(Sight::Runs | Sight::Stopped) | None => Life::Unknown,
        }
    }
}

/// How often in a row a member was looked at and had not been heard.
pub(super) struct Silence {
    datagrams: u64,
    heard: Instant,
    looks: u32,
}

impl Silence {
    pub(super) fn on(connection: &Connection) -> Self {
        Self {
            datagrams: connection.stats().udp_rx.datagrams,
            heard: Instant::now(),
            looks: 0,
        }
    }

    /// A look at a connection over which signs of life are asked for: whether it has been silent
    /// for too long.
    pub(super) async fn is_too_long(&mut self, connection: &Connection, callee: &Callee) -> bool {
        let datagrams = connection.stats().udp_rx.datagrams;
        if std::mem::replace(&mut self.datagrams, datagrams) != datagrams {
            self.heard = Instant::now();
            self.looks = 0;
            return false;
        }
        self.looks += 1;
        match callee.look(self.heard).await {
            Life::Certain => self.looks = 0,
            Life::Over if !callee.has_left(connection) => return true,
            Life::Over | Life::Unknown => {}
        }
        self.looks >= LOOKS
    }
}

/// How often a member is looked at that may be silent for so long.
pub(super) fn pause_of_looks(patience: Duration) -> Duration {
    patience / LOOKS
}

#[cfg(all(test, target_os = "linux", not(meshwork_portable)))]
mod tests {
    use std::io;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::host::{ProcessState, process_state};

    fn callee(process: u32) -> Callee {
        Callee::new(1, Some(process))
    }

    fn signal(child: &Child, signal: Signal, leads_to: ProcessState) -> io::Result<()> {
        kill_process(Pid::from_child(child), signal)?;
        while process_state(child.id())? != leads_to {
            std::thread::yield_now();
        }
        Ok(())
    }

    #[tokio::test]
    async fn only_a_process_that_runs_certainly_lives() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let callee = callee(child.id());
        assert_eq!(callee.look(Instant::now()).await, Life::Certain);
        signal(&child, Signal::STOP, ProcessState::Stopped).unwrap();
        assert_eq!(callee.look(Instant::now()).await, Life::Unknown);
        signal(&child, Signal::CONT, ProcessState::Runs).unwrap();
        assert_eq!(callee.look(Instant::now()).await, Life::Certain);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(callee.look(Instant::now()).await, Life::Unknown);
    }

    #[tokio::test]
    async fn of_a_member_in_this_process_only_silence_tells() {
        let look = callee(std::process::id()).look(Instant::now()).await;
        assert_eq!(look, Life::Unknown);
    }
}
