//! Whose rights the questions have.

use std::fs;
use std::path::Path;
use std::process::Command;

use meshwork_cluster_resolver::{
    ClusterResolver, CredentialsProblem, Error, GoogleCredentials, ServiceError, Variables,
};
use meshwork_testing::Need;
use serde_json::json;

use super::cloud::{Cloud, TOKEN, five_machines, group};
use crate::loopback::{Loopback, Reply};

#[track_caller]
fn problem(file: &Path) -> CredentialsProblem {
    let resolver = group(&Cloud::default().start());
    match resolver
        .with_credentials(GoogleCredentials::file(file))
        .cluster_spec()
    {
        Err(Error::Service(ServiceError::Credentials {
            problem,
            source_name,
        })) => {
            assert_eq!(source_name, file.display().to_string());
            problem
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_is_no_credentials_is_named_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.json");
    let missing = CredentialsProblem::Unreadable(std::io::ErrorKind::NotFound);
    assert_eq!(problem(&file), missing);
    for (content, expected) in [
        ("{", CredentialsProblem::NotJson),
        ("{\"type\": \"magic\"}", CredentialsProblem::UnknownKind),
        (
            "{\"type\": \"service_account\"}",
            CredentialsProblem::Malformed,
        ),
    ] {
        fs::write(&file, content).unwrap();
        assert_eq!(problem(&file), expected, "{content}");
    }
}

#[test]
fn a_user_s_refresh_token_is_exchanged_for_a_token() {
    let issuer = Loopback::start(|_| {
        Reply::json(&json!({
            "access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer",
        }))
        .with_header("Content-Type", "application/json")
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("application_default_credentials.json");
    let content = json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "s",
        "refresh_token": "r", "token_uri": issuer.url(),
    });
    fs::write(&file, content.to_string()).unwrap();
    let server = five_machines().start();
    let config = ("CLOUDSDK_CONFIG", folder.path().display().to_string());
    let resolver = group(&server).with_variables(Variables::fixed([config]));
    assert_eq!(resolver.cluster_spec().unwrap().num_tasks("worker"), Ok(4));
    let asked = issuer.asked();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].body.contains("refresh_token"), "{}", asked[0].body);

    let deaf = five_machines().start_broken("/", Reply::status(401, "{}"));
    let refused = json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "s",
        "refresh_token": "r", "token_uri": deaf.url(),
    });
    fs::write(&file, refused.to_string()).unwrap();
    assert_eq!(problem(&file), CredentialsProblem::Rejected);
}

#[test]
fn a_service_account_s_key_signs_a_token_of_its_own() {
    let key = Command::new("openssl")
        .args(["genpkey", "-algorithm", "RSA"])
        .output();
    let Some(key) = Need::Openssl.or_skip(key) else {
        return;
    };
    assert!(key.status.success(), "{key:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.json");
    let content = json!({
        "type": "service_account", "project_id": "p", "private_key_id": "k",
        "client_email": "sa@p.iam.gserviceaccount.com",
        "private_key": String::from_utf8(key.stdout).unwrap(),
    });
    fs::write(&file, content.to_string()).unwrap();
    let server = Loopback::start(|_| Reply::text("{}"));
    let resolver = group(&server).with_credentials(GoogleCredentials::file(&file));
    resolver.cluster_spec().unwrap();
    let asked = server.asked();
    let token = asked[0]
        .header("authorization")
        .unwrap()
        .strip_prefix("Bearer ")
        .unwrap();
    assert_eq!((asked.len(), token.split('.').count()), (1, 3));
}

#[test]
fn a_machine_without_an_account_is_told_by_the_metadata_server() {
    let server = five_machines().start_broken("/token", Reply::status(404, "no account"));
    let error = group(&server).cluster_spec().unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Service(ServiceError::Refused { status: 404, .. })
        ),
        "{error}"
    );
    let odd = five_machines().start_broken("/token", Reply::text("{\"access_token\": 7}"));
    let error = group(&odd).cluster_spec().unwrap_err();
    assert!(error.to_string().contains("not shown"), "{error}");
}

#[test]
fn stand_ins_may_be_asked_by_nobody() {
    let server = Loopback::start(|_| Reply::text("{}"));
    let resolver = group(&server).with_credentials(GoogleCredentials::anonymous());
    resolver.cluster_spec().unwrap();
    assert_eq!(server.asked()[0].header("authorization"), None);
}
