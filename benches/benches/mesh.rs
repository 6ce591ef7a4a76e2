//! A mesh of 1,048,576 devices: making it, reading and writing it, questions about one rank, and
//! about a tensor that lies on it. First of all, how much memory it takes.

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use meshwork_core::{AnyMesh, DeviceIds, DeviceSpec, Devices, Error, Mesh, MeshRank};
use meshwork_layout::Layout;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let mesh = Mesh::new(DIMS).expect("the dimensions have names of their own and sizes above 0");
    assert_eq!(mesh.size(), 1 << 20);
    report_memory().expect("the meshes are right");
    bench_build(&mut criterion).expect("the meshes are right");
    bench_mesh(&mut criterion, &mesh);
    bench_layout(&mut criterion, &mesh);
    criterion.final_summary();
}

fn bench_mesh(criterion: &mut Criterion, mesh: &Mesh) {
    let rank = MeshRank::new(765_432);
    let coords = mesh.coords(rank).expect("the mesh has this rank");
    let mut group = criterion.benchmark_group("mesh");
    group.bench_function("coords", |bencher| {
        bencher.iter(|| mesh.coords(black_box(rank)));
    });
    group.bench_function("rank_of", |bencher| {
        bencher.iter(|| mesh.rank_of(black_box(&coords)));
    });
    group.bench_function("group_of", |bencher| {
        bencher.iter(|| mesh.group_of(black_box(rank), "batch"));
    });
    group.bench_function("group_along two dimensions", |bencher| {
        bencher.iter(|| mesh.group_along(black_box(rank), ["pipeline", "model"]));
    });
    let group_along = mesh.group_along(rank, ["pipeline", "model"]);
    let group_along = group_along.expect("the mesh has both");
    group.bench_function("position in that group", |bencher| {
        bencher.iter(|| group_along.position(black_box(rank)));
    });
    group.bench_function("submesh of one stage, and a rank in it", |bencher| {
        bencher.iter(|| {
            let stage = mesh.submesh().fix("pipeline", black_box(3))?;
            Ok::<_, Error>(stage.rank_of(black_box(rank)))
        });
    });
    group.finish();
}

fn bench_layout(criterion: &mut Criterion, mesh: &Mesh) {
    let rank = MeshRank::new(765_432);
    // Cut by `batch` and `model`, copied along `pipeline`; neither size divides.
    let shape = [10_000, 12_345];
    let layout = Layout::from_names(["batch", "model"], mesh).expect("the mesh has both");
    let mut group = criterion.benchmark_group("layout");
    group.bench_function("local_shape", |bencher| {
        bencher.iter(|| layout.local_shape(black_box(rank), &shape));
    });
    group.bench_function("owners", |bencher| {
        bencher.iter(|| {
            let owners = layout.owners(black_box(&[1234, 5678]), &shape);
            owners.map(|owners| owners.map(MeshRank::index).sum::<usize>())
        });
    });
    group.finish();
}

/// 131,072 tasks with 8 devices each, all of them known.
fn of_tasks() -> Result<Mesh, Error> {
    let host = DeviceSpec::parse("/job:worker/replica:0")?;
    let devices = Devices::of_tasks(&host, 1 << 17, &DeviceSpec::parse("TPU")?, 8)?;
    Mesh::builder(DIMS).global_devices(devices).build()
}

/// 1,048,576 tasks with one device each, which share nothing but their job.
fn of_single_devices() -> Result<Mesh, Error> {
    let host = DeviceSpec::parse("/job:worker/replica:0")?;
    let devices = Devices::of_tasks(&host, 1 << 20, &DeviceSpec::parse("TPU")?, 1)?;
    Mesh::builder(DIMS).global_devices(devices).build()
}

/// What one of 131,072 processes knows: all ids, and its own 8 devices.
fn of_one_process() -> Result<Mesh, Error> {
    let devices = (0..8).map(|index| format!("/job:worker/replica:0/task:9/device:TPU:{index}"));
    let ids = DeviceIds::consecutive(72, 8)?;
    Mesh::builder(DIMS)
        .local(ids, Devices::parse(devices)?)
        .build()
}

fn bench_build(criterion: &mut Criterion) -> Result<(), Error> {
    let mut group = criterion.benchmark_group("mesh of 1,048,576");
    group.bench_function("without devices", |bencher| {
        bencher.iter(|| Mesh::new(black_box(DIMS)));
    });
    group.bench_function("8 devices a task", |bencher| bencher.iter(of_tasks));
    group.bench_function("1 device a task", |bencher| bencher.iter(of_single_devices));
    let mesh = of_tasks()?;
    let specs: Vec<DeviceSpec> = mesh.global_devices().iter().collect();
    group.bench_function("8 devices a task, one by one", |bencher| {
        bencher.iter(|| Mesh::new(DIMS)?.with_devices(specs.iter().cloned()));
    });
    let known = AnyMesh::from(of_one_process()?);
    let (text, bytes) = (known.to_string(), known.encode());
    group.bench_function("text of one process, written", |bencher| {
        bencher.iter(|| known.to_string());
    });
    group.bench_function("text of one process, read", |bencher| {
        bencher.iter(|| AnyMesh::parse(&text));
    });
    group.bench_function("protobuf of one process, written", |bencher| {
        bencher.iter(|| known.encode());
    });
    group.bench_function("protobuf of one process, read", |bencher| {
        bencher.iter(|| AnyMesh::decode(&bytes));
    });
    group.finish();
    Ok(())
}

/// Prints how many bytes a device takes, by what the kernel says that the process holds.
#[expect(clippy::print_stdout, reason = "criterion measures no memory")]
fn report_memory() -> Result<(), Error> {
    let report = |name: &str, make: fn() -> Result<Mesh, Error>| {
        // Once before, so that what is built on the way and given back is not counted.
        drop(make()?);
        let before = resident_bytes();
        let meshes: Vec<Mesh> = (0..MESHES).map(|_| make()).collect::<Result<_, _>>()?;
        let devices: usize = meshes.iter().map(Mesh::size).sum();
        match (before, resident_bytes()) {
            (Some(before), Some(after)) => {
                let bytes = after.saturating_sub(before);
                println!(
                    "{name}: {:.2} bytes per device",
                    bytes as f64 / devices as f64
                );
            }
            _ => println!("{name}: not known, without /proc/self/statm"),
        }
        Ok::<_, Error>(())
    };
    report("mesh of 1,048,576/without devices", || Mesh::new(DIMS))?;
    report("mesh of 1,048,576/8 devices a task", of_tasks)?;
    report("mesh of 1,048,576/1 device a task", of_single_devices)
}

/// The memory of this process, in pages of 4 KiB as x86-64 and most others have them.
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// How many meshes are made to measure the memory of one.
const MESHES: usize = 8;

const DIMS: [(&str, usize); 3] = [("pipeline", 16), ("batch", 256), ("model", 256)];
