//! Relayout plans on a mesh of 256 devices: from a pair of layouts to the list of collectives.

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use meshwork_core::Mesh;
use meshwork_layout::{Layout, Links, Plan, Relayout};

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args();
    let mesh = Mesh::new(DIMS).expect("the dimensions have names of their own and sizes above 0");
    let mut group = criterion.benchmark_group("plan on 4x4x4x4, rank 4");
    for (name, from, to) in PAIRS {
        let layout = |specs| Layout::from_specs(specs, &mesh).expect("the mesh has these");
        let (from, to) = (layout(from), layout(to));
        for (sizes, shape) in [("even", EVEN), ("uneven", UNEVEN)] {
            group.bench_function(format!("{name}, {sizes}"), |bencher| {
                bencher.iter(|| plan(black_box(&from), &to, &shape));
            });
        }
    }
    group.finish();
    criterion.final_summary();
}

fn plan(from: &Layout, to: &Layout, shape: &[usize]) -> Plan {
    let relayout = Relayout::new(from, to, shape, 4).expect("one mesh, and rank 4 throughout");
    let plan = relayout.links(Links::default()).plan();
    plan.expect("memory is not bounded")
}

const DIMS: [(&str, usize); 4] = [("w", 4), ("x", 4), ("y", 4), ("z", 4)];
const EVEN: [usize; 4] = [256, 256, 256, 256];
const UNEVEN: [usize; 4] = [250, 130, 70, 51];

/// From easy to hard: the last is the slowest that was found.
const PAIRS: [(&str, &str, &str); 4] = [
    (
        "gather",
        "w,x,y,z",
        "unsharded,unsharded,unsharded,unsharded",
    ),
    ("rotate", "w,x,y,z", "z,w,x,y"),
    ("two exchanges", "w|x,y,z,unsharded", "unsharded,w,y|z,x"),
    (
        "one axis to two others",
        "unsharded,y|x|w|z,unsharded,unsharded",
        "unsharded,z,w,unsharded",
    ),
];
