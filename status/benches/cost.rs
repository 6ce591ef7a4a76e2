//! What statistics and an open page cost: slices of operations in turn without a server, and with
//! one whose page is open.
//!
//! ```sh
//! cargo bench -p meshwork-status --bench cost               # all-reduces of 1 KiB
//! cargo bench -p meshwork-status --bench cost -- training   # steps of 5 ms, each reducing 1 MiB
//! cargo bench -p meshwork-status --bench cost -- flood      # asked without a pause
//! ```
//!
//! The ranks are threads that share memory, each on a core of its own. What the page does once in a
//! second hits few blocks of operations and leaves the median alone, so the processor time of the
//! server's threads is told besides: a machine without a spare core loses it.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and cannot go on without a group"
)]

use std::env;
use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use meshwork_collectives::{Group, ReduceOp};
use meshwork_status::{Server, Settings, StatusClient, Target};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Slices of each kind, which take a second or two.
const SLICES: usize = 8;

/// What is measured.
#[derive(Clone, Copy)]
struct Work {
    /// In a slice.
    blocks: usize,
    /// In a block.
    operations: usize,
    floats: usize,
    /// Rounds of arithmetic before an operation.
    rounds: usize,
    /// Between two questions of the page.
    pause: Duration,
}

/// Of one rank and kind of slice.
#[derive(Default)]
struct Times {
    blocks: Vec<Duration>,
    server: Duration,
    wall: Duration,
}

fn main() {
    let wanted = |name: &str| env::args().any(|argument| argument == name);
    let pause = match wanted("flood") {
        false => Duration::from_secs(1),
        true => Duration::ZERO,
    };
    let work = match wanted("training") {
        false => Work {
            blocks: 4000,
            operations: 1000,
            floats: 256,
            rounds: 0,
            pause,
        },
        true => Work {
            blocks: 400,
            operations: 1,
            floats: 1 << 18,
            rounds: rounds(Duration::from_millis(5)),
            pause,
        },
    };
    let barrier = Arc::new(Barrier::new(2));
    let ranks = Group::local(2).unwrap().into_iter().enumerate();
    let ranks: Vec<_> = ranks
        .map(|(core, group)| {
            let barrier = barrier.clone();
            thread::spawn(move || rank(group, core, work, &barrier))
        })
        .collect();
    let times: Vec<[Times; 2]> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    for (rank, [alone, watched]) in times.into_iter().enumerate() {
        let share = watched.server.as_secs_f64() / watched.wall.as_secs_f64();
        let [one, other] = [alone.blocks, watched.blocks].map(|times| quantiles(times, work));
        println!(
            "rank {rank}: alone {:.4} µs, watched {:.4} µs, ratio {:.4} (fastest tenth {:.4}); \
             servers {:.4} % of a core",
            one[1] * 1e6,
            other[1] * 1e6,
            other[1] / one[1],
            other[0] / one[0],
            100.0 * share,
        );
    }
}

/// Seconds of an operation: of the fastest tenth of the blocks, and of the middle one.
fn quantiles(mut blocks: Vec<Duration>, work: Work) -> [f64; 2] {
    blocks.sort_unstable();
    let at = |part: usize| blocks[blocks.len() / part].as_secs_f64() / work.operations as f64;
    [at(10), at(2)]
}

fn rank(mut group: Group, core: usize, work: Work, barrier: &Barrier) -> [Times; 2] {
    pin(core);
    let mut times = [Times::default(), Times::default()];
    let mut buffer = vec![1.0_f32; work.floats];
    let folder = env::temp_dir().join(format!("meshwork-cost-{}", std::process::id()));
    for slice in 0..2 * SLICES {
        let watched = slice % 2;
        let settings = Settings::new(([127, 0, 0, 1], 0).into()).unwrap();
        let settings = settings.with_folder(&folder);
        let serve = || Server::start(&settings, Arc::new(group.observer())).unwrap();
        let server = (watched == 1).then(serve);
        barrier.wait();
        let page = match (&server, core) {
            (Some(server), 0) => Some(Page::open(server, work.pause)),
            (Some(_) | None, _) => None,
        };
        let (began, before) = (Instant::now(), server_time());
        let times = &mut times[watched];
        for _ in 0..work.blocks {
            let began = Instant::now();
            for _ in 0..work.operations {
                compute(work.rounds);
                group.all_reduce(&mut buffer, ReduceOp::Max).unwrap();
            }
            times.blocks.push(began.elapsed());
        }
        times.wall += began.elapsed();
        times.server += server_time().saturating_sub(before);
        barrier.wait();
        drop(page);
        barrier.wait();
    }
    if core == 0 {
        fs::remove_dir_all(&folder).unwrap();
    }
    times
}

/// A browser that shows the page of a rank, as far as the rank can tell.
struct Page {
    closed: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Page {
    fn open(server: &Server, pause: Duration) -> Self {
        let target = [Target::new(server.address().to_string())];
        let closed = Arc::new(AtomicBool::new(false));
        let stop = closed.clone();
        let thread = thread::spawn(move || {
            let client = StatusClient::new(None, Duration::from_secs(5)).unwrap();
            for turn in 0_u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                black_box(client.fetch(&target, "/job.json")[0].as_ref().unwrap());
                // The time line asks every other time.
                if turn % 2 == 0 {
                    let path = "/operations.jsonl?from=0&to=32&hops=2";
                    black_box(client.fetch(&target, path)[0].as_ref().unwrap());
                }
                thread::park_timeout(pause);
            }
        });
        Self {
            closed,
            thread: Some(thread),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }
}

/// The time that the threads of all servers here have had on a core.
fn server_time() -> Duration {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let of = |folder: std::path::PathBuf| {
        let name = fs::read_to_string(folder.join("comm")).ok()?;
        let times = fs::read_to_string(folder.join("schedstat")).ok()?;
        let nanos: u64 = times.split(' ').next()?.parse().ok()?;
        name.starts_with("meshwork status").then_some(nanos)
    };
    let times = threads.filter_map(|thread| of(thread.ok()?.path()));
    Duration::from_nanos(times.sum())
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap();
}

/// Arithmetic that takes a core and no memory.
fn compute(rounds: usize) {
    let mut value = 1.000_000_1_f64;
    for _ in 0..rounds {
        value = black_box(value).mul_add(1.000_000_1, 1e-9);
    }
    black_box(value);
}

/// Rounds of arithmetic for a time.
fn rounds(time: Duration) -> usize {
    const TRIED: u32 = 1_000_000;
    let fastest = (0..20).map(|_| {
        let began = Instant::now();
        compute(TRIED as usize);
        began.elapsed()
    });
    let fastest = fastest.min().unwrap();
    let rounds = u128::from(TRIED) * time.as_nanos() / fastest.as_nanos();
    usize::try_from(rounds).unwrap()
}
