//! What a process of a very large cluster does before it starts: read who is in it.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use meshwork_cluster_resolver::{TfConfig, WorkerPlacement};

const WORKERS: u32 = 10_000;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let text = tf_config();
    let config = TfConfig::parse(&text).expect("the text is a valid TF_CONFIG");

    let mut group = criterion.benchmark_group("TF_CONFIG of 10,000 workers");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("parse", |bencher| {
        bencher.iter(|| TfConfig::parse(black_box(&text)));
    });
    group.bench_function("place a worker", |bencher| {
        bencher.iter(|| WorkerPlacement::new(config.cluster(), "worker", black_box(WORKERS - 1)));
    });
    group.finish();
    criterion.final_summary();
}

fn tf_config() -> String {
    let addresses: Vec<_> = (0..WORKERS)
        .map(|worker| format!("\"worker-{worker}.training.example:2222\""))
        .collect();
    format!(
        r#"{{"cluster": {{"worker": [{}]}}, "task": {{"type": "worker", "index": 17}}}}"#,
        addresses.join(", ")
    )
}
