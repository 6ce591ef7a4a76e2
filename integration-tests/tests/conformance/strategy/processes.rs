//! Workers of a cluster with names and addresses, connected with each other over the loopback.

use meshwork_cluster_resolver::multi_worker::coordination_leader;
use meshwork_strategy::{
    CommunicationOptions, Error, JobSecret, MultiWorkerMirroredStrategy, TfConfigResolver,
};
use meshwork_testing::{free_addresses, in_threads};
use serde_json::{Value, json};

/// What each worker says of itself.
pub(super) fn properties(jobs: &[(String, u64)], replicas: usize) -> Result<Vec<Value>, Error> {
    let secret = JobSecret::generate()?;
    let workers: u64 = jobs.iter().map(|(_, count)| count).sum();
    let workers = usize::try_from(workers).expect("a few");
    let mut addresses = free_addresses(workers).into_iter();
    let cluster: Value = jobs
        .iter()
        .map(|(job, count)| {
            let count = usize::try_from(*count).expect("a few");
            (
                job.clone(),
                json!(addresses.by_ref().take(count).collect::<Vec<_>>()),
            )
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    let tasks = jobs
        .iter()
        .flat_map(|(job, count)| (0..*count).map(move |index| (job, index)));
    let answers = in_threads(tasks, |(job, index)| {
        of_worker(&cluster, job, index, secret.clone(), replicas)
    });
    answers.into_iter().collect()
}

fn of_worker(
    cluster: &Value,
    job: &str,
    index: u64,
    secret: JobSecret,
    replicas: usize,
) -> Result<Value, Error> {
    let text = json!({"cluster": cluster, "task": {"type": job, "index": index}}).to_string();
    let resolver = TfConfigResolver::from_json(&text);
    let options = CommunicationOptions::new();
    let strategy = MultiWorkerMirroredStrategy::new(&resolver, secret, options)?
        .with_local_replicas(replicas)?;
    let devices: Vec<String> = strategy
        .devices()?
        .iter()
        .map(ToString::to_string)
        .collect();
    let spec = meshwork_strategy::ClusterResolver::cluster_spec(&resolver)?;
    let answer = json!({
        "num_replicas_in_sync": strategy.num_replicas_in_sync(),
        "worker_devices": devices,
        "should_checkpoint": strategy.is_chief(),
        "should_save_summary": strategy.is_chief(),
        // Every worker runs the same program, and makes its variables itself.
        "experimental_between_graph": strategy.cluster().is_some(),
        "experimental_should_init": true,
        "id_in_cluster": strategy.rank().number(),
        "is_chief": strategy.is_chief(),
        "default_device": devices[0].split_once("/device:").map(|(host, _)| host.replace("/replica:0", "")),
        // Signs of life are the group's own, no thread of the strategy's.
        "check_health_thread": false,
        // The name of a class in Python for what reads TF_CONFIG.
        "resolver_type": strategy.cluster().map(|_| "TFConfigClusterResolver"),
        "in_multi_worker_mode": strategy.cluster().is_some(),
        "coordination_service_leader": coordination_leader(&spec)?,
    });
    strategy.leave()?;
    Ok(answer)
}
