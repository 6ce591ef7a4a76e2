//! One look is enough: for a snapshot, and for the start of a process.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::sagemaker::SageMakerResolver;
use crate::slurm::SlurmResolver;
use crate::task::Task;
use crate::tf_config::TfConfigResolver;
use crate::union::UnionResolver;
use crate::variables::{SNAPSHOTS, Variables};

/// A source that counts how often it is asked, and knows the task alone.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl ClusterResolver for &'static Counting {
    fn snapshot(&self) -> Result<Cluster, Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let task = Task::new("worker", 1);
        Ok(Cluster::unknown(broken()).with_task(&task))
    }
}

fn broken() -> Error {
    let variable = "TF_CONFIG".to_owned();
    Error::NotUnicode { variable }
}

/// Asks a cluster everything.
fn ask_all(cluster: &Cluster) {
    let _ = (cluster.spec(), cluster.task(), cluster.placement());
    let _ = (cluster.master(None, None, None), cluster.rpc_layer());
    let _ = (cluster.num_accelerators(), cluster.environment());
    assert!(!cluster.explanation().to_string().is_empty());
}

#[test]
fn a_source_is_asked_once_however_it_is_wrapped_and_whatever_is_asked_of_its_snapshot() {
    static FIRST: Counting = Counting(AtomicUsize::new(0));
    static OTHER: Counting = Counting(AtomicUsize::new(0));
    let union = UnionResolver::new((&FIRST).with_task_id(3)).and(&OTHER);
    let resolver: Box<dyn ClusterResolver> = Box::new(union.with_rpc_layer("grpc"));
    let cluster = resolver.snapshot().unwrap();
    ask_all(&cluster);
    assert_eq!(cluster.task(), Ok(Task::new("worker", 3)));
    assert_eq!(cluster.spec(), Err(broken()));
    let asked = [&FIRST, &OTHER].map(|source| source.0.load(Ordering::Relaxed));
    assert_eq!(asked, [1, 1]);
}

#[test]
fn a_snapshot_reads_the_environment_once() {
    let variables = Variables::fixed([
        ("TF_CONFIG", r#"{"cluster": {"worker": ["a:1"]}}"#),
        ("SM_HOSTS", r#"["a"]"#),
        ("SM_CURRENT_HOST", "a"),
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_STEP_NODELIST", "n"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
    ]);
    let resolvers: [Box<dyn ClusterResolver>; 3] = [
        Box::new(TfConfigResolver::from_variables(variables.clone())),
        Box::new(SageMakerResolver::from_variables(variables.clone())),
        Box::new(SlurmResolver::from_variables(variables)),
    ];
    for resolver in resolvers {
        let before = SNAPSHOTS.get();
        let cluster = resolver.snapshot().unwrap();
        assert_eq!(cluster.spec().unwrap().tasks().count(), 1);
        ask_all(&cluster);
        assert_eq!(SNAPSHOTS.get() - before, 1, "{resolver:?}");
    }
}

#[test]
fn an_answer_of_the_program_is_there_whatever_the_source_says() {
    let unreadable = TfConfigResolver::from_json("[")
        .with_task_type("ps")
        .with_task_id(0);
    let cluster = unreadable.snapshot().unwrap();
    assert_eq!(cluster.task(), Ok(Task::new("ps", 0)));
    assert!(matches!(cluster.spec(), Err(Error::Json { .. })));
    assert!(cluster.rpc_layer().is_err());

    let known = r#"{"task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"}"#;
    let nobody = TfConfigResolver::from_json(known)
        .without_task_type()
        .without_task_id();
    let cluster = nobody
        .without_rpc_layer()
        .with_environment("google")
        .snapshot()
        .unwrap();
    assert_eq!(
        (cluster.task_type(), cluster.task_id()),
        (Ok(None), Ok(None))
    );
    assert_eq!(
        (cluster.rpc_layer(), cluster.environment()),
        (Ok(None), Some("google"))
    );
    let shown = cluster.explanation().to_string();
    let line = "not rpc_layer in the program: grpc (the program says otherwise)";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn the_later_of_two_overrides_counts() {
    let resolver = TfConfigResolver::from_json("{}")
        .with_task_id(1)
        .with_task_id(2);
    assert_eq!(resolver.task_id(), Ok(Some(2)));
}
