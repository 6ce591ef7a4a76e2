//! A network of its own for each rank, and a bridge between them, of which any link can be cut.
//!
//! ```text
//!   rank 0 [eth0] ── link0 ┐
//!   rank 1 [eth0] ── link1 ├ bridge       each in brackets, and the bridge, in a namespace of its own
//!   rank 2 [eth0] ── link2 ┘
//! ```
//!
//! No namespace has a name: each lives as long as a process in it, which ends when its standard
//! input does, and so with this process, however that ends.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The namespaces of a job.
pub(crate) struct Namespaces {
    bridge: Namespace,
    ranks: Vec<Namespace>,
}

/// One namespace, kept by a process in it.
struct Namespace(Child);

/// Where every rank listens: nobody else is in its namespace.
const PORT: u16 = 4000;

impl Namespaces {
    /// For so many ranks.
    ///
    /// # Errors
    /// When this process may not make any, or their links.
    pub(crate) fn new(ranks: u32) -> io::Result<Self> {
        let all = Self {
            bridge: Namespace::new()?,
            ranks: (0..ranks)
                .map(|_| Namespace::new())
                .collect::<Result<_, _>>()?,
        };
        let mut links = "link add bridge type bridge\nlink set bridge up\n".to_owned();
        for (rank, namespace) in all.ranks.iter().enumerate() {
            let inside = namespace.0.id();
            links += &format!(
                "link add link{rank} type veth peer name eth0 netns {inside}\n\
                 link set link{rank} master bridge up\n"
            );
        }
        all.bridge.configure(&links)?;
        for (rank, namespace) in all.ranks.iter().enumerate() {
            let address = address(rank);
            namespace.configure(&format!(
                "link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\n"
            ))?;
        }
        Ok(all)
    }

    /// The address of each rank, with its port.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let addresses = (0..self.ranks.len()).map(|rank| format!("{}:{PORT}", address(rank)));
        addresses.collect()
    }

    /// Runs a program where this rank is; the process is the program's own.
    pub(crate) fn command(&self, rank: usize, program: &Path) -> Command {
        self.ranks[rank].command(program)
    }

    #[allow(dead_code, reason = "tests have this file too, and alone call it")]
    /// Runs a program where this rank is, with process ids of its own: processes that do not see
    /// each other's are on different hosts. It ends with the process that this starts.
    pub(crate) fn on_own_host(&self, rank: usize, program: &Path) -> Command {
        let mut command = self.command(rank, Path::new("unshare"));
        command
            .args(["--pid", "--fork", "--kill-child"])
            .arg(program);
        command
    }

    #[allow(dead_code, reason = "tests have this file too, and alone call it")]
    /// Carries out lines for `ip` where this rank is.
    pub(crate) fn change(&self, rank: usize, lines: &str) -> io::Result<()> {
        self.ranks[rank].configure(lines)
    }

    #[allow(dead_code, reason = "tests have this file too, and alone call it")]
    /// Lets no more than this through from a rank to all others.
    pub(crate) fn limit(&self, rank: usize, megabits: u32) -> io::Result<()> {
        let rate = format!("{megabits}mbit");
        let limited = self.ranks[rank]
            .command("tc")
            .args(["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", &rate])
            .args(["burst", "64kb", "latency", "200ms"])
            .status()?;
        match limited.success() {
            true => Ok(()),
            false => Err(io::Error::other("tc could not limit a link")),
        }
    }

    #[allow(dead_code, reason = "tests have this file too, and alone call it")]
    /// Loses all packets between this rank and all others, whose devices notice nothing.
    pub(crate) fn unplug(&self, rank: usize) -> io::Result<()> {
        self.bridge
            .configure(&format!("link set link{rank} nomaster\n"))
    }

    #[allow(dead_code, reason = "tests have this file too, and alone call it")]
    /// Ends what [`unplug`](Self::unplug) has begun.
    pub(crate) fn plug_in(&self, rank: usize) -> io::Result<()> {
        self.bridge
            .configure(&format!("link set link{rank} master bridge\n"))
    }

    /// Lets nothing through any more between this rank and all others.
    pub(crate) fn cut(&self, rank: usize) -> io::Result<()> {
        self.bridge
            .configure(&format!("link set link{rank} down\n"))
    }
}

impl Namespace {
    fn new() -> io::Result<Self> {
        let mut keeper = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (input, output) = (keeper.stdin.as_mut(), keeper.stdout.take());
        // It answers once it is where it should be.
        let greeted = input.is_some_and(|input| input.write_all(b"there\n").is_ok());
        let mut answer = String::new();
        if let (true, Some(output)) = (greeted, output) {
            BufReader::new(output).read_line(&mut answer)?;
        }
        let namespace = Self(keeper);
        match answer.is_empty() {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => Ok(namespace),
        }
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.0.id()))
            .arg("--")
            .arg(program);
        command
    }

    /// Carries out lines for `ip`.
    fn configure(&self, lines: &str) -> io::Result<()> {
        let mut child = self
            .command("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(lines.as_bytes())?;
        }
        match child.wait()?.success() {
            true => Ok(()),
            false => Err(io::Error::other("ip could not set up a link")),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn address(rank: usize) -> String {
    format!("10.0.0.{}", rank + 1)
}
