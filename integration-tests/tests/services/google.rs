//! Compute Engine and Cloud TPU, played by a server that Google's own clients judge.

#[path = "google/clients.rs"]
mod clients;
#[path = "google/cloud.rs"]
pub(crate) mod cloud;
#[path = "google/credentials.rs"]
mod credentials;
#[path = "google/faults.rs"]
mod faults;
#[path = "google/tpu.rs"]
mod tpu;

use std::sync::Mutex;
use std::time::Duration;

use meshwork_cluster_resolver::{ClusterResolver, Error, Task};
use serde_json::json;

use crate::loopback::{Loopback, Reply};
use cloud::{Cloud, TOKEN, five_machines, group};

#[test]
fn all_pages_of_a_group_make_one_cluster_ordered_by_number() {
    let server = five_machines().start();
    let spec = group(&server).cluster_spec().unwrap();
    let addresses: Vec<_> = spec.tasks().map(|(_, _, address)| address).collect();
    let expected = [
        "10.0.0.10:2222",
        "10.0.0.2:2222",
        "10.0.0.9:2222",
        "10.0.0.1:2222",
    ];
    assert_eq!(addresses, expected);
    let asked = server.asked();
    let paths = |end: &str| {
        asked
            .iter()
            .filter(|asked| asked.path.ends_with(end))
            .count()
    };
    assert_eq!(
        (paths("/token"), paths("/listInstances"), asked.len()),
        (1, 2, 7)
    );
}

#[test]
fn a_process_finds_its_own_task_by_the_name_of_its_machine() {
    let server = five_machines().start();
    let resolver = group(&server).with_own_task_id();
    assert_eq!(resolver.task_id(), Ok(Some(3)));
    assert_eq!(
        resolver.master(None, None, None).as_deref(),
        Ok("grpc://10.0.0.1:2222")
    );
    let elsewhere = Cloud {
        machines: vec![("w1", "RUNNING", "10.0.0.1")],
        ..Cloud::default()
    };
    assert_eq!(
        group(&elsewhere.start()).with_own_task_id().task_id(),
        Ok(None)
    );
}

#[test]
fn an_empty_group_is_a_job_without_tasks() {
    let server = Cloud::default().start();
    let resolver = group(&server);
    assert_eq!(resolver.cluster_spec().unwrap().num_tasks("worker"), Ok(0));
    let unknown = Err(Error::UnknownTask {
        task: Task::new("worker", 0),
        indices: Vec::new(),
    });
    assert_eq!(resolver.master(None, None, None), unknown);
}

#[test]
fn a_large_group_is_asked_about_several_machines_at_a_time() {
    let server = Loopback::start(|asked| {
        if asked.path.ends_with("/token") {
            return Reply::json(&json!({"access_token": TOKEN}));
        }
        let items: Vec<_> = (0..200)
            .map(|i| json!({"instance": format!("w{i}")}))
            .collect();
        match asked.path.rsplit_once("/instances/w") {
            Some((_, i)) => {
                Reply::json(&json!({"networkInterfaces": [{"networkIP": format!("h{i}")}]}))
            }
            None => Reply::json(&json!({"items": items})),
        }
    });
    let spec = group(&server).cluster_spec().unwrap();
    let hosts: Vec<_> = spec
        .tasks()
        .map(|(_, index, address)| (index, address.to_owned()))
        .collect();
    let expected: Vec<_> = (0..200).map(|i| (i, format!("h{i}:2222"))).collect();
    assert_eq!(hosts, expected);
}

#[test]
fn an_explanation_names_urls_fields_and_the_order() {
    let server = five_machines().start();
    let text = group(&server).with_own_task_id().explain().to_string();
    let url = server.url();
    for part in [
        "cluster: worker 4",
        "task: worker:3",
        &format!("{url}/computeMetadata/v1/instance/name: w10"),
        &format!(
            "networkInterfaces[0].networkIP in {url}/compute/v1/projects/p/zones/z/instances/w9: \
             w9: 10.0.0.9"
        ),
        "instance group in the program: p/z/g",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains(TOKEN));
}

#[test]
fn a_watch_tells_which_machines_came_and_went() {
    let looks = Mutex::new(0);
    let server = Loopback::start(move |asked| {
        let mut looks = looks.lock().unwrap();
        if asked.path.ends_with("/token") {
            *looks += 1;
            return Reply::json(&json!({"access_token": TOKEN}));
        }
        let machines = if *looks < 3 { ["a", "b"] } else { ["a", "c"] };
        let items = machines.map(|name| json!({"instance": name}));
        match asked.path.rsplit_once("/instances/") {
            Some((_, name)) => Reply::json(&json!({"networkInterfaces": [{"networkIP": name}]})),
            None => Reply::json(&json!({"items": items})),
        }
    });
    let resolver = group(&server);
    let mut watch = resolver.watch(Duration::from_millis(1));
    let first = watch.next().unwrap().unwrap();
    assert_eq!(first.difference().added().len(), 2);
    let second = watch.next().unwrap().unwrap();
    assert_eq!(second.spec().task_address("worker", 1), Ok("c:2222"));
    assert_eq!(second.difference().moved().len(), 1);
}
