//! Times the all-reduce of nexar on float32 the way `meshwork bench` times its own.
//!
//! ```sh
//! cd benches/peers/nexar && cargo run --release -- RANKS BYTES[,BYTES...] [SECONDS]
//! ```
//!
//! A sample is as many calls in a row, after a barrier, as take about 5 ms; its time is the slowest
//! rank's; the median over samples is printed. Values are checked before. Every rank is a process
//! on loopback, pinned to a core by `taskset` but with `PIN=0`. nexar's own variables choose how
//! bytes travel: `NEXAR_ENABLE_TCP_BULK_SIDECAR=0` is QUIC only, where its default sends bulk by
//! TLS over TCP. Prints `peer,op,ranks,bytes,median_us,algbw_GBps,busbw_GBps`.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;
use std::{env, thread};

use nexar::{ClusterConfig, CpuAdapter, DataType, NexarClient, NexarConfig, ReduceOp};
use tokio::runtime::Runtime;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const RANK: &str = "NEXAR_PEER_RANK";
const SEED: &str = "NEXAR_PEER_SEED";

/// What a sample should take, in seconds.
const SAMPLE: f64 = 5e-3;

struct Arguments {
    ranks: u32,
    sizes: Vec<usize>,
    seconds: f64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::read()?;
    if let Ok(rank) = env::var(RANK) {
        let work = work(rank.parse()?, env::var(SEED)?.parse()?, &arguments);
        Runtime::new()?.block_on(work)?;
        return Ok(ExitCode::SUCCESS);
    }
    let started: Result<Vec<Child>> = start(arguments.ranks);
    let mut succeeded = true;
    for mut rank in started? {
        succeeded &= rank.wait()?.success();
    }
    Ok(if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Arguments {
    fn read() -> Result<Self> {
        let mut given = env::args().skip(1);
        let (Some(ranks), Some(sizes)) = (given.next(), given.next()) else {
            return Err("usage: nexar-all-reduce RANKS BYTES[,BYTES...] [SECONDS]".into());
        };
        let sizes: Result<_, _> = sizes.split(',').map(str::parse).collect();
        let seconds = given.next().map_or(Ok(2.0), |seconds| seconds.parse())?;
        Ok(Self {
            ranks: ranks.parse()?,
            sizes: sizes?,
            seconds,
        })
    }
}

/// This program once for each rank, with the same arguments.
fn start(ranks: u32) -> Result<Vec<Child>> {
    let program = env::current_exe()?;
    // Free now; the seed takes it at once.
    let seed = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let cores = u32::try_from(thread::available_parallelism()?.get())?;
    let is_pinned = env::var("PIN").as_deref() != Ok("0");
    let of = |rank: u32| {
        let mut command = Command::new(if is_pinned {
            "taskset".as_ref()
        } else {
            program.as_os_str()
        });
        if is_pinned {
            command
                .arg("-c")
                .arg((rank % cores).to_string())
                .arg(&program);
        }
        command
            .args(env::args().skip(1))
            .env(RANK, rank.to_string())
            .env(SEED, seed.to_string());
        Ok(command.spawn()?)
    };
    (0..ranks).map(of).collect()
}

async fn work(rank: u32, seed: SocketAddr, arguments: &Arguments) -> Result<()> {
    let any: SocketAddr = "127.0.0.1:0".parse()?;
    let config = ClusterConfig::new(arguments.ranks)
        .with_bind_addr(any)
        .with_requested_rank(rank)
        .with_cluster_token("meshwork-benches")
        .with_nexar(NexarConfig::from_env());
    let host = Arc::new(CpuAdapter::new());
    let client = match rank {
        0 => NexarClient::bootstrap_seed(seed, &config, host).await?,
        1.. => NexarClient::bootstrap_join(seed, &config, host).await?,
    };
    for &size in &arguments.sizes {
        measure(&client, size, arguments.seconds).await?;
    }
    Ok(client.shutdown().await?)
}

async fn measure(client: &NexarClient, size: usize, budget: f64) -> Result<()> {
    let mut values = vec![0_f32; size / size_of::<f32>()];
    check(client, &mut values).await?;
    values.fill(0.0);
    let mut calls = 1;
    let mut each = 0.0;
    for _ in 0..3 {
        each = seconds(client, &mut values, calls).await?;
        calls = ((SAMPLE / each) as usize).clamp(1, 5000);
    }
    let samples = ((budget / (each * calls as f64)) as usize).clamp(7, 101);
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        times.push(seconds(client, &mut values, calls).await?);
    }
    times.sort_by(f64::total_cmp);
    let median = times[samples / 2];
    let ranks = f64::from(client.world_size());
    let rate = size as f64 / median / 1e9;
    let on_the_bus = rate * 2.0 * (ranks - 1.0) / ranks;
    if client.rank() == 0 {
        println!(
            "nexar,allreduce,{ranks},{size},{:.2},{rate:.4},{on_the_bus:.4}",
            median * 1e6
        );
    }
    Ok(())
}

/// The slowest rank's time of one of so many calls in a row.
async fn seconds(client: &NexarClient, values: &mut [f32], calls: usize) -> Result<f64> {
    client.barrier().await?;
    let began = Instant::now();
    for _ in 0..calls {
        sum(client, values).await?;
    }
    let mut slowest = [began.elapsed().as_secs_f64()];
    let at = slowest.as_mut_ptr() as u64;
    // SAFETY: one f64 that lives until the call has ended, which nothing else uses meanwhile.
    unsafe { client.all_reduce(at, slowest.len(), DataType::F64, ReduceOp::Max) }.await?;
    Ok(slowest[0] / calls as f64)
}

async fn check(client: &NexarClient, values: &mut [f32]) -> Result<()> {
    values.fill((client.rank() + 1) as f32);
    sum(client, values).await?;
    let ranks = client.world_size();
    let total = (ranks * (ranks + 1) / 2) as f32;
    match values.iter().find(|value| **value != total) {
        Some(wrong) => {
            Err(format!("nexar gave {wrong} for the sum of {ranks} ranks, {total}").into())
        }
        None => Ok(()),
    }
}

async fn sum(client: &NexarClient, values: &mut [f32]) -> nexar::Result<()> {
    let at = values.as_mut_ptr() as u64;
    // SAFETY: the slice has so many elements and is borrowed until the call has ended.
    unsafe { client.all_reduce(at, values.len(), DataType::F32, ReduceOp::Sum) }.await
}
