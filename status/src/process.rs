//! How much of the processor this process has had, and how much it was kept waiting for.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Times since the process began, in seconds, of all its threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CpuTimes {
    /// On a core.
    pub used: f64,
    /// Ready to run, and without a core.
    pub queued: f64,
    /// For which its control group was kept from all cores, where one is limited.
    pub throttled: Option<f64>,
    /// For which the machine below took the cores of this one, on average of its cores.
    pub stolen: Option<f64>,
}

/// Ticks in a second, which the kernel's interface fixes at 100 on all of its platforms.
const TICKS: f64 = 100.0;

/// Threads whose times are added up.
const THREADS: usize = 4096;
/// How long an answer is given again: of a thousand threads it takes a while.
const FRESH: Duration = Duration::from_millis(50);

/// Those of this process; `None` where the kernel does not tell (it is not Linux).
pub(crate) fn cpu_times() -> Option<CpuTimes> {
    static LAST: Mutex<Option<(Instant, Option<CpuTimes>)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((at, times)) if at.elapsed() < FRESH => times,
        Some(_) | None => {
            let times = read_times();
            *last = Some((Instant::now(), times));
            times
        }
    }
}

fn read_times() -> Option<CpuTimes> {
    let (mut used, mut queued) = (0.0, 0.0);
    for thread in fs::read_dir("/proc/self/task")
        .ok()?
        .flatten()
        .take(THREADS)
    {
        // A thread that ends meanwhile counts no more.
        if let Ok(text) = fs::read_to_string(thread.path().join("schedstat"))
            && let Some(times) = of_thread(&text)
        {
            used += times[0];
            queued += times[1];
        }
    }
    (used > 0.0).then(|| CpuTimes {
        used,
        queued,
        throttled: throttled(),
        stolen: read("/proc/stat").as_deref().and_then(stolen),
    })
}

/// Whether a process of this host is stopped, by a signal or a debugger.
pub(crate) fn is_stopped(process: u32) -> bool {
    read(&format!("/proc/{process}/stat")).is_some_and(|stat| is_stopped_by(&stat))
}

/// The state follows the name, which may have anything in it.
fn is_stopped_by(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").map(|parts| parts.1);
    state.is_some_and(|state| state.starts_with(['T', 't']))
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Nanoseconds on a core, and ready to run without one.
fn of_thread(schedstat: &str) -> Option<[f64; 2]> {
    let mut numbers = schedstat.split_whitespace();
    let mut next = || Some(numbers.next()?.parse::<u64>().ok()? as f64 / 1e9);
    Some([next()?, next()?])
}

/// By control groups of version 2, which have one place for each process.
fn throttled() -> Option<f64> {
    let groups = read("/proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    of_group(&read(&format!("/sys/fs/cgroup{group}/cpu.stat"))?)
}

fn of_group(cpu_stat: &str) -> Option<f64> {
    let mut lines = cpu_stat.lines();
    let micros = lines.find_map(|line| line.strip_prefix("throttled_usec "))?;
    Some(micros.trim().parse::<u64>().ok()? as f64 / 1e6)
}

/// The eighth number of all cores, by how many there are.
fn stolen(stat: &str) -> Option<f64> {
    let cores = stat.lines().filter(|line| is_core(line)).count();
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: u64 = all.split_whitespace().nth(7)?.parse().ok()?;
    (cores > 0).then(|| ticks as f64 / TICKS / cores as f64)
}

fn is_core(line: &str) -> bool {
    let number = line.strip_prefix("cpu");
    number.is_some_and(|number| number.starts_with(|letter: char| letter.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read_as_it_writes_them() {
        assert_eq!(of_thread("2500000000 64636 17\n"), Some([2.5, 64_636e-9]));
        assert_eq!(of_thread(""), None);
        let group = "usage_usec 9\nnr_throttled 3\nthrottled_usec 1500000\n";
        assert_eq!(of_group(group), Some(1.5));
        assert_eq!(of_group("usage_usec 9\n"), None);
        let stat = "cpu  9 9 9 9 9 9 9 400 0 0\ncpu0 1 1 1 1 1 1 1 300 0 0\ncpu1 1 1 1 1 1 1 1 100 0 0\nintr 1\n";
        assert_eq!(stolen(stat), Some(2.0));
        assert_eq!(stolen("intr 1\n"), None);
        assert!(is_stopped_by("7 (a) T) T 1 7 7") && is_stopped_by("7 (a) t 1"));
        assert!(!is_stopped_by("7 (T) S 1 7 7") && !is_stopped_by(""));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn work_shows_as_time_on_a_core() {
        let before = cpu_times().unwrap();
        let until = before.used + 0.02;
        // The kernel adds up at its own ticks.
        while cpu_times().unwrap().used < until {
            std::hint::spin_loop();
        }
        assert!(cpu_times().unwrap().queued >= before.queued);
    }
}
