//! From pods to the tasks of a job.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(value: Value) -> Pod {
    Pod::read(&Answer::new("http://k8s/pods", &value)).unwrap()
}

fn pod(name: &str, phase: &str, labels: Value) -> Pod {
    read(json!({
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "status": {"phase": phase, "podIP": "10.0.0.1", "hostIP": "192.168.0.1"},
    }))
}

fn running(name: &str) -> Pod {
    pod(name, "Running", json!({}))
}

fn indexed(name: &str, key: &str, index: &str) -> Pod {
    pod(name, "Running", json!({key: index}))
}

fn tasks(groups: Vec<Vec<Pod>>) -> Vec<(u32, String)> {
    let members = arrange("worker", groups).unwrap();
    let named = members
        .iter()
        .map(|member| (member.index, member.pod.name.clone()));
    named.collect()
}

fn numbered(names: &[&str]) -> Vec<(u32, String)> {
    (0..).zip(names.iter().map(ToString::to_string)).collect()
}

#[test]
fn pods_without_an_index_are_numbered_by_name_within_each_selector() {
    let first = vec![running("w10"), running("w9")];
    let second = vec![running("a1"), running("w9")];
    assert_eq!(tasks(vec![first, second]), numbered(&["w9", "w10", "a1"]));
    assert_eq!(tasks(vec![]), []);
}

#[test]
fn a_carried_index_stays_when_another_pod_is_gone() {
    let key = "batch.kubernetes.io/job-completion-index";
    let group = vec![indexed("t-2-x", key, "2"), indexed("t-0-y", key, "0")];
    let expected = [(0, "t-0-y".to_owned()), (2, "t-2-x".to_owned())];
    assert_eq!(tasks(vec![group]), expected);
    let set = |name: &str| indexed(name, "statefulset.kubernetes.io/pod-name", name);
    let group = vec![set("db-3"), set("db-11")];
    let expected = [(3, "db-3".to_owned()), (11, "db-11".to_owned())];
    assert_eq!(tasks(vec![group]), expected);
}

#[test]
fn an_index_counts_only_where_all_pods_carry_one() {
    let group = vec![
        indexed("b", "apps.kubernetes.io/pod-index", "7"),
        running("a"),
    ];
    assert_eq!(tasks(vec![group]), numbered(&["a", "b"]));
}

/// As the pods of a group of a LeaderWorkerSet have them: the leader is a pod of a StatefulSet of
/// all leaders.
#[test]
fn a_place_in_a_group_counts_before_that_among_all_leaders() {
    let of_group = |name: &str, ordinal: &str, place: &str| {
        let labels = json!({
            "apps.kubernetes.io/pod-index": ordinal,
            "leaderworkerset.sigs.k8s.io/worker-index": place,
        });
        pod(name, "Running", labels)
    };
    let group = vec![of_group("x-1", "1", "0"), of_group("x-1-1", "1", "1")];
    assert_eq!(tasks(vec![group]), numbered(&["x-1", "x-1-1"]));
}

#[test]
fn two_pods_with_one_index_are_named() {
    let key = "apps.kubernetes.io/pod-index";
    let group = vec![indexed("a-0", key, "0"), indexed("b-0", key, "0")];
    assert_eq!(
        arrange("worker", vec![group]),
        Err(ServiceError::PodIndexTwice {
            job: "worker".to_owned(),
            index: 0,
            first: "ns/a-0".to_owned(),
            second: "ns/b-0".to_owned(),
        })
    );
}

#[test]
fn finished_and_ending_pods_have_no_part_and_waiting_ones_are_an_error() {
    let ending = read(json!({
        "metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }));
    let done = [
        pod("a", "Succeeded", json!({})),
        pod("b", "Failed", json!({})),
        ending,
    ];
    let group = done.into_iter().chain([running("c")]).collect();
    assert_eq!(tasks(vec![group]), numbered(&["c"]));
    for phase in ["Pending", "Unknown", ""] {
        let refused = arrange("worker", vec![vec![pod("p", phase, json!({}))]]);
        let (pod, phase) = ("ns/p".to_owned(), phase.to_owned());
        assert_eq!(refused, Err(ServiceError::PodNotRunning { pod, phase }));
    }
}

#[test]
fn the_pod_s_own_address_counts_unless_it_uses_its_host_s() {
    let address = |value: Value| {
        let pods = arrange("w", vec![vec![read(value)]])?;
        Ok::<_, ServiceError>(pods[0].address(1))
    };
    let value = |status: Value, host_network| {
        let mut status = status;
        status["phase"] = json!("Running");
        json!({
            "metadata": {"name": "p"}, "status": status, "spec": {"hostNetwork": host_network},
        })
    };
    let both = json!({"podIP": "fd00::7", "hostIP": "10.0.0.1"});
    assert_eq!(address(value(both, false)).as_deref(), Ok("[fd00::7]:1"));
    let host = json!({"hostIP": "10.0.0.1"});
    assert_eq!(
        address(value(host.clone(), true)).as_deref(),
        Ok("10.0.0.1:1")
    );
    let refused = address(value(host, false));
    assert_eq!(
        refused,
        Err(ServiceError::PodWithoutAddress {
            pod: "p".to_owned()
        })
    );
}

#[test]
fn what_is_no_pod_is_refused_by_field() {
    for (value, place) in [
        (json!({}), "metadata.name"),
        (json!({"metadata": {"name": ""}}), "metadata.name"),
        (
            json!({"metadata": {"name": "p"}, "status": {"phase": 3}}),
            "status.phase",
        ),
        (
            json!({"metadata": {"name": "p", "labels": {"apps.kubernetes.io/pod-index": "x"}}}),
            "metadata.labels.apps.kubernetes.io/pod-index",
        ),
    ] {
        let refused = Pod::read(&Answer::new("http://k8s", &value));
        let Err(ServiceError::Field { field, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(field, place);
    }
}

proptest! {
    #[test]
    fn the_order_of_the_answer_does_not_matter(mut names in proptest::collection::vec("[a-b]-?[0-9]{1,2}", 0..8)) {
        names.sort();
        names.dedup();
        let forward: Vec<_> = names.iter().map(|name| running(name)).collect();
        let backward = forward.iter().rev().cloned().collect();
        prop_assert_eq!(tasks(vec![forward]), tasks(vec![backward]));
    }
}
