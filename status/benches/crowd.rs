//! What a look at a job costs the rank that is asked, by the number of ranks: processor time of its
//! server, requests that it sends, and bytes that come back.
//!
//! ```sh
//! cargo bench -p meshwork-status --bench crowd
//! ```
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and cannot go on without a server"
)]

#[path = "../tests/page/simulated.rs"]
#[expect(dead_code, reason = "tests have more of it")]
mod simulated;

use std::fs;
use std::thread;
use std::time::Duration;

use meshwork_status::{StatusClient, Target};
use simulated::Crowd;

/// Looks for which the numbers are told.
const LOOKS: u32 = 20;
/// Between two: what was gathered a moment ago is said again.
const PAUSE: Duration = Duration::from_millis(500);

fn main() {
    println!(
        "{:>6} {:>14} {:>14} {:>10} {:>12} {:>12}",
        "ranks", "first's CPU", "last's CPU", "requests", "bytes in", "bytes out"
    );
    for world in [2, 10, 32, 33, 34, 100, 320, 1000] {
        let crowd = Crowd::start(world);
        let target = [Target::new(crowd.first.address().to_string())];
        let client = StatusClient::new(None, Duration::from_secs(30)).unwrap();
        let look = || {
            let text = client.fetch(&target, "/job.json").remove(0).unwrap();
            thread::sleep(PAUSE);
            text.len()
        };
        // The first have none before them to be compared with.
        look();
        let (times, before) = (server_times(), crowd.spoken());
        let out: usize = (0..LOOKS).map(|_| look()).sum();
        let (now, spoken) = (server_times(), crowd.spoken());
        let times = [0, 1].map(|rank| (now[rank] - times[rank]) / f64::from(LOOKS));
        println!(
            "{world:>6} {:>11.2} ms {:>11.2} ms {:>10.1} {:>12} {:>12}",
            times[1],
            times[0],
            f64::from(spoken.0 - before.0) / f64::from(LOOKS),
            (spoken.1 - before.1) / u64::from(LOOKS),
            out / LOOKS as usize,
        );
    }
}

/// Milliseconds on a core that the threads of the last and the first rank's servers have had: they
/// were started in this order, behind all others.
fn server_times() -> [f64; 2] {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let of = |folder: std::path::PathBuf| {
        let number: u32 = folder.file_name()?.to_str()?.parse().ok()?;
        let name = fs::read_to_string(folder.join("comm")).ok()?;
        let times = fs::read_to_string(folder.join("schedstat")).ok()?;
        let nanos: f64 = times.split(' ').next()?.parse().ok()?;
        name.starts_with("meshwork status")
            .then_some((number, nanos))
    };
    let mut times: Vec<_> = threads
        .filter_map(|thread| of(thread.ok()?.path()))
        .collect();
    times.sort_by_key(|(number, _)| *number);
    let last_two = times.len() - 2;
    [0, 1].map(|place| times[last_two + place].1 / 1e6)
}
