//! Which TPU a program and its environment mean.

use super::*;
use crate::address::AddressProblem;

fn found(tpu: Option<&str>, variables: &[(&str, &str)]) -> Result<TpuTarget, Error> {
    let given = Given {
        tpu: tpu.map(str::to_owned),
        project: Some("p".to_owned()),
        zone: None,
    };
    let variables = Variables::fixed(variables.iter().copied());
    find(&given, &variables, &mut Explanation::default())
}

fn node(project: Option<&str>, zone: Option<&str>, name: &str) -> Result<TpuTarget, Error> {
    Ok(TpuTarget::Named(TpuName {
        project: project.map(str::to_owned),
        zone: zone.map(str::to_owned),
        kind: TpuKind::Node,
        name: name.to_owned(),
    }))
}

fn at(addresses: &[&str]) -> Result<TpuTarget, Error> {
    Ok(TpuTarget::Addresses(
        addresses.iter().map(ToString::to_string).collect(),
    ))
}

const KUBE: (&str, &str) = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://10.0.0.1:1");
const NAME: (&str, &str) = ("TPU_NAME", "t1");
const HOSTS: (&str, &str) = ("TPU_WORKER_HOSTNAMES", "t-0.svc,t-1.svc");

#[test]
fn the_program_comes_before_the_environment_and_that_has_an_order() {
    let config = (
        "TPU_CONFIG",
        r#"{"tpu_node_name": "c", "project": "q", "zone": "z"}"#,
    );
    let all = [KUBE, NAME, config, HOSTS];
    assert_eq!(found(Some("own"), &all), node(Some("p"), None, "own"));
    assert_eq!(found(None, &all), at(&["10.0.0.1:1"]));
    assert_eq!(found(None, &all[1..]), node(Some("p"), None, "t1"));
    assert_eq!(found(None, &all[2..]), node(Some("p"), Some("z"), "c"));
    assert_eq!(
        found(None, &all[3..]),
        at(&["t-0.svc:8470", "t-1.svc:8470"])
    );
    assert_eq!(found(None, &[]), Err(ServiceError::TpuUnnamed.into()));
}

#[test]
fn an_empty_name_counts_as_none() {
    assert_eq!(found(Some(""), &[NAME]), node(Some("p"), None, "t1"));
    let empty = [("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", ""), NAME];
    assert_eq!(found(None, &empty), node(Some("p"), None, "t1"));
    let nothing = [("TPU_NAME", ""), ("TPU_CONFIG", "")];
    assert_eq!(found(None, &nothing), Err(ServiceError::TpuUnnamed.into()));
}

#[test]
fn local_is_local_however_it_is_said_and_only_in_small_letters() {
    assert_eq!(found(Some("local"), &[KUBE]), Ok(TpuTarget::Local));
    assert_eq!(found(None, &[("TPU_NAME", "local")]), Ok(TpuTarget::Local));
    assert_eq!(found(Some("LOCAL"), &[]), node(Some("p"), None, "LOCAL"));
}

#[test]
fn addresses_keep_their_order_and_get_a_port() {
    let check = |text, expected: &[&str]| assert_eq!(found(Some(text), &[]), at(expected));
    check("grpc://a", &["a:8470"]);
    check("grpc://a:1, grpc://b:2,c", &["a:1", "b:2", "c:8470"]);
    check("grpc://[::1]:5,grpc://::2", &["[::1]:5", "[::2]:8470"]);
    assert_eq!(
        found(Some("GRPC://a:1"), &[]),
        node(Some("p"), None, "GRPC://a:1")
    );
}

#[test]
fn addresses_that_nobody_can_connect_to_are_refused() {
    let refused = |text: &str, address: &str, problem| {
        let address = address.to_owned();
        let error = ServiceError::TpuAddress { address, problem };
        assert_eq!(found(Some(text), &[]), Err(error.into()));
    };
    refused("grpc://", "grpc://", AddressProblem::NoHost);
    refused("grpc://a,,b", "", AddressProblem::NoHost);
    refused("grpc://a:1:2", "grpc://a:1:2", AddressProblem::Unbracketed);
    let port = "x".to_owned();
    refused("grpc://a:x", "grpc://a:x", AddressProblem::Port { port });
}

#[test]
fn whole_paths_name_nodes_and_queued_resources() {
    let path = "projects/q/locations/z/nodes/n";
    assert_eq!(found(Some(path), &[]), node(Some("q"), Some("z"), "n"));
    let queued = |text| match found(Some(text), &[]) {
        Ok(TpuTarget::Named(name)) => (name.kind(), name.name, name.project),
        other => panic!("{other:?}"),
    };
    let kind = TpuKind::QueuedResource;
    let path = "projects/q/locations/z/queuedResources/r";
    assert_eq!(queued(path), (kind, "r".to_owned(), Some("q".to_owned())));
    assert_eq!(
        queued("queuedResources/r"),
        (kind, "r".to_owned(), Some("p".to_owned()))
    );
    let strange = "projects/q/locations/z/things/n";
    assert_eq!(found(Some(strange), &[]), node(Some("p"), None, strange));
}

#[test]
fn a_malformed_tpu_config_is_refused_with_what_it_lacks() {
    let refused = |text: &str, lacks: &'static str| {
        let error = ServiceError::Variable {
            variable: "TPU_CONFIG",
            found: text.to_owned(),
            expected: lacks,
        };
        assert_eq!(found(None, &[("TPU_CONFIG", text)]), Err(error.into()));
    };
    refused("{", "a JSON object");
    refused("[]", "a JSON object");
    refused("null", "a JSON object");
    refused(r#"{"project": "p"}"#, "a JSON object with a tpu_node_name");
    refused(
        r#"{"tpu_node_name": 1}"#,
        "a JSON object whose tpu_node_name is a text",
    );
    refused(
        r#"{"tpu_node_name": "a", "zone": []}"#,
        "a JSON object whose zone is a text",
    );
    assert_eq!(
        found(None, &[("TPU_CONFIG", "{}")]),
        Err(ServiceError::TpuUnnamed.into())
    );
}
