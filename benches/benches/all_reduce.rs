//! All-reduce between threads and over QUIC, beside a copy of memory and a bare QUIC stream.
//!
//! Ranks are threads of this process and live as long as the benchmark: no start-up is measured.
//! Over QUIC each of them joins a group of its own, as a process would. A benchmark that cannot go
//! on panics, which is how criterion's users expect it.

#[path = "all_reduce/lock_step.rs"]
mod lock_step;
#[path = "all_reduce/raw_quic.rs"]
mod raw_quic;

use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, measurement::WallTime};
use meshwork_accel::{Accelerator, DeviceId, ElementType};
use meshwork_accel_cpu::CpuAccelerator;
use meshwork_collectives::{
    Communication, Group, GroupConfig, JobSecret, Rank, ReduceOp, Transport,
};
use meshwork_testing::free_addresses;

use lock_step::{LockStep, Span};

/// Sizes of each rank's buffer, and the algorithms that are compared at that size.
const SIZES: [(&str, usize, &[Communication]); 5] = [
    (
        "1 KiB",
        1 << 10,
        &[Communication::Ring, Communication::Tree],
    ),
    ("64 KiB", 64 << 10, &[Communication::Auto]),
    (
        "1 MiB",
        1 << 20,
        &[Communication::Ring, Communication::Tree],
    ),
    ("16 MiB", 16 << 20, &[Communication::Auto]),
    ("64 MiB", 64 << 20, &[Communication::Auto]),
];

/// What all ranks do next.
#[derive(Clone, Copy)]
struct Order {
    communication: Communication,
    bytes: usize,
    repeats: u64,
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let teams = [
        ("local, 2 ranks", local(2, serve)),
        ("local, 4 ranks", local(4, serve)),
        ("QUIC, 2 ranks", over_quic(2, serve)),
        ("local, device buffers, 2 ranks", local(2, serve_devices)),
        ("QUIC, device buffers, 2 ranks", over_quic(2, serve_devices)),
    ];
    let raw = raw_quic::pair();
    for (name, bytes, algorithms) in SIZES {
        let mut group = criterion.benchmark_group(format!("all-reduce, {name}"));
        group.throughput(Throughput::Bytes(bytes as u64));
        group.sampling_mode(SamplingMode::Flat);
        bench_memcpy(&mut group, bytes);
        for (team, ranks) in &teams {
            for &communication in algorithms {
                group.bench_function(format!("{team}, {communication:?}"), |bencher| {
                    bencher.iter_custom(|repeats| {
                        ranks.run(Order {
                            communication,
                            bytes,
                            repeats,
                        })
                    });
                });
            }
        }
        group.bench_function("raw QUIC stream, both ways", |bencher| {
            bencher.iter_custom(|repeats| raw.run(raw_quic::Order { bytes, repeats }));
        });
        group.finish();
    }
    criterion.final_summary();
}

fn bench_memcpy(group: &mut BenchmarkGroup<'_, WallTime>, bytes: usize) {
    let from = vec![1_u8; bytes];
    let mut into = vec![2_u8; bytes];
    group.bench_function("memcpy", |bencher| {
        bencher.iter(|| black_box(&mut into).copy_from_slice(black_box(&from)));
    });
}

/// What a rank does until there are no more orders.
type Serve = fn(Group, Receiver<Order>, Sender<Span>);

fn local(world: u32, serve: Serve) -> LockStep<Order> {
    let groups = Group::local(world).expect("a few ranks fit in this process");
    LockStep::start(groups, serve)
}

fn over_quic(world: u32, serve: Serve) -> LockStep<Order> {
    let secret = JobSecret::generate().expect("the system has randomness");
    let members = free_addresses(world as usize);
    let joining: Vec<_> = Rank::all(world)
        .map(|rank| GroupConfig::new(members.clone(), rank, secret.clone()))
        .map(|config| config.expect("the rank is one of the members"))
        // Ranks of one host would share memory otherwise.
        .map(|config| config.with_transport(Transport::Quic))
        .map(|config| thread::spawn(move || Group::connect(&config)))
        .collect();
    let groups = joining
        .into_iter()
        .map(|rank| rank.join().expect("joining returns its errors"))
        .map(|group| group.expect("the members are on this machine"));
    LockStep::start(groups.collect(), serve)
}

/// One rank with buffers in host memory.
fn serve(mut group: Group, orders: Receiver<Order>, spans: Sender<Span>) {
    let mut buffer = Vec::new();
    for order in orders {
        // A sum of negative zeros is one again, so values stay as they are. Positive zeros would
        // come from the kernel as pages that are no memory yet.
        buffer.resize(order.bytes / size_of::<f32>(), -0.0_f32);
        group.set_communication(order.communication);
        group.barrier().expect("all ranks are there");
        let start = Instant::now();
        for _ in 0..order.repeats {
            group
                .all_reduce(&mut buffer, ReduceOp::Sum)
                .expect("all ranks make the same call");
        }
        let end = Instant::now();
        if spans.send(Span { start, end }).is_err() {
            break;
        }
    }
    group.leave().expect("all ranks leave");
}

/// One rank with buffers of a device, which is the CPU: two more copies than `serve` has.
fn serve_devices(mut group: Group, orders: Receiver<Order>, spans: Sender<Span>) {
    let cpu = CpuAccelerator::new();
    for order in orders {
        let values = vec![-0.0_f32; order.bytes / size_of::<f32>()];
        let mut buffer = cpu
            .allocate(DeviceId::new(0), ElementType::F32, values.len())
            .expect("a benchmark has the memory that it asks for");
        cpu.upload(&values, &mut buffer, 0)
            .expect("the buffer is as long as what it gets");
        group.set_communication(order.communication);
        group.barrier().expect("all ranks are there");
        let mut devices = group.staged_on(&cpu);
        let start = Instant::now();
        for _ in 0..order.repeats {
            devices
                .all_reduce(&mut buffer, ReduceOp::Sum)
                .expect("all ranks make the same call");
        }
        let end = Instant::now();
        if spans.send(Span { start, end }).is_err() {
            break;
        }
    }
    group.leave().expect("all ranks leave");
}
