//! Tensors on a mesh of 2×2: what an op costs beside its work, relayouts inside a process and
//! between clients that are threads, beside the all-gather of as many bytes, and a product cut over
//! them.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::Criterion;
use meshwork_collectives::Group;
use meshwork_core::{Client, CreateMesh};
use meshwork_dtensor::{Context, DTensor};
use meshwork_layout::Layout;
use ndarray::ArrayD;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args();
    let mut group = criterion.benchmark_group("dtensor");
    group.bench_function("add, 4 devices of 4 bytes each", |bencher| {
        let small = tensor(&alone(), &[2, 2], ["x", "y"]);
        bencher.iter(|| black_box(&small).add(&small));
    });
    group.bench_function("relayout, 4 devices of 4 bytes each", |bencher| {
        let small = tensor(&alone(), &[2, 2], ["x", "y"]);
        let columns = layout(&small, ["y", "x"]);
        bencher.iter(|| black_box(&small).relayout(&columns));
    });
    for (name, from, to) in [
        ("rows to columns", ["x", "unsharded"], ["unsharded", "x"]),
        ("gather", ["x", "y"], ["unsharded", "unsharded"]),
    ] {
        group.bench_function(format!("{name}, 64 MiB, one client"), |bencher| {
            let large = tensor(&alone(), &[4096, 4096], from);
            let target = layout(&large, to);
            bencher.iter(|| black_box(&large).relayout(&target));
        });
        group.bench_function(format!("{name}, 64 MiB, four clients"), |bencher| {
            bencher.iter_custom(|times| {
                together(|context, start| {
                    let large = tensor(context, &[4096, 4096], from);
                    let target = layout(&large, to);
                    let moved = large.relayout(&target);
                    moved.expect("the clients do the same");
                    measured(start, times, || large.relayout(&target))
                })
            });
        });
    }
    group.bench_function("all-gather, 64 MiB, four ranks", |bencher| {
        bencher.iter_custom(|times| all_gather(1 << 24, times));
    });
    group.bench_function(
        "all-gather into new memory, 64 MiB, four ranks",
        |bencher| {
            bencher.iter_custom(|times| all_gather_anew(1 << 24, times));
        },
    );
    for (name, clients) in [("one client", 1), ("two clients", 2)] {
        group.bench_function(format!("product of 1024², {name}"), |bencher| {
            bencher.iter_custom(|times| product(clients, times));
        });
    }
    group.finish();
    criterion.final_summary();
}

/// One client with four devices.
fn alone() -> Context {
    Context::alone(client(0, 1, 4))
}

fn client(index: u32, count: u32, devices: u32) -> Client {
    let client = Client::new("worker", index, count).expect("an index below the count");
    client
        .with_devices("CPU", devices)
        .expect("CPU is a device type")
}

fn tensor(context: &Context, shape: &[usize], names: [&str; 2]) -> DTensor<f32> {
    let mesh = context.create_distributed_mesh(CreateMesh::new().dims([("x", 2), ("y", 2)]));
    let layout = Layout::from_names(names, &mesh.expect("a mesh of all devices"));
    let ones = ArrayD::from_elem(shape, 1.0);
    let tensor = context.copy_to_mesh(ones, &layout.expect("names of the mesh"));
    tensor.expect("a layout of two axes")
}

fn layout(tensor: &DTensor<f32>, names: [&str; 2]) -> Layout {
    Layout::from_names(names, tensor.layout().mesh()).expect("names of the mesh")
}

/// How long four clients with a device each take, which are threads.
fn together(run: impl Fn(&Context, &Barrier) -> Duration + Sync) -> Duration {
    ranks(|group, start| {
        let client = client(group.rank().number(), 4, 1);
        let context = Context::from_group(client, group).expect("clients that agree");
        let time = run(&context, start);
        context.leave().expect("all clients are done");
        time
    })
}

fn measured<R>(start: &Barrier, times: u64, mut run: impl FnMut() -> R) -> Duration {
    start.wait();
    let began = Instant::now();
    for _ in 0..times {
        black_box(run());
    }
    began.elapsed()
}

/// How long four ranks take to gather so many numbers, a quarter from each.
fn all_gather(numbers: usize, times: u64) -> Duration {
    ranks(|mut group, start| {
        let input = vec![1.0_f32; numbers / 4];
        let mut output = vec![0.0_f32; numbers];
        let time = measured(start, times, || group.all_gather(&input, &mut output));
        group.leave().expect("all ranks are done");
        time
    })
}

/// The same into memory that is new each time, as that of a new tensor is.
fn all_gather_anew(numbers: usize, times: u64) -> Duration {
    ranks(|mut group, start| {
        let input = vec![1.0_f32; numbers / 4];
        let time = measured(start, times, || {
            let mut output = vec![0.0_f32; numbers];
            group.all_gather(&input, &mut output).map(|()| output)
        });
        group.leave().expect("all ranks are done");
        time
    })
}

/// How long the slowest of four ranks takes, which are threads.
fn ranks(run: impl Fn(Group, &Barrier) -> Duration + Sync) -> Duration {
    let groups = Group::local(4).expect("a group of threads");
    let start = Barrier::new(groups.len());
    let times: Vec<Duration> = thread::scope(|threads| {
        let spawn = |group: Group| {
            let (run, start) = (&run, &start);
            threads.spawn(move || run(group, start))
        };
        let started: Vec<_> = groups.into_iter().map(spawn).collect();
        let ended = started.into_iter().map(|thread| thread.join());
        ended.map(|time| time.expect("no rank panics")).collect()
    });
    times.into_iter().max().unwrap_or_default()
}

/// How long a product takes whose rows are cut over so many clients.
fn product(clients: u32, times: u64) -> Duration {
    let groups = Group::local(clients).expect("a group of threads");
    let start = Barrier::new(groups.len());
    let run = |group: Group, start: &Barrier| {
        let client = client(group.rank().number(), clients, 1);
        let context = match clients {
            1 => Context::alone(client),
            _ => Context::from_group(client, group).expect("clients that agree"),
        };
        let mesh = context.create_distributed_mesh(CreateMesh::new());
        let mesh = mesh.expect("a mesh of all devices");
        let rows = Layout::batch_sharded(&mesh, "x", 2).expect("a dimension of the mesh");
        let ones = ArrayD::from_elem([1024, 1024].as_slice(), 1.0_f32);
        let left = context
            .copy_to_mesh(ones.clone(), &rows)
            .expect("a layout of two axes");
        let right = context.copy_to_mesh(ones, &Layout::replicated(&mesh, 2));
        let right = right.expect("a layout of two axes");
        let time = measured(start, times, || left.matmul(&right));
        context.leave().expect("all clients are done");
        time
    };
    let longest: Vec<Duration> = thread::scope(|threads| {
        let (run, start) = (&run, &start);
        let spawn = |group: Group| threads.spawn(move || run(group, start));
        let started: Vec<_> = groups.into_iter().map(spawn).collect();
        let ended = started.into_iter().map(|thread| thread.join());
        ended.map(|time| time.expect("no client panics")).collect()
    });
    longest.into_iter().max().unwrap_or_default()
}
