//! How fast a newcomer gets the state of a training, and what memory that takes beside the state.
//!
//! ```text
//! cargo run --release -p meshwork-benches --bin heal -- --bytes 256000000 --givers 2
//! ```
//!
//! Starts the givers and a newcomer on this machine, which prints a row, as each giver does. A
//! process that has `TF_CONFIG` or `MESHWORK_SEEDS` is one of them: `peers/heal.sh` starts them so
//! in network namespaces.
#![forbid(unsafe_code)]

mod worker;

use std::io::{self, Write};
use std::net::UdpSocket;
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Parser;
use meshwork_strategy::JobSecret;

/// Gives a newcomer the state of a training.
#[derive(Clone, Copy, Debug, Parser)]
struct Args {
    /// Bytes of the state
    #[arg(long, default_value_t = 256_000_000)]
    bytes: usize,

    /// Workers that have it
    #[arg(long, default_value_t = 2)]
    givers: usize,

    /// The last giver is gone so long after it has begun to give
    #[arg(long, value_name = "MS")]
    dies_after: Option<u64>,
}

type Failure = Box<dyn std::error::Error>;

const HEADER: &str = "role,bytes,givers,seconds,MB_per_s,peak_more_MiB";
const SEEDS: &str = "MESHWORK_SEEDS";
const CLUSTER: &str = "TF_CONFIG";

fn main() -> ExitCode {
    let args = Args::parse();
    let is_worker = [SEEDS, CLUSTER]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let ended = match is_worker {
        true => worker::run(args),
        false => start_all(args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(&mut io::stderr(), &format!("heal: error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn start_all(args: Args) -> Result<(), Failure> {
    print(&mut io::stdout(), HEADER);
    let sockets: Result<Vec<_>, _> = (0..args.givers)
        .map(|_| UdpSocket::bind("127.0.0.1:0"))
        .collect();
    let addresses: Result<Vec<String>, io::Error> = (sockets?.iter())
        .map(|socket| Ok(socket.local_addr()?.to_string()))
        .collect();
    let (addresses, secret) = (addresses?, JobSecret::generate()?);
    let start = |name: &str, value: String| -> Result<Child, Failure> {
        let child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(name, value)
            .env(JobSecret::ENV, secret.to_hex().as_str())
            .env(
                "MESHWORK_WORKERS",
                format!("{0}:{1}", args.givers, args.givers + 1),
            )
            .stdin(Stdio::null())
            .spawn()?;
        Ok(child)
    };
    let cluster = |index| {
        format!(
            r#"{{"cluster":{{"worker":{addresses:?}}},"task":{{"type":"worker","index":{index}}}}}"#
        )
    };
    let givers: Result<Vec<Child>, Failure> = (0..args.givers)
        .map(|index| start(CLUSTER, cluster(index)))
        .collect();
    let newcomer = start(SEEDS, addresses.join(","))?;
    for mut child in givers?.into_iter().chain([newcomer]) {
        let status = child.wait()?;
        if !status.success() && args.dies_after.is_none() {
            return Err(format!("a worker ended with {status}").into());
        }
    }
    Ok(())
}

/// A line; a reader that has gone is no reason to stop.
fn print(to: &mut impl Write, line: &str) {
    let _ = writeln!(to, "{line}");
}
