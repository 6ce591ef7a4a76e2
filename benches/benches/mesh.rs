//! Questions about one rank of a mesh of 1,048,576, and about a tensor that lies on it.

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use meshwork_core::{Mesh, Rank};
use meshwork_layout::Layout;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let mesh = Mesh::new([("pipeline", 16), ("batch", 256), ("model", 256)])
        .expect("the dimensions have names of their own and sizes above 0");
    assert_eq!(mesh.size(), 1 << 20);
    bench_mesh(&mut criterion, &mesh);
    bench_layout(&mut criterion, &mesh);
    criterion.final_summary();
}

fn bench_mesh(criterion: &mut Criterion, mesh: &Mesh) {
    let rank = Rank::new(765_432);
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
    group.finish();
}

fn bench_layout(criterion: &mut Criterion, mesh: &Mesh) {
    let rank = Rank::new(765_432);
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
            owners.map(|owners| owners.map(Rank::index).sum::<usize>())
        });
    });
    group.finish();
}
